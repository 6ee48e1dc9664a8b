//! The whole pool as its users meet it: real processes, sockets, signals and shared memory, on CPU
//! devices.
//!
//! The binaries under test are those of this very build ([`binaries`]). Nothing here sleeps: a test
//! waits for what it has caused ([`wait`]), and a job is held on its worker by stopping the worker.

mod batches;
mod binaries;
mod clients;
mod command;
mod jobs;
mod limits;
mod pool;
mod processes;
mod raw;
mod recovery;
mod run;
mod starts;
mod verdicts;
mod wait;
