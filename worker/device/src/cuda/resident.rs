//! Times a program's kernels over a chunk that is already on the device: their rate without copies.

use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::KernelUse;
use gridpool_protocol::shared::SharedSlice;

use super::device::CudaDevice;
use crate::chunk::{Feed, Span};
use crate::device::{GridAttempt, GridDispatch};
use crate::fault::Fault;
use crate::tally::{Tally, Totals};

/// The results of one program run many times over one chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    /// Items of the chunk: all of the batch, or the first ones that fit a chunk.
    pub items: usize,
    /// The result of the whole batch; only these items are filled in.
    pub output: Vec<u8>,
    /// Bytes that the program's ends read and write: tables and cells in, the result out.
    pub bytes: u64,
    /// All launches of all repetitions.
    pub kernels: Vec<KernelUse>,
    /// Microseconds from before the first kernel to after the last one, for each repetition.
    pub device_us: Vec<f64>,
}

impl CudaDevice {
    /// Copies one chunk of `batch` to the device, then launches the kernels of `program` over it
    /// `repetitions` times with no copy in between. One repetition before the first is not timed.
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
        let mut rest = vec![Span { attempt: 0, items: 0..layout.items() }];
        let mut done = Totals::of(&dispatch);

        let Self { gpu, lanes, chunk_limits, .. } = self;
        let driver = gpu.driver;
        let lane = &mut lanes[0];
        let mut feed = Feed::new(&dispatch, &mut rest, *chunk_limits, chunk_limits.cells_max);
        lane.begin(gpu, &dispatch, &mut feed, &mut done)?;
        let pass =
            lane.finish(&dispatch, &mut done)?.expect("a batch that was checked makes a chunk");
        let copied = done.attempts[0].as_ref().expect("a batch that was checked is not refused");
        let bytes = copied.h2d_bytes + copied.d2h_bytes;

        let (start, end) = (driver.event()?, driver.event()?);
        let (mut tally, mut device_us) = (Tally::default(), Vec::new());
        for _ in 0..repetitions {
            driver.record(start, lane.stream())?;
            lane.compute(gpu, &dispatch, &pass)?;
            driver.record(end, lane.stream())?;
            driver.synchronize(lane.stream())?;
            lane.launcher().collect(&driver, &mut tally)?;
            device_us.push(driver.elapsed_us(start, end)?);
        }
        let kernels = tally.into_uses();
        Ok(Resident { items: pass.batch.items(), output, bytes, kernels, device_us })
    }
}
