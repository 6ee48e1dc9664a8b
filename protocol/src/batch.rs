//! The packed ragged batch: grids of any shape in one piece of memory, without padding.
//!
//! ```text
//! [ shapes: (h, w) as u8, one for each grid ] [ offsets: grids + 1 u32, little-endian ] [ cells: u8 ]
//! ```
//!
//! Grid `i` is `h * w` cells, row-major, from `offsets[i]`; `offsets[grids]` is the number of cells.
//! Each part starts at a multiple of [`PART_ALIGN`] bytes. An item is one grid. For a program over pairs it is two
//! grids: the input and the output. A missing output has the shape (0, 0).

mod error;
pub mod tables;
mod writer;

use std::ops::Range;

use crate::limits::{GRID_CELLS_MAX, JOB_CELLS_MAX, JOB_ITEMS_MAX};
use crate::shared::SharedSlice;
use tables::read_range;

pub use crate::grid::{Grid, GridError};
pub use error::BatchError;
pub use writer::BatchWriter;

/// Every part of a batch or a result starts at a multiple of this many bytes.
pub const PART_ALIGN: usize = 16;

/// Clears what lies between the ends of parts and the next parts. What an earlier batch has left there would give this
/// one another digest.
pub(crate) fn clear_behind(ends: impl IntoIterator<Item = usize>, memory: &SharedSlice<'_>) {
    for end in ends {
        memory.write(end, &[0; PART_ALIGN][..align(end) - end]);
    }
}

/// Rounds up to the next multiple of [`PART_ALIGN`].
pub(crate) fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(PART_ALIGN)
}

/// The places of the parts of a batch. Its numbers are within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    items: u32,
    grids_per_item: u32,
    cells: u32,
}

impl BatchLayout {
    /// See [`clear_behind`].
    fn clear_behind_parts(self, memory: &SharedSlice<'_>) {
        clear_behind([self.shapes().end, self.offsets().end, self.cells().end], memory);
    }

    /// The layout of `items` items of `grids_per_item` grids (1, or 2 for pairs) with `cells` cells
    /// in all.
    ///
    /// # Errors
    /// [`BatchError`] if a number is zero or over its limit.
    ///
    /// # Panics
    /// If `grids_per_item` is neither 1 nor 2.
    pub fn new(items: u32, grids_per_item: u32, cells: u32) -> Result<Self, BatchError> {
        assert!(matches!(grids_per_item, 1 | 2), "an item is a grid or a pair");
        if items == 0 {
            return Err(BatchError::Empty);
        }
        if items > JOB_ITEMS_MAX {
            return Err(BatchError::Items { items: items as usize });
        }
        if cells < items || cells > JOB_CELLS_MAX {
            return Err(BatchError::Cells { cells: u64::from(cells) });
        }
        Ok(Self { items, grids_per_item, cells })
    }

    /// Items: grids, or pairs.
    #[must_use]
    pub fn items(&self) -> usize {
        self.items as usize
    }

    /// Grids of one item: 1, or 2 if items are pairs.
    #[must_use]
    pub fn grids_per_item(&self) -> usize {
        self.grids_per_item as usize
    }

    /// Grids of all items, missing ones included.
    #[must_use]
    pub fn grids(&self) -> usize {
        self.items() * self.grids_per_item()
    }

    /// Cells of all grids together.
    #[must_use]
    pub fn cell_count(&self) -> usize {
        self.cells as usize
    }

    /// The bytes of the shapes.
    #[must_use]
    pub fn shapes(&self) -> Range<usize> {
        0..2 * self.grids()
    }

    /// The bytes of the offsets.
    #[must_use]
    pub fn offsets(&self) -> Range<usize> {
        let start = align(self.shapes().end);
        start..start + 4 * (self.grids() + 1)
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
    /// [`BatchError`] if the memory is too short, a shape is out of bounds, or an offset is not the sum of the
    /// grids before it. This does not read cells: the device checks its own copy.
    pub fn read(layout: BatchLayout, memory: &SharedSlice<'_>) -> Result<Self, BatchError> {
        if memory.bytes() < layout.bytes() {
            return Err(BatchError::Bytes { got: memory.bytes(), want: layout.bytes() });
        }
        let mut shapes = vec![[0; 2]; layout.grids()];
        let mut offsets = vec![[0; 4]; layout.grids() + 1];
        read_range(layout, 0..layout.items(), memory, &mut shapes, &mut offsets)?;
        Ok(Self { shapes, offsets: offsets.into_iter().map(u32::from_le_bytes).collect() })
    }

    /// `(h, w)` of every grid.
    #[must_use]
    pub fn shapes(&self) -> &[[u8; 2]] {
        &self.shapes
    }

    /// The start of every grid's cells, and the end of the last.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// The cells of grid `grid`.
    #[must_use]
    pub fn cells_of(&self, grid: usize) -> Range<usize> {
        self.offsets[grid] as usize..self.offsets[grid + 1] as usize
    }
}

/// A batch that can be read again to decode its results.
pub trait BatchSource: std::fmt::Debug + Send + Sync {
    /// Shapes and offsets.
    ///
    /// # Errors
    /// [`BatchError`] if they are in shared memory and have changed.
    fn tables(&self) -> Result<&Tables, BatchError>;

    /// A copy of some cells; `None` if the batch has fewer.
    fn cells(&self, cells: Range<usize>) -> Option<Vec<u8>>;
}

/// Offsets that are converted to bytes at a time, on the stack.
const OFFSETS_AT_ONCE: usize = 1_024;

/// The shape of a missing output.
const MISSING: [u8; 2] = [0, 0];

/// A batch in private memory, built grid by grid, or pair by pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridBatch {
    grids_per_item: u32,
    tables: Tables,
    cells: Vec<u8>,
}

impl GridBatch {
    /// An empty batch for items of `grids_per_item` grids: 1, or 2 for pairs.
    ///
    /// # Panics
    /// If `grids_per_item` is neither 1 nor 2.
    #[must_use]
    pub fn of_items(grids_per_item: u32) -> Self {
        assert!(matches!(grids_per_item, 1 | 2), "an item is a grid or a pair");
        let tables = Tables { shapes: Vec::new(), offsets: vec![0] };
        Self { grids_per_item, tables, cells: Vec::new() }
    }

    /// A batch of `grids`, in their order.
    ///
    /// # Errors
    /// [`BatchError::Items`] or [`BatchError::Cells`] if there are too many for one job.
    pub fn from_grids<'a>(grids: impl IntoIterator<Item = &'a Grid>) -> Result<Self, BatchError> {
        let mut batch = Self::of_items(1);
        for grid in grids {
            batch.push(grid)?;
        }
        Ok(batch)
    }

    /// A batch of pairs (input, output), in their order. An output may be missing.
    ///
    /// # Errors
    /// [`BatchError::Items`] or [`BatchError::Cells`] if there are too many for one job.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a Grid, Option<&'a Grid>)>,
    ) -> Result<Self, BatchError> {
        let mut batch = Self::of_items(2);
        for (input, output) in pairs {
            batch.push_pair(input, output)?;
        }
        Ok(batch)
    }

    /// A batch from checked tables, as from [`Tables::read`], and their cells.
    ///
    /// # Panics
    /// If the number of cells differs from the tables'.
    #[must_use]
    pub fn from_parts(grids_per_item: u32, tables: Tables, cells: Vec<u8>) -> Self {
        let want = tables.offsets.last().map_or(0, |&end| end as usize);
        assert_eq!(cells.len(), want, "the tables say how many cells there are");
        Self { grids_per_item, tables, cells }
    }

    /// Adds one grid at the end.
    ///
    /// # Errors
    /// [`BatchError::Items`] or [`BatchError::Cells`] if it is one too many for one job;
    /// [`BatchError::Shape`] if it is empty.
    ///
    /// # Panics
    /// If this is a batch of pairs.
    pub fn push(&mut self, grid: &Grid) -> Result<(), BatchError> {
        assert_eq!(self.grids_per_item, 1, "a batch of pairs takes pairs");
        self.check_next(grid.cells().len(), grid)?;
        self.push_grid(Some(grid));
        Ok(())
    }

    /// Adds one pair at the end.
    ///
    /// # Errors
    /// As for [`GridBatch::push`].
    ///
    /// # Panics
    /// If this is a batch of single grids.
    pub fn push_pair(&mut self, input: &Grid, output: Option<&Grid>) -> Result<(), BatchError> {
        assert_eq!(self.grids_per_item, 2, "a batch of single grids takes grids");
        let cells = input.cells().len() + output.map_or(0, |grid| grid.cells().len());
        self.check_next(cells, input)?;
        if output.is_some_and(Grid::is_empty) {
            return Err(BatchError::Shape { grid: self.tables.shapes.len() + 1, h: 0, w: 0 });
        }
        self.push_grid(Some(input));
        self.push_grid(output);
        Ok(())
    }

    /// Adds one grid at the end from its cells, row-major. Of a pair, add the input and then the output, or
    /// [`GridBatch::push_missing`].
    ///
    /// # Errors
    /// As for [`GridBatch::push`], and [`BatchError::Length`] if the cells are not `h` rows of `w`.
    pub fn push_cells(&mut self, h: u8, w: u8, cells: &[u8]) -> Result<(), BatchError> {
        let (grid, area) = (self.tables.shapes.len(), usize::from(h) * usize::from(w));
        if area == 0 || area > GRID_CELLS_MAX {
            return Err(BatchError::Shape { grid, h, w });
        }
        if cells.len() != area {
            return Err(BatchError::Length { grid, cells: cells.len(), h, w });
        }
        self.check_room(cells.len())?;
        self.put([h, w], cells);
        Ok(())
    }

    /// Notes that the pair whose input was added last has no output.
    ///
    /// # Errors
    /// [`BatchError::Shape`] if no output is due.
    pub fn push_missing(&mut self) -> Result<(), BatchError> {
        let grid = self.tables.shapes.len();
        if self.grids_per_item != 2 || grid.is_multiple_of(2) {
            return Err(BatchError::Shape { grid, h: 0, w: 0 });
        }
        self.put(MISSING, &[]);
        Ok(())
    }

    /// Adds the items of another batch at the end.
    ///
    /// # Errors
    /// As for [`GridBatch::push`].
    ///
    /// # Panics
    /// If one is of pairs and the other is not.
    pub fn append(&mut self, other: &Self) -> Result<(), BatchError> {
        assert_eq!(self.grids_per_item, other.grids_per_item, "both are of pairs, or none is");
        let grids = self.tables.shapes.len() + other.tables.shapes.len();
        let items = grids / self.grids_per_item as usize;
        if items > JOB_ITEMS_MAX as usize {
            return Err(BatchError::Items { items });
        }
        self.check_cells(other.cells.len())?;
        let start = self.tables.offsets[self.tables.shapes.len()];
        let ends = other.tables.offsets[1..].iter().map(|end| start + end);
        self.tables.offsets.extend(ends);
        self.tables.shapes.extend_from_slice(&other.tables.shapes);
        self.cells.extend_from_slice(&other.cells);
        Ok(())
    }

    /// Whether one more item, with `cells` cells in all, fits.
    fn check_next(&self, cells: usize, first: &Grid) -> Result<(), BatchError> {
        if first.is_empty() {
            return Err(BatchError::Shape { grid: self.tables.shapes.len(), h: 0, w: 0 });
        }
        self.check_room(cells)
    }

    /// Whether one more grid, or one more pair, with `cells` cells in all, fits.
    fn check_room(&self, cells: usize) -> Result<(), BatchError> {
        if self.tables.shapes.len() == self.grids_per_item as usize * JOB_ITEMS_MAX as usize {
            return Err(BatchError::Items { items: self.len() + 1 });
        }
        self.check_cells(cells)
    }

    /// Whether so many cells more fit.
    fn check_cells(&self, cells: usize) -> Result<(), BatchError> {
        let cells = (self.cells.len() + cells) as u64;
        if cells > u64::from(JOB_CELLS_MAX) { Err(BatchError::Cells { cells }) } else { Ok(()) }
    }

    fn push_grid(&mut self, grid: Option<&Grid>) {
        self.put(grid.map_or(MISSING, Grid::shape), grid.map_or(&[], Grid::cells));
    }

    fn put(&mut self, shape: [u8; 2], cells: &[u8]) {
        self.tables.shapes.push(shape);
        self.cells.extend_from_slice(cells);
        let end = u32::try_from(self.cells.len()).expect("`check_next` has checked it");
        self.tables.offsets.push(end);
    }

    /// Items: grids, or pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.shapes.len() / self.grids_per_item as usize
    }

    /// Whether it has no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Grids of one item: 1, or 2 if items are pairs.
    #[must_use]
    pub fn grids_per_item(&self) -> u32 {
        self.grids_per_item
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

    /// A copy of grid `grid`. A missing output is empty. The pair of item `i` is `2 * i` and `2 * i + 1`.
    #[must_use]
    pub fn grid(&self, grid: usize) -> Grid {
        Grid::of_shape(self.tables.shapes[grid], self.cells[self.tables.cells_of(grid)].to_vec())
    }

    /// The places of its parts when it is packed.
    ///
    /// # Errors
    /// [`BatchError::Empty`] if it has no item.
    pub fn layout(&self) -> Result<BatchLayout, BatchError> {
        let items =
            u32::try_from(self.len()).map_err(|_| BatchError::Items { items: self.len() })?;
        let cells = self.tables.offsets[self.tables.shapes.len()];
        BatchLayout::new(items, self.grids_per_item, cells)
    }

    /// Writes the packed batch to the start of `memory`.
    ///
    /// # Panics
    /// If `memory` is shorter than `layout.bytes()`.
    pub fn write_to(&self, layout: BatchLayout, memory: &SharedSlice<'_>) {
        memory.write(layout.shapes().start, self.tables.shapes.as_flattened());
        let mut at = layout.offsets().start;
        for offsets in self.tables.offsets.chunks(OFFSETS_AT_ONCE) {
            let mut bytes = [[0; 4]; OFFSETS_AT_ONCE];
            for (bytes, offset) in bytes.iter_mut().zip(offsets) {
                *bytes = offset.to_le_bytes();
            }
            memory.write(at, bytes[..offsets.len()].as_flattened());
            at += size_of_val(offsets);
        }
        memory.write(layout.cells().start, &self.cells);
        layout.clear_behind_parts(memory);
    }
}

impl BatchSource for GridBatch {
    fn tables(&self) -> Result<&Tables, BatchError> {
        Ok(&self.tables)
    }

    fn cells(&self, cells: Range<usize>) -> Option<Vec<u8>> {
        self.cells.get(cells).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests;
