//! `gridpool jobs`: the last verdicts with their receipts, from the job log in the state folder. A pool need not run;
//! several may share the folder.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::iter;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use clap::Args;
use gridpool_ipc::clock;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::message::{LoggedJob, without_place};
use gridpool_protocol::receipt::{Receipt, Verdict};
use serde::Serialize;

use super::connect::socket_path;
use super::flags::whole;
use super::show::printable;
use super::status::write_table;
use super::words::{UNKNOWN, attempts, counted, cut, took};
use super::{CommandError, print, state};
use crate::gateway::parse_time;
use crate::job_log::{self, Entry, Logged};

/// Most jobs that may be asked for: more than a log holds.
const LAST_MAX: u64 = 1_000_000;
/// Widest reason in the table; `--json` has all of it.
const REASON_WIDTH: usize = 60;

/// Which jobs to show.
#[derive(Debug, Args)]
pub(super) struct JobsFlags {
    /// A job's number or its client's key: only that job. Exits with 1 if it is not in the log.
    job: Option<Named>,
    /// Only verdicts since then: so long ago (10m, 2h, 3days), or a time in UTC (2026-11-26T08:00:00Z).
    #[arg(long, value_name = "WHEN")]
    since: Option<Since>,
    /// The most jobs to show, the last ones.
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole::<usize>(1..=LAST_MAX))]
    last: usize,
    /// Only jobs that did not end OK.
    #[arg(long)]
    failed: bool,
    /// Print one JSON document a job, with its receipt.
    #[arg(long)]
    json: bool,
    /// Only jobs of the pool at this socket, whether or not it runs; the default is all pools of the state folder.
    #[arg(long, env = "GRIDPOOL_SOCKET")]
    socket: Option<PathBuf>,
    /// The pool's state folder; the default is that of `serve`.
    #[arg(long, value_name = "DIR", env = "GRIDPOOL_STATE_DIR")]
    state_dir: Option<PathBuf>,
}

/// A moment, by its time or its distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Since(SystemTime);

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = parse_time(text) {
            return Ok(Self(time));
        }
        let ago: Duration = humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write 10m, 2h, 3days or 2026-11-26T08:00:00Z"))?;
        let since = clock::time_of_day().checked_sub(ago);
        since.map(Self).ok_or_else(|| "that is before there was time".to_owned())
    }
}

/// A job by its number, such as `job7`, or its key of 32 hexadecimal digits, as receipts have them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named(String);

impl FromStr for Named {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const KEY_DIGITS: usize = 32;
        let own = text.to_ascii_lowercase();
        let number = without_place(own.strip_prefix("job").unwrap_or(&own));
        let is_number = number.parse::<u64>().is_ok_and(|read| read.to_string() == number);
        let is_key = own.len() == KEY_DIGITS && own.bytes().all(|byte| byte.is_ascii_hexdigit());
        match (is_key, is_number) {
            (true, _) => Ok(Self(own)),
            (false, true) => Ok(Self(format!("job{number}"))),
            (false, false) => {
                Err("it is no job: write its number, such as job7, or its key, which has 32 \
                                   hexadecimal digits; `gridpool jobs` lists numbers, `gridpool jobs --json` keys")
            }
        }
    }
}

impl JobsFlags {
    fn is_wanted(&self, entry: &Entry, pool: Option<&str>) -> bool {
        let receipt = &entry.job.receipt;
        let is_it = |Named(job): &Named| *job == receipt.job || *job == receipt.key;
        pool.is_none_or(|pool| entry.pool == pool)
            && self.job.as_ref().is_none_or(is_it)
            && (!self.failed || receipt.verdict != Verdict::Ok)
    }
}

pub(super) fn run(flags: &JobsFlags) -> Result<u8, CommandError> {
    let folder = state::to_read(flags.state_dir.as_deref())?;
    let since = flags.since.map(|Since(since)| since);
    let socket = flags.socket.clone().map(|socket| socket_path(Some(socket))).transpose()?;
    let pool = socket.as_deref().map(job_log::pool_at);
    let is_wanted = |entry: &Entry| flags.is_wanted(entry, pool.as_deref());
    let logged = job_log::read(&folder, since, flags.last, is_wanted)?;
    let code = print(|out| {
        if flags.json { write_json(out, &logged) } else { write(out, &logged, pool.as_deref()) }
    })?;
    // Who asks for one job is told by the code too.
    let is_missing = flags.job.is_some() && logged.jobs.is_empty();
    Ok(if is_missing { exit::JOB } else { code })
}

/// A job as JSON: what the log has of it that others may see.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    job: &'a LoggedJob,
    pool: &'a str,
}

fn write_json(out: &mut dyn Write, logged: &Logged) -> io::Result<()> {
    for Entry { job, pool, .. } in &logged.jobs {
        serde_json::to_writer(&mut *out, &Document { job, pool })?;
        writeln!(out)?;
    }
    Ok(())
}

fn write(out: &mut dyn Write, logged: &Logged, of: Option<&str>) -> io::Result<()> {
    const HEAD: [&str; 9] =
        ["TIME", "JOB", "VERDICT", "ITEMS", "ATTEMPTS", "WORKERS", "TOTAL", "PRINCIPAL", "REASON"];
    let pools: BTreeSet<_> = logged.jobs.iter().map(|entry| &entry.pool).collect();
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(logged.jobs.iter().map(|entry| row(&entry.job)));
    if pools.len() > 1 {
        // Each pool numbers its jobs from 1, so a number is one of its pool.
        let cells = logged.jobs.iter().map(|entry| pool(&entry.pool));
        let cells = iter::once("POOL".to_owned()).chain(cells);
        rows.iter_mut().zip(cells).for_each(|(row, cell)| row.insert(1, cell));
    }
    match logged.jobs.is_empty() {
        true => {
            let of = of.map_or_else(String::new, |of| format!(" of the pool at {}", pool(of)));
            writeln!(out, "no such job{of} is in the log in {}", logged.folder.display())?;
        }
        false => write_table(out, &rows)?,
    }
    if logged.skipped > 0 {
        let skipped = counted(logged.skipped, "job");
        writeln!(
            out,
            "{skipped} are not in the log in {}, since they came faster than it takes them, or the disk was full",
            logged.folder.display()
        )?;
    }
    for (file, &lines) in &logged.unread {
        let (lines, file) = (counted(lines, "line"), file.display());
        writeln!(out, "{lines} of {file} cannot be read: half written, or another version's")?;
    }
    Ok(())
}

fn row(logged: &LoggedJob) -> Vec<String> {
    let receipt = &logged.receipt;
    let reason = if receipt.reason.is_empty() { UNKNOWN } else { &receipt.reason };
    vec![
        logged.time.clone(),
        printable(&receipt.job),
        receipt.verdict.name().to_owned(),
        receipt.items.to_string(),
        attempts(receipt),
        workers(receipt),
        took(receipt.total_us),
        printable(&logged.principal),
        cut(&printable(reason), REASON_WIDTH),
    ]
}

/// A pool by its socket.
fn pool(socket: &str) -> String {
    if socket.is_empty() { UNKNOWN.to_owned() } else { printable(socket) }
}

/// The workers that attempted it.
fn workers(receipt: &Receipt) -> String {
    let workers: BTreeSet<_> = receipt.attempts.iter().map(|attempt| &*attempt.worker).collect();
    match workers.len() {
        0 => UNKNOWN.to_owned(),
        1..=3 => printable(&workers.into_iter().collect::<Vec<_>>().join(",")),
        many => counted(many as u64, "worker"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_by_its_number_or_its_key() {
        let named = |text: &str| text.parse().map(|Named(name)| name);
        let key = "00ff00ff00ff00ff00ff00ff00ff00FF";
        assert_eq!(named(key), Ok(key.to_lowercase()));
        assert_eq!((named("job7"), named("7")), (Ok("job7".to_owned()), Ok("job7".to_owned())));
        for wrong in ["nonsense", "", "job", "job-1", "job07", "+7", &key[1..], "gpu0#1"] {
            assert!(named(wrong).is_err_and(|why| why.contains("such as job7")), "{wrong}");
        }
    }

    #[test]
    fn since_is_a_time_or_so_long_ago() {
        let Since(ago) = "10m".parse().unwrap();
        let passed = clock::time_of_day().duration_since(ago).unwrap().as_secs();
        assert!((600..700).contains(&passed), "{passed}");
        let Since(at) = "1970-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(at, SystemTime::UNIX_EPOCH + Duration::from_secs(60));
        let why = "yesterday".parse::<Since>().unwrap_err();
        assert!(why.contains("10m, 2h"), "{why}");
    }
}
