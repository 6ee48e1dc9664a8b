//! Writes a batch grid by grid straight into shared memory.
//!
//! Owns the tables while they grow: they are right by construction, whatever is pushed. It never reads
//! what it has written.

use super::{BatchError, BatchLayout, MISSING};
use crate::grid::Grid;
use crate::limits::GRID_CELLS_MAX;
use crate::shared::SharedSlice;

/// A batch that is being written. Of pairs, the input comes first and then its output.
#[derive(Debug)]
pub struct BatchWriter<'a> {
    room: BatchLayout,
    memory: SharedSlice<'a>,
    grids: usize,
    cells: u32,
}

impl<'a> BatchWriter<'a> {
    /// Writes to the start of `memory`, which has the bytes that `room` takes: exactly so many items,
    /// and at most so many cells.
    ///
    /// # Panics
    /// If `memory` is shorter.
    #[must_use]
    pub fn new(room: BatchLayout, memory: SharedSlice<'a>) -> Self {
        assert!(memory.bytes() >= room.bytes(), "the room that was announced");
        memory.write(room.offsets().start, &0_u32.to_le_bytes());
        Self { room, memory, grids: 0, cells: 0 }
    }

    /// Writes the next grid: `h` rows of `w` cells, row-major. Whether each is a colour is checked by
    /// the device: one that is none is an error of its item alone.
    ///
    /// # Errors
    /// [`BatchError::Shape`], [`BatchError::Length`], [`BatchError::Grids`] or [`BatchError::Full`] if
    /// it is no grid or one too many; nothing is written then.
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

    /// The pair whose input was the last grid has no output.
    ///
    /// # Errors
    /// [`BatchError::Shape`] where no output is due.
    pub fn push_missing(&mut self) -> Result<(), BatchError> {
        if self.grids % self.room.grids_per_item() != 1 {
            return Err(BatchError::Shape { grid: self.grids, h: 0, w: 0 });
        }
        self.put(MISSING, &[])
    }

    fn put(&mut self, shape: [u8; 2], cells: &[u8]) -> Result<(), BatchError> {
        let Self { room, memory, grids, cells: start } = self;
        if *grids == room.grids() {
            return Err(BatchError::Grids { got: *grids + 1, want: room.grids() });
        }
        let end = u64::from(*start) + cells.len() as u64;
        let (Ok(next), true) = (u32::try_from(end), end <= room.cell_count() as u64) else {
            return Err(BatchError::Full { got: end, want: room.cell_count() });
        };
        memory.write(room.shapes().start + 2 * *grids, &shape);
        memory.write(room.offsets().start + 4 * (*grids + 1), &next.to_le_bytes());
        memory.write(room.cells().start + *start as usize, cells);
        *start = next;
        *grids += 1;
        Ok(())
    }

    /// The layout of what was written: that of the room, with the cells that there are.
    ///
    /// # Errors
    /// [`BatchError::Grids`] if grids are missing.
    ///
    /// # Panics
    /// Never: the numbers are those of the room or smaller.
    pub fn finish(self) -> Result<BatchLayout, BatchError> {
        if self.grids != self.room.grids() {
            return Err(BatchError::Grids { got: self.grids, want: self.room.grids() });
        }
        // Where the cells start depends on the number of grids alone.
        Ok(BatchLayout { cells: self.cells, ..self.room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{GridBatch, Tables};

    #[test]
    fn what_is_written_is_the_batch_that_would_have_been_packed() {
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
        assert_eq!(&memory[layout.cells()], batch.cells());
    }

    #[test]
    fn what_does_not_fit_is_named_and_not_written() {
        let room = BatchLayout::new(2, 1, 3).unwrap();
        let mut memory = vec![0; room.bytes()];
        let mut writer = BatchWriter::new(room, SharedSlice::private(&mut memory));
        let mut says = |h, w, cells: &[u8]| writer.push(h, w, cells).unwrap_err().to_string();
        assert_eq!(says(0, 3, &[]), "grid 0: 0 x 3 cells are out of bounds");
        assert_eq!(says(65, 64, &[0; 4_160]), "grid 0: 65 x 64 cells are out of bounds");
        assert_eq!(says(1, 2, &[1]), "grid 0: 1 cells do not make a grid of 1 x 2");
        let full = "the batch was announced with at most 3 cells; 4 were to be written";
        assert_eq!(says(2, 2, &[1; 4]), full);
        writer.push(1, 2, &[1, 2]).unwrap();
        let unfinished = BatchWriter { grids: 1, cells: 2, room, memory: writer.memory };
        let want = BatchError::Grids { got: 1, want: 2 };
        assert_eq!(unfinished.finish().unwrap_err(), want);
        writer.push(1, 1, &[3]).unwrap();
        let want = BatchError::Grids { got: 3, want: 2 };
        assert_eq!(writer.push(1, 1, &[4]).unwrap_err(), want);
        assert_eq!(writer.finish().unwrap().cell_count(), 3);
    }
}
