//! The machine of docs/src/design/machine.md in plain Rust: runs a solver over one grid.
//!
//! It defines the right results. `run` goes through the instructions, `turns` owns loops; the other files hold the
//! primitives, one family each. Every value is a `Value`; the program has been verified, so kinds fit.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a program has been verified, so values are of few kinds; each file has the opcodes of one family, and a \
              test asks that every opcode has a family"
)]

mod containers;
mod convert;
mod grids;
mod measures;
mod numbers;
mod objects;
mod paint;
mod patches;
mod run;
mod runner;
mod support;
mod ties;
mod turns;

pub use run::{Failed, Finished, Machine};
pub use runner::Runner;
