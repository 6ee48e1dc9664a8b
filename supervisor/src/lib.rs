//! gridpool's supervisor.

pub mod pool;
