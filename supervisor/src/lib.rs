//! gridpool's supervisor.

pub mod cli;
pub mod config;
pub mod pool;

pub mod shell;
