//! The command line's own work: reading inputs, writing results.

pub mod input;
