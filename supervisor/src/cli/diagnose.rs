//! `gridpool diagnose`: everything that can keep a pool from doing its work, looked for in one run.
//!
//! - `host` looks at the machine, `limits` at what this process may have, `leftovers` at processes of earlier
//!   pools; none of them starts anything.
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
mod limits;
mod report;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use clap::Args;
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::program::OPS;
use gridpool_protocol::{build, clock};
use indicatif::{ProgressBar, ProgressDrawTarget};
use nix::sys::signal::{SigSet, Signal, raise};

use super::arguments::PoolFlags;
use super::{CommandError, show, system};
use crate::config::{ConfigError, Settings};
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

Pools of its own run on the devices, one after the other; a GPU on which anybody else has a context is
left out without --busy. The exit code is 0 only if nothing failed. A skip says why something was not
tried, and is never counted as a pass.";

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
    /// Try GPUs too on which another process has a context; it takes memory and time from them.
    #[arg(long)]
    busy: bool,
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
    diagnosis.obey_signals().map_err(system("a thread for signals"))?;
    let settings = Settings::resolve(pool.overrides(socket), pool.config.as_deref());
    match settings {
        Ok(settings) => course::run(&mut diagnosis, &settings)?,
        Err(error) => {
            let next = match &error {
                ConfigError::File { file, .. } => {
                    format!(
                        "mend that; `gridpool config check {}` says whether it is",
                        file.display()
                    )
                }
                ConfigError::Flag { .. } | ConfigError::Unreadable { .. } => {
                    "mend that, then run this again".to_owned()
                }
            };
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
    /// What is removed when a signal ends this process.
    litter: Arc<OnceLock<PathBuf>>,
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
        let (report, litter) = (Report::default(), Arc::default());
        Diagnosis { flags, look, report, progress, started: clock::now(), litter }
    }

    /// A signal that ends this process has it clear away its folder first. To be called before there are
    /// other threads.
    fn obey_signals(&self) -> io::Result<()> {
        let signals = SigSet::from_iter([Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]);
        signals.thread_block()?;
        let litter = Arc::clone(&self.litter);
        let wait = move || {
            let Ok(signal) = signals.wait() else { return };
            if let Some(folder) = litter.get()
                && let Err(error) = fs::remove_dir_all(folder)
            {
                tracing::warn!(%error, folder = %folder.display(), "the folder stays");
            }
            // As if nothing had been in its way.
            if let Err(errno) = signals.thread_unblock().and_then(|()| raise(signal)) {
                tracing::error!(%errno, %signal, "this process does not end");
            }
        };
        thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }

    /// From now on that folder is removed however this process ends, but by SIGKILL.
    fn clears_away(&self, folder: &Path) {
        self.litter.get_or_init(|| folder.to_owned());
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
