//! Times a program's kernels over a chunk that is already on the device: their rate without copies.

use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::KernelUse;
use gridpool_protocol::shared::SharedSlice;

use super::device::CudaDevice;
use super::gpu::Gpu;
use super::lane::Lane;
use super::pass::Pass;
use super::pipeline;
use super::solve::Work;
use crate::chunk::{ChunkLimits, Feed, Span};
use crate::device::{GridAttempt, GridDispatch};
use crate::fault::Fault;
use crate::tally::{Tally, Totals};

/// The results of one program run many times over one chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    /// Items of the chunk: all of the batch, or the first ones that fit a chunk of a chain.
    pub items: usize,
    /// Those with an error in place of a result.
    pub item_errors: u32,
    /// Those of a solver that did not fit the arenas of the first launch.
    pub unfit_items: u64,
    /// The result of the whole batch; only these items are filled in.
    pub output: Vec<u8>,
    /// Bytes that the program's ends read and write: tables and cells in, the result out.
    pub bytes: u64,
    /// All launches of all repetitions.
    pub kernels: Vec<KernelUse>,
    /// Microseconds of each repetition: from before the first kernel to after the last one, or of a solver's launches
    /// together.
    pub device_us: Vec<f64>,
}

impl CudaDevice {
    /// Copies one chunk of `batch` to the device, then launches the kernels of `program` over it
    /// `repetitions` times with no copy in between. One repetition before the first is not timed. A solver runs over
    /// one chunk after the other each time, and only its launches are timed: what one leaves for the next is known only
    /// when its statuses have been copied.
    ///
    /// # Errors
    /// A [`Fault`] of the driver.
    ///
    /// # Panics
    /// If `batch` is empty or not what the program takes, or if its result might be too large for a job.
    pub fn time_resident(
        &mut self,
        program: &Program,
        batch: &GridBatch,
        repetitions: u32,
    ) -> Result<Resident, Fault> {
        let layout = batch.layout().expect("the caller's batch has grids");
        let result = OutputLayout::new(program, layout).expect("the batch suits its program");
        let (mut input, mut output) = (vec![0; layout.bytes()], vec![0; result.bytes()]);
        let (input, place) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
        batch.write_to(layout, &input);
        let attempt = GridAttempt::new(program, layout, 0..layout.items(), input, place);
        let attempts = [attempt.expect("the places have the layouts' lengths")];
        let dispatch = GridDispatch { program, attempts: &attempts };

        let Self { gpu, lanes, chunk_limits, solving, .. } = self;
        let lane = &mut lanes[0];
        let mut work = Work::of(&dispatch, solving, gpu)?;
        let limits = pipeline::limits_of(&work, *chunk_limits);
        let (mut done, mut tally, mut device_us) =
            (Totals::of(&dispatch), Tally::default(), Vec::new());
        let unfit_before = work.solver.as_ref().map_or(0, |of| of.solving.unfit);
        let pass = run_alone(gpu, lane, &mut work, limits, &mut done)?;
        let unfit_items = work.solver.as_ref().map_or(0, |of| of.solving.unfit) - unfit_before;
        let of_solver = work.solver.is_some();
        if of_solver {
            for _ in 0..repetitions {
                let mut again = Totals::of(&dispatch);
                run_alone(gpu, lane, &mut work, limits, &mut again)?;
                device_us.push(again.tally.device_us());
                tally = tally.merged(again.tally);
            }
        } else {
            let driver = gpu.driver;
            let (start, end) = (driver.event()?, driver.event()?);
            for _ in 0..repetitions {
                driver.record(start, lane.stream())?;
                lane.compute(gpu, &mut work, &pass)?;
                driver.record(end, lane.stream())?;
                driver.synchronize(lane.stream())?;
                lane.launcher().collect(&driver, &mut tally)?;
                device_us.push(driver.elapsed_us(start, end)?);
            }
        }
        let sum = done.into_report(0).sum();
        let items = if of_solver { layout.items() } else { pass.batch.items() };
        let bytes = sum.h2d_bytes + sum.d2h_bytes;
        let (kernels, item_errors) = (tally.into_uses(), sum.item_errors);
        Ok(Resident { items, item_errors, unfit_items, output, bytes, kernels, device_us })
    }
}

/// Takes the first chunk of a dispatch through a lane, or all chunks of a solver, one after the other. Returns the
/// last.
fn run_alone(
    gpu: &mut Gpu,
    lane: &mut Lane,
    work: &mut Work<'_>,
    limits: ChunkLimits,
    done: &mut Totals,
) -> Result<Pass, Fault> {
    let (dispatch, of_solver) = (work.dispatch, work.solver.is_some());
    let mut rest = vec![Span { attempt: 0, items: dispatch.attempts[0].items() }];
    let mut feed = Feed::new(dispatch, &mut rest, limits, limits.cells_max);
    loop {
        lane.begin(gpu, work, &mut feed, done)?;
        let pass = lane.finish(gpu, work, &mut feed, done)?;
        if !of_solver || feed.is_empty() {
            return Ok(pass.expect("a batch that was checked makes a chunk"));
        }
    }
}
