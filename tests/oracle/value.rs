//! The values that ops take and give.

use gridpool_protocol::output::{Object, ObjectCell, Output, PatchCell};

use super::cells::{Cells, Place, to_grid};

/// One value between two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Distinct colours in order.
    Colors(Vec<u8>),
    /// True or false.
    Flag(bool),
    /// A grid.
    Grid(Cells),
    /// A whole number.
    Number(i32),
    /// An object.
    Object(Cells),
    /// Objects in canonical order.
    Objects(Vec<Cells>),
    /// Places.
    Patch(Cells),
    /// A row and a column.
    Vector(Place),
}

impl Value {
    /// The value as a client gets it.
    #[must_use]
    pub fn to_output(&self) -> Output {
        match self {
            Self::Colors(colors) => Output::Colors(colors.clone()),
            Self::Flag(flag) => Output::Flag(*flag),
            Self::Grid(cells) => Output::Grid(to_grid(cells)),
            Self::Number(number) => Output::Number(*number),
            Self::Object(cells) => Output::Object(object(cells)),
            Self::Objects(objects) => Output::Objects(objects.iter().map(object).collect()),
            Self::Patch(cells) => {
                let places = cells.keys().map(|&(row, col)| PatchCell { row, col });
                Output::Patch(places.collect())
            }
            Self::Vector((row, col)) => Output::Vector { row: *row, col: *col },
        }
    }
}

fn object(cells: &Cells) -> Object {
    let cell = |(&(row, col), &color)| ObjectCell { color, row, col };
    cells.iter().map(cell).collect()
}
