//! One result as a block of lines: a grid in colour, objects with their numbers, values on a line.
//!
//! Owns what a result looks like. May not know inputs or jobs.

use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::{ItemError, Object, Output};

use super::block::{Block, Line};
use super::paint::{self, Brush};
use super::{Look, OBJECTS_SHOWN_MAX};

/// Columns of one cell of a grid.
const CELL_COLUMNS: usize = 2;

/// One cell of a picture: what stands in it and its colour.
type Cell = (String, Option<u8>);

/// The result of one item under its title.
pub(super) fn of(title: &str, item: &Result<Output, ItemError>, look: Look) -> Block {
    match item {
        Ok(Output::Colors(colors)) => vec![palette(title, colors, look)],
        Ok(Output::Grid(grid)) => grid_block(title, grid, look),
        Ok(Output::Number(number)) => vec![format!("{title}: {number}").into()],
        Ok(Output::Objects(objects)) => objects_block(title, objects, look),
        Err(error) => vec![format!("{title}: {} in {error}", error.code.name()).into()],
    }
}

fn palette(title: &str, colors: &[u8], look: Look) -> Line {
    let mut brush = Brush::new(look.color);
    brush.put(&format!("{title}:"), None);
    for &color in colors {
        brush.put(&format!("{color:>CELL_COLUMNS$}"), Some(color));
    }
    brush.finish()
}

fn grid_block(title: &str, grid: &Grid, look: Look) -> Block {
    let cell = |&color: &u8| (format!("{color:>CELL_COLUMNS$}"), Some(color));
    let mut block = vec![title.to_owned().into()];
    block.extend(grid.rows().map(|row| picture_row(row.iter().map(cell), CELL_COLUMNS, look)));
    block
}

/// One row of cells, cut with `…` where the screen ends.
fn picture_row(cells: impl ExactSizeIterator<Item = Cell>, columns: usize, look: Look) -> Line {
    let fit = look.columns / columns;
    let shown = if cells.len() <= fit { cells.len() } else { fit.saturating_sub(1) };
    let cut = shown < cells.len();
    let mut brush = Brush::new(look.color);
    for (text, color) in cells.take(shown) {
        brush.put(&text, color);
    }
    if cut {
        brush.put("…", None);
    }
    brush.finish()
}

/// The picture of all objects, every cell showing its object's number, and a line for each object.
/// The picture ends with the last row and column that an object reaches.
fn objects_block(title: &str, objects: &[Object], look: Look) -> Block {
    let plural = if objects.len() == 1 { "object" } else { "objects" };
    let mut block = vec![format!("{title}: {} {plural}", objects.len()).into()];
    let columns = CELL_COLUMNS.max(1 + objects.len().to_string().len());
    for row in labelled(objects, columns) {
        block.push(picture_row(row.into_iter(), columns, look));
    }
    let shown = objects.len().min(look.at_most(OBJECTS_SHOWN_MAX));
    for (number, object) in (1..).zip(&objects[..shown]) {
        block.push(format!("{number}: {}", describe(object)).into());
    }
    if shown < objects.len() {
        block.push(format!("… {} more objects", objects.len() - shown).into());
    }
    block
}

fn labelled(objects: &[Object], columns: usize) -> Vec<Vec<Cell>> {
    let cells = || objects.iter().flatten();
    let h = cells().map(|cell| usize::from(cell.row) + 1).max().unwrap_or(0);
    let w = cells().map(|cell| usize::from(cell.col) + 1).max().unwrap_or(0);
    let mut rows = vec![vec![(format!("{:>columns$}", '·'), None); w]; h];
    for (number, object) in (1..).zip(objects) {
        for cell in object {
            let place = &mut rows[usize::from(cell.row)][usize::from(cell.col)];
            *place = (format!("{number:>columns$}"), Some(cell.color));
        }
    }
    rows
}

/// `blue, grey: 12 cells, rows 0 to 3, columns 2 to 4`.
fn describe(object: &Object) -> String {
    let mut colors: Vec<u8> = object.iter().map(|cell| cell.color).collect();
    colors.sort_unstable();
    colors.dedup();
    let colors: Vec<&str> = colors.into_iter().map(paint::name).collect();
    let cells = object.len();
    let plural = if cells == 1 { "cell" } else { "cells" };
    let rows = span("row", object.iter().map(|cell| cell.row));
    let columns = span("column", object.iter().map(|cell| cell.col));
    format!("{}: {cells} {plural}, {rows}, {columns}", colors.join(", "))
}

/// `rows 0 to 3`, or `row 2` for one.
fn span(word: &str, places: impl Iterator<Item = u8> + Clone) -> String {
    let (from, to) = (places.clone().min().unwrap_or(0), places.max().unwrap_or(0));
    if from == to { format!("{word} {from}") } else { format!("{word}s {from} to {to}") }
}
