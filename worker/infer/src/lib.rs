//! ONNX models on one device: the engine of the role `infer`. It shares no process with grid code.
//!
//! [`library`] finds ONNX Runtime, [`runtime`] loads it, [`engine`] loads models and takes requests. A
//! model is one session, with its weights once, and a [`Context`] for each run that may be under way at
//! once. A pipeline has a session for each step. `seam.rs` is the one place that calls ONNX Runtime's C API
//! by hand; its first lines say why several threads may run one session.
//!
//! What a request can rely on:
//! - It runs only where its model's nodes were placed at load time. On a GPU no node runs on the CPU,
//!   except ops that are allowed there by name.
//! - It is answered once, with all outputs or with the reason why there are none.
//! - Sharing a run with other requests does not change its results beyond the rounding of the runtime's
//!   kernels. Loading detects a model whose rows depend on each other.

mod batcher;
mod choice;
mod context;
mod cuda_libraries;
pub mod engine;
mod error;
mod graphs;
mod inputs;
mod job;
pub mod library;
mod load;
mod locked;
mod model;
mod pipeline;
mod place;
mod placement;
mod runs;
pub mod runtime;
mod seam;
mod signature;
mod types;
mod warm_up;

pub use gridpool_protocol::tensor::options::{ModelOptions, OptionsError, Provider};

pub use batcher::QueueError;
pub use context::{Context, RunError};
pub use engine::{ContextsError, Engine, NotLoaded, Progress, Request, RequestError, Unloading};
pub use error::RuntimeFault;
pub use graphs::GraphsError;
pub use job::{Answer, Done, InferError};
pub use library::{LibraryError, Places};
pub use load::{LoadError, MODEL_FILE_BYTES_MAX, has_provider, try_provider};
pub use locked::LockedArenas;
pub use model::Ticket;
pub use place::{ArenaPart, Destination, Placed, Source};
pub use placement::PlacementError;
pub use runtime::{Runtime, Surveyed};
pub use signature::{InputError, SignatureError};
pub use warm_up::WarmUpError;
