//! Why a batch was refused.

use crate::limits::{JOB_CELLS_MAX, JOB_ITEMS_MAX, JOB_VALUES_MAX};
use crate::program::Type;

/// Why a batch was refused. Grids count from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// It has no item.
    #[error("the batch has no item")]
    Empty,
    /// It has more items than [`JOB_ITEMS_MAX`].
    #[error("the batch has {items} items; a job has at most {JOB_ITEMS_MAX}")]
    Items {
        /// Items given.
        items: usize,
    },
    /// Its items are not what the program takes.
    #[error("the program takes {wants}, the batch has {has}")]
    ItemType {
        /// Of the program.
        wants: Type,
        /// Of the batch.
        has: Type,
    },
    /// It has more cells than [`JOB_CELLS_MAX`].
    #[error("the batch has {cells} cells; a job has at most {JOB_CELLS_MAX}")]
    Cells {
        /// Cells given.
        cells: u64,
    },
    /// The results of its items may have more values than [`JOB_VALUES_MAX`].
    #[error(
        "the result has {values} values; a job has at most {JOB_VALUES_MAX}: submit fewer items at once"
    )]
    Values {
        /// Values of all items.
        values: usize,
    },
    /// The results of its items may have more cells than [`JOB_CELLS_MAX`].
    #[error(
        "the result may need room for {cells} cells; a job has at most {JOB_CELLS_MAX}: submit fewer items at once"
    )]
    Room {
        /// Cells of all results at most.
        cells: u64,
    },
    /// The memory is not as long as its layout.
    #[error("the batch lies in {got} bytes; {want} are needed")]
    Bytes {
        /// Bytes given.
        got: usize,
        /// Bytes that the layout takes.
        want: usize,
    },
    /// A shape has a zero side or too many cells.
    #[error("grid {grid}: {h} x {w} cells are out of bounds")]
    Shape {
        /// The grid.
        grid: usize,
        /// Its rows.
        h: u8,
        /// Its columns.
        w: u8,
    },
    /// An offset is not where the grids before it end.
    #[error("grid {grid}: its cells start at {got}; the grids before it end at {want}")]
    Offset {
        /// The grid; the number of grids for the end of the last one.
        grid: usize,
        /// What the table says.
        got: u32,
        /// What the shapes say.
        want: u32,
    },
    /// Its writer was given other grids than were announced.
    #[error("the batch was announced with {want} grids; {got} were written")]
    Grids {
        /// Grids written, or one more than announced.
        got: usize,
        /// Grids announced.
        want: usize,
    },
    /// Its writer was given more cells than were announced.
    #[error("the batch was announced with at most {want} cells; {got} were to be written")]
    Full {
        /// Cells of the grids up to the first that does not fit.
        got: u64,
        /// Cells announced.
        want: usize,
    },
    /// A grid has other cells than its shape says.
    #[error("grid {grid}: {cells} cells do not make a grid of {h} x {w}")]
    Length {
        /// The grid.
        grid: usize,
        /// Cells given.
        cells: usize,
        /// Its rows.
        h: u8,
        /// Its columns.
        w: u8,
    },
}
