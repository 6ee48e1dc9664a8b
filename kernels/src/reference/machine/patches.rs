//! Primitives that make patches and objects.

use gridpool_protocol::limits::{PERIODS_MAX, VALUE_WEIGHT_MAX};
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::solver::value::{Grid, Value};
use gridpool_protocol::solver::{Kind, Opcode};

use super::support::{
    Ends, Frame, cell_color, cells, columns, grid, halves, number, patch, place_of, places,
    to_number, to_set, to_vector, vector,
};

/// Places of a frontier.
const FRONTIER: i64 = 30;
/// How many times its direction a shot goes.
const SHOT: i64 = 42;

/// Each element moved; a tuple becomes a set.
pub(super) fn shifted(patch: &Value, [rows, cols]: [i64; 2]) -> Ends {
    moved(patch, |[row, col]| [row + rows, col + cols])
}

/// Each element with its place put elsewhere; a tuple becomes a set.
pub(super) fn moved(patch: &Value, to: impl Fn([i64; 2]) -> [i64; 2]) -> Ends {
    let mut values = Vec::with_capacity(patch.elements().len());
    for element in patch.elements() {
        let place = halves(to(place_of(element)?.map(i64::from)))?;
        values.push(match element {
            Value::Cell(color, _) => Value::Cell(*color, place),
            _ => Value::Vector(place),
        });
    }
    to_set(values)
}

/// Moved so that its box begins at (0, 0).
pub(super) fn normalized(patch: &Value) -> Ends {
    match Frame::of(patch)? {
        Some(frame) => shifted(patch, [-frame.top, -frame.left]),
        None => to_set(Vec::new()),
    }
}

/// The cells of a grid, row by row, of which `is_kept` is told colour and place.
pub(super) fn cells_of(grid: &Grid, is_kept: impl Fn(i8) -> bool) -> Ends<Vec<Value>> {
    let mut cells = Vec::new();
    for (row, colors) in (0..).zip(grid.rows()) {
        for (col, color) in (0..).zip(colors) {
            if is_kept(*color) {
                cells.push(Value::Cell(i16::from(*color), halves([row, col])?));
            }
        }
    }
    Ok(cells)
}

fn as_places(cells: Vec<Value>) -> Ends {
    let places = cells.into_iter().map(|cell| place_of(&cell).map(Value::Vector));
    to_set(places.collect::<Ends<Vec<_>>>()?)
}

fn of_color(a: &Value, color: &Value) -> Ends {
    let grid = grid(a)?;
    as_places(cells_of(grid, |cell| Value::Number(i32::from(cell)) == *color)?)
}

/// Whether it is a tuple of vectors.
pub(super) fn is_in_a_row(patch: &Value) -> bool {
    matches!(patch, Value::Tuple(_))
        && patch.elements().iter().all(|element| matches!(element, Value::Vector(_)))
}

fn to_indices(patch: &Value, gives: &Kind) -> Ends {
    if matches!(gives, Kind::Tuple(_)) {
        return Ok(patch.clone());
    }
    to_set(places(patch)?.into_iter().map(Value::Vector).collect())
}

fn to_object(patch: &Value, within: &Value) -> Ends {
    let grid = grid(within)?;
    columns(grid)?;
    let mut cells = Vec::new();
    for place in places(patch)? {
        let [row, col] = place.map(i64::from);
        if let Some(color) = grid.get(row, col) {
            cells.push(Value::Cell(i16::from(color), place));
        }
    }
    to_set(cells)
}

fn recolored(color: &Value, patch: &Value) -> Ends {
    let color = number(color)?;
    let mut cells = Vec::new();
    for place in places(patch)? {
        cells.push(Value::Cell(cell_color(color)?, place));
    }
    to_set(cells)
}

/// The places on the line between two places.
fn connected([row, col]: [i64; 2], [other, beside]: [i64; 2]) -> Ends {
    let (rows, cols) = (other - row, beside - col);
    if rows != 0 && cols != 0 && rows.abs() != cols.abs() {
        return to_set(Vec::new());
    }
    let length = rows.abs().max(cols.abs());
    if length >= i64::from(VALUE_WEIGHT_MAX) {
        return Err(ItemErrorCode::Overflow);
    }
    patch((0..=length).map(|at| [row + at * rows.signum(), col + at * cols.signum()]))
}

fn beside(at: &Value, steps: &[[i64; 2]]) -> Ends {
    let [row, col] = vector(at)?;
    patch(steps.iter().map(|[rows, cols]| [row + rows, col + cols]))
}

const STRAIGHT: [[i64; 2]; 4] = [[-1, 0], [1, 0], [0, -1], [0, 1]];
const DIAGONAL: [[i64; 2]; 4] = [[-1, -1], [-1, 1], [1, -1], [1, 1]];

fn corners(of: &Value) -> Ends {
    let Frame { top, left, bottom, right } = Frame::needed(of)?;
    patch([[top, left], [top, right], [bottom, left], [bottom, right]])
}

/// The outline of the box, grown by `by` on each side. Sides that change places are put right.
fn outline(of: &Value, by: i64) -> Ends {
    let Frame { top, left, bottom, right } = Frame::needed(of)?;
    let (rows, cols) = ([top - by, bottom + by], [left - by, right + by]);
    let frame = Frame {
        top: rows[0].min(rows[1]),
        bottom: rows[0].max(rows[1]),
        left: cols[0].min(cols[1]),
        right: cols[0].max(cols[1]),
    };
    frame.outline()
}

fn backdrop(of: &Value) -> Ends {
    match Frame::of(of)? {
        Some(frame) => frame.area(),
        None => to_set(Vec::new()),
    }
}

fn delta(of: &Value) -> Ends {
    let (area, taken) = (backdrop(of)?, places(of)?);
    let free = area
        .elements()
        .iter()
        .filter(|place| place_of(place).is_ok_and(|place| taken.binary_search(&place).is_err()));
    to_set(free.cloned().collect())
}

/// Where the object lies on the grid.
fn occurrences(a: &Value, object: &Value) -> Ends {
    let grid = grid(a)?;
    let width = i64::try_from(columns(grid)?).unwrap_or(i64::MAX);
    let height = i64::try_from(grid.height()).unwrap_or(i64::MAX);
    let normal = normalized(object)?;
    let sides = [super::measures::height(object)?, super::measures::width(object)?];
    let object: Vec<_> = cells(&normal).collect::<Ends<_>>()?;
    let fits = |[row, col]: &[i64; 2]| {
        object.iter().all(|(color, place)| {
            let [rows, cols] = place.map(i64::from);
            grid.get(row + rows, col + cols).is_some_and(|cell| i16::from(cell) == *color)
        })
    };
    let starts = (0..height - sides[0] + 1)
        .flat_map(|row| (0..width - sides[1] + 1).map(move |col| [row, col]));
    patch(starts.filter(fits))
}

/// The least shift along half 0 (rows) or 1 (columns) that puts what stays in range onto itself.
fn period(object: &Value, half: usize) -> Ends {
    let normal = normalized(object)?;
    let sides = Frame::of(&normal)?.map_or([0, 0], |frame| [frame.height(), frame.width()]);
    let all: std::collections::BTreeSet<_> = cells(&normal).collect::<Ends<_>>()?;
    if usize::try_from(sides[half]).is_ok_and(|side| all.len().saturating_mul(side) > PERIODS_MAX) {
        return Err(ItemErrorCode::Overflow);
    }
    let fits = |period: &i64| {
        all.iter().all(|(color, place)| {
            let mut moved = *place;
            let to = i64::from(moved[half]) - period;
            let Ok(to) = i16::try_from(to) else { return false };
            moved[half] = to;
            to < 0 || all.contains(&(*color, moved))
        })
    };
    to_number((1..sides[half]).find(fits).unwrap_or(sides[half]))
}

/// The primitives of this family; `None` if the opcode is of another.
pub(super) fn run(op: Opcode, a: &Value, b: &Value, gives: &Kind) -> Option<Ends> {
    Some(match op {
        Opcode::AsIndices => grid(a).and_then(|grid| as_places(cells_of(grid, |_| true)?)),
        Opcode::AsObject => grid(a).and_then(|grid| to_set(cells_of(grid, |_| true)?)),
        Opcode::OfColor => of_color(a, b),
        Opcode::ToIndices => to_indices(a, gives),
        Opcode::ToObject => to_object(a, b),
        Opcode::Recolor => recolored(a, b),
        Opcode::Shift => vector(b).and_then(|by| shifted(a, by)),
        Opcode::Normalize => normalized(a),
        Opcode::Occurrences => occurrences(a, b),
        Opcode::HPeriod => period(a, 1),
        Opcode::VPeriod => period(a, 0),
        Opcode::DNeighbors => beside(a, &STRAIGHT),
        Opcode::INeighbors => beside(a, &DIAGONAL),
        Opcode::Neighbors => beside(a, &[STRAIGHT, DIAGONAL].concat()),
        Opcode::Connect => vector(a).and_then(|a| connected(a, vector(b)?)),
        Opcode::Shoot => vector(a).and_then(|[row, col]| {
            let [rows, cols] = vector(b)?;
            let end = to_vector([row + SHOT * rows, col + SHOT * cols])?;
            connected([row, col], vector(&end)?)
        }),
        Opcode::HFrontier => {
            vector(a).and_then(|[row, _]| patch((0..FRONTIER).map(|col| [row, col])))
        }
        Opcode::VFrontier => {
            vector(a).and_then(|[_, col]| patch((0..FRONTIER).map(|row| [row, col])))
        }
        Opcode::Corners => corners(a),
        Opcode::Backdrop => backdrop(a),
        Opcode::Delta => delta(a),
        Opcode::BoxOf if a.elements().is_empty() => to_set(Vec::new()),
        Opcode::BoxOf => outline(a, 0),
        Opcode::InBox => outline(a, -1),
        Opcode::OutBox => outline(a, 1),
        _ => return None,
    })
}
