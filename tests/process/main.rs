//! The whole pool as its users meet it: real processes, sockets, signals and shared memory, on CPU
//! devices.
//!
//! The binaries under test are those of this very build ([`binaries`]). Nothing here sleeps: a test
//! waits for what it has caused ([`wait`]), and a job is held on its worker by stopping the worker.

#![expect(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that gets something else than it expects says what it got"
)]

mod activation;
mod arenas;
mod bad_input;
mod batches;
mod bench;
mod bundles;
mod capsules;
mod chaos;
mod clients;
mod cluster;
mod command;
mod diagnose;
mod documents;
mod examples;
mod files;
mod floods;
mod forms;
mod frames;
mod http;
mod infer;
mod isolation;
mod item_errors;
mod job_log;
mod jobs;
mod lifecycle;
mod limits;
mod loaded;
mod logs;
mod memory;
mod packed;
mod pairs;
mod policy;
mod pool;
mod reconnect;
mod recovery;
mod report;
mod run;
mod sandbox;
mod scarcity;
mod search;
mod settings;
mod sharing;
mod solvers;
mod starts;
mod stubbed;
mod submissions;
mod systemd;
mod top;
mod traces;
mod upgrade;
mod users;
mod verdicts;
mod watch;
mod worker_diagnose;

use gridpool_tests::harness::{binaries, needs, processes, raw, wait};
