//! Models that are being loaded, and those that are missing.

use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// How far a worker is with loading a model.
    pub enum LoadPhase {
        /// Its process starts: it connects, and finds its device and ONNX Runtime.
        Start = "process start",
        /// It reads the model's files.
        Reading = "reading",
        /// ONNX Runtime makes the session.
        Session = "making the session",
        /// It makes the contexts, and runs each.
        Warming = "warming up",
    }
}

/// A model that a worker is loading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadStatus {
    /// The worker: `gpu0/mlp#2`.
    pub worker: String,
    /// The full name of the model.
    pub model: String,
    /// How far it is.
    pub phase: LoadPhase,
}

/// A model that the pool should have and that no device serves, nor is about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingModel {
    /// Its full name.
    pub model: String,
    /// Why it could not be loaded.
    pub why: String,
}
