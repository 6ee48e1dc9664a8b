//! Where a program over grids that lie on the device finds and leaves what: plain arithmetic. `compute` launches.
//!
//! The tensors are as they are. If all results have one size, tables are known before a run and nothing is packed. Else
//! a kernel takes grids out of their planes, if they have several sizes, and another lays results into theirs: between
//! them a chain and a solver run as in a job. Nobody looks at what came out before the stream is waited for.

use std::ops::Range;
use std::sync::Arc;

use gridpool_kernels::argument::{DeviceAddress, PicturesArgument, StepArgument};
use gridpool_kernels::module::Kernel;
use gridpool_kernels::solve::SolveArgument;
use gridpool_protocol::batch::{BatchLayout, PART_ALIGN};
use gridpool_protocol::limits::GRID_CELLS_MAX;
use gridpool_protocol::solver::Solver;
use gridpool_protocol::tensor::pipeline::{GridStep, GridsRun};

use super::pass::InputLayout;
use super::schedule::{self, Places, PlanePlaces, ResultPlaces, ScratchPlaces, StagePlaces};
use super::scratch::ScratchLayout;
use super::solve::kernel::QUEUED_ARENA_BYTES;

/// Items of a solver that are launched together: there is room for the largest result of each.
const SOLVED_MAX: usize = 1 << 12;

/// A program and the grids of one tensor.
#[derive(Clone, Debug)]
pub struct GridsOnDevice {
    step: Arc<GridStep>,
    run: GridsRun,
    batch: BatchLayout,
    tables: InputLayout,
    /// Of a chain.
    scratch: ScratchLayout,
    /// Behind the rest of the scratch.
    parts: Parts,
    bytes: usize,
}

/// Parts of the scratch. Unused ones are empty.
#[derive(Clone, Debug, Default)]
struct Parts {
    /// The size of each result.
    shapes: Range<usize>,
    /// Grids that were taken out of their planes.
    taken: Range<usize>,
    /// Statuses and cells before they are laid into planes.
    status: Range<usize>,
    made: Range<usize>,
    /// Of a solver, for each item.
    instructions: Range<usize>,
    places: Range<usize>,
    lengths: Range<usize>,
    /// How much of the results is used, and a word that stays 0: nothing stops a launch.
    used: Range<usize>,
    arenas: Range<usize>,
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
    /// The size of each grid, if the step takes it.
    pub sizes: Option<T>,
    /// The cells of the results.
    pub results: T,
    /// Two bytes for each grid.
    pub status: T,
    /// The size of each result, if the step gives it.
    pub result_sizes: Option<T>,
}

impl<T: Copy> GridPlaces<T> {
    /// The same as something else.
    ///
    /// # Errors
    /// The first that `make` gives.
    pub fn each<U, E>(&self, make: impl Fn(T) -> Result<U, E>) -> Result<GridPlaces<U>, E> {
        let Self { tables, scratch, grids, sizes, results, status, result_sizes } = *self;
        Ok(GridPlaces {
            tables: make(tables)?,
            scratch: make(scratch)?,
            grids: make(grids)?,
            sizes: sizes.map(&make).transpose()?,
            results: make(results)?,
            status: make(status)?,
            result_sizes: result_sizes.map(&make).transpose()?,
        })
    }
}

impl GridsOnDevice {
    /// The program of a step over such a tensor; none if there is no grid in it.
    #[must_use]
    pub fn new(step: &Arc<GridStep>, run: GridsRun) -> Option<Self> {
        let batch = run.batch?;
        let (program, items) = (step.program(), batch.items());
        let is_solver = program.solver().is_some();
        let scratch = match is_solver {
            true => ScratchLayout::default(),
            false => ScratchLayout::new(program, &batch),
        };
        let mut bytes = scratch.bytes;
        let mut add = |is_used: bool, length: usize| {
            let start = bytes.next_multiple_of(PART_ALIGN);
            bytes = start + if is_used { length } else { 0 };
            start..bytes
        };
        let solved = items.min(SOLVED_MAX);
        let made = if is_solver { solved * GRID_CELLS_MAX } else { batch.cell_count() };
        let parts = Parts {
            shapes: add(true, 2 * items),
            taken: add(step.takes_sizes(), batch.cell_count()),
            status: add(step.gives_sizes(), 2 * items),
            made: add(is_solver || step.gives_sizes() && !program.is_packed(), made),
            instructions: add(is_solver, 4 * solved),
            places: add(is_solver, 4 * solved),
            lengths: add(is_solver, 4 * solved),
            used: add(is_solver, 8),
            arenas: add(is_solver, QUEUED_ARENA_BYTES),
        };
        let code_bytes = program.solver().map_or(0, |solver| solver.code().to_bytes().len());
        let (step, tables) = (Arc::clone(step), InputLayout::new(items, code_bytes));
        Some(Self { step, run, batch, tables, scratch, parts, bytes })
    }

    /// Its solver, if it is one.
    pub(super) fn solver(&self) -> Option<&Solver> {
        self.step.program().solver()
    }

    /// The length of the tables.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        match self.solver() {
            Some(_) => self.tables.code().end,
            None => self.tables.tables_end(),
        }
    }

    /// The length of the scratch.
    #[must_use]
    pub fn scratch_bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the size of each grid, which a run writes anew if the step takes sizes, where each starts, and a solver.
    ///
    /// # Panics
    /// If `to` has not [`GridsOnDevice::table_bytes`] bytes.
    pub fn write_tables(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.table_bytes(), "the tables");
        if let Some(solver) = self.solver() {
            to[self.tables.code()].copy_from_slice(&solver.code().to_bytes());
        }
        let cells = number(self.run.area());
        let to = &mut to[..self.tables.tables_end()];
        let (shapes, offsets) = to.split_at_mut(self.tables.offsets_start());
        shapes[..2 * self.batch.items()].as_chunks_mut::<2>().0.fill(self.run.size);
        let mut start = 0_u32;
        for offset in offsets.as_chunks_mut::<4>().0 {
            *offset = start.to_le_bytes();
            start = start.wrapping_add(cells);
        }
    }

    /// Bytes of the results that are to be 0 before: a failed grid writes nothing there. Kernels that work in place
    /// clear them by themselves, and so does the one that lays them into planes.
    pub(super) fn cleared_bytes(&self) -> usize {
        let all = self.run.result_cells() * self.batch.items();
        if self.step.program().is_packed() && !self.step.gives_sizes() { all } else { 0 }
    }

    /// What takes the grids out of their planes, if they have several sizes.
    pub(super) fn take(&self, at: &GridPlaces<DeviceAddress>) -> Option<StepArgument> {
        let planes = self.planes(at).filter(|_| self.step.takes_sizes())?;
        let StagePlaces { shapes, cells } = self.input(at);
        let mut step = StepArgument {
            values: number(self.batch.items()),
            offsets: at.tables.plus(self.tables.offsets_start()),
            from: PicturesArgument { cells: at.grids, ..PicturesArgument::default() },
            to: PicturesArgument { shapes, cells, ..PicturesArgument::default() },
            ..StepArgument::default()
        };
        planes.add_sizes_to(&mut step);
        Some(step)
    }

    /// The kernels of a chain, each with its argument.
    pub(super) fn chain(
        &self,
        at: &GridPlaces<DeviceAddress>,
    ) -> Vec<(&'static Kernel, StepArgument)> {
        schedule::launches(self.step.program(), &self.places(at))
    }

    /// The grids as the program takes them.
    fn input(&self, at: &GridPlaces<DeviceAddress>) -> StagePlaces {
        let taken = at.scratch.plus(self.parts.taken.start);
        let cells = if self.step.takes_sizes() { taken } else { at.grids };
        StagePlaces { shapes: at.tables, cells }
    }

    /// Where the results lie, if they have several sizes.
    fn planes(&self, at: &GridPlaces<DeviceAddress>) -> Option<PlanePlaces> {
        Some(PlanePlaces {
            planes: [self.run.size, self.run.result],
            sizes_before: at.sizes.unwrap_or_default(),
            cells: at.results,
            status: at.status,
            sizes: at.result_sizes?,
        })
    }

    fn places(&self, at: &GridPlaces<DeviceAddress>) -> Places {
        let null = DeviceAddress::NULL;
        let scratch = |part: &Range<usize>| at.scratch.plus(part.start);
        let stage = |stage: &super::scratch::StageLayout| StagePlaces {
            shapes: scratch(&stage.shapes),
            cells: scratch(&stage.cells),
        };
        let planes = self.planes(at);
        let (status, cells) = match planes {
            Some(_) => (scratch(&self.parts.status), scratch(&self.parts.made)),
            None => (at.status, at.results),
        };
        let is_even = planes.is_none() && self.step.program().is_packed();
        Places {
            items: number(self.batch.items()),
            cells: self.batch.cell_count(),
            area_max: self.run.area(),
            input: self.input(at),
            offsets: at.tables.plus(self.tables.offsets_start()),
            scratch: ScratchPlaces {
                status: self.scratch.status.each_ref().map(scratch),
                stages: self.scratch.stages.each_ref().map(stage),
                labels_low: scratch(&self.scratch.labels_low),
                labels_high: scratch(&self.scratch.labels_high),
                sums: null,
            },
            result: ResultPlaces {
                status,
                shapes: scratch(&self.parts.shapes),
                cells,
                ..ResultPlaces::default()
            },
            even: is_even.then(|| number(self.run.result_cells())),
            planes,
        }
    }

    /// The parts of a run of a solver, in order.
    pub(super) fn solved(&self, at: &GridPlaces<DeviceAddress>) -> Vec<Solved> {
        let planes = self.planes(at).expect("a solver says in what size its results lie");
        let part = |part: &Range<usize>| at.scratch.plus(part.start);
        let input = self.input(at);
        let solved = (0..self.batch.items()).step_by(SOLVED_MAX).map(|first| {
            let items = number((self.batch.items() - first).min(SOLVED_MAX));
            let solve = SolveArgument {
                program: at.tables.plus(self.tables.code().start),
                shapes: input.shapes.plus(2 * first),
                offsets: at.tables.plus(self.tables.offsets_start() + 4 * first),
                cells: input.cells.plus(self.run.area() * first),
                status: part(&self.parts.status),
                instructions: part(&self.parts.instructions),
                out_shapes: part(&self.parts.shapes),
                places: part(&self.parts.places),
                lengths: part(&self.parts.lengths),
                results: part(&self.parts.made),
                used: part(&self.parts.used),
                items_count: items,
                steps_max: self.step.program().step_limit(),
                results_max: number(self.parts.made.len()),
                ..SolveArgument::default()
            };
            let made = StepArgument {
                values: items,
                status_before: solve.status,
                from: PicturesArgument {
                    shapes: solve.out_shapes,
                    cells: solve.results,
                    ..PicturesArgument::default()
                },
                numbers: solve.instructions,
                places_before: solve.places,
                ..StepArgument::default()
            };
            let put = planes.starting_at(first).add_to(made);
            Solved {
                solve,
                used_bytes: self.parts.used.len(),
                arenas: part(&self.parts.arenas),
                put,
            }
        });
        solved.collect()
    }
}

/// Items of a solver that are launched together.
#[derive(Debug)]
pub(super) struct Solved {
    /// Without arenas. What it has used is to be cleared before, so many bytes.
    pub(super) solve: SolveArgument,
    pub(super) used_bytes: usize,
    pub(super) arenas: DeviceAddress,
    /// What lays their results into planes.
    pub(super) put: StepArgument,
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("within the limits of a job")
}

#[cfg(test)]
pub(super) mod tests;
