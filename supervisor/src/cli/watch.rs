//! `gridpool watch`: follows one job of a running pool to its verdict.

use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;
use gridpool_client::ClientError;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::message::{JobSelector, JobView};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::show::printable;
use super::words::{attempts, counted, took};
use super::{CommandError, connect, say_json};

/// Between two looks. The pool tells nobody of the steps of another's job, so it is asked.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Which job to follow.
#[derive(Debug, Args)]
pub(super) struct WatchFlags {
    /// Its number (`job17`) or its client's key, as receipts and `gridpool jobs` name it.
    #[arg(value_parser = parse_job)]
    job: JobSelector,
    /// Print one JSON document, at the end: the job's receipt.
    #[arg(long)]
    json: bool,
}

/// A number may come without its word, as to `gridpool jobs`.
fn parse_job(text: &str) -> Result<JobSelector, String> {
    let named = text.parse::<JobSelector>();
    named.or_else(|error| format!("job{text}").parse().map_err(|_| error.to_string()))
}

/// Prints a line whenever something has changed, and the verdict.
pub(super) fn run(flags: &WatchFlags, socket: Option<PathBuf>) -> Result<u8, CommandError> {
    let client = connect(socket)?;
    let mut said = String::new();
    loop {
        let view = client.job(flags.job).map_err(|error| lost(error, flags.job))?;
        let view = view.ok_or_else(|| unknown(flags.job))?;
        if flags.json && view.has_ended {
            say_json(&view.receipt)?;
        } else if !flags.json {
            let line = line(&view);
            if line != said {
                let mut out = io::stdout().lock();
                writeln!(out, "{line}").and_then(|()| out.flush()).map_err(CommandError::Output)?;
                said = line;
            }
        }
        if view.has_ended {
            let is_ok = view.receipt.verdict == Verdict::Ok;
            return Ok(if is_ok { exit::OK } else { exit::JOB });
        }
        thread::park_timeout(LOOK_EVERY);
    }
}

fn unknown(job: JobSelector) -> CommandError {
    CommandError::Usage(format!(
        "this pool has no job {job} that you may see, or no longer remembers its verdict: `gridpool jobs {job}` looks \
         in the job log"
    ))
}

fn lost(error: ClientError, job: JobSelector) -> CommandError {
    let after = format!(
        ", and {job} had no verdict yet: its client gives it to the next pool; `gridpool jobs {job}` looks in the \
         job log"
    );
    CommandError::unanswered(error, after)
}

/// What a job is doing, without the time, which changes always.
fn line(view: &JobView) -> String {
    let JobView { receipt, has_ended, workers } = view;
    let job = printable(&receipt.job);
    if *has_ended {
        let total = took(receipt.total_us);
        let attempts = attempts(receipt);
        let reason = printable(&receipt.reason);
        let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        return format!("{job} {} after {total}, {attempts}{because}", receipt.verdict);
    }
    let done: u32 = receipt.items_done().iter().map(|part| part.len()).sum();
    let doing = match workers.len() {
        0 => "waits".to_owned(),
        _ => format!("runs on {}", printable(&workers.join(", "))),
    };
    let is_lost = |outcome| !matches!(outcome, AttemptOutcome::Ok | AttemptOutcome::Preempted);
    let lost: Vec<_> = receipt.attempts.iter().filter(|it| is_lost(it.outcome)).collect();
    let last = lost.last().map_or_else(String::new, |last| {
        let lost = counted(lost.len() as u64, "attempt");
        format!(", {lost} lost, the last on {}: {}", last.worker, printable(&last.detail))
    });
    format!("{job} {doing}, {done} of {} items done{last}", receipt.items)
}
