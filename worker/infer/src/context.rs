//! One execution context of a model: what each concurrent run needs for itself.

use std::ops::Range;
use std::sync::Arc;

use gridpool_protocol::tensor::pipeline::{STATUS, WireError};
use gridpool_protocol::tensor::{DataType, Tensor, TensorSpec, Texts, TextsError};

use super::error::RuntimeFault;
use super::graphs::{Graphs, GraphsWanted};
use super::inputs::{RunInputs, first_and_rows, part_of};
use super::load::LoadError;
use super::pipeline::{Chain, StepRun};
use super::seam::{Binding, DeviceMemory, Running, SharedSession, Stop, Value, running};
use super::signature::Signature;
use super::warm_up::differing;

/// An execution context: a binding and the memory of its inputs, or those of all steps of a pipeline. It shares its
/// session with other contexts, which run at the same time; on a GPU those of a pipeline have sessions of their own.
///
/// One thread owns it. It may move to another thread, but two threads cannot use it at once: that does not
/// compile.
///
/// ```compile_fail,E0277
/// fn used_by_two_threads<T: Sync>() {}
/// used_by_two_threads::<gridpool_infer::Context>();
/// ```
///
/// ```
/// fn handed_over<T: Send>() {}
/// handed_over::<gridpool_infer::Context>();
/// ```
#[derive(Debug)]
pub struct Context {
    runner: Runner,
    /// Its CUDA graphs; none before it has a thread that serves it.
    graphs: Option<Graphs>,
    signature: Arc<Signature>,
}

/// What a context runs.
#[derive(Debug)]
enum Runner {
    Model { binding: Binding, session: SharedSession },
    Pipeline(Box<Chain>),
}

/// Why a run gave no usable outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// ONNX Runtime failed.
    #[error(transparent)]
    Fault(#[from] RuntimeFault),
    /// An input is not what the request said.
    #[error("the input `{name}`: {why}")]
    Input {
        /// Which one.
        name: String,
        /// What is wrong with it.
        why: TextsError,
    },
    /// An output does not match the model's own description.
    #[error("the model's output `{name}` {reason}")]
    Output {
        /// Which one.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A program of a pipeline failed for a grid, and nothing takes the statuses of its grids.
    #[error(
        "the step `{step}` has no result for grid {grid}: {why}; to have those of the others, take `{step}.{STATUS}` \
         as an output"
    )]
    Grid {
        /// The step.
        step: String,
        /// Which grid of the run, from 0.
        grid: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A step of a pipeline gave a tensor that the next one does not take.
    #[error(transparent)]
    Wire(Box<WireError>),
}

impl RunError {
    /// The error as that of a request of which these rows ran: its grids are counted from its own first row.
    pub(super) fn of_rows(self, rows: Option<&Range<u64>>) -> Self {
        match (self, rows) {
            (Self::Grid { step, grid, why }, Some(rows)) => {
                let first = usize::try_from(rows.start).expect("rows are in memory");
                Self::Grid { step, grid: grid + first, why }
            }
            (other, _) => other,
        }
    }

    /// Whether other requests may still be run in this process.
    pub(super) fn leaves_device_usable(&self) -> bool {
        match self {
            Self::Fault(fault) => fault.leaves_device_usable(),
            Self::Grid { .. } | Self::Input { .. } | Self::Output { .. } | Self::Wire(_) => true,
        }
    }
}

/// A run that may begin.
#[derive(Debug)]
pub(super) struct Ready {
    /// The CUDA graph to replay.
    graph: Option<usize>,
    running: Running,
}

/// The outputs of a run.
#[derive(Debug)]
pub(super) struct RunOutputs {
    tensors: Vec<Tensor>,
    values: Vec<Value>,
    /// The data of each output that is BYTES.
    texts: Vec<Option<Vec<u8>>>,
    steps: Vec<StepRun>,
    is_replay: bool,
    session: SharedSession,
}

impl Context {
    pub(super) fn new(
        session: &SharedSession,
        signature: &Arc<Signature>,
    ) -> Result<Self, RuntimeFault> {
        let inputs = Signature::names(&signature.inputs);
        let outputs = Signature::names(&signature.outputs);
        let binding = Binding::new(session, inputs, outputs)?;
        let runner = Runner::Model { binding, session: session.clone() };
        Ok(Self { runner, graphs: None, signature: Arc::clone(signature) })
    }

    /// A context of a pipeline with this signature.
    pub(super) fn of_chain(chain: Chain, signature: &Arc<Signature>) -> Self {
        let runner = Runner::Pipeline(Box::new(chain));
        Self { runner, graphs: None, signature: Arc::clone(signature) }
    }

    /// Captures CUDA graphs, and checks that their replays give what runs give. To be called by the thread that will
    /// serve the context. Returns how many there are.
    pub(super) fn capture(&mut self, wanted: &GraphsWanted) -> Result<u32, LoadError> {
        let mut graphs = Graphs::new(&wanted.plan)?;
        graphs.capture_all(&wanted.warm_ups)?;
        self.graphs = Some(graphs);
        wanted.warm_ups.iter().try_for_each(|warm_up| warm_up.check_replay(self))?;
        let graphs = self.graphs.as_mut().expect("they were just put there");
        Ok(graphs.serve()?)
    }

    /// Calls `run`, whose runs are not replays.
    pub(super) fn without_graphs<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let graphs = self.graphs.take();
        let ran = run(self);
        self.graphs = graphs;
        ran
    }

    /// By how much its CUDA graphs have grown since this was asked last, in bytes of the device's memory.
    pub(super) fn take_growth(&mut self) -> u64 {
        self.graphs.as_mut().map_or(0, Graphs::take_growth)
    }

    /// Whether a run can have the device copy some input from a client's memory.
    pub(super) fn can_lend(&self) -> bool {
        let mut inputs = self.signature.inputs.iter().enumerate();
        match &self.runner {
            Runner::Model { binding, .. } => {
                inputs.any(|(input, spec)| is_lendable(spec) && binding.is_on_device(input))
            }
            Runner::Pipeline(_) => false,
        }
    }

    /// What ends a run of this context from another thread.
    pub(super) fn new_stop(&self) -> Result<Stop, RuntimeFault> {
        match &self.runner {
            Runner::Model { .. } => Stop::new(),
            Runner::Pipeline(chain) => chain.new_stop(),
        }
    }

    /// The device memory of its sessions; `None` if they keep no count.
    pub(super) fn device_memory(&self) -> Result<Option<DeviceMemory>, RuntimeFault> {
        match &self.runner {
            Runner::Model { session, .. } => session.device_memory(),
            Runner::Pipeline(chain) => chain.device_memory(),
        }
    }

    fn session(&self) -> &SharedSession {
        match &self.runner {
            Runner::Model { session, .. } => session,
            Runner::Pipeline(chain) => chain.session(),
        }
    }

    /// What [`Context::ready`] and [`Context::run_ready`] do.
    pub(super) fn run(
        &mut self,
        shares: &[RunInputs<'_>],
        stop: &Stop,
    ) -> Result<RunOutputs, RunError> {
        let ready = self.ready(shares, stop)?;
        self.run_ready(ready, shares, stop)
    }

    /// Does what a run waits for and what is not its own work: a CUDA graph may be captured for it.
    pub(super) fn ready(
        &mut self,
        shares: &[RunInputs<'_>],
        stop: &Stop,
    ) -> Result<Ready, RunError> {
        let graph = self.graph(shares, stop)?;
        Ok(Ready { graph, running: running() })
    }

    /// Runs the model over the inputs of all shares, concatenated, unless `stop` ends it.
    pub(super) fn run_ready(
        &mut self,
        Ready { graph, running: _running }: Ready,
        shares: &[RunInputs<'_>],
        stop: &Stop,
    ) -> Result<RunOutputs, RunError> {
        let ran = self.run_over(graph, shares, stop);
        if let Runner::Model { binding, .. } = &mut self.runner {
            binding.return_lent();
        }
        ran
    }

    fn run_over(
        &mut self,
        graph: Option<usize>,
        shares: &[RunInputs<'_>],
        stop: &Stop,
    ) -> Result<RunOutputs, RunError> {
        let (first, all_rows) = first_and_rows(shares);
        for (input, spec) in self.signature.inputs.iter().enumerate() {
            let mut shape = first.tensor(input).signed_shape();
            if spec.is_text() {
                // Its model has no rows, so this is the only share.
                let mut data = vec![0; first.bytes_of(input).len()];
                first.source.read(first.bytes_of(input).start, &mut data);
                let texts = Texts::new(&data, first.tensor(input).elements());
                let wrong = |why| RunError::Input { name: spec.name.clone(), why };
                let texts = texts.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
                match &mut self.runner {
                    Runner::Model { binding, .. } => binding.input_texts(input, &shape, &texts)?,
                    Runner::Pipeline(_) => unreachable!("a pipeline with text was refused"),
                }
                continue;
            }
            if first.rows.is_some() {
                shape[0] = all_rows.cast_signed();
            }
            if let (None, [only], Runner::Model { binding, .. }) = (graph, shares, &mut self.runner)
                && is_lendable(spec)
                && let Some(range) = only.source.locked(&only.bytes_of(input))
                && binding.lend(input, spec.datatype, &shape, range)?
            {
                continue;
            }
            let memory = match (&mut self.graphs, graph, &mut self.runner) {
                (Some(graphs), Some(graph), _) => graphs.input(graph, input)?,
                (.., Runner::Model { binding, .. }) => {
                    binding.input(input, spec.datatype, &shape)?
                }
                (.., Runner::Pipeline(chain)) => chain.input(input, spec.datatype, &shape)?,
            };
            let mut rest = memory;
            for share in shares {
                let range = share.bytes_of(input);
                let (mine, others) = rest.split_at_mut(range.len());
                share.source.read(range.start, mine);
                if spec.datatype == DataType::Bool {
                    // A C++ `bool` is 0 or 1: every other value becomes 1.
                    mine.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                }
                rest = others;
            }
        }
        let given = if let (Some(graphs), Some(graph)) = (&mut self.graphs, graph) {
            let (values, steps) = graphs.replay(graph, stop)?;
            let session = graphs.session(graph).clone();
            RunOutputs { is_replay: true, ..self.checked(values, steps, &session)? }
        } else {
            let (values, steps) = match &mut self.runner {
                Runner::Model { binding, .. } => (binding.run(stop)?, Vec::new()),
                Runner::Pipeline(chain) => chain.run(stop)?,
            };
            self.checked(values, steps, self.session())?
        };
        match first.rows {
            Some(_) => given.has_rows(all_rows),
            None => Ok(given),
        }
    }

    /// The CUDA graph of a run over these shares; it may be captured now. Then it is first compared with runs.
    fn graph(&mut self, shares: &[RunInputs<'_>], stop: &Stop) -> Result<Option<usize>, RunError> {
        let (first, all_rows) = first_and_rows(shares);
        let Some(graphs) = &mut self.graphs else { return Ok(None) };
        let shape = |input| {
            let mut shape = first.tensor(input).signed_shape();
            if first.rows.is_some() {
                shape[0] = all_rows.cast_signed();
            }
            shape
        };
        let shapes: Vec<_> = (0..self.signature.inputs.len()).map(shape).collect();
        let Some(graph) = graphs.find(&shapes)? else { return Ok(None) };
        if graphs.is_checked(graph) {
            return Ok(Some(graph));
        }
        let mut run = |graph| {
            let ready = Ready { graph, running: running() };
            self.run_ready(ready, shares, stop)
        };
        let mut compare = || -> Result<Option<String>, RunError> {
            let (replay, runs) = (run(Some(graph))?, [run(None)?, run(None)?]);
            Ok(differing(&replay, &runs)?)
        };
        let compared = compare();
        let graphs = self.graphs.as_mut().expect("it has the graph");
        match compared {
            Ok(None) => {
                graphs.note_check(graph);
                Ok(Some(graph))
            }
            Ok(Some(output)) => {
                graphs.refuse(graph, output);
                Ok(None)
            }
            // The run itself will say so too, or it was stopped.
            Err(error) if error.leaves_device_usable() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Describes the values and checks that they match the model's description.
    fn checked(
        &self,
        values: Vec<Value>,
        steps: Vec<StepRun>,
        session: &SharedSession,
    ) -> Result<RunOutputs, RunError> {
        let (mut tensors, mut texts) = (Vec::with_capacity(values.len()), Vec::new());
        for (spec, value) in self.signature.outputs.iter().zip(&values) {
            let wrong = |reason: String| RunError::Output { name: spec.name.clone(), reason };
            let (datatype, shape) = value.description(session)?;
            if datatype != Some(spec.datatype) {
                return Err(wrong(format!("is not {}, as it says", spec.datatype)));
            }
            let sides = shape.iter().map(|&side| u64::try_from(side));
            let sides = sides.collect::<Result<Vec<_>, _>>();
            let sides = sides.map_err(|_| wrong(format!("has the shape {shape:?}")))?;
            let tensor = Tensor::new(&spec.name, spec.datatype, sides);
            let tensor = tensor.map_err(|error| wrong(error.to_string()))?;
            let packed = match spec.is_text() {
                true => Some(value.texts(tensor.elements(), session)?),
                false => None,
            };
            let packed = packed.transpose().map_err(|error| wrong(error.to_string()))?;
            let sized = match &packed {
                Some(data) => tensor.with_data(data).map_err(|error| wrong(error.to_string()))?,
                None => tensor,
            };
            tensors.push(sized);
            texts.push(packed);
        }
        if tensors.len() < self.signature.outputs.len() {
            let name = self.signature.outputs[tensors.len()].name.clone();
            return Err(RunError::Output { name, reason: "was not given".to_owned() });
        }
        let (is_replay, session) = (false, session.clone());
        Ok(RunOutputs { tensors, values, texts, steps, is_replay, session })
    }
}

/// Whether the device may copy such an input as it is: BYTES have a form of their own, and a `bool` is made 0 or 1.
fn is_lendable(spec: &TensorSpec) -> bool {
    !spec.is_text() && spec.datatype != DataType::Bool
}

impl RunOutputs {
    pub(super) fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// What each step of a pipeline did; none for one model.
    pub(super) fn steps(&self) -> &[StepRun] {
        &self.steps
    }

    /// Whether the run was the replay of a CUDA graph.
    pub(super) fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// The bytes of an output, or of some of its rows.
    pub(super) fn bytes(
        &self,
        output: usize,
        rows: Option<&Range<u64>>,
    ) -> Result<&[u8], RuntimeFault> {
        if let Some(data) = &self.texts[output] {
            return Ok(data);
        }
        let bytes = self.values[output].bytes(&self.session)?;
        // A tensor without elements has no memory, even if it has rows.
        let Some(rows) = rows.filter(|_| !bytes.is_empty()) else { return Ok(bytes) };
        Ok(&bytes[part_of(0..bytes.len(), self.tensors[output].shape()[0], rows)])
    }

    /// Checks that every output has this number of rows.
    fn has_rows(self, rows: u64) -> Result<Self, RunError> {
        match self.tensors.iter().find(|tensor| tensor.shape().first() != Some(&rows)) {
            None => Ok(self),
            Some(tensor) => Err(RunError::Output {
                name: tensor.name().to_owned(),
                reason: format!(
                    "has the shape {:?} after a run of {rows} rows: its requests cannot be joined, write \
                     max_batch = 1",
                    tensor.shape()
                ),
            }),
        }
    }
}
