//! What the CUDA graphs of a model or a pipeline are made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gridpool_protocol::tensor::TensorSpec;
use gridpool_protocol::tensor::options::ModelOptions;

use super::model::ModelSource;
use super::ops::have_plans;
use crate::load::{LoadError, ModelFile, Opened};
use crate::pipeline::LoadedPipeline;
use crate::runtime::Runtime;
use crate::seam::assigned_nodes;
use crate::signature::Signature;
use crate::warm_up::WarmUp;

/// What the graphs of all contexts of a model are made of.
#[derive(Debug)]
pub(crate) struct GraphsPlan {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) signature: Arc<Signature>,
    /// Whether its device memory has a limit.
    pub(super) has_limit: bool,
    /// Whether its nodes rebuild something when a shape changes.
    pub(super) has_plans: bool,
    /// What the graphs of a context take for that of the device's memory: of the one with the most.
    pub(super) device_bytes: AtomicU64,
}

/// What runs that are captured.
#[derive(Debug)]
pub(super) enum Source {
    Model(Box<ModelSource>),
    Pipeline(Arc<LoadedPipeline>),
}

/// What every context of a model captures before it serves.
#[derive(Debug)]
pub(crate) struct GraphsWanted {
    pub(crate) plan: Arc<GraphsPlan>,
    pub(crate) warm_ups: Vec<WarmUp>,
}

impl GraphsWanted {
    /// What the graphs of a context take at most of the device's memory, beside the `context` bytes that it has without
    /// them: of a pipeline that has none yet, as much for each.
    pub(crate) fn device_bytes(&self, context: u64) -> u64 {
        match (self.plan.device_bytes(), &self.plan.source) {
            (0, Source::Pipeline(_)) => context.saturating_mul(self.warm_ups.len() as u64),
            (known, _) => known,
        }
    }
}

impl GraphsPlan {
    /// Checks that the nodes of a model can be replayed.
    pub(crate) fn of_model(
        runtime: &Runtime,
        name: &str,
        file: &ModelFile,
        options: &ModelOptions,
        opened: &Opened,
    ) -> Result<Self, LoadError> {
        let has_plans = have_plans(&assigned_nodes(&opened.session)?)?;
        let source = Source::Model(Box::new(ModelSource::new(runtime, name, file, options)));
        Ok(Self::new(name, source, &opened.signature, options, has_plans))
    }

    /// Checks that the steps of a pipeline can be replayed. It has no context yet.
    pub(crate) fn of_pipeline(
        pipeline: &Arc<LoadedPipeline>,
        name: &str,
        options: &ModelOptions,
        signature: &Arc<Signature>,
    ) -> Result<Self, LoadError> {
        have_plans(&pipeline.assigned_nodes()?)?;
        let source = Source::Pipeline(Arc::clone(pipeline));
        Ok(Self::new(name, source, signature, options, true))
    }

    fn new(
        name: &str,
        source: Source,
        signature: &Arc<Signature>,
        options: &ModelOptions,
        has_plans: bool,
    ) -> Self {
        Self {
            name: name.to_owned(),
            source,
            signature: Arc::clone(signature),
            has_limit: options.device_bytes.is_some(),
            has_plans,
            device_bytes: AtomicU64::new(0),
        }
    }

    /// Whether a context captures graphs for other shapes than those of its warm-ups.
    pub(crate) fn captures_later(&self) -> bool {
        !self.has_plans
    }

    /// What the graphs of a context take at most of the device's memory.
    fn device_bytes(&self) -> u64 {
        self.device_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all inputs of these shapes.
    pub(super) fn input_bytes(&self, shapes: &[Vec<i64>]) -> u64 {
        let bytes = |(spec, shape): (&TensorSpec, &Vec<i64>)| {
            let elements =
                shape.iter().fold(1_u64, |all, side| all.saturating_mul(side.unsigned_abs()));
            elements.saturating_mul(spec.datatype.bytes() as u64)
        };
        self.signature.inputs.iter().zip(shapes).map(bytes).sum()
    }
}
