//! Why a batch was refused.

use crate::limits::{JOB_CELLS_MAX, JOB_ITEMS_MAX, JOB_VALUES_MAX};

/// Why a batch was refused. Grids count from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// It has no items.
    #[error("the batch has no items")]
    Empty,
    /// It has more items than [`JOB_ITEMS_MAX`].
    #[error("the batch has {items} items; a job has at most {JOB_ITEMS_MAX}")]
    Items {
        /// Items given.
        items: usize,
    },
    /// The program takes other items.
    #[error("the program takes {}, the batch has {}", item(*wants), item(*has))]
    ItemType {
        /// Grids of an item of the program.
        wants: usize,
        /// Grids of an item of the batch.
        has: usize,
    },
    /// It has more cells than [`JOB_CELLS_MAX`].
    #[error("the batch has {cells} cells; a job has at most {JOB_CELLS_MAX}")]
    Cells {
        /// Cells given.
        cells: u64,
    },
    /// The results may have more values than [`JOB_VALUES_MAX`].
    #[error(
        "the result has {values} values; a job has at most {JOB_VALUES_MAX}: submit fewer items at once"
    )]
    Values {
        /// Values of all items.
        values: usize,
    },
    /// The results may have more cells than [`JOB_CELLS_MAX`].
    #[error(
        "the result may have {cells} cells; a job has at most {JOB_CELLS_MAX}: submit fewer items at once"
    )]
    Capacity {
        /// Cells of all results at most.
        cells: u64,
    },
    /// The memory is too short for the layout.
    #[error("the batch has {got} bytes; {want} are needed")]
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
        /// The offset in the table.
        got: u32,
        /// The offset from the shapes.
        want: u32,
    },
    /// The writer got another number of grids than announced.
    #[error("the batch was announced with {want} grids; {got} were written")]
    Grids {
        /// Grids written, or one more than announced.
        got: usize,
        /// Grids announced.
        want: usize,
    },
    /// The writer got more cells than announced.
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

/// The words for an item of `grids` grids.
fn item(grids: usize) -> &'static str {
    if grids == 2 { "a pair of grids" } else { "a grid" }
}
