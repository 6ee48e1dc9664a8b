//! Where a program over grids that lie on the device finds and leaves what: plain arithmetic. `compute` launches.
//!
//! All grids have one size, and all results too. So the tables of a chunk are known before it, nothing is packed, and
//! the grids and results are tensors as they are.

use std::ops::Range;
use std::sync::Arc;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_protocol::batch::{BatchLayout, PART_ALIGN};
use gridpool_protocol::tensor::pipeline::{GridStep, GridsRun};

use super::pass::InputLayout;
use super::schedule::{Places, ResultPlaces, ScratchPlaces, StagePlaces};
use super::scratch::ScratchLayout;

/// A program and the grids of one tensor.
#[derive(Clone, Debug)]
pub struct GridsOnDevice {
    step: Arc<GridStep>,
    run: GridsRun,
    batch: BatchLayout,
    tables: InputLayout,
    scratch: ScratchLayout,
    /// The size of each result, behind the rest of the scratch.
    shapes: Range<usize>,
}

/// What a run reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct GridPlaces<T = *mut u8> {
    /// [`GridsOnDevice::write_tables`] says what.
    pub tables: T,
    /// For what lies between two kernels.
    pub scratch: T,
    /// The cells of the grids.
    pub grids: T,
    /// The cells of the results.
    pub results: T,
    /// Two bytes for each grid.
    pub status: T,
}

impl<T: Copy> GridPlaces<T> {
    pub(super) fn each<U>(&self, make: impl Fn(T) -> U) -> GridPlaces<U> {
        let Self { tables, scratch, grids, results, status } = *self;
        GridPlaces {
            tables: make(tables),
            scratch: make(scratch),
            grids: make(grids),
            results: make(results),
            status: make(status),
        }
    }
}

impl GridsOnDevice {
    /// The program of a step over such a tensor; none if there is no grid in it.
    #[must_use]
    pub fn new(step: &Arc<GridStep>, run: GridsRun) -> Option<Self> {
        let batch = run.batch?;
        let scratch = ScratchLayout::new(step.program(), &batch);
        let start = scratch.bytes.next_multiple_of(PART_ALIGN);
        let shapes = start..start + 2 * batch.items();
        let (step, tables) = (Arc::clone(step), InputLayout::new(batch.items()));
        Some(Self { step, run, batch, tables, scratch, shapes })
    }

    pub(super) fn program(&self) -> &gridpool_protocol::program::Program {
        self.step.program()
    }

    /// The length of the tables.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.tables.tables_end()
    }

    /// The length of the scratch.
    #[must_use]
    pub fn scratch_bytes(&self) -> usize {
        self.shapes.end
    }

    /// Writes the size of each grid, and where it starts.
    ///
    /// # Panics
    /// If `to` has not [`GridsOnDevice::table_bytes`] bytes.
    pub fn write_tables(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.table_bytes(), "the tables");
        let cells = self.run.size.map(u32::from).iter().product::<u32>();
        let (shapes, offsets) = to.split_at_mut(self.tables.offsets_start());
        shapes[..2 * self.batch.items()].as_chunks_mut::<2>().0.fill(self.run.size);
        let mut start = 0_u32;
        for offset in offsets.as_chunks_mut::<4>().0 {
            *offset = start.to_le_bytes();
            start = start.wrapping_add(cells);
        }
    }

    /// Bytes of the results that are to be 0 before: a failed grid writes nothing there. Kernels that work in place
    /// clear them by themselves.
    pub(super) fn cleared_bytes(&self) -> usize {
        let all = self.run.result_cells() * self.batch.items();
        if self.program().is_packed() { all } else { 0 }
    }

    pub(super) fn places(&self, at: &GridPlaces<DeviceAddress>) -> Places {
        let null = DeviceAddress::NULL;
        let scratch = |part: &Range<usize>| at.scratch.plus(part.start);
        let stage = |stage: &super::scratch::StageLayout| StagePlaces {
            shapes: scratch(&stage.shapes),
            cells: scratch(&stage.cells),
        };
        let count = |number: usize| u32::try_from(number).expect("within the limits of a job");
        let is_packed = self.program().is_packed();
        Places {
            items: count(self.batch.items()),
            cells: self.batch.cell_count(),
            area_max: self.run.size.map(usize::from).iter().product(),
            input: StagePlaces { shapes: at.tables, cells: at.grids },
            offsets: at.tables.plus(self.tables.offsets_start()),
            scratch: ScratchPlaces {
                status: self.scratch.status.each_ref().map(scratch),
                stages: self.scratch.stages.each_ref().map(stage),
                labels_low: scratch(&self.scratch.labels_low),
                labels_high: scratch(&self.scratch.labels_high),
                sums: null,
            },
            result: ResultPlaces {
                status: at.status,
                shapes: scratch(&self.shapes),
                cells: at.results,
                ..ResultPlaces::default()
            },
            even: is_packed.then(|| count(self.run.result_cells())),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
