//! ONNX models on one device: the engine of the role `infer`. No grid code touches it, and it touches
//! none: the two never share a process.
//!
//! [`library`] finds ONNX Runtime, [`runtime`] loads it, [`engine`] loads models and takes requests. A
//! model is one session, with its weights once, and a [`Context`] for each run that may be under way at
//! once. `seam.rs` is the one place that calls ONNX Runtime's C API by hand; its first lines say why
//! several threads may run one session.
//!
//! What a request can rely on:
//! - It runs where its model's nodes were found to be when it was loaded, and nowhere else: on a GPU no
//!   node is on the CPU but those whose ops are allowed there by name.
//! - It is answered once, with all outputs or with why there are none.
//! - Whether its rows share a run with others is not to be seen in its results, beyond the order in
//!   which the runtime's kernels add: a model whose rows are no rows is found out when it is loaded.

mod batcher;
mod context;
mod cuda_libraries;
pub mod engine;
mod error;
mod job;
pub mod library;
mod load;
mod model;
mod place;
mod placement;
pub mod runtime;
mod seam;
pub mod serve;
mod signature;
mod types;
mod warm_up;

pub use gridpool_protocol::tensor::options::{ModelOptions, OptionsError, Provider};

pub use batcher::QueueError;
pub use context::{Context, RunError};
pub use engine::{ContextsError, Engine, NotLoaded, Request, RequestError, Unloading};
pub use error::RuntimeFault;
pub use job::{Answer, Done, InferError};
pub use library::{LibraryError, Places};
pub use load::{LoadError, MODEL_FILE_BYTES_MAX, has_provider, try_provider};
pub use model::Ticket;
pub use place::{ArenaPart, Destination, Placed, Source};
pub use placement::PlacementError;
pub use runtime::{Runtime, Surveyed};
pub use signature::{InputError, SignatureError};
pub use warm_up::WarmUpError;
