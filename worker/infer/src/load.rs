//! Loads a model: its first runs, its contexts and what they take. `files` reads its files, `session` makes its session
//! and audits the placement of its nodes.

mod auto;
mod error;
mod files;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::limits::CUDA_GRAPHS_MAX;
use gridpool_protocol::status::LoadPhase;
use gridpool_protocol::tensor::model::{ContextsMeasured, ProviderNodes, StepInfo};
use gridpool_protocol::tensor::options::{MAX_BATCH_DEFAULT, ModelOptions};
use gridpool_protocol::tensor::{Contexts, TensorError};

use super::context::Context;
use super::graphs::{GraphsPlan, GraphsWanted, distinct};
use super::pipeline::LoadedPipeline;
use super::runtime::Runtime;
use super::seam::SharedSession;
use super::signature::Signature;
use super::warm_up::{NotRows, WarmUp, WarmUpError};

pub use error::{LoadError, MODEL_FILE_BYTES_MAX};
pub(super) use files::{ModelFile, ModelFiles, StepSource};
pub(super) use session::Opened;
pub use session::{has_provider, try_provider};

/// What contexts are made of.
#[derive(Debug)]
enum Graph {
    Model(SharedSession),
    Pipeline(Arc<LoadedPipeline>),
}

impl Graph {
    fn context(&self, signature: &Arc<Signature>) -> Result<Context, LoadError> {
        match self {
            Self::Model(session) => Ok(Context::new(session, signature)?),
            Self::Pipeline(pipeline) => Ok(Context::of_chain(pipeline.chain()?, signature)),
        }
    }
}

/// A loaded model.
#[derive(Debug)]
pub(super) struct Loaded {
    graph: Graph,
    pub(super) signature: Arc<Signature>,
    pub(super) nodes: Vec<ProviderNodes>,
    /// Most rows of a run, if its requests may be joined.
    pub(super) rows_max: Option<u32>,
    /// What was measured to choose the number of contexts.
    pub(super) contexts_measured: Vec<ContextsMeasured>,
    /// The longest warm-up run.
    pub(super) run_time: Duration,
    warm_ups: Vec<WarmUp>,
    /// The CUDA graphs of each context, if it is to have some.
    graphs: Option<Arc<GraphsWanted>>,
    /// Bytes of the model itself, and of one context at most, without its CUDA graphs.
    memory: Option<(u64, u64)>,
    device_bytes: Option<u64>,
}

/// Loads a model and its contexts, each warmed by runs of its own: all or none. `is_at` is told how far it is.
pub(super) fn load(
    runtime: &Runtime,
    kind: DeviceKind,
    name: &str,
    files: &ModelFiles,
    options: &ModelOptions,
    is_at: &dyn Fn(LoadPhase),
) -> Result<(Loaded, Vec<Context>), LoadError> {
    options.check()?;
    is_at(LoadPhase::Session);
    let Some(pipeline) = &options.pipeline else {
        let opened = Opened::open(runtime, kind, files.only(), options, None)?;
        let plan = match has_graphs(kind, name, options) {
            true => Some(GraphsPlan::of_model(runtime, name, files.only(), options, &opened)?),
            false => None,
        };
        let Opened { session, signature, nodes } = opened;
        is_at(LoadPhase::Warming);
        return warmed(kind, Graph::Model(session), signature, nodes, options, plan);
    };
    let loaded = LoadedPipeline::load(runtime, kind, name, pipeline, &files.sources, options)?;
    let (pipeline, signature) = (Arc::new(loaded.0), Arc::new(loaded.1));
    let plan = match has_graphs(kind, name, options) {
        true => Some(GraphsPlan::of_pipeline(&pipeline, name, options, &signature)?),
        false => None,
    };
    let nodes = pipeline.nodes();
    is_at(LoadPhase::Warming);
    warmed(kind, Graph::Pipeline(pipeline), signature, nodes, options, plan)
}

/// Whether its contexts are to have CUDA graphs.
fn has_graphs(kind: DeviceKind, name: &str, options: &ModelOptions) -> bool {
    if options.cuda_graphs && kind == DeviceKind::Cpu {
        tracing::info!(name, "cuda_graphs has no effect on a CPU device");
    }
    options.cuda_graphs && kind == DeviceKind::Gpu
}

/// Makes the contexts.
fn warmed(
    kind: DeviceKind,
    graph: Graph,
    signature: Arc<Signature>,
    nodes: Vec<ProviderNodes>,
    options: &ModelOptions,
    plan: Option<GraphsPlan>,
) -> Result<(Loaded, Vec<Context>), LoadError> {
    let mut loaded = Loaded {
        graph,
        signature,
        nodes,
        rows_max: None,
        run_time: Duration::ZERO,
        contexts_measured: Vec::new(),
        warm_ups: Vec::new(),
        graphs: None,
        memory: None,
        device_bytes: options.device_bytes,
    };
    let first = loaded.first_context(kind, options)?;
    loaded.graphs = match plan {
        Some(plan) => Some(Arc::new(loaded.wanted(plan, options)?)),
        None => None,
    };
    let contexts = match options.contexts {
        Contexts::Auto => loaded.choose_contexts(first, options)?,
        Contexts::Fixed(count) => {
            loaded.check_budget(count)?;
            let mut contexts = vec![first];
            contexts.extend(loaded.more_contexts(count - 1)?);
            contexts
        }
    };
    Ok((loaded, contexts))
}

impl Loaded {
    /// The first context: its runs decide whether rows may be joined, and how much memory a context takes.
    fn first_context(
        &mut self,
        kind: DeviceKind,
        options: &ModelOptions,
    ) -> Result<Context, LoadError> {
        let mut context = self.graph.context(&self.signature)?;
        let before = context.device_memory()?;
        self.rows_max = self.decide_rows(&mut context, options)?;
        let has_rows = self.rows_max.is_some();
        let warm_up = |shapes| WarmUp::new(&self.signature, shapes, has_rows);
        let mut warm_ups = options.warm_up.iter().map(warm_up).collect::<Result<Vec<_>, _>>()?;
        if warm_ups.is_empty() {
            warm_ups.push(warm_up(&BTreeMap::new())?);
        }
        let counts = options.device_bytes.is_some() || kind == DeviceKind::Gpu;
        if let (Some(rows), true) = (self.rows_max, counts) {
            // The largest possible run, so that later runs find their memory allocated and its size is known.
            let largest = warm_ups[0].with_rows(rows.into());
            let reason = |error: TensorError| error.to_string();
            let largest = largest.map_err(|error| WarmUpError::Shapes { reason: reason(error) })?;
            warm_ups.push(largest);
        }
        for warm_up in &warm_ups {
            let began = clock::now();
            warm_up.run(&mut context)?;
            self.run_time = self.run_time.max(began.elapsed());
        }
        self.warm_ups = warm_ups;
        let after = context.device_memory()?;
        self.memory = before.zip(after).map(|(before, after)| {
            let runs = after.peak.max(after.used).saturating_sub(before.used);
            match self.has_weights_in_contexts() {
                true => (0, before.used + runs),
                false => (before.used, runs),
            }
        });
        Ok(context)
    }

    /// The CUDA graphs that every context has before it serves: those of the warm-ups that were asked for and of the
    /// preferred numbers of rows. If other shapes may be captured later, the largest run is captured too, so that those
    /// find their memory allocated and its size is known.
    fn wanted(&self, plan: GraphsPlan, options: &ModelOptions) -> Result<GraphsWanted, LoadError> {
        let mut warm_ups = self.warm_ups[..options.warm_up.len().max(1)].to_vec();
        let wrong = |error: TensorError| WarmUpError::Shapes { reason: error.to_string() };
        if self.rows_max.is_some() {
            let sizes = options.preferred_batch.iter();
            let sizes = sizes.map(|&rows| self.warm_ups[0].with_rows(rows.into()));
            warm_ups.extend(sizes.collect::<Result<Vec<_>, _>>().map_err(wrong)?);
        }
        let mut warm_ups = distinct(warm_ups)?;
        if let (Some(rows), true) = (self.rows_max, plan.captures_later())
            && warm_ups.len() < CUDA_GRAPHS_MAX
        {
            warm_ups.push(self.warm_ups[0].with_rows(rows.into()).map_err(wrong)?);
        }
        Ok(GraphsWanted { plan: Arc::new(plan), warm_ups })
    }

    /// What each context captures on its thread, if it is to have CUDA graphs.
    pub(super) fn graphs(&self) -> Option<Arc<GraphsWanted>> {
        self.graphs.clone()
    }

    /// Bytes of the model itself, and of one context at most, with its CUDA graphs.
    fn memory(&self) -> Option<(u64, u64)> {
        self.memory.map(|(weights, context)| {
            let graphs = self.graphs.as_ref().map_or(0, |wanted| wanted.device_bytes(context));
            (weights, context.saturating_add(graphs))
        })
    }

    /// The steps of a pipeline; none of one model.
    pub(super) fn steps(&self) -> Vec<StepInfo> {
        match &self.graph {
            Graph::Model(_) => Vec::new(),
            Graph::Pipeline(pipeline) => pipeline.steps().to_vec(),
        }
    }

    fn has_weights_in_contexts(&self) -> bool {
        match &self.graph {
            Graph::Model(_) => false,
            Graph::Pipeline(pipeline) => pipeline.has_weights_in_contexts(),
        }
    }

    /// Most rows of a run. Requests are joined only if the model's rows are proved independent.
    fn decide_rows(
        &self,
        context: &mut Context,
        options: &ModelOptions,
    ) -> Result<Option<u32>, LoadError> {
        let signature = &self.signature;
        let (max_batch, is_asked) = match options.max_batch {
            Some(1) => return Ok(None),
            Some(max_batch) => (max_batch, true),
            None => (MAX_BATCH_DEFAULT, false),
        };
        let proved = if !signature.may_have_rows {
            Err("not every input and output has a free first dimension, or one is BYTES".into())
        } else if !signature.rows_share_a_name && !is_asked {
            Err("their first dimensions have different names".into())
        } else {
            let none = BTreeMap::new();
            let warm_up = WarmUp::new(signature, options.warm_up.first().unwrap_or(&none), true);
            warm_up?.rows_are_independent(context)
        };
        match proved {
            Ok(()) => Ok(Some(max_batch)),
            // A fault says nothing about rows.
            Err(NotRows { fault: Some(fault), .. }) if !fault.leaves_device_usable() => {
                Err(LoadError::Session(fault))
            }
            Err(NotRows { reason, .. }) if is_asked => Err(LoadError::Rows { max_batch, reason }),
            Err(NotRows { reason, .. }) if options.waits_for_rows() => {
                Err(LoadError::Delay { reason })
            }
            Err(NotRows { reason, .. }) => {
                tracing::info!(reason, "requests of this model do not share runs");
                Ok(None)
            }
        }
    }

    /// Makes more contexts, each warmed: all or none. The caller has called [`Loaded::check_budget`].
    pub(super) fn more_contexts(&self, count: u32) -> Result<Vec<Context>, LoadError> {
        let one = |_| -> Result<Context, LoadError> {
            let mut context = self.graph.context(&self.signature)?;
            for warm_up in &self.warm_ups {
                warm_up.run(&mut context)?;
            }
            Ok(context)
        };
        (0..count).map(one).collect()
    }

    /// Checks that this number of contexts stays within the model's memory limit.
    pub(super) fn check_budget(&self, contexts: u32) -> Result<(), LoadError> {
        let Some(allowed) = self.device_bytes else { return Ok(()) };
        let Some((weights, context)) = self.memory() else { return Err(LoadError::BudgetUnknown) };
        let needs = weights.saturating_add(context.saturating_mul(contexts.into()));
        if needs <= allowed {
            return Ok(());
        }
        let fit = allowed.saturating_sub(weights).checked_div(context).unwrap_or(0);
        Err(LoadError::Budget { contexts, needs, weights, context, allowed, fit })
    }

    /// The shapes of the first warm-up run, input by input.
    pub(super) fn warm_up_shapes(&self) -> Vec<Vec<u64>> {
        self.warm_ups.first().map(WarmUp::shapes).unwrap_or_default()
    }

    /// Device memory in bytes with this number of contexts; 0 if it is unknown.
    pub(super) fn device_bytes(&self, contexts: u32) -> u64 {
        let of = |(weights, context): (u64, u64)| weights + context * u64::from(contexts);
        self.memory().map_or(0, of)
    }
}

#[cfg(test)]
mod tests;
