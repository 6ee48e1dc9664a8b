//! Sets and tuples.

use std::cmp::Ordering;

use gridpool_protocol::limits::VALUE_WEIGHT_MAX;
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::value::{NO_VECTOR, Value};
use gridpool_protocol::solver::{Kind, Opcode};

use super::support::{Ends, count, flag, number, to_set, to_tuple};
use super::ties::{commonest, rarest};

/// A container like `like` of these values.
pub(super) fn alike(like: &Value, values: Vec<Value>) -> Ends {
    if matches!(like, Value::Set(_)) { to_set(values) } else { to_tuple(values) }
}

/// Whether a container has a value.
pub(super) fn has(container: &Value, value: &Value) -> bool {
    match container {
        Value::Set(_) => {
            container.elements().binary_search_by(|element| element.canonical(value)).is_ok()
        }
        _ => container.elements().contains(value),
    }
}

/// The pair of two values, of this kind.
pub(super) fn pair(first: &Value, second: &Value, kind: &Kind) -> Ends {
    let half = |value: &Value| i16::try_from(number(value)?).map_err(|_| ItemErrorCode::Overflow);
    match (kind, second) {
        (Kind::Vector, _) => {
            let halves = (number(first)?, number(second)?);
            super::support::to_vector([halves.0, halves.1])
        }
        (Kind::Cell, Value::Vector(place)) => Ok(Value::Cell(half(first)?, *place)),
        _ => {
            let pair = Value::Pair((first.clone(), second.clone()).into());
            if pair.weight() > VALUE_WEIGHT_MAX { Err(ItemErrorCode::Overflow) } else { Ok(pair) }
        }
    }
}

/// The halves of a pair, a cell or a vector.
fn halves(value: &Value) -> Option<(Value, Value)> {
    match value {
        Value::Vector([row, col]) => {
            Some((Value::Number(i32::from(*row)), Value::Number(i32::from(*col))))
        }
        Value::Cell(color, place) => {
            Some((Value::Number(i32::from(*color)), Value::Vector(*place)))
        }
        Value::Pair(halves) => Some(halves.as_ref().clone()),
        Value::Number(_) | Value::Grid(_) | Value::Set(_) | Value::Tuple(_) => None,
    }
}

/// The pairs of elements, `b`'s outside, or the error of too many.
fn product(a: &Value, b: &Value, kind: &Kind) -> Ends {
    let Some(kind) = kind.element() else { return Err(ItemErrorCode::BadType) };
    let (mut pairs, mut weight) = (Vec::new(), 1_u32);
    for b in b.elements() {
        for a in a.elements() {
            let pair = pair(a, b, kind)?;
            weight = weight.saturating_add(pair.weight());
            if weight > VALUE_WEIGHT_MAX {
                return Err(ItemErrorCode::Overflow);
            }
            pairs.push(pair);
        }
    }
    to_set(pairs)
}

/// The elements of all elements.
fn merged(containers: &Value) -> Ends {
    let (mut values, mut weight) = (Vec::new(), 1_u32);
    for container in containers.elements() {
        for value in container.elements() {
            weight = weight.saturating_add(value.weight());
            if weight > VALUE_WEIGHT_MAX {
                return Err(ItemErrorCode::Overflow);
            }
            values.push(value.clone());
        }
    }
    alike(containers, values)
}

/// The extreme element; of none 0, if elements are numbers.
fn extreme(container: &Value, kind: &Kind, which: Ordering) -> Ends {
    let mut elements = container.elements().iter();
    let Some(first) = elements.next() else {
        let is_vector = *kind == Kind::Vector;
        return if is_vector { Err(ItemErrorCode::EmptyArg) } else { Ok(Value::Number(0)) };
    };
    let mut best = first;
    for element in elements {
        let order = element.python(best).ok_or(ItemErrorCode::BadType)?;
        if order == which {
            best = element;
        }
    }
    Ok(best.clone())
}

/// The number or row that stands first in an object or a patch.
pub(super) fn first_half(patch: &Value) -> Ends<i32> {
    match patch.elements().first() {
        Some(Value::Cell(color, _)) => Ok(i32::from(*color)),
        Some(Value::Vector(place)) if *place != NO_VECTOR => Ok(i32::from(place[0])),
        Some(_) => Err(ItemErrorCode::BadType),
        None => Err(ItemErrorCode::EmptyArg),
    }
}

/// What of this family a device knows besides the arguments.
pub(super) struct Known<'k> {
    pub(super) gives: &'k Kind,
    pub(super) ties: Ties,
}

/// The primitives of this family; `None` if the opcode is of another.
pub(super) fn run(op: Opcode, a: &Value, b: &Value, known: &Known<'_>) -> Option<Ends> {
    let empty = ItemErrorCode::EmptyArg;
    Some(match op {
        Opcode::Contained => Ok(flag(has(b, a))),
        Opcode::First | Opcode::Last if *a == Value::Vector(NO_VECTOR) => Err(empty),
        Opcode::Size if *a == Value::Vector(NO_VECTOR) => Ok(Value::Number(0)),
        Opcode::Size => match halves(a) {
            Some(_) => Ok(Value::Number(2)),
            None => count(a.elements().len()),
        },
        Opcode::First => match halves(a) {
            Some((first, _)) => Ok(first),
            None => a.elements().first().cloned().ok_or(empty),
        },
        Opcode::Last => match halves(a) {
            Some((_, last)) => Ok(last),
            None => a.elements().last().cloned().ok_or(empty),
        },
        Opcode::Combine => alike(a, a.elements().iter().chain(b.elements()).cloned().collect()),
        Opcode::Intersection => kept(a, |value| has(b, value)),
        Opcode::Difference => {
            let mut others = b.elements().to_vec();
            others.sort_by(Value::canonical);
            let is_other =
                |value: &Value| others.binary_search_by(|other| other.canonical(value)).is_ok();
            kept(a, |value| !is_other(value))
        }
        Opcode::Insert => to_set(b.elements().iter().chain([a]).cloned().collect()),
        Opcode::Remove => kept(b, |value| value != a),
        Opcode::Other => a.elements().iter().find(|value| *value != b).cloned().ok_or(empty),
        Opcode::InitSet => to_set(vec![a.clone()]),
        Opcode::ToTuple => to_tuple(a.elements().to_vec()),
        Opcode::Dedupe => deduped(a),
        Opcode::Repeat => number(b).and_then(|times| repeated(a, times)),
        Opcode::Merge => merged(a),
        Opcode::Product => product(a, b, known.gives),
        Opcode::PairUp => paired(a, b, known.gives),
        Opcode::Maximum => extreme(a, known.gives, Ordering::Greater),
        Opcode::Minimum => extreme(a, known.gives, Ordering::Less),
        Opcode::MostCommon => commonest(a.elements(), known.ties).ok_or(empty),
        Opcode::LeastCommon => rarest(a.elements(), known.ties).ok_or(empty),
        Opcode::ColorFilter => color_filtered(a, b),
        Opcode::SizeFilter => {
            let sized = |value: &Value| count(value.elements().len()).is_ok_and(|size| size == *b);
            to_set(a.elements().iter().filter(|value| sized(value)).cloned().collect())
        }
        _ => return None,
    })
}

fn kept(container: &Value, is_kept: impl Fn(&Value) -> bool) -> Ends {
    let kept = container.elements().iter().filter(|value| is_kept(value));
    alike(container, kept.cloned().collect())
}

fn deduped(tuple: &Value) -> Ends {
    let elements = tuple.elements();
    let mut order: Vec<usize> = (0..elements.len()).collect();
    order.sort_by(|one, two| elements[*one].canonical(&elements[*two]));
    order.dedup_by(|next, before| elements[*next] == elements[*before]);
    order.sort_unstable();
    to_tuple(order.into_iter().map(|at| elements[at].clone()).collect())
}

fn repeated(value: &Value, times: i64) -> Ends {
    let times = u32::try_from(times.max(0)).map_err(|_| ItemErrorCode::Overflow)?;
    if times.saturating_mul(value.weight()) > VALUE_WEIGHT_MAX {
        return Err(ItemErrorCode::Overflow);
    }
    to_tuple(vec![value.clone(); times as usize])
}

fn paired(a: &Value, b: &Value, kind: &Kind) -> Ends {
    let Some(kind) = kind.element() else { return Err(ItemErrorCode::BadType) };
    let pairs = a.elements().iter().zip(b.elements()).map(|(a, b)| pair(a, b, kind));
    to_tuple(pairs.collect::<Ends<Vec<_>>>()?)
}

fn color_filtered(objects: &Value, color: &Value) -> Ends {
    let mut kept = Vec::new();
    for object in objects.elements() {
        if Value::Number(first_half(object)?) == *color {
            kept.push(object.clone());
        }
    }
    to_set(kept)
}
