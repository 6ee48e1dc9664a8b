//! Messages about models: their list, and changes by an operator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tensor::model::ModelInfo;
use crate::tensor::options::ModelPlan;

/// A model on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceModel {
    /// The worker, as `gpu0#2`.
    pub worker: String,
    /// Whether it is the version that serves its name: requests that name no version go to it.
    pub serves: bool,
    /// The model.
    pub model: ModelInfo,
}

/// A change of the models of a pool, or of one worker. A worker is told full names. An operator who leaves the
/// version out means: the next one to load, the one that serves the name for contexts, all of them to unload.
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

/// A change of the models of a pool to what its model repository has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RepositoryCommand {
    /// Load the versions of a model that its policy wants.
    Load {
        /// The model.
        name: String,
        /// Longest time for each, seconds; by default that of the pool.
        load_timeout_s: Option<u32>,
    },
    /// Unload all versions of a model.
    Unload {
        /// The model.
        name: String,
    },
}

impl RepositoryCommand {
    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Load { name, .. } | Self::Unload { name } => name,
        }
    }
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

    /// Longest time of a load, if its owner chose one.
    #[must_use]
    pub fn load_timeout(&self) -> Option<Duration> {
        match self {
            Self::Contexts { .. } | Self::Unload { .. } => None,
            Self::Load(plan) => plan.options.load_timeout(),
        }
    }
}
