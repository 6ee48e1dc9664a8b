//! Colours and measures of grids, objects and patches, and of two patches beside each other.

use gridpool_protocol::limits::DISTANCES_MAX;
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::Opcode;
use gridpool_protocol::solver::value::{NO_VECTOR, NOTHING, Value, Vector};

use super::containers::first_half;
use super::numbers::floor_divided;
use super::patches::{is_in_a_row, shifted};
use super::support::{
    Ends, Frame, cells, columns, count, flag, grid, place_of, places, to_number, to_set, to_vector,
    vector,
};
use super::ties::{common_color, rare_color};

/// Most steps of `gravitate`.
const GRAVITATE_MAX: i64 = 42;

/// The colours of the cells of a grid or an object, in order.
pub(super) fn colors(element: &Value) -> Ends<Vec<i32>> {
    if let Value::Grid(grid) = element {
        return Ok(grid.cells().iter().copied().map(i32::from).collect());
    }
    cells(element).map(|cell| cell.map(|(color, _)| i32::from(color))).collect()
}

/// The commonest colour; `EmptyArg` if there is no cell.
pub(super) fn most_color(element: &Value, ties: Ties) -> Ends<i32> {
    common_color(colors(element)?.into_iter(), ties).ok_or(ItemErrorCode::EmptyArg)
}

fn palette(element: &Value) -> Ends {
    let mut colors = colors(element)?;
    colors.sort_unstable();
    colors.dedup();
    to_set(colors.into_iter().map(Value::Number).collect())
}

/// Rows of a grid or of the box of a set; of a tuple its length.
pub(super) fn height(piece: &Value) -> Ends<i64> {
    match piece {
        Value::Grid(grid) => length(grid.height()),
        Value::Tuple(_) => length(piece.elements().len()),
        _ => Ok(Frame::of(piece)?.map_or(0, Frame::height)),
    }
}

/// Columns of a grid or of the box of a set; of a tuple the two halves of its first element.
pub(super) fn width(piece: &Value) -> Ends<i64> {
    match piece {
        Value::Grid(grid) => length(grid.width()),
        Value::Tuple(_) => Ok(if piece.elements().is_empty() { 0 } else { 2 }),
        _ => Ok(Frame::of(piece)?.map_or(0, Frame::width)),
    }
}

fn length(of: usize) -> Ends<i64> {
    i64::try_from(of).map_err(|_| ItemErrorCode::Overflow)
}

fn square(piece: &Value) -> Ends {
    let is_square = match piece {
        Value::Grid(grid) => grid.height() == columns(grid)?,
        Value::Tuple(_) if piece.elements().is_empty() => return Err(ItemErrorCode::EmptyArg),
        Value::Tuple(_) => piece.elements().len() == 2,
        _ => {
            let (height, width) = (height(piece)?, width(piece)?);
            height * width == length(piece.elements().len())? && height == width
        }
    };
    Ok(flag(is_square))
}

/// The upper left corner plus half of height and width.
fn center(patch: &Value) -> Ends<[i64; 2]> {
    let frame = Frame::needed(patch)?;
    Ok([frame.top + height(patch)? / 2, frame.left + width(patch)? / 2])
}

/// The centre of `toindices`: a tuple of vectors stays one.
fn center_of_places(patch: &Value) -> Ends<[i64; 2]> {
    if is_in_a_row(patch) {
        return center(patch);
    }
    center(&to_set(places(patch)?.into_iter().map(Value::Vector).collect())?)
}

fn center_of_mass(patch: &Value) -> Ends {
    let size = length(patch.elements().len())?;
    if size == 0 {
        return Ok(Value::Vector(NO_VECTOR));
    }
    let [mut rows, mut cols] = [0, 0];
    let all = match patch {
        Value::Tuple(_) if matches!(patch.elements().first(), Some(Value::Vector(_))) => {
            patch.elements().iter().map(place_of).collect::<Ends<Vec<_>>>()?
        }
        _ => places(patch)?,
    };
    for [row, col] in all {
        rows += i64::from(row);
        cols += i64::from(col);
    }
    to_vector([floor_divided(rows, size)?, floor_divided(cols, size)?])
}

fn index(a: &Value, b: &Value) -> Ends {
    let (grid, [row, col]) = (grid(a)?, vector(b)?);
    columns(grid)?;
    Ok(Value::Number(grid.get(row, col).map_or(NOTHING, i32::from)))
}

fn color_count(element: &Value, color: &Value) -> Ends {
    let Value::Number(color) = color else { return Err(ItemErrorCode::BadType) };
    count(colors(element)?.iter().filter(|other| *other == color).count())
}

fn color(of: &Value) -> Ends {
    if let Value::Grid(grid) = of {
        let first = grid.cells().first().ok_or(ItemErrorCode::EmptyArg)?;
        return Ok(Value::Number(i32::from(*first)));
    }
    first_half(of).map(Value::Number)
}

/// Whether both have a cell in one row (half 0) or column (half 1).
fn matching(a: &Value, b: &Value, half: usize) -> Ends<bool> {
    let lines = |patch: &Value| -> Ends<std::collections::BTreeSet<i16>> {
        Ok(places(patch)?.into_iter().map(|place| place[half]).collect())
    };
    Ok(!lines(a)?.is_disjoint(&lines(b)?))
}

/// The least distance between places of both.
fn manhattan(a: &Value, b: &Value) -> Ends<i64> {
    let (a, b) = (places(a)?, places(b)?);
    if a.len().saturating_mul(b.len()) > DISTANCES_MAX {
        return Err(ItemErrorCode::Overflow);
    }
    least_distance(&a, &b).ok_or(ItemErrorCode::EmptyArg)
}

fn least_distance(a: &[Vector], b: &[Vector]) -> Option<i64> {
    let mut least = None;
    for [row, col] in a {
        for [other, beside] in b {
            let rows = (i64::from(*row) - i64::from(*other)).abs();
            let cols = (i64::from(*col) - i64::from(*beside)).abs();
            let distance = rows + cols;
            if least.is_none_or(|least| distance < least) {
                least = Some(distance);
            }
        }
    }
    least
}

fn bordering(patch: &Value, within: &Value) -> Ends<bool> {
    let (frame, grid) = (Frame::needed(patch)?, grid(within)?);
    if frame.top == 0 || frame.left == 0 || frame.bottom == length(grid.height())? - 1 {
        return Ok(true);
    }
    Ok(frame.right == length(columns(grid)?)? - 1)
}

fn position(a: &Value, b: &Value) -> Ends {
    let ([row, col], [other, beside]) = (center_of_places(a)?, center_of_places(b)?);
    let right = if col < beside { 1 } else { -1 };
    let down = if row < other { 1 } else { -1 };
    to_vector(if row == other {
        [0, right]
    } else if col == beside {
        [down, 0]
    } else {
        [down, right]
    })
}

fn gravitate(source: &Value, destination: &Value) -> Ends {
    let ([row, col], [other, beside]) = (center(source)?, center(destination)?);
    let step = if matching(source, destination, 1)? {
        [if row < other { 1 } else { -1 }, 0]
    } else {
        [0, if col < beside { 1 } else { -1 }]
    };
    let mut gone = step;
    let mut moved = source.clone();
    let mut steps = 0;
    while manhattan(&moved, destination)? != 1 && steps < GRAVITATE_MAX {
        steps += 1;
        gone = [gone[0] + step[0], gone[1] + step[1]];
        moved = shifted(&moved, step)?;
    }
    to_vector([gone[0] - step[0], gone[1] - step[1]])
}

/// The primitives of this family; `None` if the opcode is of another.
pub(super) fn run(op: Opcode, a: &Value, b: &Value, ties: Ties) -> Option<Ends> {
    let needed = |of: fn(Frame) -> i64| Frame::needed(a).and_then(|frame| to_number(of(frame)));
    let corner = |of: fn(Frame) -> [i64; 2]| match Frame::of(a)? {
        Some(frame) => to_vector(of(frame)),
        None => Ok(Value::Vector(NO_VECTOR)),
    };
    let shape = || Ok((height(a)?, width(a)?));
    let size = || length(a.elements().len());
    Some(match op {
        Opcode::MostColor => most_color(a, ties).map(Value::Number),
        Opcode::LeastColor => colors(a).and_then(|colors| {
            let rarest = rare_color(colors.into_iter(), ties);
            rarest.map(Value::Number).ok_or(ItemErrorCode::EmptyArg)
        }),
        Opcode::ColorCount => color_count(a, b),
        Opcode::Palette => palette(a),
        Opcode::NumColors => palette(a).and_then(|palette| count(palette.elements().len())),
        Opcode::Color => color(a),
        Opcode::Height => height(a).and_then(to_number),
        Opcode::Width => width(a).and_then(to_number),
        Opcode::Shape => shape().and_then(|(height, width)| to_vector([height, width])),
        Opcode::Portrait => shape().map(|(height, width)| flag(height > width)),
        Opcode::Square => square(a),
        Opcode::VLine => {
            shape().and_then(|(height, width)| Ok(flag(height == size()? && width == 1)))
        }
        Opcode::HLine => {
            shape().and_then(|(height, width)| Ok(flag(width == size()? && height == 1)))
        }
        Opcode::Uppermost => needed(|frame| frame.top),
        Opcode::Lowermost => needed(|frame| frame.bottom),
        Opcode::Leftmost => needed(|frame| frame.left),
        Opcode::Rightmost => needed(|frame| frame.right),
        Opcode::UlCorner => corner(|frame| [frame.top, frame.left]),
        Opcode::UrCorner => corner(|frame| [frame.top, frame.right]),
        Opcode::LlCorner => corner(|frame| [frame.bottom, frame.left]),
        Opcode::LrCorner => corner(|frame| [frame.bottom, frame.right]),
        Opcode::Center => center(a).and_then(to_vector),
        Opcode::CenterOfMass => center_of_mass(a),
        Opcode::Index => index(a, b),
        Opcode::HMatching => matching(a, b, 0).map(flag),
        Opcode::VMatching => matching(a, b, 1).map(flag),
        Opcode::Manhattan => manhattan(a, b).and_then(to_number),
        Opcode::Adjacent => manhattan(a, b).map(|distance| flag(distance == 1)),
        Opcode::Bordering => bordering(a, b).map(flag),
        Opcode::Position => position(a, b),
        Opcode::Gravitate => gravitate(a, b),
        _ => return None,
    })
}
