//! One result as a block of lines: cells as pictures in colour, objects with their numbers, values on a
//! line, a tuple's values side by side. May not know inputs or jobs.

use gridpool_protocol::batch::Grid;
use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::output::{ItemError, Object, ObjectCell, Output};
use gridpool_protocol::solver::value::Value;
use gridpool_protocol::solver::{Kind, Literal};

use super::block::{Block, StyledLine, arrange};
use super::paint::{self, Brush};
use super::{OBJECTS_SHOWN_MAX, Style, counted};
use crate::cli::text::wrap;

/// Columns of one cell of a grid.
const CELL_COLUMNS: usize = 2;

/// Cells farther than this from row and column 0 are not drawn.
const PICTURE_SIDE_MAX: i32 = 64;

/// One cell of a picture: its text and its colour.
type Cell = (String, Option<u8>);

/// The result of one item under its title.
pub(super) fn of(title: &str, item: &Result<Output, ItemError>, style: Style) -> Block {
    match item {
        Ok(output) => value(title, output, style),
        Err(error) => {
            let text = format!("{title}: {} in {error}", error.code.name());
            wrap(&text, style.columns).into_iter().map(StyledLine::from).collect()
        }
    }
}

fn value(title: &str, output: &Output, style: Style) -> Block {
    match output {
        Output::Colors(colors) => vec![palette(title, colors, style)],
        Output::Flag(_) | Output::Number(_) | Output::Vector { .. } => {
            vec![format!("{title}: {}", word(output)).into()]
        }
        Output::Grid(grid) => grid_block(title, grid, style),
        Output::Object(cells) => {
            let cells = cells.iter().map(|&ObjectCell { color, row, col }| {
                ((row, col), (format!("{color:>CELL_COLUMNS$}"), Some(color)))
            });
            cells_block(title, "an empty object", &cells.collect::<Vec<_>>(), style)
        }
        Output::Objects(objects) => objects_block(title, objects, style),
        Output::Patch(places) => {
            let mark = format!("{:>CELL_COLUMNS$}", '#');
            let cells = places.iter().map(|place| ((place.row, place.col), (mark.clone(), None)));
            cells_block(title, "an empty patch", &cells.collect::<Vec<_>>(), style)
        }
        Output::Tuple(values) => tuple_block(title, values, style),
        Output::Value(kind, value) => solved(title, kind, value, style),
    }
}

/// The text of a value that needs no picture; empty for others.
fn word(output: &Output) -> String {
    match output {
        Output::Flag(flag) => flag.to_string(),
        Output::Number(number) => number.to_string(),
        Output::Vector { row, col } => format!("({row}, {col})"),
        Output::Colors(_)
        | Output::Grid(_)
        | Output::Object(_)
        | Output::Objects(_)
        | Output::Patch(_)
        | Output::Tuple(_)
        | Output::Value(..) => String::new(),
    }
}

/// A solver's value: cells as a picture, all else as Python writes it.
fn solved(title: &str, kind: &Kind, value: &Value, style: Style) -> Block {
    let place = |row: i16, col: i16| (i32::from(row), i32::from(col));
    let cells = value.elements().iter().map(|cell| match *cell {
        Value::Cell(color, [row, col]) => {
            let paint = u8::try_from(color).ok().filter(|color| *color <= COLOR_MAX);
            Some((place(row, col), (format!("{color:>CELL_COLUMNS$}"), paint)))
        }
        Value::Vector([row, col]) => {
            Some((place(row, col), (format!("{:>CELL_COLUMNS$}", '#'), None)))
        }
        Value::Number(_) | Value::Grid(_) | Value::Pair(_) | Value::Set(_) | Value::Tuple(_) => {
            None
        }
    });
    let is_picture = *kind == Kind::object() || *kind == Kind::patch();
    let is_near = |(place, _): &((i32, i32), Cell)| {
        place.0.abs() <= PICTURE_SIDE_MAX && place.1.abs() <= PICTURE_SIDE_MAX
    };
    match cells.collect::<Option<Vec<_>>>() {
        Some(cells) if is_picture && cells.iter().all(is_near) => {
            let empty = if *kind == Kind::patch() { "an empty patch" } else { "an empty object" };
            cells_block(title, empty, &cells, style)
        }
        Some(_) | None => {
            let text = format!("{title}: {}", Literal(kind, value));
            wrap(&text, style.columns).into_iter().map(StyledLine::from).collect()
        }
    }
}

/// Texts on one line, or pictures side by side, each under the op that picks it.
fn tuple_block(title: &str, values: &[Output], style: Style) -> Block {
    let words: Vec<String> = values.iter().map(word).collect();
    if words.iter().all(|word| !word.is_empty()) {
        return vec![format!("{title}: {}", words.join(", ")).into()];
    }
    let picked = values.iter().enumerate().map(|(index, output)| {
        let pick = match index {
            0 => "first".to_owned(),
            1 => "second".to_owned(),
            _ => format!("nth({index})"),
        };
        value(&pick, output, style)
    });
    let mut block = vec![title.to_owned().into()];
    block.extend(arrange(&picked.collect::<Vec<_>>(), style.columns));
    block
}

fn palette(title: &str, colors: &[u8], style: Style) -> StyledLine {
    let mut brush = Brush::new(style.colors);
    brush.put(&format!("{title}:"), None);
    for &color in colors {
        brush.put(&format!("{color:>CELL_COLUMNS$}"), Some(color));
    }
    if colors.is_empty() {
        brush.put(" no colour", None);
    }
    brush.finish()
}

fn grid_block(title: &str, grid: &Grid, style: Style) -> Block {
    if grid.is_empty() && grid.h() > 0 {
        let rows = counted(grid.h() as u64, "row");
        return vec![format!("{title}: a grid of {rows} without columns").into()];
    }
    if grid.is_empty() {
        return vec![format!("{title}: an empty grid").into()];
    }
    let cell = |&color: &u8| (format!("{color:>CELL_COLUMNS$}"), Some(color));
    let mut block = vec![title.to_owned().into()];
    block.extend(grid.rows().map(|row| picture_row(row.iter().map(cell), CELL_COLUMNS, style)));
    block
}

/// One row of cells, cut with `…` at the end of the screen.
fn picture_row(
    cells: impl ExactSizeIterator<Item = Cell>,
    columns: usize,
    style: Style,
) -> StyledLine {
    let fit = style.columns / columns;
    let shown = if cells.len() <= fit { cells.len() } else { fit.saturating_sub(1) };
    let cut = shown < cells.len();
    let mut brush = Brush::new(style.colors);
    for (text, color) in cells.take(shown) {
        brush.put(&text, color);
    }
    if cut {
        brush.put("…", None);
    }
    brush.finish()
}

/// The number of cells, the place of their box, then the box.
fn cells_block(title: &str, empty: &str, cells: &[((i32, i32), Cell)], style: Style) -> Block {
    let Some(corner) = corner(cells.iter().map(|(place, _)| *place)) else {
        return vec![format!("{title}: {empty}").into()];
    };
    let (row, column) = corner;
    let mut block = vec![
        format!("{title}: {}", counted(cells.len() as u64, "cell")).into(),
        format!("at row {row}, column {column}").into(),
    ];
    for row in picture(cells.iter().cloned(), corner, CELL_COLUMNS) {
        block.push(picture_row(row.into_iter(), CELL_COLUMNS, style));
    }
    block
}

/// The upper left corner of the box of some places.
fn corner(places: impl Iterator<Item = (i32, i32)>) -> Option<(i32, i32)> {
    places.reduce(|(top, left), (row, column)| (top.min(row), left.min(column)))
}

/// The rows of a picture from `corner` to the last row and column of a cell; a dot stands for no cell.
fn picture(
    cells: impl Iterator<Item = ((i32, i32), Cell)> + Clone,
    (top, left): (i32, i32),
    columns: usize,
) -> Vec<Vec<Cell>> {
    let offset = |from: i32, at: i32| usize::try_from(at - from).expect("no cell is before it");
    let places = || cells.clone().map(|((row, col), _)| (offset(top, row), offset(left, col)));
    let h = places().map(|(row, _)| row + 1).max().unwrap_or(0);
    let w = places().map(|(_, column)| column + 1).max().unwrap_or(0);
    let mut rows = vec![vec![(format!("{:>columns$}", '·'), None); w]; h];
    for ((row, column), cell) in places().zip(cells.map(|(_, cell)| cell)) {
        rows[row][column] = cell;
    }
    rows
}

/// The picture of all objects, from the grid's first cell on, then a line for each object. Every cell shows
/// its object's number.
fn objects_block(title: &str, objects: &[Object], style: Style) -> Block {
    let mut block = vec![format!("{title}: {}", counted(objects.len() as u64, "object")).into()];
    let columns = CELL_COLUMNS.max(1 + objects.len().to_string().len());
    let cells = (1..).zip(objects).flat_map(|(number, object): (u32, _)| {
        object.iter().map(move |&ObjectCell { color, row, col }| {
            ((row, col), (format!("{number:>columns$}"), Some(color)))
        })
    });
    for row in picture(cells, (0, 0), columns) {
        block.push(picture_row(row.into_iter(), columns, style));
    }
    let shown = objects.len().min(style.at_most(OBJECTS_SHOWN_MAX));
    for (number, object) in (1..).zip(&objects[..shown]) {
        block.push(format!("{number}: {}", describe(object)).into());
    }
    if shown < objects.len() {
        block.push(format!("… {} more objects", objects.len() - shown).into());
    }
    block
}

/// `blue, grey: 12 cells, rows 0 to 3, columns 2 to 4`.
fn describe(object: &Object) -> String {
    let mut colors: Vec<u8> = object.iter().map(|cell| cell.color).collect();
    colors.sort_unstable();
    colors.dedup();
    let colors: Vec<&str> = colors.into_iter().map(paint::name).collect();
    let cells = counted(object.len() as u64, "cell");
    let rows = span("row", object.iter().map(|cell| cell.row));
    let columns = span("column", object.iter().map(|cell| cell.col));
    format!("{}: {cells}, {rows}, {columns}", colors.join(", "))
}

/// `rows 0 to 3`, or `row 2` for one.
fn span(word: &str, places: impl Iterator<Item = i32> + Clone) -> String {
    let (from, to) = (places.clone().min().unwrap_or(0), places.max().unwrap_or(0));
    if from == to { format!("{word} {from}") } else { format!("{word}s {from} to {to}") }
}
