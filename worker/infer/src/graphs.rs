//! CUDA graphs of one context: runs of fixed shapes that are captured once and then replayed.
//!
//! A graph reads and writes fixed addresses, so each has inputs and outputs of its own on the device, and it belongs to
//! a session that no other context runs and that does nothing else. Runs that are not replays go to the session that
//! all contexts share.
//!
//! A captured run stays valid only while the session's nodes keep what it uses. Nodes that rebuild their plans when the
//! shape of their input changes do not, so a model with such nodes has a session for each of its graphs, and gets
//! graphs only for its warm-up's shapes. Other models have one session for all graphs of a context, and a graph for
//! each shape that they meet, up to [`CUDA_GRAPHS_MAX`].
//!
//! ONNX Runtime keeps a graph for the thread that captured it, so a context captures on the thread that serves it.

use std::path::PathBuf;
use std::sync::Arc;

use gridpool_device::cuda::ComputeStream;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::limits::CUDA_GRAPHS_MAX;
use gridpool_protocol::tensor::options::{ModelOptions, Provider, check_file};

use super::error::RuntimeFault;
use super::load::{LoadError, ModelFile, Opened};
use super::runtime::Runtime;
use super::seam::{
    AssignedNode, Bound, Fixed, OwnedAllocator, Place, SharedSession, Stop, Value, alone,
    alone_now, download, places, upload,
};
use super::signature::Signature;
use super::warm_up::WarmUp;

/// Ops that draw random numbers: a replay would draw the same again.
const RANDOM_OPS: [&str; 7] = [
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Sampling",
];
/// Ops whose outputs have as many elements as their data says: a replay would have as many as the captured run.
const COUNTING_OPS: [&str; 4] = ["Compress", "NonMaxSuppression", "NonZero", "Unique"];
/// Ops whose nodes keep a plan for the shape of their last input, beside all convolutions.
const PLANNED_OPS: [&str; 3] = ["GRU", "LSTM", "RNN"];

/// Why a model has no CUDA graphs although it asks for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphsError {
    /// The CPU would take part in a replay.
    #[error(
        "its {tensor} lies in the host's memory, because the CPU reads or writes it, and a replay has no CPU"
    )]
    Host {
        /// The input or output.
        tensor: String,
    },
    /// It counts.
    #[error(
        "the shape of what its node {node} gives depends on its data, and a replay would give that of the captured run"
    )]
    Counting {
        /// The node.
        node: String,
    },
    /// It is random.
    #[error("its node {node} draws random numbers, and a replay would draw the same again")]
    Random {
        /// The node.
        node: String,
    },
    /// Something in it depends on more than its inputs' shapes.
    #[error(
        "a replay gives other results than a run: its output `{output}` differs, with inputs {shapes}"
    )]
    Differs {
        /// The output.
        output: String,
        /// The shapes of the inputs.
        shapes: String,
    },
    /// ONNX Runtime has not captured the run, or cannot.
    #[error("its run with inputs {shapes} cannot be captured")]
    Capture {
        /// The shapes of the inputs.
        shapes: String,
        /// Why.
        #[source]
        source: RuntimeFault,
    },
}

/// What the graphs of all contexts of a model are made of.
#[derive(Debug)]
pub(super) struct GraphsPlan {
    runtime: Runtime,
    name: String,
    path: PathBuf,
    sha256: String,
    options: ModelOptions,
    signature: Arc<Signature>,
    /// Whether its nodes rebuild something when a shape changes.
    has_plans: bool,
}

/// What every context of a model captures before it serves.
#[derive(Debug)]
pub(super) struct GraphsWanted {
    pub(super) plan: Arc<GraphsPlan>,
    pub(super) warm_ups: Vec<WarmUp>,
}

/// What a context has captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) graphs: u32,
    /// What it takes for that of the device's memory.
    pub(super) device_bytes: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Graphs {
    // Dropped in this order: graphs, the session, the stream.
    graphs: Vec<Graph>,
    /// That of all graphs, unless each has its own.
    session: Option<SharedSession>,
    plan: Arc<GraphsPlan>,
    /// Whether requests wait: then no session is made.
    serves: bool,
    /// Whether a capture failed: then it tries no other.
    is_closed: bool,
    stream: ComputeStream,
}

/// One graph.
#[derive(Debug)]
struct Graph {
    // Dropped in this order: the binding and all tensors, then what made them.
    fixed: Fixed,
    /// What is copied to the device before a replay.
    inputs: Vec<Value>,
    replays: Stop,
    host: Arc<OwnedAllocator>,
    shapes: Vec<Vec<i64>>,
}

impl GraphsPlan {
    /// Checks that the nodes of a model can be replayed.
    pub(super) fn new(
        runtime: &Runtime,
        name: &str,
        file: &ModelFile,
        options: &ModelOptions,
        opened: &Opened,
        nodes: &[AssignedNode],
    ) -> Result<Self, GraphsError> {
        let has_plans = have_plans(nodes)?;
        let mut options = options.clone();
        options.providers = vec![Provider::Cuda];
        Ok(Self {
            runtime: runtime.clone(),
            name: name.to_owned(),
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            options,
            signature: Arc::clone(&opened.signature),
            has_plans,
        })
    }

    fn open(&self, stream: &ComputeStream) -> Result<SharedSession, LoadError> {
        let file = ModelFile::read(&self.path)?;
        check_file(&self.name, &self.path, Some(&self.sha256), &file.sha256)?;
        let (kind, options) = (DeviceKind::Gpu, &self.options);
        let opened = Opened::open(&self.runtime, kind, &file, options, Some(stream))?;
        let (inputs, outputs) = (&self.signature.inputs, &self.signature.outputs);
        let (takes, gives) = places(&opened.session, inputs.len(), outputs.len())?;
        let takes = inputs.iter().zip(takes).map(|(spec, place)| ("input", spec, place));
        let gives = outputs.iter().zip(gives).map(|(spec, place)| ("output", spec, place));
        match takes.chain(gives).find(|&(_, _, place)| place != Place::Device) {
            None => Ok(opened.session),
            Some((kind, spec, _)) => {
                Err(GraphsError::Host { tensor: format!("{kind} `{}`", spec.name) }.into())
            }
        }
    }
}

impl Graphs {
    /// None yet.
    pub(super) fn new(plan: &Arc<GraphsPlan>) -> Result<Self, LoadError> {
        let stream = ComputeStream::open().map_err(RuntimeFault::from)?;
        Ok(Self {
            graphs: Vec::new(),
            session: None,
            plan: Arc::clone(plan),
            serves: false,
            is_closed: false,
            stream,
        })
    }

    /// Captures a run for each of these warm-ups.
    pub(super) fn capture_all(&mut self, warm_ups: &[WarmUp]) -> Result<(), LoadError> {
        for warm_up in warm_ups {
            let shapes = warm_up.signed_shapes();
            if self.graphs.iter().all(|graph| graph.shapes != shapes) {
                self.capture(&shapes)?;
            }
        }
        Ok(())
    }

    /// From now on requests wait. Returns what it has.
    pub(super) fn serve(&mut self) -> Result<Captured, RuntimeFault> {
        self.serves = true;
        let graphs = u32::try_from(self.graphs.len()).expect("they are few");
        Ok(Captured { graphs, device_bytes: self.device_bytes()? })
    }

    /// Bytes that its sessions have of the device's memory.
    fn device_bytes(&self) -> Result<u64, RuntimeFault> {
        let own = self.graphs.iter().map(|graph| graph.fixed.session());
        let sessions: Vec<_> = match &self.session {
            Some(session) => vec![session],
            None => own.collect(),
        };
        let mut bytes = 0;
        for session in sessions {
            let memory = session.device_memory()?;
            bytes += memory.map_or(0, |memory| memory.peak.max(memory.used));
        }
        Ok(bytes)
    }

    /// The graph for inputs of these shapes, if there is one or one can be captured now.
    pub(super) fn find(&mut self, shapes: &[Vec<i64>]) -> Option<usize> {
        let has = |graph: &Graph| graph.shapes == shapes;
        if let Some(at) = self.graphs.iter().position(has) {
            return Some(at);
        }
        let is_full = self.graphs.len() >= CUDA_GRAPHS_MAX;
        if !self.serves || self.is_closed || is_full || self.plan.has_plans {
            return None;
        }
        match self.capture(shapes) {
            Ok(captured) => captured,
            Err(error) => {
                let (name, error) = (&self.plan.name, Chain(&error));
                tracing::warn!(name, %error, "a context captures no more CUDA graphs");
                self.is_closed = true;
                None
            }
        }
    }

    /// Captures a run with inputs of these shapes. `None` if it must not be now. While requests wait, it waits for runs
    /// that are under way, and not for sessions that are being made.
    fn capture(&mut self, shapes: &[Vec<i64>]) -> Result<Option<usize>, LoadError> {
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self.plan.open(&self.stream)?,
        };
        let alone = if self.serves { alone_now() } else { Some(alone()) };
        let Some(alone) = alone else { return Ok(None) };
        let number = self.graphs.len() + 1;
        let captured = Graph::capture(&session, &self.plan.signature, &self.stream, shapes, number);
        drop(alone);
        let failed = |source| GraphsError::Capture { shapes: written(shapes), source };
        self.graphs.push(captured.map_err(failed)?);
        if !self.plan.has_plans {
            self.session = Some(session);
        }
        Ok(Some(self.graphs.len() - 1))
    }

    /// The memory of an input of a graph.
    pub(super) fn input(&mut self, graph: usize, input: usize) -> Result<&mut [u8], RuntimeFault> {
        let Graph { fixed, inputs, .. } = &mut self.graphs[graph];
        inputs[input].bytes_mut(fixed.session())
    }

    /// Replays a graph over its current inputs. Returns its outputs, in memory of the host.
    pub(super) fn replay(&mut self, graph: usize) -> Result<Vec<Value>, RuntimeFault> {
        self.stream.enter()?;
        let ran = self.graphs[graph].replay(&self.stream);
        let waited = self.stream.wait().map_err(RuntimeFault::from);
        match (ran, waited) {
            // The cause, even if the run noticed it too.
            (_, Err(fault)) if !fault.leaves_device_usable() => Err(fault),
            (Err(fault), _) => Err(fault),
            (Ok(outputs), waited) => waited.map(|()| outputs),
        }
    }

    /// The session of a graph.
    pub(super) fn session(&self, graph: usize) -> &SharedSession {
        self.graphs[graph].fixed.session()
    }
}

impl Graph {
    /// Captures a run over zeros.
    fn capture(
        session: &SharedSession,
        signature: &Signature,
        stream: &ComputeStream,
        shapes: &[Vec<i64>],
        number: usize,
    ) -> Result<Self, RuntimeFault> {
        stream.enter()?;
        let made = Self::captured(session, signature, stream, shapes, number);
        // Nothing that was queued outlives what it reads and writes.
        let waited = stream.wait();
        let made = made?;
        waited?;
        Ok(made)
    }

    fn captured(
        session: &SharedSession,
        signature: &Signature,
        stream: &ComputeStream,
        shapes: &[Vec<i64>],
        number: usize,
    ) -> Result<Self, RuntimeFault> {
        let host = Arc::new(OwnedAllocator::of_host(session)?);
        let device = Arc::new(OwnedAllocator::of_device(session)?);
        let (mut inputs, mut on_device) = (Vec::new(), Vec::new());
        for (spec, shape) in signature.inputs.iter().zip(shapes) {
            let zeros = Value::new(&host, spec.datatype, shape, session)?;
            let to = Value::blank(&device, spec.datatype, shape, session)?;
            upload(&zeros, &to, session, stream)?;
            inputs.push(zeros);
            on_device.push(to);
        }
        let (takes, gives) =
            (Signature::names(&signature.inputs), Signature::names(&signature.outputs));
        let placed = gives.iter().map(|name| (name.clone(), Place::Device)).collect();
        let plain = Stop::of_plain_runs()?;
        // The first run shows the shapes of the outputs and allocates most of what a run needs.
        let mut first = Bound::new(session, takes.clone(), placed)?;
        let outputs = first.run(&on_device.iter().collect::<Vec<_>>(), &plain);
        stream.wait()?;
        let mut fixed = Fixed::new(session, &takes, on_device, &gives, outputs?)?;
        // The second one allocates the rest: a capture must not allocate.
        fixed.run(&plain)?;
        stream.wait()?;
        fixed.run(&Stop::of_capture(number)?)?;
        stream.wait()?;
        let replays = Stop::of_replays(number)?;
        // This fails if nothing was captured.
        fixed.run(&replays)?;
        stream.wait()?;
        Ok(Self { fixed, inputs, replays, host, shapes: shapes.to_vec() })
    }

    /// Queues copies and the replay.
    fn replay(&mut self, stream: &ComputeStream) -> Result<Vec<Value>, RuntimeFault> {
        let session = self.fixed.session().clone();
        for (from, to) in self.inputs.iter().zip(self.fixed.inputs()) {
            upload(from, to, &session, stream)?;
        }
        self.fixed.run(&self.replays)?;
        let mut outputs = Vec::with_capacity(self.fixed.outputs().len());
        for value in self.fixed.outputs() {
            let (datatype, shape) = value.description(&session)?;
            let datatype = datatype.expect("a model with an output of another type was refused");
            let mut output = Value::blank(&self.host, datatype, &shape, &session)?;
            download(value, &mut output, &session, stream)?;
            outputs.push(output);
        }
        Ok(outputs)
    }
}

/// Whether any of these nodes rebuilds something when a shape changes; an error if one cannot be replayed.
fn have_plans(nodes: &[AssignedNode]) -> Result<bool, GraphsError> {
    let of = |ops: &[&str]| {
        let node = nodes.iter().find(|node| ops.contains(&node.op.as_str()))?;
        Some(format!("{} ({})", node.op, node.name))
    };
    if let Some(node) = of(&RANDOM_OPS) {
        return Err(GraphsError::Random { node });
    }
    if let Some(node) = of(&COUNTING_OPS) {
        return Err(GraphsError::Counting { node });
    }
    let keeps =
        |node: &AssignedNode| node.op.contains("Conv") || PLANNED_OPS.contains(&node.op.as_str());
    Ok(nodes.iter().any(keeps))
}

/// Shapes of inputs as people read them.
fn written(shapes: &[Vec<i64>]) -> String {
    shapes.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ops: &[&str]) -> Vec<AssignedNode> {
        let provider = Provider::Cuda.runtime_name();
        let node = |&op: &&str| AssignedNode {
            provider: provider.to_owned(),
            op: op.to_owned(),
            name: "n".to_owned(),
        };
        ops.iter().map(node).collect()
    }

    #[test]
    fn nodes_that_keep_plans_are_known_and_random_ones_refused() {
        assert_eq!(have_plans(&nodes(&["Gemm", "Tanh", "Softmax", "MaxPool"])), Ok(false));
        for op in ["Conv", "FusedConv", "ConvTranspose", "NhwcConv", "LSTM", "GRU", "RNN"] {
            assert_eq!(have_plans(&nodes(&["Gemm", op])), Ok(true), "{op}");
        }
        let error = have_plans(&nodes(&["Conv", "RandomNormal"])).unwrap_err().to_string();
        assert!(error.starts_with("its node RandomNormal (n) draws random numbers"), "{error}");
        let error = have_plans(&nodes(&["NonZero"])).unwrap_err().to_string();
        assert!(error.starts_with("the shape of what its node NonZero (n) gives"), "{error}");
    }
}
