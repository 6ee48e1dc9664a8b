//! What is said of models: which there are, and what an operator wants done with them.

use serde::{Deserialize, Serialize};

use crate::tensor::model::ModelInfo;
use crate::tensor::options::ModelPlan;

/// A model on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceModel {
    /// The worker, as `gpu0#2`.
    pub worker: String,
    /// The model.
    pub model: ModelInfo,
}

/// A change of the models of a pool, or of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelOrder {
    /// Run so many requests of a model at once.
    Contexts {
        /// The model.
        name: String,
        /// How many.
        contexts: u32,
    },
    /// Load a model; if it cannot be, nothing has changed.
    Load(ModelPlan),
    /// Run what waits for a model, then give its memory back.
    Unload {
        /// The model.
        name: String,
    },
}

impl ModelOrder {
    /// The model that it is about.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Contexts { name, .. } | Self::Load(ModelPlan { name, .. }) => name,
            Self::Unload { name } => name,
        }
    }
}
