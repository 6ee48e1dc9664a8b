//! Messages about models: their list, and changes by an operator.

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
#[expect(clippy::large_enum_variant, reason = "changes of models are rare")]
pub enum ModelCommand {
    /// Set the number of contexts: requests that run at the same time.
    Contexts {
        /// The model.
        name: String,
        /// Their number.
        contexts: u32,
    },
    /// Load a model. If that fails, nothing changes.
    Load(ModelPlan),
    /// Run the waiting requests of a model, then unload it.
    Unload {
        /// The model.
        name: String,
    },
}

impl ModelCommand {
    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Contexts { name, .. } | Self::Load(ModelPlan { name, .. }) => name,
            Self::Unload { name } => name,
        }
    }
}
