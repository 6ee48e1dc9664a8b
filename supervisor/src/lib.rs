//! gridpool's supervisor and command line.
//!
//! [`pool`] is the core: every rule, as plain data. [`shell`] is what surrounds it: sockets,
//! processes, threads, the clock. [`gateway`] is HTTP, in a process of its own. [`cli`] is what is typed.
//! [`logging`] writes the log. None of them ever loads CUDA.

pub mod cli;
pub mod config;
pub mod devices;
pub mod gateway;
pub mod logging;
pub mod pool;
pub mod shell;
