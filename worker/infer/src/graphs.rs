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
//!
//! The steps of a pipeline are captured together, by gridpool itself, from sessions on its stream
//! (`pipeline/chain/gpu.rs`). A pipeline counts as a model with plans.

mod error;
mod graph;
mod model;
mod ops;
mod plan;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gridpool_device::cuda::ComputeStream;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::limits::CUDA_GRAPHS_MAX;

use super::context::RunError;
use super::error::{RuntimeFault, settled};
use super::load::LoadError;
use super::pipeline::StepRun;
use super::seam::{SharedSession, Stop, Value, alone, alone_soon};
use super::warm_up::WarmUp;

use graph::{Body, Graph};
use model::{ModelGraph, ModelSource};
use plan::Source;

pub use error::GraphsError;
pub(super) use plan::{GraphsPlan, GraphsWanted};

/// Failures of runs before a capture after which a context captures no more graphs.
const FAILURES_MAX: u32 = 3;
/// A context whose captures cannot begin lets at most 2 to this power runs by before it tries again.
const TRIES_MAX: u32 = 6;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Graphs {
    // Dropped in this order: graphs, the session, the stream.
    graphs: Vec<Graph>,
    /// One that is not captured yet, because other runs were under way.
    prepared: Option<(ModelGraph, Vec<Vec<i64>>)>,
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
    /// What a model's graphs compute on. A pipeline's have one each.
    stream: Option<ComputeStream>,
}

impl Graphs {
    /// None yet.
    pub(super) fn new(plan: &Arc<GraphsPlan>) -> Result<Self, LoadError> {
        let stream = match &plan.source {
            Source::Model(_) => Some(ComputeStream::open().map_err(RuntimeFault::from)?),
            Source::Pipeline(_) => None,
        };
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
        let sizes = self.graphs.iter().map(Graph::tensor_bytes).collect::<Result<Vec<_>, _>>()?;
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
        let memory = match &self.session {
            Some(session) => vec![session.device_memory()?],
            None => self.graphs.iter().map(Graph::device_memory).collect::<Result<_, _>>()?,
        };
        let bytes = memory.into_iter().flatten().map(|memory| memory.peak.max(memory.used));
        Ok(bytes.sum())
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
        if is_done || self.plan.has_limit && self.plan.input_bytes(shapes) > self.largest {
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

    /// Captures a run with inputs of these shapes. `None` if it must not be now.
    fn capture(&mut self, shapes: &[Vec<i64>]) -> Result<Option<usize>, LoadError> {
        let plan = Arc::clone(&self.plan);
        let graph = match &plan.source {
            Source::Model(source) => self.capture_model(source, shapes)?,
            Source::Pipeline(own) => Some(Graph::of_pipeline(own, &plan.signature, shapes)?),
        };
        let Some(graph) = graph else { return Ok(None) };
        self.graphs.push(graph);
        Ok(Some(self.graphs.len() - 1))
    }

    /// While requests wait, it waits for sessions that are being made not at all, and for runs that are under way not
    /// long.
    fn capture_model(
        &mut self,
        source: &ModelSource,
        shapes: &[Vec<i64>],
    ) -> Result<Option<Graph>, LoadError> {
        let signature = &self.plan.signature;
        let stream = self.stream.as_ref().expect("a model has it");
        let session = match &self.session {
            Some(session) => session.clone(),
            None => source.open(signature, stream)?,
        };
        let prepared = self.prepared.take().filter(|(_, of)| of == shapes);
        let mut graph = if let Some((graph, _)) = prepared {
            graph
        } else {
            let number = self.graphs.len() + 1;
            let made = ModelGraph::prepare(&session, signature, stream, shapes, number);
            made.map_err(|fault| GraphsError::Run {
                shapes: written(shapes),
                source: fault.into(),
            })?
        };
        if !self.plan.has_plans {
            self.session = Some(session);
        }
        let alone = if self.serves { alone_soon() } else { Some(alone()) };
        let Some(alone) = alone else {
            self.prepared = Some((graph, shapes.to_vec()));
            return Ok(None);
        };
        graph.capture(stream, alone).map_err(|fault| GraphsError::Capture {
            shapes: written(shapes),
            source: fault.into(),
        })?;
        Ok(Some(Graph::new(Body::Model(Box::new(graph)), shapes)))
    }

    /// The memory of an input of a graph.
    pub(super) fn input(&mut self, graph: usize, input: usize) -> Result<&mut [u8], RuntimeFault> {
        let Graph { body, shapes, .. } = &mut self.graphs[graph];
        match body {
            Body::Model(own) => own.input(input),
            Body::Pipeline(chain) => {
                let datatype = self.plan.signature.inputs[input].datatype;
                chain.input(input, datatype, &shapes[input])
            }
        }
    }

    /// Replays a graph over its current inputs. Returns its outputs, in memory of the host, and what each step of a
    /// pipeline did. `stop` ends no replay.
    pub(super) fn replay(
        &mut self,
        graph: usize,
        stop: &Stop,
    ) -> Result<(Vec<Value>, Vec<StepRun>), RunError> {
        let graph = match &mut self.graphs[graph].body {
            Body::Pipeline(chain) => return chain.run(stop),
            Body::Model(graph) => graph,
        };
        let stream = self.stream.as_ref().expect("a model has it");
        stream.enter().map_err(RuntimeFault::from)?;
        let ran = graph.replay(stream);
        Ok((settled(ran, stream.wait())?, Vec::new()))
    }

    /// The session of a graph.
    pub(super) fn session(&self, graph: usize) -> &SharedSession {
        self.graphs[graph].session()
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

    use gridpool_protocol::tensor::{ANY_SIZE, DataType, TensorSpec};

    use super::*;
    use crate::signature::Signature;

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
