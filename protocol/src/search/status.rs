//! What a verdict says of one pair.

use crate::limits::GRID_CELLS_MAX;
use crate::output::ItemErrorCode;

/// How a program ended on a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairStatus {
    /// Its result is the expected grid.
    Equal,
    /// It has another result.
    Differs,
    /// It ended with an error.
    Error(ItemErrorCode),
    /// Its bytes are no program of the machine: the worker did not run them.
    NoProgram,
}

impl PairStatus {
    /// The byte of [`PairStatus::Equal`].
    pub const EQUAL: u8 = 0;
    /// The byte of [`PairStatus::Differs`]; those of errors are [`ItemErrorCode`]s.
    pub const DIFFERS: u8 = 200;
    /// The byte of [`PairStatus::NoProgram`].
    pub const NO_PROGRAM: u8 = 201;
    /// All bytes up to this one are statuses.
    const LAST_ERROR: u8 = ItemErrorCode::ALL[ItemErrorCode::ALL.len() - 1] as u8;

    /// Its byte in a result.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Self::Equal => Self::EQUAL,
            Self::Differs => Self::DIFFERS,
            Self::Error(code) => code as u8,
            Self::NoProgram => Self::NO_PROGRAM,
        }
    }

    /// The status of a byte; `None` if there is none.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            Self::EQUAL => Some(Self::Equal),
            Self::DIFFERS => Some(Self::Differs),
            Self::NO_PROGRAM => Some(Self::NoProgram),
            code => ItemErrorCode::from_byte(code).map(Self::Error),
        }
    }

    /// Whether each byte is that of a status.
    #[must_use]
    pub fn are_known(bytes: &[u8]) -> bool {
        // Two ranges, which the processor compares with many bytes side by side.
        let is_known = |byte: u8| {
            byte <= Self::LAST_ERROR || (Self::DIFFERS..=Self::NO_PROGRAM).contains(&byte)
        };
        bytes.iter().fold(true, |all, byte| all & is_known(*byte))
    }

    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Differs => "differs",
            Self::Error(code) => code.name(),
            Self::NoProgram => "no_program",
        }
    }
}

/// How much of a result is as expected. An error has no equal shape and no equal cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellScore {
    /// Whether it has the expected rows and columns.
    pub equal_shape: bool,
    /// Places that both grids have, with equal colours.
    pub equal_cells: u16,
}

impl CellScore {
    /// The bit of an equal shape.
    pub const SHAPE: u16 = 1 << 15;

    /// Its number in a result.
    #[must_use]
    pub fn number(self) -> u16 {
        self.equal_cells | if self.equal_shape { Self::SHAPE } else { 0 }
    }

    /// The score of a number; `None` if no grid has so many cells.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        let equal_cells = number & !Self::SHAPE;
        let equal_shape = number != equal_cells;
        let fits = usize::from(equal_cells) <= GRID_CELLS_MAX;
        fits.then_some(Self { equal_shape, equal_cells })
    }
}
