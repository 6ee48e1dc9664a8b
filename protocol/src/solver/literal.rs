//! A value as Python writes it: tuples, sets and numbers.

use std::fmt;

use super::kind::Kind;
use super::value::{NO_VECTOR, NOTHING, Value};

/// A value of a kind, to be written as a literal of Python. Sets are in canonical order.
#[derive(Clone, Copy, Debug)]
pub struct Literal<'v>(pub &'v Kind, pub &'v Value);

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, value) = *self;
        match (value, kind) {
            (Value::Number(NOTHING), _) => f.write_str("None"),
            (Value::Number(number), Kind::Flag) => {
                f.write_str(if *number == 0 { "False" } else { "True" })
            }
            (Value::Number(number), _) => number.fmt(f),
            (Value::Vector(NO_VECTOR), _) => f.write_str("()"),
            (Value::Vector([row, col]), _) => write!(f, "({row}, {col})"),
            (Value::Cell(color, place), _) => {
                write!(f, "({color}, {})", Literal(&Kind::Vector, &Value::Vector(*place)))
            }
            (Value::Grid(grid), _) => {
                let row = |row: &[i8]| in_brackets(row.iter());
                f.write_str(&in_brackets(grid.rows().map(row)))
            }
            (Value::Pair(halves), Kind::Pair(kinds)) => {
                write!(f, "({}, {})", Literal(&kinds.0, &halves.0), Literal(&kinds.1, &halves.1))
            }
            (Value::Set(_), Kind::Set(_)) if value.elements().is_empty() => {
                f.write_str("frozenset()")
            }
            (Value::Set(_), Kind::Set(of)) => {
                let elements = value.elements().iter().map(|element| Literal(of, element));
                let elements: Vec<_> = elements.map(|element| element.to_string()).collect();
                write!(f, "frozenset({{{}}})", elements.join(", "))
            }
            (Value::Tuple(_), Kind::Tuple(of)) => f.write_str(&in_brackets(
                value.elements().iter().map(|element| Literal(of, element)),
            )),
            // A value is of its kind.
            (Value::Pair(_) | Value::Set(_) | Value::Tuple(_), _) => f.write_str("?"),
        }
    }
}

/// `(1, 2)`; `(1,)` of one.
fn in_brackets<T: fmt::Display>(values: impl Iterator<Item = T>) -> String {
    let values: Vec<_> = values.map(|value| value.to_string()).collect();
    match values.as_slice() {
        [one] => format!("({one},)"),
        _ => format!("({})", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_in_python() {
        let cells = Value::set(vec![Value::Cell(3, [1, 0]), Value::Cell(2, [0, 5])]).unwrap();
        let literal = |kind: &Kind, value: &Value| Literal(kind, value).to_string();
        assert_eq!(literal(&Kind::object(), &cells), "frozenset({(2, (0, 5)), (3, (1, 0))})");
        let one = Value::tuple(vec![Value::Number(1)]).unwrap();
        assert_eq!(literal(&Kind::tuple(Kind::Flag), &one), "(True,)");
        assert_eq!(literal(&Kind::Number, &Value::Number(NOTHING)), "None");
        assert_eq!(literal(&Kind::patch(), &Value::set(vec![]).unwrap()), "frozenset()");
    }
}
