//! The job log: the verdicts of a pool with their receipts, in the folder `jobs` of its state folder, one JSON
//! document a line. It is a ring of files: the oldest goes when there are too many.
//!
//! A thread writes it, so a slow disk costs no job a moment. A pool that answers more jobs than the log takes keeps
//! those that did not go well and leaves out others; a line says how many.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use gridpool_ipc::clock;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::{Receipt, Verdict};
use serde::{Deserialize, Serialize};

use crate::state::{Bounds, StateError, StateFolder};

/// Its folder in the state folder.
const FOLDER: &str = "jobs";
/// The end of its files' names.
const SUFFIX: &str = ".jsonl";

/// A file is left for the next when it has so many bytes.
const FILE_BYTES: u64 = 1 << 20;
/// The files of all pools that share the folder.
const BOUNDS: Bounds =
    Bounds { bytes: 32 << 20, age: Duration::from_secs(30 * 24 * 3_600), files: 64 };
/// Longest line that is read; a receipt of 64 attempts takes 64 KiB.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// Verdicts that may wait for the thread.
const WAITING_MAX: usize = 4_096;
/// Verdicts of jobs that went well: so many a second, and so many at once.
const USUAL_PER_S: u32 = 1_000;
const USUAL_BURST: u32 = 4_096;

/// One verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoggedJob {
    /// When it was given, UTC.
    pub(crate) time: String,
    /// Whose job it was.
    pub(crate) principal: String,
    /// Where and how it ran.
    pub(crate) receipt: Receipt,
}

/// One line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Job(Box<LoggedJob>),
    /// Jobs before it that went well and are left out.
    Skipped {
        time: String,
        skipped: u64,
    },
}

/// A verdict on its way to the thread.
#[derive(Debug)]
struct Entry {
    at: SystemTime,
    principal: Principal,
    receipt: Box<Receipt>,
    /// Verdicts that were left out before it.
    skipped: u64,
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct JobLog {
    entries: Sender<Entry>,
    thread: JoinHandle<()>,
    /// Jobs that went well and may be logged now, and when that was found.
    usual_left: u32,
    counted: Instant,
    skipped: u64,
}

impl JobLog {
    /// Opens the log in a state folder, and starts its thread.
    pub(crate) fn start(state: &StateFolder) -> Result<Self, StateError> {
        let folder = state.below(FOLDER)?;
        let (entries, waiting) = crossbeam_channel::bounded(WAITING_MAX);
        let path = folder.path().to_owned();
        let thread = thread::Builder::new().name("job log".into());
        let thread =
            thread.spawn(move || Writer { folder, file: None, is_failing: false }.run(&waiting));
        let thread = thread.map_err(|error| StateError::Io(path, error))?;
        let (usual_left, counted) = (USUAL_BURST, clock::now());
        Ok(Self { entries, thread, usual_left, counted, skipped: 0 })
    }

    /// Logs a verdict, and never waits: what there is no room for is counted.
    pub(crate) fn keep(&mut self, principal: Principal, receipt: Box<Receipt>) {
        let is_usual = receipt.verdict == Verdict::Ok && receipt.attempts.len() <= 1;
        // The gateway asks every few seconds whether the pool works.
        if is_usual && principal == Principal::Gateway {
            return;
        }
        if is_usual && !self.takes_usual() {
            self.skipped += 1;
            return;
        }
        let entry = Entry { at: clock::time_of_day(), principal, receipt, skipped: self.skipped };
        match self.entries.try_send(entry) {
            Ok(()) => self.skipped = 0,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.skipped += 1,
        }
    }

    /// Whether a job that went well is still within the rate.
    fn takes_usual(&mut self) -> bool {
        if self.usual_left == 0 {
            let now = clock::now();
            let earned =
                now.duration_since(self.counted).as_millis() * u128::from(USUAL_PER_S) / 1_000;
            if earned == 0 {
                return false;
            }
            self.usual_left = u32::try_from(earned).unwrap_or(USUAL_BURST).min(USUAL_BURST);
            self.counted = now;
        }
        self.usual_left -= 1;
        true
    }

    /// Writes what waits, and ends.
    pub(crate) fn close(self) {
        drop(self.entries);
        if self.thread.join().is_err() {
            tracing::error!("the job log's thread has panicked");
        }
    }
}

/// The thread's side.
struct Writer {
    folder: StateFolder,
    /// The file that is written now, and its bytes.
    file: Option<(BufWriter<File>, u64)>,
    /// What the log has been told of.
    is_failing: bool,
}

impl Writer {
    fn run(mut self, entries: &Receiver<Entry>) {
        while let Ok(first) = entries.recv() {
            let written = self.write(first, entries);
            match written {
                Err(error) if !self.is_failing => {
                    tracing::warn!(folder = %self.folder.path().display(), %error, "verdicts are not logged");
                    (self.is_failing, self.file) = (true, None);
                }
                // Said already. A part of a line may be there: a reader passes over it.
                Err(_) => self.file = None,
                Ok(()) => self.is_failing = false,
            }
        }
    }

    /// Writes an entry and those that wait behind it.
    fn write(&mut self, first: Entry, entries: &Receiver<Entry>) -> io::Result<()> {
        for entry in std::iter::once(first).chain(entries.try_iter()) {
            let (file, bytes) = self.file()?;
            let time = humantime::format_rfc3339_millis(entry.at).to_string();
            let mut line = Vec::new();
            if entry.skipped > 0 {
                let skipped = Line::Skipped { time: time.clone(), skipped: entry.skipped };
                serde_json::to_writer(&mut line, &skipped)?;
                line.push(b'\n');
            }
            let principal = entry.principal.to_string();
            let job = LoggedJob { time, principal, receipt: *entry.receipt };
            serde_json::to_writer(&mut line, &Line::Job(Box::new(job)))?;
            line.push(b'\n');
            file.write_all(&line)?;
            *bytes += line.len() as u64;
        }
        match &mut self.file {
            Some((file, _)) => file.flush(),
            None => Ok(()),
        }
    }

    /// The file to write to: the one that is open, or a new one if that is full.
    fn file(&mut self) -> io::Result<&mut (BufWriter<File>, u64)> {
        if let Some((file, _)) = self.file.take_if(|(_, bytes)| *bytes >= FILE_BYTES) {
            file.into_inner().map_err(io::IntoInnerError::into_error)?;
        }
        match self.file {
            Some(ref mut file) => Ok(file),
            None => {
                let room =
                    Bounds { bytes: BOUNDS.bytes - FILE_BYTES, files: BOUNDS.files - 1, ..BOUNDS };
                self.folder.prune(SUFFIX, room)?;
                let file = BufWriter::new(self.new_file()?);
                Ok(self.file.insert((file, 0)))
            }
        }
    }

    /// A file named by the time, so that names are in the order of their verdicts.
    fn new_file(&self) -> io::Result<File> {
        let since = clock::time_of_day().duration_since(SystemTime::UNIX_EPOCH);
        let mut ms = since.unwrap_or_default().as_millis();
        loop {
            let name = format!("{ms:014}-{}{SUFFIX}", std::process::id());
            match self.folder.append(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => ms += 1,
                opened => return opened,
            }
        }
    }
}

/// What a log has.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// The jobs, in the order of their verdicts.
    pub(crate) jobs: Vec<LoggedJob>,
    /// Jobs that went well and were left out.
    pub(crate) skipped: u64,
    /// Lines that are no verdicts: what a killed pool left half written, or another version's.
    pub(crate) unread: usize,
}

/// Reads the verdicts of a state folder from a moment on, in their order: the last `most` of those that are `wanted`.
pub(crate) fn read(
    state: &StateFolder,
    since: Option<SystemTime>,
    most: usize,
    mut is_wanted: impl FnMut(&LoggedJob) -> bool,
) -> Result<Logged, StateError> {
    let folder = state.below(FOLDER)?;
    let failed = |error| StateError::Io(folder.path().to_owned(), error);
    let since = since.map(|since| humantime::format_rfc3339_millis(since).to_string());
    let mut logged = Logged::default();
    for kept in folder.list().map_err(failed)?.iter().filter(|kept| kept.name.ends_with(SUFFIX)) {
        // The pool may remove it at this moment.
        let Ok(file) = folder.read(&kept.name) else { continue };
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        while io::Read::take(&mut file, LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .map_err(failed)?
            > 0
        {
            let is_new = |time: &str| since.as_deref().is_none_or(|since| time >= since);
            match serde_json::from_slice(&line) {
                Ok(Line::Job(job)) if is_new(&job.time) && is_wanted(&job) => {
                    logged.jobs.push(*job)
                }
                Ok(Line::Skipped { time, skipped }) if is_new(&time) => logged.skipped += skipped,
                Ok(Line::Job(_) | Line::Skipped { .. }) => {}
                Err(_) => logged.unread += 1,
            }
            line.clear();
        }
    }
    logged.jobs.sort_by(|a, b| a.time.cmp(&b.time));
    logged.jobs.drain(..logged.jobs.len().saturating_sub(most));
    Ok(logged)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::receipt::{Attempt, AttemptOutcome, DeviceInfo, ItemRange};

    use super::*;

    const ALL: usize = usize::MAX;

    fn state() -> (tempfile::TempDir, StateFolder) {
        let parent = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(&parent.path().join("state"), true).unwrap();
        (parent, folder)
    }

    fn receipt(job: usize, verdict: Verdict) -> Box<Receipt> {
        Box::new(Receipt { job: job.to_string(), verdict, ..Receipt::default() })
    }

    fn of(principal: u32, log: &mut JobLog, receipt: Box<Receipt>) {
        log.keep(Principal::Uid(principal), receipt);
    }

    #[test]
    fn what_was_logged_is_read_in_its_order_and_survives_the_next_pool() {
        let (_parent, state) = state();
        let mut log = JobLog::start(&state).unwrap();
        let attempt = Attempt::unreported(
            "gpu0#4".to_owned(),
            DeviceInfo::default(),
            ItemRange { start: 0, end: 3 },
            AttemptOutcome::WorkerDied,
            "signal 11".to_owned(),
        );
        let whole = Receipt { attempts: vec![attempt], ..*receipt(1, Verdict::Poison) };
        of(7, &mut log, Box::new(whole.clone()));
        log.keep(Principal::Gateway, receipt(2, Verdict::Ok));
        log.keep(Principal::Gateway, receipt(3, Verdict::Deadline));
        log.close();
        let mut next = JobLog::start(&state).unwrap();
        of(8, &mut next, receipt(4, Verdict::Ok));
        next.close();
        let read = |most, wanted: fn(&LoggedJob) -> bool| {
            let logged = read(&state, None, most, wanted).unwrap();
            assert_eq!((logged.skipped, logged.unread), (0, 0));
            logged.jobs
        };
        let all = read(ALL, |_| true);
        let seen: Vec<_> = all.iter().map(|job| (&*job.principal, &*job.receipt.job)).collect();
        assert_eq!(seen, [("uid 7", "1"), ("gateway", "3"), ("uid 8", "4")]);
        assert_eq!(all[0].receipt, whole);
        assert_eq!(read(2, |_| true), all[1..]);
        assert_eq!(read(ALL, |job| job.receipt.job == "3"), all[1..2]);
    }

    #[test]
    fn jobs_that_come_too_fast_are_counted_and_those_that_went_wrong_are_kept() {
        let (_parent, state) = state();
        let mut log = JobLog::start(&state).unwrap();
        let all = 4 * USUAL_BURST as usize;
        (0..all).for_each(|job| of(7, &mut log, receipt(job, Verdict::Ok)));
        // The last line says what was left out before it. Room for it may have to be waited for.
        while log.entries.is_full() {
            thread::yield_now();
        }
        of(7, &mut log, receipt(all, Verdict::Failed));
        log.close();
        let logged = read(&state, None, ALL, |_| true).unwrap();
        assert_eq!(logged.jobs.last().unwrap().receipt.verdict, Verdict::Failed);
        assert!(logged.skipped > 0);
        assert_eq!(logged.jobs.len() + usize::try_from(logged.skipped).unwrap(), all + 1);
    }

    #[test]
    fn a_full_file_is_left_for_the_next_and_half_a_line_costs_that_line() {
        let (parent, state) = state();
        let mut log = JobLog::start(&state).unwrap();
        for job in 0..5 {
            let reason = "x".repeat(usize::try_from(FILE_BYTES).unwrap() / 2);
            of(7, &mut log, Box::new(Receipt { reason, ..*receipt(job, Verdict::Failed) }));
        }
        log.close();
        let folder = parent.path().join("state").join(FOLDER);
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        assert_eq!(files.len(), 3, "{files:?}");
        let file = File::options().write(true).open(files.last().unwrap()).unwrap();
        file.set_len(file.metadata().unwrap().len() - 2).unwrap();
        let logged = read(&state, None, ALL, |_| true).unwrap();
        assert_eq!((logged.jobs.len(), logged.unread), (4, 1));
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_the_log_alone() {
        let (parent, state) = state();
        let mut log = JobLog::start(&state).unwrap();
        std::fs::remove_dir_all(parent.path().join("state").join(FOLDER)).unwrap();
        (0..3).for_each(|job| of(7, &mut log, receipt(job, Verdict::Failed)));
        log.close();
        assert_eq!(read(&state, None, ALL, |_| true).unwrap().jobs, []);
    }
}
