//! A worker's device. Nothing here knows the supervisor.
//!
//! [`device`] is the trait, [`cpu`] the reference device on threads, [`cuda`] the GPU. Both pass the same
//! [`self_test`] before a worker says READY. [`fault`] turns every error into a decision about the process.
//! [`grids`] runs a program over the grids of a tensor that lies in memory already, as a step of a pipeline.
//! [`chaos`] injects faults. [`position`] records where the device is. [`nvml`] says what NVML's numbers mean.

// Tests of devices share code with `tests/`, which knows this crate by its name.
#[cfg(test)]
extern crate self as gridpool_device;

pub mod chaos;
pub mod chunk;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod fault;
pub mod gauges;
pub mod grids;
pub mod nvml;
pub mod position;
pub mod search;
pub mod self_test;
mod tally;

#[cfg(test)]
#[path = "../tests/attempts/mod.rs"]
mod attempts;
