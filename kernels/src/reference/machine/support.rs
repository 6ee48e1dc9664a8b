//! What primitives share: checked results, places, boxes.

use gridpool_protocol::limits::{GRID_CELLS_MAX, MACHINE_COLOR_MAX, MACHINE_COLOR_MIN, SIDE_MAX};
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::solver::value::{Grid, NO_VECTOR, NOTHING, Value, Vector};

/// A result, or the error that ends the item.
pub(super) type Ends<T = Value> = Result<T, ItemErrorCode>;

/// A number argument; `BadType` if it is nothing.
pub(super) fn number(value: &Value) -> Ends<i64> {
    match value {
        Value::Number(number) if *number != NOTHING => Ok(i64::from(*number)),
        _ => Err(ItemErrorCode::BadType),
    }
}

/// A vector argument; `BadType` if it is nothing.
pub(super) fn vector(value: &Value) -> Ends<[i64; 2]> {
    match value {
        Value::Vector(halves) if *halves != NO_VECTOR => Ok(halves.map(i64::from)),
        _ => Err(ItemErrorCode::BadType),
    }
}

/// A grid argument.
pub(super) fn grid(value: &Value) -> Ends<&Grid> {
    match value {
        Value::Grid(grid) => Ok(grid),
        _ => Err(ItemErrorCode::BadType),
    }
}

/// Whether a condition holds. Nothing does not.
pub(super) fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Number(0 | NOTHING))
}

/// A flag.
pub(super) fn flag(flag: bool) -> Value {
    Value::Number(flag.into())
}

/// A number that fits.
pub(super) fn to_number(number: i64) -> Ends {
    let fits = i32::try_from(number).ok().filter(|number| *number != NOTHING);
    fits.map(Value::Number).ok_or(ItemErrorCode::Overflow)
}

/// The number of some things.
pub(super) fn count(things: usize) -> Ends {
    to_number(i64::try_from(things).unwrap_or(i64::MAX))
}

/// Two halves that fit.
pub(super) fn halves([row, col]: [i64; 2]) -> Ends<Vector> {
    let half = |number: i64| i16::try_from(number).map_err(|_| ItemErrorCode::Overflow);
    let halves = [half(row)?, half(col)?];
    if halves == NO_VECTOR { Err(ItemErrorCode::Overflow) } else { Ok(halves) }
}

/// A vector that fits.
pub(super) fn to_vector(at: [i64; 2]) -> Ends {
    halves(at).map(Value::Vector)
}

/// A color of a cell of an object.
pub(super) fn cell_color(number: i64) -> Ends<i16> {
    i16::try_from(number).map_err(|_| ItemErrorCode::Overflow)
}

/// A color of a cell of a grid.
pub(super) fn grid_color(number: i64) -> Ends<i8> {
    let fits = (i64::from(MACHINE_COLOR_MIN)..=i64::from(MACHINE_COLOR_MAX)).contains(&number);
    let color = i8::try_from(number).ok().filter(|_| fits);
    color.ok_or(ItemErrorCode::Overflow)
}

/// The set of these values.
pub(super) fn to_set(values: Vec<Value>) -> Ends {
    Value::set(values).ok_or(ItemErrorCode::Overflow)
}

/// The tuple of these values.
pub(super) fn to_tuple(values: Vec<Value>) -> Ends {
    Value::tuple(values).ok_or(ItemErrorCode::Overflow)
}

/// The set of these places.
pub(super) fn patch(places: impl IntoIterator<Item = [i64; 2]>) -> Ends {
    let places: Ends<Vec<_>> = places.into_iter().map(to_vector).collect();
    to_set(places?)
}

/// A grid of these sides, filled by a function of row and column.
pub(super) fn made(
    height: usize,
    width: usize,
    mut cell: impl FnMut(usize, usize) -> Ends<i8>,
) -> Ends {
    if height > SIDE_MAX || height > 0 && width > SIDE_MAX || height * width > GRID_CELLS_MAX {
        return Err(ItemErrorCode::Overflow);
    }
    let mut cells = Vec::with_capacity(height * width);
    for row in 0..height {
        for col in 0..width {
            cells.push(cell(row, col)?);
        }
    }
    of_cells(height, width, cells)
}

/// The grid of these cells, row by row.
pub(super) fn of_cells(height: usize, width: usize, cells: Vec<i8>) -> Ends {
    let grid = Grid::new(height, width, cells).ok_or(ItemErrorCode::Overflow)?;
    Ok(Value::Grid(grid.into()))
}

/// The columns of a grid; `EmptyArg` if it has no rows.
pub(super) fn columns(grid: &Grid) -> Ends<usize> {
    if grid.height() == 0 { Err(ItemErrorCode::EmptyArg) } else { Ok(grid.width()) }
}

/// The place of an element of a patch or an object.
pub(super) fn place_of(value: &Value) -> Ends<Vector> {
    match value {
        Value::Vector(place) | Value::Cell(_, place) if *place != NO_VECTOR => Ok(*place),
        Value::Vector(_) | Value::Cell(..) => Err(ItemErrorCode::BadType),
        Value::Number(_) | Value::Grid(_) | Value::Pair(_) | Value::Set(_) | Value::Tuple(_) => {
            Err(ItemErrorCode::BadType)
        }
    }
}

/// The places of a patch or an object, ascending, each once.
pub(super) fn places(patch: &Value) -> Ends<Vec<Vector>> {
    let places: Ends<Vec<_>> = patch.elements().iter().map(place_of).collect();
    let mut places = places?;
    if !places.is_sorted() {
        places.sort_unstable();
    }
    places.dedup();
    Ok(places)
}

/// The cells of an object.
pub(super) fn cells(object: &Value) -> impl Iterator<Item = Ends<(i16, Vector)>> {
    object.elements().iter().map(|cell| match cell {
        Value::Cell(color, place) => Ok((*color, *place)),
        _ => Err(ItemErrorCode::BadType),
    })
}

/// The first and last rows and columns of some places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) top: i64,
    pub(super) left: i64,
    pub(super) bottom: i64,
    pub(super) right: i64,
}

impl Frame {
    /// The box of a patch; `None` if it is empty.
    pub(super) fn of(patch: &Value) -> Ends<Option<Self>> {
        let mut frame: Option<Self> = None;
        for element in patch.elements() {
            let [row, col] = place_of(element)?.map(i64::from);
            let grown = frame.get_or_insert(Self { top: row, left: col, bottom: row, right: col });
            grown.top = grown.top.min(row);
            grown.bottom = grown.bottom.max(row);
            grown.left = grown.left.min(col);
            grown.right = grown.right.max(col);
        }
        Ok(frame)
    }

    /// The box of a patch; `EmptyArg` if it is empty.
    pub(super) fn needed(patch: &Value) -> Ends<Self> {
        Self::of(patch)?.ok_or(ItemErrorCode::EmptyArg)
    }

    pub(super) fn height(self) -> i64 {
        self.bottom - self.top + 1
    }

    pub(super) fn width(self) -> i64 {
        self.right - self.left + 1
    }

    /// Its outline, row by row.
    pub(super) fn outline(self) -> Ends {
        let Self { top, left, bottom, right } = self;
        let edge =
            move |row: i64, col: i64| row == top || row == bottom || col == left || col == right;
        let rows = (top..=bottom).flat_map(move |row| (left..=right).map(move |col| [row, col]));
        patch(rows.filter(move |[row, col]| edge(*row, *col)))
    }

    /// All its places, row by row.
    pub(super) fn area(self) -> Ends {
        let Self { top, left, bottom, right } = self;
        let area = self.height().saturating_mul(self.width());
        if area > i64::from(gridpool_protocol::limits::VALUE_WEIGHT_MAX) {
            return Err(ItemErrorCode::Overflow);
        }
        patch((top..=bottom).flat_map(move |row| (left..=right).map(move |col| [row, col])))
    }
}
