//! Arithmetic and conditions.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::solver::Opcode;
use gridpool_protocol::solver::value::Value;

use super::support::{Ends, flag, is_true, number, to_number, to_tuple, to_vector, vector};
use gridpool_protocol::limits::VALUE_WEIGHT_MAX;

/// Both numbers, or both halves of vectors; a number counts for both halves.
pub(super) fn two(a: &Value, b: &Value, of: impl Fn(i64, i64) -> Ends<i64>) -> Ends {
    match (a, b) {
        (Value::Vector(_), Value::Vector(_)) => {
            let ([a, c], [b, d]) = (vector(a)?, vector(b)?);
            to_vector([of(a, b)?, of(c, d)?])
        }
        (Value::Vector(_), _) => {
            let ([a, c], b) = (vector(a)?, number(b)?);
            to_vector([of(a, b)?, of(c, b)?])
        }
        (_, Value::Vector(_)) => {
            let (a, [b, d]) = (number(a)?, vector(b)?);
            to_vector([of(a, b)?, of(a, d)?])
        }
        (_, _) => {
            let (a, b) = (number(a)?, number(b)?);
            to_number(of(a, b)?)
        }
    }
}

/// A number, or both halves of a vector.
pub(super) fn one(n: &Value, of: impl Fn(i64) -> i64) -> Ends {
    match n {
        Value::Vector(_) => to_vector(vector(n)?.map(of)),
        _ => to_number(of(number(n)?)),
    }
}

/// Rounded towards minus infinity.
pub(super) fn floor_divided(a: i64, b: i64) -> Ends<i64> {
    if b == 0 {
        return Err(ItemErrorCode::BadNumber);
    }
    let rounds_down = a % b != 0 && (a < 0) != (b < 0);
    Ok(a / b - i64::from(rounds_down))
}

/// The numbers from start by step, stop not included.
pub(super) fn interval(start: i64, stop: i64, step: i64) -> Ends {
    if step == 0 {
        return Err(ItemErrorCode::BadNumber);
    }
    let (mut at, mut numbers) = (start, Vec::new());
    while if step > 0 { at < stop } else { at > stop } {
        if numbers.len() >= VALUE_WEIGHT_MAX as usize {
            return Err(ItemErrorCode::Overflow);
        }
        numbers.push(to_number(at)?);
        at += step;
    }
    to_tuple(numbers)
}

/// The primitives of this family; `None` if the opcode is of another.
pub(super) fn run(op: Opcode, a: &Value, b: &Value, c: &Value) -> Option<Ends> {
    let sign = |x: i64| x.signum();
    Some(match op {
        Opcode::Add => two(a, b, |a, b| Ok(a + b)),
        Opcode::Subtract => two(a, b, |a, b| Ok(a - b)),
        Opcode::Multiply => two(a, b, |a, b| Ok(a * b)),
        Opcode::Divide => two(a, b, floor_divided),
        Opcode::Invert => one(a, |n| -n),
        Opcode::Double => one(a, |n| 2 * n),
        Opcode::Halve => one(a, |n| n.div_euclid(2)),
        Opcode::Increment => one(a, |n| n + 1),
        Opcode::Decrement => one(a, |n| n - 1),
        Opcode::Crement => one(a, |n| n + sign(n)),
        Opcode::Sign => one(a, sign),
        Opcode::ToIVec => number(a).and_then(|i| to_vector([i, 0])),
        Opcode::ToJVec => number(a).and_then(|j| to_vector([0, j])),
        Opcode::Interval => numbers_of(a, b, c).and_then(|[a, b, c]| interval(a, b, c)),
        Opcode::Greater => number(a).and_then(|a| Ok(flag(a > number(b)?))),
        Opcode::Even => number(a).map(|n| flag(n % 2 == 0)),
        Opcode::Positive => number(a).map(|n| flag(n > 0)),
        Opcode::Flip => Ok(flag(!is_true(a))),
        Opcode::Both => Ok(if is_true(a) { b.clone() } else { a.clone() }),
        Opcode::Either => Ok(if is_true(a) { a.clone() } else { b.clone() }),
        Opcode::Equality => Ok(flag(a == b)),
        _ => return None,
    })
}

fn numbers_of(a: &Value, b: &Value, c: &Value) -> Ends<[i64; 3]> {
    Ok([number(a)?, number(b)?, number(c)?])
}
