//! The packed ragged batch: how grids of any shape lie in one piece of memory, without padding.
//!
//! ```text
//! [ shapes: (h, w) as u8, items pairs ] [ offsets: items + 1 u32, little-endian ] [ cells: u8 ]
//! ```
//!
//! Grid `i` is `h * w` cells, row-major, from `offsets[i]`; `offsets[items]` is the number of cells.
//! Each part starts at a multiple of [`PART_ALIGN`] bytes.

use std::ops::Range;

use crate::limits::{GRID_CELLS_MAX, JOB_CELLS_MAX, JOB_ITEMS_MAX};
use crate::shared::SharedSlice;

pub use crate::grid::{Grid, GridError};

/// Every part of a batch or a result starts at a multiple of this many bytes.
pub const PART_ALIGN: usize = 16;

/// Rounds up to the next multiple of [`PART_ALIGN`].
pub(crate) fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(PART_ALIGN)
}

/// Why a batch was refused. Items count from 0.
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
    /// It has more cells than [`JOB_CELLS_MAX`].
    #[error("the batch has {cells} cells; a job has at most {JOB_CELLS_MAX}")]
    Cells {
        /// Cells given.
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
    #[error("item {item}: a grid of {h} x {w} cells is out of bounds")]
    Shape {
        /// The item.
        item: usize,
        /// Its rows.
        h: u8,
        /// Its columns.
        w: u8,
    },
    /// An offset is not where the grids before it end.
    #[error("item {item}: its cells start at {got}; the grids before it end at {want}")]
    Offset {
        /// The item; the number of items for the end of the last one.
        item: usize,
        /// What the table says.
        got: u32,
        /// What the shapes say.
        want: u32,
    },
}

/// Where the parts of a batch lie, from two numbers that are within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    items: u32,
    cells: u32,
}

impl BatchLayout {
    /// The layout of `items` grids with `cells` cells in all.
    ///
    /// # Errors
    /// [`BatchError`] if a number is zero or over its limit.
    pub fn new(items: u32, cells: u32) -> Result<Self, BatchError> {
        if items == 0 {
            return Err(BatchError::Empty);
        }
        if items > JOB_ITEMS_MAX {
            return Err(BatchError::Items { items: items as usize });
        }
        if cells < items || cells > JOB_CELLS_MAX {
            return Err(BatchError::Cells { cells: u64::from(cells) });
        }
        Ok(Self { items, cells })
    }

    /// Grids.
    #[must_use]
    pub fn items(&self) -> usize {
        self.items as usize
    }

    /// Cells of all grids together.
    #[must_use]
    pub fn cell_count(&self) -> usize {
        self.cells as usize
    }

    /// The bytes of the shapes.
    #[must_use]
    pub fn shapes(&self) -> Range<usize> {
        0..2 * self.items()
    }

    /// The bytes of the offsets.
    #[must_use]
    pub fn offsets(&self) -> Range<usize> {
        let start = align(self.shapes().end);
        start..start + 4 * (self.items() + 1)
    }

    /// The bytes of the cells.
    #[must_use]
    pub fn cells(&self) -> Range<usize> {
        let start = align(self.offsets().end);
        start..start + self.cell_count()
    }

    /// The length of the whole batch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        align(self.cells().end)
    }
}

/// The shapes and offsets of a batch, private to the reader and checked against each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    shapes: Vec<[u8; 2]>,
    offsets: Vec<u32>,
}

impl Tables {
    /// Copies the tables out of shared memory, once, and checks the copy.
    ///
    /// # Errors
    /// [`BatchError`] if the memory is too short, a shape is out of bounds, or an offset is not the
    /// sum of the grids before it. Cells are not looked at: the device checks its own copy of them.
    pub fn read(layout: BatchLayout, memory: &SharedSlice<'_>) -> Result<Self, BatchError> {
        if memory.bytes() < layout.bytes() {
            return Err(BatchError::Bytes { got: memory.bytes(), want: layout.bytes() });
        }
        let mut shape_bytes = vec![0; layout.shapes().len()];
        memory.read(layout.shapes().start, &mut shape_bytes);
        let mut offset_bytes = vec![0; layout.offsets().len()];
        memory.read(layout.offsets().start, &mut offset_bytes);
        let shapes = shape_bytes.as_chunks::<2>().0.to_vec();
        let offsets = offset_bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b));
        let tables = Self { shapes, offsets: offsets.collect() };
        tables.check(layout)?;
        Ok(tables)
    }

    fn check(&self, layout: BatchLayout) -> Result<(), BatchError> {
        let mut want: u32 = 0;
        for (item, (&[h, w], &got)) in self.shapes.iter().zip(&self.offsets).enumerate() {
            let cells = usize::from(h) * usize::from(w);
            if cells == 0 || cells > GRID_CELLS_MAX {
                return Err(BatchError::Shape { item, h, w });
            }
            if got != want {
                return Err(BatchError::Offset { item, got, want });
            }
            // No overflow: 2^22 items of 2^12 cells would pass u32, so the sum saturates and then
            // differs from the layout's, which is at most 2^30.
            want = want.saturating_add(u32::from(h) * u32::from(w));
        }
        let (item, got) = (self.shapes.len(), self.offsets[self.shapes.len()]);
        if got != want || want != layout.cells {
            return Err(BatchError::Offset { item, got, want });
        }
        Ok(())
    }

    /// `(h, w)` of every grid.
    #[must_use]
    pub fn shapes(&self) -> &[[u8; 2]] {
        &self.shapes
    }

    /// Where every grid's cells start, and where the last one ends.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// The cells of grid `item`.
    #[must_use]
    pub fn cells_of(&self, item: usize) -> Range<usize> {
        self.offsets[item] as usize..self.offsets[item + 1] as usize
    }
}

/// A batch in private memory, built grid by grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridBatch {
    tables: Tables,
    cells: Vec<u8>,
}

impl Default for GridBatch {
    fn default() -> Self {
        Self { tables: Tables { shapes: Vec::new(), offsets: vec![0] }, cells: Vec::new() }
    }
}

impl GridBatch {
    /// A batch of `grids`, in their order.
    ///
    /// # Errors
    /// [`BatchError::Items`] or [`BatchError::Cells`] if they are too many for one job.
    pub fn from_grids<'a>(grids: impl IntoIterator<Item = &'a Grid>) -> Result<Self, BatchError> {
        let mut batch = Self::default();
        for grid in grids {
            batch.push(grid)?;
        }
        Ok(batch)
    }

    /// Adds one grid at the end.
    ///
    /// # Errors
    /// [`BatchError::Items`] or [`BatchError::Cells`] if it is one too many for one job.
    pub fn push(&mut self, grid: &Grid) -> Result<(), BatchError> {
        let items = self.tables.shapes.len() + 1;
        if items > JOB_ITEMS_MAX as usize {
            return Err(BatchError::Items { items });
        }
        let cells = self.cells.len() as u64 + grid.cells().len() as u64;
        let end = u32::try_from(cells).ok().filter(|&end| end <= JOB_CELLS_MAX);
        let end = end.ok_or(BatchError::Cells { cells })?;
        self.tables.shapes.push(grid.shape());
        self.tables.offsets.push(end);
        self.cells.extend_from_slice(grid.cells());
        Ok(())
    }

    /// Grids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.shapes.len()
    }

    /// Whether it has no grid.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shapes and offsets.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The cells of all grids.
    #[must_use]
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// Grid `item` again.
    #[must_use]
    pub fn grid(&self, item: usize) -> Grid {
        Grid::of_shape(self.tables.shapes[item], self.cells[self.tables.cells_of(item)].to_vec())
    }

    /// Where its parts lie once packed.
    ///
    /// # Errors
    /// [`BatchError::Empty`] if it has no grid.
    pub fn layout(&self) -> Result<BatchLayout, BatchError> {
        let items =
            u32::try_from(self.len()).map_err(|_| BatchError::Items { items: self.len() })?;
        BatchLayout::new(items, self.tables.offsets[self.len()])
    }

    /// Writes the batch as `layout` says, from the start of `memory`.
    ///
    /// # Panics
    /// If `memory` is shorter than `layout.bytes()`.
    pub fn write_to(&self, layout: BatchLayout, memory: &SharedSlice<'_>) {
        memory.write(layout.shapes().start, self.tables.shapes.as_flattened());
        let offsets: Vec<[u8; 4]> = self.tables.offsets.iter().map(|o| o.to_le_bytes()).collect();
        memory.write(layout.offsets().start, offsets.as_flattened());
        memory.write(layout.cells().start, &self.cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> GridBatch {
        let grids = [
            Grid::from_rows(&[[1, 2, 3], [4, 5, 6]]).unwrap(),
            Grid::from_rows(&[[9]]).unwrap(),
            Grid::new(1, 255, vec![3; 255]).unwrap(),
        ];
        GridBatch::from_grids(&grids).unwrap()
    }

    #[test]
    fn a_written_batch_reads_back() {
        let batch = batch();
        let layout = batch.layout().unwrap();
        let mut memory = vec![0xee; layout.bytes()];
        let shared = SharedSlice::private(&mut memory);
        batch.write_to(layout, &shared);
        assert_eq!(&Tables::read(layout, &shared).unwrap(), batch.tables());
        assert_eq!(&memory[layout.cells()], batch.cells());
    }

    #[test]
    fn every_single_wrong_table_byte_is_refused() {
        let batch = batch();
        let layout = batch.layout().unwrap();
        let mut memory = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut memory));
        for at in layout.shapes().chain(layout.offsets()) {
            let mut broken = memory.clone();
            broken[at] ^= 1;
            let shared = SharedSlice::private(&mut broken);
            // (1, 255) and (255, 1) have as many cells; no single bit turns one into the other.
            assert!(Tables::read(layout, &shared).is_err(), "byte {at} was not checked");
        }
        let mut short = memory[..layout.bytes() - 16].to_vec();
        assert!(Tables::read(layout, &SharedSlice::private(&mut short)).is_err());
    }

    #[test]
    fn layouts_out_of_bounds_are_refused() {
        assert!(BatchLayout::new(0, 0).is_err());
        assert!(BatchLayout::new(2, 1).is_err());
        assert!(BatchLayout::new(JOB_ITEMS_MAX + 1, JOB_CELLS_MAX).is_err());
        assert!(BatchLayout::new(1, u32::MAX).is_err());
        assert!(BatchLayout::new(JOB_ITEMS_MAX, JOB_CELLS_MAX).is_ok());
    }
}
