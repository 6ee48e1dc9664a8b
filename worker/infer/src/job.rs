//! One request from its acceptance to its answer. It collects the outputs of all its runs.

use std::ops::Range;

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::tensor::model::{InferReport, ModelInfo, StepInfo, StepReport};
use gridpool_protocol::tensor::{Tensor, TensorError, TensorLayout};

use super::context::{RunError, RunOutputs};
use super::inputs::RunInputs;
use super::pipeline::StepRun;
use super::place::{Destination, Placed, Source, Writing};
use super::signature::Arrangement;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Every output of the model, packed.
    pub outputs: Placed,
    /// Its rows; for a model without rows, its runs.
    pub rows: u32,
    /// Where and how it ran.
    pub report: InferReport,
}

/// Why an accepted request has no outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// It was withdrawn before it had run to its end.
    #[error("the request was cancelled")]
    Cancelled,
    /// Its deadline passed while it waited.
    #[error("the request's deadline passed before it ran")]
    Late,
    /// Its outputs do not fit their destination.
    #[error("the outputs do not fit")]
    Outputs(#[source] TensorError),
    /// Its runs gave outputs of different shapes.
    #[error("the output `{name}` changed shape between runs of the request: send fewer rows")]
    Parts {
        /// Which output.
        name: String,
    },
    /// It failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Takes the answer. It is called once, on a thread that runs the model. It must not block, end the engine,
/// unload the model or change its contexts: these wait for that thread.
pub type Done = Box<dyn FnOnce(Result<Answer, InferError>) + Send>;

/// An accepted request.
pub(super) struct Job {
    pub(super) id: u64,
    source: Source,
    layout: TensorLayout,
    arrangement: Arrangement,
    state: Mutex<JobState>,
}

/// Its progress.
struct JobState {
    destination: Destination,
    writing: Option<(Writing, TensorLayout)>,
    rows_left: u64,
    runs: u32,
    replays: u32,
    joined_rows: u64,
    device_us: f64,
    /// What each step of a pipeline did.
    steps: Vec<StepRun>,
    /// Taken by the thread that ends it.
    done: Option<Done>,
}

/// A run that included rows of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelRun<'a> {
    pub(super) given: &'a RunOutputs,
    /// Rows of all requests in it; 1 if the model has none.
    pub(super) joined_rows: u64,
    pub(super) device_us: f64,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Job {
    pub(super) fn new(
        id: u64,
        source: Source,
        layout: TensorLayout,
        arrangement: Arrangement,
        destination: Destination,
        done: Done,
    ) -> Self {
        let state = JobState {
            destination,
            writing: None,
            rows_left: arrangement.rows.unwrap_or(0),
            runs: 0,
            replays: 0,
            joined_rows: 0,
            device_us: 0.0,
            steps: Vec::new(),
            done: Some(done),
        };
        Self { id, source, layout, arrangement, state: Mutex::new(state) }
    }

    /// The inputs of these rows for a run.
    pub(super) fn run_inputs(&self, rows: Option<Range<u64>>) -> RunInputs<'_> {
        let order = &self.arrangement.order;
        RunInputs { layout: &self.layout, order, source: &self.source, rows }
    }

    /// Whether it has its answer, so that none of its rows need to run.
    pub(super) fn is_over(&self) -> bool {
        self.state.lock().done.is_none()
    }

    /// Ends it without outputs, unless it has ended.
    pub(super) fn fail(&self, error: InferError) {
        let done = self.state.lock().done.take();
        if let Some(done) = done {
            done(Err(error));
        }
    }

    /// Drops `done` without calling it, because the request was not accepted.
    pub(super) fn forget(&self) {
        drop(self.state.lock().done.take());
    }

    /// Takes a run's outputs for its `rows`, which start at row `at` of the run. Answers once all rows are
    /// there.
    pub(super) fn deliver(
        &self,
        info: &ModelInfo,
        run: ModelRun<'_>,
        rows: Option<Range<u64>>,
        at: u64,
    ) {
        let mut state = self.state.lock();
        if state.done.is_none() {
            return;
        }
        let written = self.write(&mut state, run.given, rows.as_ref(), at);
        state.runs += 1;
        state.replays += u32::from(run.given.is_replay());
        state.joined_rows += run.joined_rows;
        state.device_us += run.device_us;
        state.steps.resize(run.given.steps().len(), StepRun::default());
        state.steps.iter_mut().zip(run.given.steps()).for_each(|(all, run)| all.add(run));
        state.rows_left -= rows.map_or(0, |rows| rows.end - rows.start);
        let ended = match written {
            Ok(()) if state.rows_left > 0 => return,
            Ok(()) => Ok(self.answer(&mut state, info)),
            Err(error) => Err(error),
        };
        let done = state.done.take().expect("checked above");
        drop(state);
        done(ended);
    }

    fn write(
        &self,
        state: &mut JobState,
        given: &RunOutputs,
        rows: Option<&Range<u64>>,
        at: u64,
    ) -> Result<(), InferError> {
        if state.writing.is_none() {
            let layout = self.output_layout(given).map_err(InferError::Outputs)?;
            let writing = state.destination.begin(&layout).map_err(InferError::Outputs)?;
            state.writing = Some((writing, layout));
        }
        let (writing, layout) = state.writing.as_mut().expect("it was put there");
        let of_run = rows.map(|rows| at..at + rows.end - rows.start);
        for (output, (whole, part)) in layout.tensors().iter().zip(given.tensors()).enumerate() {
            if rows.is_some() && whole.shape()[1..] != part.shape()[1..] {
                return Err(InferError::Parts { name: whole.name().to_owned() });
            }
            let bytes = given.bytes(output, of_run.as_ref()).map_err(RunError::from)?;
            let rows_before = rows.map_or(0, |rows| rows.start);
            let range = layout.range(output);
            let row = whole.shape().first().map_or(0, |&all| {
                let all = usize::try_from(all).expect("rows are counted in memory");
                range.len().checked_div(all).unwrap_or(0)
            });
            let before = usize::try_from(rows_before).expect("rows are counted in memory");
            writing.write(range.start + row * before, bytes);
        }
        Ok(())
    }

    /// The layout of all its rows' outputs, derived from those of one run.
    fn output_layout(&self, given: &RunOutputs) -> Result<TensorLayout, TensorError> {
        let whole = |part: &Tensor| match self.arrangement.rows {
            None => Ok(part.clone()),
            Some(rows) => {
                let mut shape = part.shape().to_vec();
                shape[0] = rows;
                Tensor::new(part.name(), part.datatype(), shape)
            }
        };
        TensorLayout::new(given.tensors().iter().map(whole).collect::<Result<Vec<_>, _>>()?)
    }

    fn answer(&self, state: &mut JobState, info: &ModelInfo) -> Answer {
        let (writing, layout) = state.writing.take().expect("the last part was written");
        let bytes_of = |layout: &TensorLayout| -> u64 {
            layout.tensors().iter().map(|tensor| tensor.bytes() as u64).sum()
        };
        let step = |(info, run): (&StepInfo, &StepRun)| StepReport {
            name: info.name.clone(),
            sha256: info.sha256.clone(),
            device_us: run.device_us,
            device_bytes: run.device_bytes,
            host_bytes: run.host_bytes,
        };
        let report = InferReport {
            model: info.name.clone(),
            sha256: info.sha256.clone(),
            onnxruntime: info.onnxruntime.clone(),
            nodes: info.nodes.clone(),
            runs: state.runs,
            graph_replays: state.replays,
            joined_rows: u32::try_from(state.joined_rows).unwrap_or(u32::MAX),
            device_us: state.device_us,
            h2d_bytes: bytes_of(&self.layout),
            d2h_bytes: bytes_of(&layout),
            steps: info.steps.iter().zip(&state.steps).map(step).collect(),
        };
        // For a model without rows, a run counts as a row.
        let rows =
            self.arrangement.rows.map_or(state.runs, |rows| rows.try_into().unwrap_or(u32::MAX));
        Answer { outputs: writing.end(&layout), rows, report }
    }
}

impl Drop for Job {
    /// A request that is dropped still answers, so that no caller waits forever.
    fn drop(&mut self) {
        self.fail(InferError::Cancelled);
    }
}
