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

mod error;
mod graph;
mod ops;

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gridpool_device::cuda::ComputeStream;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::limits::CUDA_GRAPHS_MAX;
use gridpool_protocol::tensor::TensorSpec;
use gridpool_protocol::tensor::options::{ModelOptions, Provider, check_file};

use super::error::RuntimeFault;
use super::load::{LoadError, ModelFile, Opened};
use super::runtime::Runtime;
use super::seam::{AssignedNode, Place, SharedSession, Value, alone, alone_soon, places};
use super::signature::Signature;
use super::warm_up::WarmUp;

use graph::Graph;
use ops::have_plans;

pub use error::GraphsError;

/// Failures of runs before a capture after which a context captures no more graphs.
const FAILURES_MAX: u32 = 3;
/// A context whose captures cannot begin lets at most 2 to this power runs by before it tries again.
const TRIES_MAX: u32 = 6;

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
    /// What the graphs of a context take for that of the device's memory: of the one with the most.
    device_bytes: AtomicU64,
}

/// What every context of a model captures before it serves.
#[derive(Debug)]
pub(super) struct GraphsWanted {
    pub(super) plan: Arc<GraphsPlan>,
    pub(super) warm_ups: Vec<WarmUp>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Graphs {
    // Dropped in this order: graphs, the session, the stream.
    graphs: Vec<Graph>,
    /// One that is not captured yet, because other runs were under way.
    prepared: Option<Graph>,
    /// That of all graphs, unless each has its own.
    session: Option<SharedSession>,
    plan: Arc<GraphsPlan>,
    /// Whether requests wait: then no session is made.
    serves: bool,
    /// Whether a capture failed: then it tries no other.
    is_closed: bool,
    /// Captures that failed while requests wait.
    failures: u32,
    /// Captures one after the other that could not begin, because other runs were under way.
    tries: u32,
    /// Runs of other shapes that it lets by before it tries again.
    lets_by: u32,
    /// The bytes of the inputs of the largest graph that was captured before requests wait.
    largest: u64,
    /// By how much it has grown since it last said so.
    growth: u64,
    stream: ComputeStream,
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
            device_bytes: AtomicU64::new(0),
        })
    }

    /// Whether a context captures graphs for other shapes than those of its warm-ups.
    pub(super) fn captures_later(&self) -> bool {
        !self.has_plans
    }

    /// What the graphs of a context take at most of the device's memory.
    pub(super) fn device_bytes(&self) -> u64 {
        self.device_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all inputs of these shapes.
    fn input_bytes(&self, shapes: &[Vec<i64>]) -> u64 {
        let bytes = |(spec, shape): (&TensorSpec, &Vec<i64>)| {
            let elements =
                shape.iter().fold(1_u64, |all, side| all.saturating_mul(side.unsigned_abs()));
            elements.saturating_mul(spec.datatype.bytes() as u64)
        };
        self.signature.inputs.iter().zip(shapes).map(bytes).sum()
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
            prepared: None,
            serves: false,
            is_closed: false,
            failures: 0,
            tries: 0,
            lets_by: 0,
            largest: 0,
            growth: 0,
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

    /// From now on requests wait, and its graphs are checked. Returns how many it has.
    pub(super) fn serve(&mut self) -> Result<u32, RuntimeFault> {
        self.serves = true;
        self.graphs.iter_mut().for_each(|graph| graph.is_checked = true);
        let bytes = |graph: &Graph| self.plan.input_bytes(&graph.shapes);
        self.largest = self.graphs.iter().map(bytes).max().unwrap_or(0);
        self.note()?;
        self.growth = 0;
        Ok(u32::try_from(self.graphs.len()).expect("they are few"))
    }

    /// Notes what it takes of the device's memory, with room for the tensors of graphs that are captured later.
    fn note(&mut self) -> Result<(), RuntimeFault> {
        let bytes = |graph: &Graph| graph.fixed.tensor_bytes();
        let sizes = self.graphs.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
        let largest = sizes.into_iter().max().unwrap_or(0);
        let more = match self.plan.has_plans || self.is_closed {
            true => 0,
            false => CUDA_GRAPHS_MAX.saturating_sub(self.graphs.len()) as u64,
        };
        let bytes = self.device_bytes()?.saturating_add(largest.saturating_mul(more));
        let before = self.plan.device_bytes.fetch_max(bytes, Ordering::Relaxed);
        self.growth += bytes.saturating_sub(before);
        Ok(())
    }

    /// By how much the model's graphs have grown since this was asked last.
    pub(super) fn take_growth(&mut self) -> u64 {
        mem::take(&mut self.growth)
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

    /// The graph for inputs of these shapes, if there is one or one can be captured now. An error ends the device.
    pub(super) fn find(&mut self, shapes: &[Vec<i64>]) -> Result<Option<usize>, RuntimeFault> {
        let has = |graph: &Graph| graph.shapes == shapes;
        if let Some(at) = self.graphs.iter().position(has) {
            return Ok(Some(at));
        }
        let is_full = self.graphs.len() >= CUDA_GRAPHS_MAX;
        let is_done = !self.serves || self.is_closed || is_full || self.plan.has_plans;
        // A limit of memory was checked for shapes up to the largest that was captured at first.
        let has_limit = self.plan.options.device_bytes.is_some();
        if is_done || has_limit && self.plan.input_bytes(shapes) > self.largest {
            return Ok(None);
        }
        if self.lets_by > 0 {
            self.lets_by -= 1;
            return Ok(None);
        }
        match self.capture(shapes) {
            Ok(Some(graph)) => {
                self.tries = 0;
                self.note()?;
                Ok(Some(graph))
            }
            Ok(None) => {
                self.tries = (self.tries + 1).min(TRIES_MAX);
                self.lets_by = 1 << self.tries;
                Ok(None)
            }
            Err(error) => self.failed(&error).map(|()| None),
        }
    }

    /// Whether a graph gives what a run gives, as far as is known.
    pub(super) fn is_checked(&self, graph: usize) -> bool {
        self.graphs[graph].is_checked || !self.serves
    }

    /// A graph that was captured late gives what a run gives.
    pub(super) fn note_check(&mut self, graph: usize) {
        self.graphs[graph].is_checked = true;
    }

    /// It does not: this output differs.
    pub(super) fn refuse(&mut self, graph: usize, output: String) {
        let shapes = written(&self.graphs.remove(graph).shapes);
        self.close(&GraphsError::Differs { output, shapes }.into());
    }

    fn close(&mut self, error: &LoadError) {
        let (name, error) = (&self.plan.name, Chain(error));
        tracing::warn!(name, %error, "a context captures no more CUDA graphs");
        self.is_closed = true;
    }

    /// A graph could not be captured while requests wait.
    fn failed(&mut self, error: &LoadError) -> Result<(), RuntimeFault> {
        self.failures += 1;
        let may_pass = matches!(error, LoadError::Graphs(GraphsError::Run { .. }));
        if may_pass && self.failures < FAILURES_MAX {
            let (name, error) = (&self.plan.name, Chain(error));
            tracing::warn!(name, %error, "a context captures no CUDA graph for now");
        } else {
            self.close(error);
        }
        error.end_of_device().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Captures a run with inputs of these shapes. `None` if it must not be now. While requests wait, it waits for
    /// sessions that are being made not at all, and for runs that are under way not long.
    fn capture(&mut self, shapes: &[Vec<i64>]) -> Result<Option<usize>, LoadError> {
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self.plan.open(&self.stream)?,
        };
        let prepared = self.prepared.take_if(|graph| graph.shapes == shapes);
        let mut graph = if let Some(graph) = prepared {
            graph
        } else {
            self.prepared = None;
            let number = self.graphs.len() + 1;
            let made = Graph::prepare(&session, &self.plan.signature, &self.stream, shapes, number);
            made.map_err(|source| GraphsError::Run { shapes: written(shapes), source })?
        };
        if !self.plan.has_plans {
            self.session = Some(session);
        }
        let alone = if self.serves { alone_soon() } else { Some(alone()) };
        let Some(alone) = alone else {
            self.prepared = Some(graph);
            return Ok(None);
        };
        let captured = graph.capture(&self.stream, alone);
        captured.map_err(|source| GraphsError::Capture { shapes: written(shapes), source })?;
        self.graphs.push(graph);
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

/// Each of these shapes once; an error if a context cannot have as many graphs.
pub(super) fn distinct(all: Vec<WarmUp>) -> Result<Vec<WarmUp>, GraphsError> {
    let mut distinct: Vec<WarmUp> = Vec::new();
    for warm_up in all {
        let shapes = warm_up.signed_shapes();
        if distinct.iter().all(|other| other.signed_shapes() != shapes) {
            distinct.push(warm_up);
        }
    }
    match distinct.len() {
        shapes if shapes > CUDA_GRAPHS_MAX => Err(GraphsError::TooMany { shapes }),
        _ => Ok(distinct),
    }
}

/// Shapes of inputs as people read them.
pub(super) fn written(shapes: &[Vec<i64>]) -> String {
    shapes.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gridpool_protocol::tensor::{ANY_SIZE, DataType};

    use super::*;

    #[test]
    fn equal_shapes_count_once_and_too_many_are_refused() {
        let tensor = |name: &str| TensorSpec::new(name, DataType::Fp32, [ANY_SIZE, 4]);
        let signature = Signature {
            inputs: vec![tensor("x")],
            outputs: vec![tensor("y")],
            may_have_rows: true,
            rows_share_a_name: true,
        };
        let first = WarmUp::new(&signature, &BTreeMap::new(), true).unwrap();
        let of = |rows: &[u64]| {
            let all = rows.iter().map(|&rows| first.with_rows(rows).unwrap()).collect();
            distinct(all).map(|all| all.iter().map(|one| one.shapes()[0][0]).collect::<Vec<_>>())
        };
        assert_eq!(of(&[4, 1, 4, 8, 1]), Ok(vec![4, 1, 8]));
        let most: Vec<_> = (1..=CUDA_GRAPHS_MAX as u64).collect();
        assert_eq!(of(&[&most[..], &most[..]].concat()), Ok(most.clone()));
        let more = [&most[..], &[100]].concat();
        assert_eq!(of(&more), Err(GraphsError::TooMany { shapes: CUDA_GRAPHS_MAX + 1 }));
    }
}
