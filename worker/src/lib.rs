//! gridpool's worker: one process, one device, one role.
//!
//! [`serve`] is the loop: a message in, a run on the [`device`], an answer out. [`cpu`] is the
//! reference device on threads, [`cuda`] the GPU; both pass the same [`self_test`] before the
//! worker says READY. [`fault`] turns every error into what becomes of the process. `infer` runs ONNX
//! models, in processes of their own.

// Tests of devices share code with `tests/`, which knows this crate by its name.
#[cfg(test)]
extern crate self as gridpool_worker;

pub mod arenas;
mod attempts;
pub mod beacon;
pub mod bench;
pub mod between;
pub mod chaos;
pub mod checkup;
pub mod chunk;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod diagnose;
pub mod fault;
pub mod gauges;
#[cfg(feature = "infer")]
pub mod infer;
pub mod link;
pub mod monitor;
pub mod probe;
pub mod process;
pub mod self_test;
pub mod serve;
mod tally;
pub mod wear;

#[cfg(test)]
#[path = "../tests/members/mod.rs"]
mod members;
