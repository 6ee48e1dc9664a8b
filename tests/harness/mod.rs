//! What tests of real processes share: the binaries under test, waiting for events, processes as the
//! kernel shows them, and a client that follows no rules.
//!
//! All of it panics where a test would fail.

pub mod binaries;
pub mod needs;
pub mod processes;
pub mod raw;
pub mod wait;
