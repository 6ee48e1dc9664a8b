//! Puts values into other kinds.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::solver::Kind;
use gridpool_protocol::solver::value::{Grid, NO_VECTOR, Value};

use super::support::{Ends, grid_color, made, number, to_set, to_tuple, to_vector};

/// The value in another kind.
pub(super) fn convert(value: &Value, from: &Kind, into: &Kind) -> Ends {
    if from.is_like(into) {
        return Ok(value.clone());
    }
    match into {
        Kind::Place => Ok(value.clone()),
        Kind::Cell if matches!(value, Value::Cell(..)) => Ok(value.clone()),
        Kind::Vector => match value {
            Value::Vector(_) => Ok(value.clone()),
            _ => match value.elements() {
                [row, col] => to_vector([number(row)?, number(col)?]),
                _ => Err(ItemErrorCode::BadType),
            },
        },
        Kind::Grid => to_grid(value),
        Kind::Set(of) => to_set(elements(value, from, of)?),
        Kind::Tuple(of) => to_tuple(elements(value, from, of)?),
        Kind::Pair(of) => match (value, from) {
            (Value::Pair(halves), Kind::Pair(kinds)) => {
                let first = convert(&halves.0, &kinds.0, &of.0)?;
                Ok(Value::Pair((first, convert(&halves.1, &kinds.1, &of.1)?).into()))
            }
            _ => Err(ItemErrorCode::BadType),
        },
        Kind::Cell | Kind::Never | Kind::Flag | Kind::Number => Err(ItemErrorCode::BadType),
    }
}

/// The elements of what can be seen as a container, each in the kind `of`.
fn elements(value: &Value, from: &Kind, of: &Kind) -> Ends<Vec<Value>> {
    match value {
        Value::Set(_) | Value::Tuple(_) => {
            let element = from.element().ok_or(ItemErrorCode::BadType)?;
            value.elements().iter().map(|value| convert(value, element, of)).collect()
        }
        Value::Vector(NO_VECTOR) => Ok(Vec::new()),
        Value::Vector(halves) => {
            Ok(halves.iter().map(|half| Value::Number(i32::from(*half))).collect())
        }
        Value::Grid(grid) => {
            let row = Kind::tuple(Kind::Number);
            rows(grid)?.iter().map(|value| convert(value, &row, of)).collect()
        }
        Value::Pair(halves) => match from {
            Kind::Pair(kinds) => {
                Ok(vec![convert(&halves.0, &kinds.0, of)?, convert(&halves.1, &kinds.1, of)?])
            }
            _ => Err(ItemErrorCode::BadType),
        },
        Value::Number(_) | Value::Cell(..) => Err(ItemErrorCode::BadType),
    }
}

/// The rows of a grid as tuples.
fn rows(grid: &Grid) -> Ends<Vec<Value>> {
    let row =
        |row: &[i8]| to_tuple(row.iter().map(|cell| Value::Number(i32::from(*cell))).collect());
    grid.rows().map(row).collect()
}

/// A grid of rows of numbers.
fn to_grid(value: &Value) -> Ends {
    let rows: Vec<Vec<Value>> = match value {
        Value::Pair(halves) => vec![numbers(&halves.0)?, numbers(&halves.1)?],
        _ => value.elements().iter().map(numbers).collect::<Ends<_>>()?,
    };
    let width = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() != width) {
        return Err(ItemErrorCode::BadShape);
    }
    made(rows.len(), width, |row, col| grid_color(number(&rows[row][col])?))
}

/// The numbers of a row.
fn numbers(row: &Value) -> Ends<Vec<Value>> {
    match row {
        Value::Vector(NO_VECTOR) => Ok(Vec::new()),
        Value::Vector(halves) => {
            Ok(halves.iter().map(|half| Value::Number(i32::from(*half))).collect())
        }
        Value::Tuple(_) => Ok(row.elements().to_vec()),
        _ => Err(ItemErrorCode::BadType),
    }
}
