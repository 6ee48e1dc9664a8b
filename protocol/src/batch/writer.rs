//! Writes a batch grid by grid straight into shared memory.
//!
//! Owns the tables while they grow, so they are always right. It never reads what it has written.

use super::{BatchError, BatchLayout, MISSING};
use crate::grid::Grid;
use crate::limits::GRID_CELLS_MAX;
use crate::shared::SharedSlice;

/// A batch that is being written. For a pair, write the input and then its output.
#[derive(Debug)]
pub struct BatchWriter<'a> {
    capacity: BatchLayout,
    memory: SharedSlice<'a>,
    grids: usize,
    cells: u32,
}

impl<'a> BatchWriter<'a> {
    /// Writes to the start of `memory`. `capacity` gives the exact number of items and the largest number of cells.
    ///
    /// # Panics
    /// If `memory` is shorter than `capacity`.
    #[must_use]
    pub fn new(capacity: BatchLayout, memory: SharedSlice<'a>) -> Self {
        assert!(memory.bytes() >= capacity.bytes(), "the announced capacity");
        memory.write(capacity.offsets().start, &0_u32.to_le_bytes());
        Self { capacity, memory, grids: 0, cells: 0 }
    }

    /// Writes the next grid: `h` rows of `w` cells, row-major. The device checks the colours; a wrong one is an
    /// error of its item only.
    ///
    /// # Errors
    /// [`BatchError::Shape`], [`BatchError::Length`], [`BatchError::Grids`] or [`BatchError::Full`] if the cells do
    /// not make a grid or exceed the capacity. Then nothing is written.
    pub fn push(&mut self, h: u8, w: u8, cells: &[u8]) -> Result<(), BatchError> {
        let area = usize::from(h) * usize::from(w);
        if area == 0 || area > GRID_CELLS_MAX {
            return Err(BatchError::Shape { grid: self.grids, h, w });
        }
        if cells.len() != area {
            return Err(BatchError::Length { grid: self.grids, cells: cells.len(), h, w });
        }
        self.put([h, w], cells)
    }

    /// Writes the next grid.
    ///
    /// # Errors
    /// As for [`BatchWriter::push`].
    pub fn push_grid(&mut self, grid: &Grid) -> Result<(), BatchError> {
        let [h, w] = grid.shape();
        self.push(h, w, grid.cells())
    }

    /// Notes that the pair whose input was written last has no output.
    ///
    /// # Errors
    /// [`BatchError::Shape`] if no output is due.
    pub fn push_missing(&mut self) -> Result<(), BatchError> {
        if self.grids % self.capacity.grids_per_item() != 1 {
            return Err(BatchError::Shape { grid: self.grids, h: 0, w: 0 });
        }
        self.put(MISSING, &[])
    }

    /// Takes room for the next `shapes.len()` grids, none of them missing, and returns the memory of their cells, one
    /// grid after the other, row-major. The caller writes them there: in one go, or on several threads.
    ///
    /// # Errors
    /// As for [`BatchWriter::push`], before anything is written but tables.
    pub fn reserve(
        &mut self,
        shapes: impl IntoIterator<Item = [u8; 2]>,
    ) -> Result<SharedSlice<'a>, BatchError> {
        let first = self.cells;
        let (memory, capacity) = (self.memory, self.capacity);
        for [h, w] in shapes {
            let area = u32::from(h) * u32::from(w);
            if area == 0 || area as usize > GRID_CELLS_MAX {
                return Err(BatchError::Shape { grid: self.grids, h, w });
            }
            self.put_table([h, w], area)?;
        }
        let start = (capacity.cells().start + first as usize) as u64;
        let cells = memory.part(start, u64::from(self.cells - first));
        cells.ok_or_else(|| BatchError::Bytes { got: memory.bytes(), want: capacity.bytes() })
    }

    fn put(&mut self, shape: [u8; 2], cells: &[u8]) -> Result<(), BatchError> {
        let start = self.cells as usize;
        let area = u32::try_from(cells.len()).unwrap_or(u32::MAX);
        self.put_table(shape, area)?;
        self.memory.write(self.capacity.cells().start + start, cells);
        Ok(())
    }

    /// Writes the shape of the next grid and where its cells end.
    #[inline]
    fn put_table(&mut self, shape: [u8; 2], area: u32) -> Result<(), BatchError> {
        let Self { capacity, memory, grids, cells: start } = self;
        if *grids == capacity.grids() {
            return Err(BatchError::Grids { got: *grids + 1, want: capacity.grids() });
        }
        let end = u64::from(*start) + u64::from(area);
        let (Ok(next), true) = (u32::try_from(end), end <= capacity.cell_count() as u64) else {
            return Err(BatchError::Full { got: end, want: capacity.cell_count() });
        };
        memory.write(capacity.shapes().start + 2 * *grids, &shape);
        memory.write(capacity.offsets().start + 4 * (*grids + 1), &next.to_le_bytes());
        *start = next;
        *grids += 1;
        Ok(())
    }

    /// The layout of the written batch: the capacity's, with the number of written cells.
    ///
    /// # Errors
    /// [`BatchError::Grids`] if grids are missing.
    ///
    /// # Panics
    /// Never: the numbers are at most those of the capacity.
    pub fn finish(self) -> Result<BatchLayout, BatchError> {
        if self.grids != self.capacity.grids() {
            return Err(BatchError::Grids { got: self.grids, want: self.capacity.grids() });
        }
        // The start of the cells depends only on the number of grids.
        let layout = BatchLayout { cells: self.cells, ..self.capacity };
        layout.clear_behind_parts(&self.memory);
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{GridBatch, Tables};

    #[test]
    fn written_batches_equal_packed_ones() {
        let grids = [[1, 2].as_slice(), &[3, 4, 5], &[6]];
        let grids = grids.map(|row| Grid::from_rows(&[row]).unwrap());
        let pairs = [(&grids[0], Some(&grids[1])), (&grids[2], None)];
        let batch = GridBatch::from_pairs(pairs).unwrap();
        let mut memory = vec![0xee; BatchLayout::new(2, 2, 100).unwrap().bytes()];
        let shared = SharedSlice::private(&mut memory);
        let mut writer = BatchWriter::new(BatchLayout::new(2, 2, 100).unwrap(), shared);
        writer.push_grid(&grids[0]).unwrap();
        writer.push_grid(&grids[1]).unwrap();
        assert!(writer.push_missing().is_err(), "the input of the second pair is due");
        writer.push_grid(&grids[2]).unwrap();
        writer.push_missing().unwrap();
        let layout = writer.finish().unwrap();
        assert_eq!(layout, batch.layout().unwrap());
        assert_eq!(&Tables::read(layout, &shared).unwrap(), batch.tables());
        let mut packed = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut packed));
        assert_eq!(memory[..layout.bytes()], packed, "the same bytes, also between the parts");
    }

    #[test]
    fn reserved_grids_equal_pushed_ones() {
        let grids = [[1, 2].as_slice(), &[3, 4, 5], &[6]];
        let grids = grids.map(|row| Grid::from_rows(&[row]).unwrap());
        let batch = GridBatch::from_grids(&grids).unwrap();
        let capacity = BatchLayout::new(3, 1, 6).unwrap();
        let mut memory = vec![0xee; capacity.bytes()];
        let shared = SharedSlice::private(&mut memory);
        let mut writer = BatchWriter::new(capacity, shared);
        writer.push_grid(&grids[0]).unwrap();
        let cells = writer.reserve([[1, 3], [1, 1]]).unwrap();
        assert_eq!(cells.bytes(), 4);
        cells.write(0, &[3, 4, 5, 6]);
        let layout = writer.finish().unwrap();
        assert_eq!(&Tables::read(layout, &shared).unwrap(), batch.tables());
        assert_eq!(&memory[layout.cells()], batch.cells());
        let mut writer = BatchWriter::new(capacity, SharedSlice::private(&mut memory));
        assert!(writer.reserve([[0, 1]]).is_err());
        assert!(writer.reserve([[7, 1]]).is_err());
    }

    #[test]
    fn grids_that_do_not_fit_are_named_and_not_written() {
        let capacity = BatchLayout::new(2, 1, 3).unwrap();
        let mut memory = vec![0; capacity.bytes()];
        let mut writer = BatchWriter::new(capacity, SharedSlice::private(&mut memory));
        let mut says = |h, w, cells: &[u8]| writer.push(h, w, cells).unwrap_err().to_string();
        assert_eq!(says(0, 3, &[]), "grid 0: 0 x 3 cells are out of bounds");
        assert_eq!(says(65, 64, &[0; 4_160]), "grid 0: 65 x 64 cells are out of bounds");
        assert_eq!(says(1, 2, &[1]), "grid 0: 1 cells do not make a grid of 1 x 2");
        let full = "the batch was announced with at most 3 cells; 4 were to be written";
        assert_eq!(says(2, 2, &[1; 4]), full);
        writer.push(1, 2, &[1, 2]).unwrap();
        let unfinished = BatchWriter { grids: 1, cells: 2, capacity, memory: writer.memory };
        let want = BatchError::Grids { got: 1, want: 2 };
        assert_eq!(unfinished.finish().unwrap_err(), want);
        writer.push(1, 1, &[3]).unwrap();
        let want = BatchError::Grids { got: 3, want: 2 };
        assert_eq!(writer.push(1, 1, &[4]).unwrap_err(), want);
        assert_eq!(writer.finish().unwrap().cell_count(), 3);
    }
}
