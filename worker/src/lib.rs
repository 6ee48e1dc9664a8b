//! TBD

pub mod chunk;
pub mod cpu;
pub mod device;
pub mod fault;
pub mod self_test;
mod tally;
