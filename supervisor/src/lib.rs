//! gridpool's supervisor and command line.
//!
//! The crate `gridpool-core` holds every rule, as plain data. [`shell`] surrounds it with sockets, processes,
//! threads and the clock. [`gateway`] serves HTTP, [`bridge`] a cluster, and
//! [`traces`] a collector of traces, each in its own process. [`cli`] is the
//! command line. [`logging`] writes the log. None of them ever loads CUDA.

pub mod bridge;
pub mod capsule;
pub mod cli;
pub mod config;
pub mod devices;
pub mod gateway;
#[cfg(test)]
mod generated;
pub mod helper;
mod history;
mod job_log;
pub mod logging;
mod programs;
mod questions;
mod refusals;
pub mod repository;
pub mod shell;
pub mod state;
mod timeline;
pub mod traces;
