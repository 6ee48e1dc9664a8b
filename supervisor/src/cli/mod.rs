//! The command line's own work: reading inputs, writing results.

pub mod document;
pub mod input;
pub mod progress;
pub mod results;
pub mod show;
