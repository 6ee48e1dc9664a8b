//! The decoded result of an item.

use crate::grid::Grid;
use crate::limits::{GRID_CELLS_MAX, SIDE_MAX};
use crate::program::{Program, Step};

/// Why one item has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ItemErrorCode {
    /// A cell of the input is not a colour. Only a client that writes its arena itself can cause this.
    BadCell = 1,
    /// The pair has no output.
    MissingOutput = 2,
    /// The result would have more than [`GRID_CELLS_MAX`] cells, or a side over [`SIDE_MAX`].
    Overflow = 3,
    /// The argument is empty: a grid without cells, a patch without places, a list without objects.
    EmptyArg = 4,
    /// The window starts above or left of the grid.
    BadCrop = 5,
    /// The list has no object of that number.
    BadIndex = 6,
    /// The grids do not fit each other.
    BadShape = 7,
    /// A value is not what the op needs, though its kind is: nothing in place of a number.
    BadType = 8,
    /// A number is outside of what the op takes, such as a divisor of 0.
    BadNumber = 9,
    /// The item has run as many steps as it may.
    StepLimit = 10,
}

impl ItemErrorCode {
    /// All codes.
    pub const ALL: [Self; 10] = [
        Self::BadCell,
        Self::MissingOutput,
        Self::Overflow,
        Self::EmptyArg,
        Self::BadCrop,
        Self::BadIndex,
        Self::BadShape,
        Self::BadType,
        Self::BadNumber,
        Self::StepLimit,
    ];

    /// The code's name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadCell => "BadCell",
            Self::MissingOutput => "MissingOutput",
            Self::Overflow => "Overflow",
            Self::EmptyArg => "EmptyArg",
            Self::BadCrop => "BadCrop",
            Self::BadIndex => "BadIndex",
            Self::BadShape => "BadShape",
            Self::BadType => "BadType",
            Self::BadNumber => "BadNumber",
            Self::StepLimit => "StepLimit",
        }
    }

    /// One sentence.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::BadCell => "a cell is not a colour from 0 to 9".to_owned(),
            Self::MissingOutput => "the pair has no output grid".to_owned(),
            Self::Overflow => {
                format!(
                    "the result would have over {GRID_CELLS_MAX} cells or a side over {SIDE_MAX}"
                )
            }
            Self::EmptyArg => {
                "there is nothing to work on: the value before it is empty".to_owned()
            }
            Self::BadCrop => "the patch starts above or left of the grid".to_owned(),
            Self::BadIndex => "the list has no object of that number".to_owned(),
            Self::BadShape => "the grids do not fit each other".to_owned(),
            Self::BadType => {
                "a value is nothing, or does not fit, where the op needs one".to_owned()
            }
            Self::BadNumber => "a number is outside of what the op takes".to_owned(),
            Self::StepLimit => "the item has run as many steps as it may".to_owned(),
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&code| code as u8 == byte)
    }
}

/// The error of one item. It does not affect other items.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {message}")]
pub struct ItemError {
    /// The kind of error.
    pub code: ItemErrorCode,
    /// The op that failed, or `input`.
    pub op: String,
    /// One sentence.
    pub message: String,
}

impl ItemError {
    /// The error of an item of a chain with this status, its code and its op; `None` if there is no such code. A
    /// status of 0 is success, and has none.
    #[must_use]
    pub fn in_chain(program: &Program, [code, at]: [u8; 2]) -> Option<Self> {
        let code = ItemErrorCode::from_byte(code)?;
        let step = program.steps().get(usize::from(at));
        let op = step.map_or_else(|| "input".to_owned(), Step::to_string);
        Some(Self { code, op, message: code.message() })
    }
}

/// One cell of an object. Objects may leave the grid: rows and columns may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectCell {
    /// Its colour.
    pub color: u8,
    /// Its row, from 0.
    pub row: i32,
    /// Its column, from 0.
    pub col: i32,
}

/// The cells of one object, row-major.
pub type Object = Vec<ObjectCell>;

/// One place of a patch. Patches may leave the grid: rows and columns may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PatchCell {
    /// Its row, from 0.
    pub row: i32,
    /// Its column, from 0.
    pub col: i32,
}

/// The result of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A list of colours.
    Colors(Vec<u8>),
    /// True or false.
    Flag(bool),
    /// A grid, which may be empty.
    Grid(Grid),
    /// A number.
    Number(i32),
    /// Coloured cells.
    Object(Object),
    /// Objects in canonical order.
    Objects(Vec<Object>),
    /// Places, row-major.
    Patch(Vec<PatchCell>),
    /// One value for each element.
    Tuple(Vec<Self>),
    /// A solver's value that is no grid, and its kind.
    Value(crate::solver::Kind, crate::solver::value::Value),
    /// A row and a column.
    Vector {
        /// Rows down.
        row: i32,
        /// Columns to the right.
        col: i32,
    },
}
