//! Objects that lie in grids: components, one for each colour, and lines of one colour.

use gridpool_protocol::program::{Grouping, Ties};
use gridpool_protocol::solver::Opcode;
use gridpool_protocol::solver::value::{Grid, Value};

use super::measures::most_color;
use super::patches::cells_of;
use super::support::{Ends, columns, grid, is_true, to_set};
use crate::reference::label::Labeler;

/// The components of a grid.
fn components(of: &Value, grouping: Grouping, ties: Ties) -> Ends {
    let background = if grouping.without_bg { Some(most_color(of, ties)?) } else { None };
    let grid = grid(of)?;
    columns(grid)?;
    let byte = |color: &i8| color.cast_unsigned();
    let colors: Vec<u8> = grid.cells().iter().map(byte).collect();
    let background =
        background.and_then(|color| i8::try_from(color).ok()).map(|color| byte(&color));
    let side = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
    let shape = [side(grid.height()), side(grid.width())];
    let mut labels = vec![0; colors.len()];
    let count = Labeler::default().label(grouping, background, shape, &colors, &mut labels);
    gathered(grid, usize::from(count), &labels)
}

/// One object for each label from 1.
fn gathered(grid: &Grid, count: usize, labels: &[u16]) -> Ends {
    let mut objects: Vec<Vec<Value>> = vec![Vec::new(); count];
    for (cell, label) in cells_of(grid, |_| true)?.into_iter().zip(labels) {
        if let Some(object) = usize::from(*label).checked_sub(1).and_then(|at| objects.get_mut(at))
        {
            object.push(cell);
        }
    }
    to_set(objects.into_iter().map(to_set).collect::<Ends<Vec<_>>>()?)
}

/// One object for each colour but one.
fn by_color(of: &Value, left_out: Option<i32>) -> Ends {
    let grid = grid(of)?;
    let mut colors = grid.cells().to_vec();
    colors.sort_unstable();
    colors.dedup();
    colors.retain(|color| Some(i32::from(*color)) != left_out);
    let objects = colors.into_iter().map(|color| to_set(cells_of(grid, |cell| cell == color)?));
    to_set(objects.collect::<Ends<Vec<_>>>()?)
}

/// Whether all cells of a line have one colour. A line without cells has none.
pub(super) fn is_uniform(line: impl Iterator<Item = i8>) -> bool {
    let mut line = line.peekable();
    let first = line.peek().copied();
    first.is_some_and(|first| line.all(|cell| cell == first))
}

/// The cells of one column.
pub(super) fn column(grid: &Grid, col: usize) -> impl Iterator<Item = i8> {
    grid.rows().map(move |row| row[col])
}

fn frontiers(of: &Value) -> Ends {
    let grid = grid(of)?;
    let width = columns(grid)?;
    let cells = cells_of(grid, |_| true)?;
    let mut lines = Vec::new();
    for (at, row) in grid.rows().enumerate() {
        if is_uniform(row.iter().copied()) {
            lines.push(to_set(cells[at * width..(at + 1) * width].to_vec())?);
        }
    }
    for at in 0..width {
        if is_uniform(column(grid, at)) {
            lines.push(to_set(cells[at..].iter().step_by(width).cloned().collect())?);
        }
    }
    to_set(lines)
}

/// The primitives of this family; `None` if the opcode is of another.
pub(super) fn run(op: Opcode, [a, b, c, d]: [&Value; 4], ties: Ties) -> Option<Ends> {
    Some(match op {
        Opcode::Objects => {
            let [univalued, diagonal, without_bg] = [b, c, d].map(is_true);
            components(a, Grouping { univalued, diagonal, without_bg }, ties)
        }
        Opcode::Partition => by_color(a, None),
        Opcode::FgPartition => most_color(a, ties).and_then(|color| by_color(a, Some(color))),
        Opcode::Frontiers => frontiers(a),
        _ => return None,
    })
}
