//! Primitives that change the colours of a grid's cells.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::Opcode;
use gridpool_protocol::solver::value::{Grid, Value, Vector};

use super::measures::most_color;
use super::patches::shifted;
use super::support::{Ends, cells, columns, grid, grid_color, number, of_cells, places, vector};

/// The cells of a grid that are being painted.
struct Canvas {
    height: usize,
    width: usize,
    cells: Vec<i8>,
}

impl Canvas {
    fn of(a: &Value) -> Ends<Self> {
        let grid: &Grid = grid(a)?;
        columns(grid)?;
        Ok(Self { height: grid.height(), width: grid.width(), cells: grid.cells().to_vec() })
    }

    /// The cell at a place, if it is on the grid.
    fn cell(&mut self, [row, col]: Vector) -> Option<&mut i8> {
        let (row, col) = (usize::try_from(row).ok()?, usize::try_from(col).ok()?);
        (row < self.height && col < self.width).then(|| &mut self.cells[row * self.width + col])
    }

    fn done(self) -> Ends {
        of_cells(self.height, self.width, self.cells)
    }
}

/// The colour at the places, or only where the grid has the colour `under`.
fn filled(a: &Value, color: i64, patch: &Value, under: Option<i32>) -> Ends {
    let mut canvas = Canvas::of(a)?;
    for place in places(patch)? {
        if let Some(cell) = canvas.cell(place)
            && under.is_none_or(|under| i32::from(*cell) == under)
        {
            *cell = grid_color(color)?;
        }
    }
    canvas.done()
}

/// The cells in order, or only where the grid has the colour `under` at that moment.
fn painted(a: &Value, object: &Value, under: Option<i32>) -> Ends {
    let mut canvas = Canvas::of(a)?;
    for painted in cells(object) {
        let (color, place) = painted?;
        if let Some(cell) = canvas.cell(place)
            && under.is_none_or(|under| i32::from(*cell) == under)
        {
            *cell = grid_color(i64::from(color))?;
        }
    }
    canvas.done()
}

fn covered(a: &Value, patch: &Value, ties: Ties) -> Ends {
    let color = most_color(a, ties)?;
    filled(a, i64::from(color), patch, None)
}

/// The grid with its colours changed.
fn recolored(a: &Value, to: impl Fn(i64) -> i64) -> Ends {
    let grid = grid(a)?;
    let cells = grid.cells().iter().map(|cell| grid_color(to(i64::from(*cell))));
    of_cells(grid.height(), grid.width(), cells.collect::<Ends<Vec<_>>>()?)
}

/// The primitives of this family; `None` if the opcode is of another.
pub(super) fn run(op: Opcode, a: &Value, b: &Value, c: &Value, ties: Ties) -> Option<Ends> {
    let numbers = || -> Ends<(i64, i64)> { Ok((number(b)?, number(c)?)) };
    Some(match op {
        Opcode::Replace => numbers()
            .and_then(|(old, new)| recolored(a, |cell| if cell == old { new } else { cell })),
        Opcode::Switch => numbers().and_then(|(one, two)| {
            recolored(a, |cell| match cell {
                cell if cell == two => one,
                cell if cell == one => two,
                cell => cell,
            })
        }),
        Opcode::Fill => number(b).and_then(|color| filled(a, color, c, None)),
        Opcode::Paint => painted(a, b, None),
        Opcode::UnderFill => number(b).and_then(|color| {
            let under = most_color(a, ties)?;
            filled(a, color, c, Some(under))
        }),
        Opcode::UnderPaint => most_color(a, ties).and_then(|under| painted(a, b, Some(under))),
        Opcode::Cover => covered(a, b, ties),
        Opcode::Move => vector(c).and_then(|by| {
            if matches!(a, Value::Grid(grid) if grid.height() == 0) {
                return Err(ItemErrorCode::EmptyArg);
            }
            painted(&covered(a, b, ties)?, &shifted(b, by)?, None)
        }),
        _ => return None,
    })
}
