//! Solvers and searches: their kernels, and what all chunks of them share. `lane` takes chunks of solvers through the
//! device as those of chains, and `search` runs searches.
//!
//! The modules are loaded at the first solver or search. A warp has a small arena in shared memory, which is enough for
//! most items. An item that needs more is run again by another module with a larger arena in global memory and fewer
//! warps (`kernel`); what needs more than the largest is run by the reference on the processor. So only the machine's
//! own limits end an item, on every device.
//!
//! A launch may run for minutes. Once nobody wants any of its results, it is stopped (`stop`).

pub(super) mod kernel;
mod search;
pub(super) mod stop;

use gridpool_kernels::part::Part;
use gridpool_kernels::reference::machine::Runner;
use gridpool_kernels::solve::SOLVERS;
use gridpool_protocol::program::Kind;
use gridpool_protocol::solver::Solver;

use super::driver::Driver;
use super::gpu::Gpu;
use super::memory::{DeviceBuffer, PinnedBuffer};
use crate::chunk::Piece;
use crate::device::{GridAttempt, GridDispatch};
use crate::fault::Fault;
use crate::search::SearchAttempt;
use crate::tally::Totals;
use kernel::Kernel;
use search::Searching;
use stop::Stop;

/// The kernels, with what is kept from chunk to chunk.
#[derive(Debug)]
pub(super) struct Solving {
    pub(super) kernel: Kernel,
    pub(super) stop: Stop,
    /// In global memory: for one launch at a time.
    pub(super) arenas: DeviceBuffer,
    /// Copies to the device for what a first launch left.
    pub(super) staging: PinnedBuffer,
    /// For what needs more than the largest arena.
    runner: Runner,
    /// Items that did not fit the arenas of a first launch, so far.
    pub(super) unfit: u64,
    /// Once there was a search: it has threads of its own.
    searching: Option<Searching>,
}

impl Solving {
    /// Of the GPU of this driver.
    pub(super) fn new(driver: &Driver) -> Result<Self, Fault> {
        Ok(Self {
            kernel: Kernel::new(driver, SOLVERS)?,
            stop: Stop::new(driver)?,
            arenas: DeviceBuffer::default(),
            staging: PinnedBuffer::default(),
            runner: Runner::default(),
            unfit: 0,
            searching: None,
        })
    }

    /// The kernels of solvers and searches, loaded at the first use.
    pub(super) fn loaded<'a>(
        solving: &'a mut Option<Self>,
        gpu: &Gpu,
    ) -> Result<&'a mut Self, Fault> {
        match solving {
            Some(loaded) => Ok(loaded),
            None => Ok(solving.insert(Self::new(&gpu.driver)?)),
        }
    }

    /// Runs searches.
    pub(super) fn search(
        &mut self,
        gpu: &mut Gpu,
        attempts: &[SearchAttempt<'_>],
        done: &mut Totals,
    ) -> Result<(), Fault> {
        let searching = match &mut self.searching {
            Some(searching) => searching,
            None => self.searching.insert(Searching::new(&gpu.driver)?),
        };
        searching.run(gpu, &mut self.arenas, attempts, done)
    }
}

/// A program over a dispatch.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) dispatch: &'a GridDispatch<'a>,
    /// If the program is a solver.
    pub(super) solver: Option<SolverWork<'a>>,
}

/// A solver, and what runs it.
#[derive(Debug)]
pub(super) struct SolverWork<'a> {
    pub(super) solving: &'a mut Solving,
    solver: &'a Solver,
    /// As the device reads it.
    pub(super) code: Vec<u8>,
    pub(super) gives_grid: bool,
    pub(super) steps_max: u32,
}

impl<'a> Work<'a> {
    /// The program of a dispatch over its items. `solving` is made for the first solver.
    pub(super) fn of(
        dispatch: &'a GridDispatch<'a>,
        solving: &'a mut Option<Solving>,
        gpu: &mut Gpu,
    ) -> Result<Self, Fault> {
        let program = dispatch.program;
        let Some(solver) = program.solver() else { return Ok(Self { dispatch, solver: None }) };
        let solving = Solving::loaded(solving, gpu)?;
        solving.stop.prepare(gpu)?;
        let (code, gives_grid) = (solver.code().to_bytes(), program.gives().kind == Kind::Grid);
        let steps_max = program.step_limit();
        Ok(Self {
            dispatch,
            solver: Some(SolverWork { solving, solver, code, gives_grid, steps_max }),
        })
    }
}

/// What the reference gives for an item.
#[derive(Debug)]
pub(super) struct ByReference {
    pub(super) status: [u8; 2],
    pub(super) shape: [u8; 2],
    pub(super) instruction: [u8; 4],
    pub(super) bytes: Vec<u8>,
}

impl SolverWork<'_> {
    /// Runs an item on the processor, whose grid starts at byte `from` of the input; `None` if its attempt is cancelled
    /// meanwhile.
    pub(super) fn by_reference(
        &mut self,
        attempt: &GridAttempt<'_>,
        piece: &Piece,
        shape: [u8; 2],
        from: usize,
    ) -> Option<ByReference> {
        let runner = &mut self.solving.runner;
        runner.load(&[shape], |cells| attempt.input().read(from, cells));
        let layout = attempt.output_layout();
        if !runner.run(self.solver, layout, &piece.of_batch, || attempt.is_cancelled()) {
            return None;
        }
        let two = |part: Part| runner.part(part).first_chunk::<2>().copied().unwrap_or_default();
        let instruction = runner.part(Part::Numbers).first_chunk::<4>().copied();
        Some(ByReference {
            status: two(Part::Status),
            shape: two(Part::Shapes),
            instruction: instruction.unwrap_or_default(),
            bytes: runner.part(Part::Cells).to_vec(),
        })
    }
}
