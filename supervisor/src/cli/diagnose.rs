//! `gridpool diagnose`: everything that can keep a pool from doing its work, looked for in one run.
//!
//! - `host` looks at the machine, `leftovers` at processes of earlier pools; neither starts anything.
//! - The worker's binary looks at drivers and libraries, and holds results against the reference: this
//!   process has neither CUDA nor a reference. What it says are checks already.
//! - `isolation` looks at the processes of a pool over all devices; `faults` has one meet a fault.
//! - `course` is the order of things; `report` shows what was found.
//!
//! A check that cannot be made is a skip with its reason, or a failure where it should have been possible;
//! it never ends the others. Owns what may be typed and the exit code.

mod course;
mod faults;
mod host;
mod isolation;
mod leftovers;
mod report;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::program::OPS;
use gridpool_protocol::{build, clock};
use indicatif::{ProgressBar, ProgressDrawTarget};

use super::arguments::PoolFlags;
use super::{CommandError, show};
use crate::config::Settings;
use report::{Look, Report};

/// Most items of one submission of the batch test.
const SIZE_MAX: u32 = 1_000_000;

/// What `--help` ends with.
pub(super) const GROUPS: &str = "\
Groups:
  environment  this machine: limits, memory, folders, driver, ONNX Runtime, who else is on the GPUs
  isolation    no CUDA in the supervisor, each worker sees its GPU alone, foreign libraries are refused
  batches      every op at 1 to 32, 33, 64, 1,000 and 65,537 items, byte for byte as the reference
  models       every --model at as many rows, against ONNX Runtime's CPU provider
  allocation   sizes through 2^31, 2^32 and up to what is free; sizes and shapes that must be refused
  faults       a worker meets a fault, and is replaced

The devices should be idle: pools of its own run on them, one after the other. The exit code is 0 only if
nothing failed. A skip says why something was not tried, and is never counted as a pass.";

/// What is looked for, and how it is shown.
#[derive(Debug, Args)]
pub(super) struct DiagnoseFlags {
    /// Only these groups of checks, such as `environment,isolation`.
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    only: Vec<Group>,
    /// Only these ops in the batch test.
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = parse_op)]
    ops: Vec<String>,
    /// Items of one submission in the batch test, instead of the sizes below.
    #[arg(long, value_name = "ITEMS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SIZE_MAX)))]
    sizes: Vec<u32>,
    /// Fewer sizes, at most 1,000 items.
    #[arg(long)]
    quick: bool,
    /// A line for every op that is right, not one for all of them.
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

/// Looks for everything, shows it, and says how it ended.
pub(super) fn run(
    flags: &DiagnoseFlags,
    pool: &PoolFlags,
    socket: Option<PathBuf>,
) -> Result<u8, CommandError> {
    let mut diagnosis = Diagnosis::new(flags);
    let settings = Settings::resolve(pool.overrides(socket), pool.config.as_deref());
    match settings {
        Ok(settings) => course::run(&mut diagnosis, &settings)?,
        Err(error) => {
            let next = "mend that; `gridpool config check` says whether it is";
            diagnosis.add(Check::fail(Group::Environment, "settings", error.to_string(), next))?;
        }
    }
    diagnosis.end()
}

/// What was found so far, and how it is shown.
struct Diagnosis<'a> {
    flags: &'a DiagnoseFlags,
    look: Look,
    report: Report,
    progress: ProgressBar,
    started: Instant,
}

impl Diagnosis<'_> {
    fn new(flags: &DiagnoseFlags) -> Diagnosis<'_> {
        let color =
            show::wants_color(io::stdout().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
        let look = Look { all: flags.all, color, columns: super::columns() };
        let progress = ProgressBar::new_spinner();
        if flags.json {
            progress.set_draw_target(ProgressDrawTarget::hidden());
        }
        Diagnosis { flags, look, report: Report::default(), progress, started: clock::now() }
    }

    fn wants(&self, group: Group) -> bool {
        self.flags.only.is_empty() || self.flags.only.contains(&group)
    }

    /// Shows a check, with the spinner off the screen; one that has been made already is no news.
    fn add(&mut self, check: Check) -> Result<(), CommandError> {
        if self.report.has(&check) {
            return Ok(());
        }
        let text = self.report.add(check, self.look);
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
        let text = self.report.end(elapsed, self.look);
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
    fn an_op_that_there_is_not_is_refused_by_name() {
        assert_eq!(parse_op("rot90"), Ok("rot90".to_owned()));
        assert!(parse_op("rot9").unwrap_err().starts_with("there is no op `rot9`"));
    }
}
