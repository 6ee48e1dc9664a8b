//! A model that `gridpool bench` measures, and the models that its pool serves.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;
use crate::tensor::options::{ModelOptions, ModelPlan};

/// A model to be measured, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSubject {
    /// The socket of the pool that serves it.
    pub socket: PathBuf,
    /// The pool's only device, on which the measuring process loads it too.
    pub device: DeviceId,
    /// `GPU-…`; empty on a CPU device.
    pub uuid: String,
    /// Threads of a CPU device.
    pub threads: usize,
    /// ONNX Runtime's library, if it is named.
    pub onnxruntime: Option<PathBuf>,
    /// The model, as the pool's workers load it.
    pub model: ModelPlan,
}

impl ModelSubject {
    /// The same model once more, under another name: it has workers of its own.
    #[must_use]
    pub fn neighbour(&self) -> ModelPlan {
        let mut plan = self.model.clone();
        plan.name.push_str("-neighbour");
        plan.options.group = None;
        plan
    }

    /// The same model once more, whose runs are not replays; none unless it has CUDA graphs.
    #[must_use]
    pub fn without_graphs(&self) -> Option<Self> {
        let mut plain = self.clone();
        plain.model.name.push_str("-plain");
        plain.model.options.group = None;
        let has_graphs = std::mem::take(&mut plain.model.options.cuda_graphs);
        has_graphs.then_some(plain)
    }

    /// All models that its pool serves: the model, without its CUDA graphs if it has some, and the model of each step
    /// of a pipeline as one of its own.
    #[must_use]
    pub fn served(&self) -> Vec<ModelPlan> {
        let ModelPlan { name, path: _, options } = &self.model;
        let steps = options.pipeline.iter().flat_map(|pipeline| &pipeline.steps);
        let models = steps.filter_map(|step| Some((&step.name, step.model()?)));
        let alone = models.map(|(step, model)| ModelPlan {
            name: step_model(name, step),
            path: model.path.clone(),
            options: ModelOptions {
                max_batch: Some(1),
                warm_up: Vec::new(),
                group: None,
                sha256: model.sha256.clone(),
                pipeline: None,
                ..options.clone()
            },
        });
        let plain = self.without_graphs().map(|plain| plain.model);
        std::iter::once(self.model.clone()).chain(plain).chain(alone).collect()
    }
}

/// The name of a pipeline's step where it is a model of its own.
#[must_use]
pub fn step_model(pipeline: &str, step: &str) -> String {
    format!("{pipeline}.{step}")
}
