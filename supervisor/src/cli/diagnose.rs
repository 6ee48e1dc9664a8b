//! `gridpool diagnose`: checks in one run everything that can keep a pool from working.
//!
//! - `host` checks the machine, `limits` the limits of this process, `leftovers` the processes of earlier
//!   pools; none of them starts anything.
//! - The worker's binary checks drivers and libraries, and compares results with the reference: this
//!   process has neither CUDA nor a reference. The binary answers with finished checks.
//! - `isolation` checks the processes of a pool over all devices; `faults` injects a fault into one.
//! - `stages` runs the checks in order; `report` shows the results.
//!
//! A check that cannot run is a skip with its reason, or a failure where it should have run; it never stops
//! the other checks. Owns the flags and the exit code.

mod faults;
mod host;
mod isolation;
mod leftovers;
pub(super) mod limits;
mod report;
mod stages;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gridpool_ipc::clock;
use gridpool_protocol::build;
use gridpool_protocol::color::Colors;
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::program::OPS;
use indicatif::{ProgressBar, ProgressDrawTarget};

use super::flags::{PoolFlags, whole};
use super::scratch::Scratch;
use super::{CommandError, system};
use crate::config::{ConfigError, Settings};
use report::{Layout, Report};

/// Most items of one job of the batch test.
const SIZE_MAX: u64 = 1_000_000;

/// The last lines of `--help`.
pub(super) const GROUPS: &str = "\
Groups:
  environment  this machine: limits, memory, folders, driver, ONNX Runtime, other users of the GPUs
  isolation    no CUDA in the supervisor; each worker sees only its GPU; preloads are refused
  batches      every op at 1 to 32, 33, 64, 1,000 and 65,537 items, compared with the reference
  models       every --model at as many rows, compared with ONNX Runtime's CPU provider
  allocation   sizes past 2^31 and 2^32, up to the free memory; sizes and shapes to refuse
  faults       the pool replaces a worker that meets a fault

diagnose starts its own pools on the devices, one after the other. It leaves out a GPU on which another
process has a context, unless --busy is given. The exit code is 0 only if no check failed. A skipped
check says why it was skipped and does not count as passed.";

/// Flags of `gridpool diagnose`.
#[derive(Debug, Args)]
pub(super) struct DiagnoseFlags {
    /// Run only these groups of checks, such as `environment,isolation`.
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    only: Vec<Group>,
    /// Test only these ops in the batch test.
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = parse_op)]
    ops: Vec<String>,
    /// Items of one job in the batch test, instead of the sizes below.
    #[arg(long, value_name = "ITEMS", value_delimiter = ',')]
    #[arg(value_parser = whole::<u32>(1..=SIZE_MAX))]
    sizes: Vec<u32>,
    /// Test fewer sizes, up to 1,000 items.
    #[arg(long)]
    quick: bool,
    /// Also test GPUs on which another process has a context. This takes memory and time from it.
    #[arg(long)]
    busy: bool,
    /// Print a line for every op that passes, instead of one for all of them.
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

fn parse_op(text: &str) -> Result<String, String> {
    match OPS.iter().find(|op| op.name == text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("there is no op `{text}`: `gridpool ops` lists them")),
    }
}

/// Runs all checks, shows them, and gives the exit code.
pub(super) fn run(
    flags: &DiagnoseFlags,
    pool: &PoolFlags,
    socket: Option<PathBuf>,
) -> Result<u8, CommandError> {
    let scratch = Scratch::new().map_err(system("a thread for signals"))?;
    let mut diagnosis = Diagnosis::new(flags, scratch);
    let settings = Settings::resolve(pool.overrides(socket), pool.config.as_deref());
    match settings {
        Ok(settings) => stages::run(&mut diagnosis, &settings)?,
        Err(error) => {
            let next = match &error {
                ConfigError::File { file, .. } => {
                    format!(
                        "correct the file; `gridpool config check {}` checks it",
                        file.display()
                    )
                }
                ConfigError::Content { .. }
                | ConfigError::Flag { .. }
                | ConfigError::Unreadable { .. } => {
                    "correct the setting, then run this again".to_owned()
                }
            };
            diagnosis.add(Check::fail(Group::Environment, "settings", error.to_string(), next))?;
        }
    }
    diagnosis.end()
}

/// The checks so far, and how to show them.
struct Diagnosis<'a> {
    flags: &'a DiagnoseFlags,
    layout: Layout,
    report: Report,
    progress: ProgressBar,
    started: Instant,
    scratch: Scratch,
}

impl Diagnosis<'_> {
    fn new(flags: &DiagnoseFlags, scratch: Scratch) -> Diagnosis<'_> {
        let color = Colors::of(io::stdout().is_terminal()).any();
        let layout = Layout { all: flags.all, color, columns: super::columns() };
        let progress = ProgressBar::new_spinner();
        if flags.json {
            progress.set_draw_target(ProgressDrawTarget::hidden());
        }
        let (report, started) = (Report::default(), clock::now());
        Diagnosis { flags, layout, report, progress, started, scratch }
    }

    fn wants(&self, group: Group) -> bool {
        self.flags.only.is_empty() || self.flags.only.contains(&group)
    }

    /// Shows a check, with the spinner off the screen. Drops a check that the report has already.
    fn add(&mut self, check: Check) -> Result<(), CommandError> {
        if self.report.has(&check) {
            return Ok(());
        }
        let text = self.report.add(check, self.layout);
        self.progress.tick();
        if self.flags.json || text.is_empty() {
            return Ok(());
        }
        let print = || io::stdout().lock().write_all(text.as_bytes());
        self.progress.suspend(print).map_err(CommandError::Output)
    }

    /// The last lines, or the document.
    fn end(mut self) -> Result<u8, CommandError> {
        self.progress.finish_and_clear();
        let elapsed = self.started.elapsed();
        let text = self.report.end(elapsed, self.layout);
        if self.flags.json {
            super::say_json(&self.report.document(build::text(), elapsed))?;
        } else {
            super::say(text.trim_end())?;
        }
        Ok(self.report.exit_code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_op_is_refused_by_name() {
        assert_eq!(parse_op("rot90"), Ok("rot90".to_owned()));
        assert!(parse_op("rot9").unwrap_err().starts_with("there is no op `rot9`"));
    }
}
