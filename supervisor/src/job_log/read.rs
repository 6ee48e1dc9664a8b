//! The job log as it is read: whole by `gridpool jobs`, its end by a pool that starts.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::time::SystemTime;

use super::{Entry, FOLDER, Line, SUFFIXES};
use crate::state::{Kept, StateError, StateFolder};

/// Longest line that is read; a receipt of 64 attempts takes 64 KiB.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Files of each ring that a pool reads when it starts: the one that was written last may be short.
const NEWEST: usize = 2;

/// What a log has.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// The jobs, in the order of their verdicts.
    pub(crate) jobs: Vec<Entry>,
    /// Jobs that were left out.
    pub(crate) skipped: u64,
    /// Files with lines that are no verdicts, and how many: what a killed pool or a full disk left half written, or
    /// another version's.
    pub(crate) unread: BTreeMap<PathBuf, u64>,
    /// Where it is.
    pub(crate) folder: PathBuf,
}

/// Reads the verdicts of a state folder from a moment on, in their order: the last `most` of those that are `wanted`.
pub(crate) fn read(
    state: &StateFolder,
    since: Option<SystemTime>,
    most: usize,
    mut is_wanted: impl FnMut(&Entry) -> bool,
) -> Result<Logged, StateError> {
    let Some(folder) = state.existing(FOLDER)? else {
        return Ok(Logged { folder: state.path().join(FOLDER), ..Logged::default() });
    };
    let failed = |error| StateError::Io(folder.path().to_owned(), error);
    let since = since.map(|since| humantime::format_rfc3339_millis(since).to_string());
    let is_new = |time: &str| since.as_deref().is_none_or(|since| time >= since);
    let mut logged = Logged { folder: folder.path().to_owned(), ..Logged::default() };
    let is_of_log = |kept: &&Kept| SUFFIXES.iter().any(|suffix| kept.name.ends_with(suffix));
    for kept in folder.list().map_err(failed)?.iter().filter(is_of_log) {
        let on_line = |line: serde_json::Result<Line>| match line {
            Ok(Line::Job(entry)) if is_new(&entry.job.time) && is_wanted(&entry) => {
                logged.jobs.push(*entry);
            }
            Ok(Line::Skipped { time, skipped }) if is_new(&time) => logged.skipped += skipped,
            Ok(Line::Job(_) | Line::Skipped { .. }) => {}
            Err(_) => *logged.unread.entry(folder.path().join(&kept.name)).or_default() += 1,
        };
        read_lines(&folder, &kept.name, on_line).map_err(failed)?;
    }
    logged.jobs.sort_by(|a, b| a.job.time.cmp(&b.job.time));
    logged.jobs.drain(..logged.jobs.len().saturating_sub(most));
    Ok(logged)
}

/// The verdicts of a pool in the newest files, in their order. What cannot be read is left out. Clients of one pool are
/// not told of those of another that shares the folder.
pub(super) fn newest(folder: &StateFolder, pool: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let files = folder.list().unwrap_or_else(|error| {
        tracing::debug!(%error, "the verdicts of pools before cannot be listed");
        Vec::new()
    });
    for suffix in SUFFIXES {
        let of_ring = files.iter().rev().filter(|kept| kept.name.ends_with(suffix));
        for kept in of_ring.take(NEWEST) {
            let on_line = |line: serde_json::Result<Line>| {
                if let Ok(Line::Job(entry)) = line
                    && entry.pool == pool
                {
                    entries.push(*entry);
                }
            };
            if let Err(error) = read_lines(folder, &kept.name, on_line) {
                tracing::debug!(file = kept.name, %error, "verdicts of a pool before cannot be read");
            }
        }
    }
    entries.sort_by(|a, b| a.job.time.cmp(&b.job.time));
    entries
}

/// Reads the lines of a file of the log.
fn read_lines(
    folder: &StateFolder,
    name: &str,
    mut on_line: impl FnMut(serde_json::Result<Line>),
) -> io::Result<()> {
    // The pool may remove it at this moment.
    let Ok(file) = folder.read(name) else { return Ok(()) };
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    while io::Read::take(&mut file, LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0 {
        on_line(serde_json::from_slice(&line));
        line.clear();
    }
    Ok(())
}
