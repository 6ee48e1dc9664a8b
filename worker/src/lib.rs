//! gridpool's worker: one process, one device, one role.
//!
//! [`serve`] is the loop of a grid worker: a message in, a run on the device, an answer out. `serve::models`
//! is the loop of a worker that runs ONNX models. [`link`] is their connection to the supervisor.

mod arenas;
mod attempts;
pub mod beacon;
mod cancels;
mod chaos;
mod checkup;
pub mod growth;
mod idle_step;
pub mod judge;
pub mod link;
pub mod monitor;
pub mod probe;
pub mod process;
pub mod replay;
pub mod sandbox;
pub mod serve;
