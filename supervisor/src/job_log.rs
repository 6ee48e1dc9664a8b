//! The job log: the verdicts of a pool with their receipts, in the folder `jobs` of its state folder, one JSON
//! document a line. It is two rings of files, one of jobs that went well and one of the others, so that the many of
//! one do not displace the few of the other; the oldest file goes when there are too many.
//!
//! A thread writes it, so a slow disk costs no job a moment. It sleeps between two writes, so that a verdict seldom has
//! to wake it. What comes faster than it takes, and what the disk refuses, is counted, and a line says how many.

mod read;
mod recent;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select};
use gridpool_core::event::Timestamp;
use gridpool_ipc::clock;
use gridpool_protocol::codec;
use gridpool_protocol::message::{AskedVerdicts, LastVerdicts, LoggedJob};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::{Receipt, Verdict};
use serde::{Deserialize, Serialize};

use crate::gateway::TokenMark;
use crate::state::{Bounds, StateError, StateFolder};
pub(crate) use read::{Logged, read};
use recent::Recent;

/// Its folder in the state folder.
const FOLDER: &str = "jobs";
/// The end of its files' names: of jobs that went well, and of the others.
const SUFFIXES: [&str; 2] = [".ok.jsonl", ".failed.jsonl"];

/// A file is left for the next when it has so many bytes.
const FILE_BYTES: u64 = 1 << 20;
/// The files of one ring, of all pools that share the folder.
const BOUNDS: Bounds =
    Bounds { bytes: 16 << 20, age: Duration::from_secs(30 * 24 * 3_600), files: 4_096 };
/// How often old files are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// So many bytes are written at once.
const TOGETHER: usize = 64 << 10;
/// Bytes that wait for a disk that takes none.
const UNWRITTEN_MAX: usize = 1 << 20;

/// Verdicts that may wait for the thread.
const WAITING_MAX: usize = 4_096;
/// How long the first of them waits for others.
const GATHER: Duration = Duration::from_millis(20);
/// How long the end of the pool waits for the thread.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Principals whose rates are remembered.
const PRINCIPALS_MAX: usize = 1_024;

/// Of jobs that went well, so many a second, and so many at once.
const USUAL: Rate = Rate { per_s: 200, burst: 4_096 };
/// The same of a principal's jobs that did not.
const UNUSUAL: Rate = Rate { per_s: 10, burst: 1_000 };

/// A verdict, and what tells clients apart that have one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(flatten)]
    pub(crate) job: LoggedJob,
    /// The socket of its pool, since pools may share the folder. Empty in a log that was written before this was in it.
    #[serde(default)]
    pub(crate) pool: String,
    /// The token that its client showed. Another one may have its name later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<TokenMark>,
}

/// One line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Job(Box<Entry>),
    /// Jobs before it that are left out.
    Skipped {
        time: String,
        skipped: u64,
    },
}

/// How many verdicts are taken.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_s: u32,
    burst: u32,
}

impl Rate {
    /// The time between two.
    fn every(self) -> Duration {
        Duration::from_secs(1) / self.per_s
    }
}

/// What a rate has left, and when it earns the next after that.
#[derive(Debug)]
struct Bucket {
    left: u32,
    next: Timestamp,
}

impl Bucket {
    fn full(rate: Rate, now: Timestamp) -> Self {
        Self { left: rate.burst, next: now.after(rate.every()) }
    }

    fn take(&mut self, rate: Rate, now: Timestamp) -> bool {
        if self.left == 0 {
            if now < self.next {
                return false;
            }
            let more = now.since(self.next).as_nanos() / rate.every().as_nanos();
            self.left = u32::try_from(more + 1).unwrap_or(rate.burst).min(rate.burst);
            self.next = now.after(rate.every());
        }
        self.left -= 1;
        true
    }
}

/// Decides which verdicts are logged. It is asked for each verdict, so it has no lock and reads no clock.
#[derive(Debug)]
pub(crate) struct Admission {
    usual: Bucket,
    unusual: BTreeMap<Principal, Bucket>,
    /// See [`JobLog`].
    skipped: Arc<AtomicU64>,
}

impl Admission {
    /// Whether the log wants this verdict. What comes too fast is counted.
    pub(crate) fn admits(&mut self, now: Timestamp, whose: &Principal, receipt: &Receipt) -> bool {
        let is_usual = is_usual(receipt);
        // The gateway asks every few seconds whether the pool works.
        if is_usual && *whose == Principal::Gateway {
            return false;
        }
        let is_admitted = match is_usual {
            true => self.usual.take(USUAL, now),
            false => self.take_unusual(now, whose),
        };
        if !is_admitted {
            self.leave_out();
        }
        is_admitted
    }

    /// Counts a verdict that is not logged.
    pub(crate) fn leave_out(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    fn take_unusual(&mut self, now: Timestamp, whose: &Principal) -> bool {
        if self.unusual.len() == PRINCIPALS_MAX && !self.unusual.contains_key(whose) {
            self.unusual.clear();
        }
        let bucket = self.unusual.entry(whose.clone());
        bucket.or_insert_with(|| Bucket::full(UNUSUAL, now)).take(UNUSUAL, now)
    }
}

/// A verdict on its way to the thread.
#[derive(Debug)]
struct Given {
    at: SystemTime,
    client: Client,
    /// Encoded.
    receipt: Vec<u8>,
}

/// Whose verdict it is: a principal, and its token.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) principal: Principal,
    pub(crate) token: Option<TokenMark>,
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct JobLog {
    verdicts: Sender<Given>,
    /// The thread writes what waits, drops what it gets here, and ends.
    closing: Sender<Sender<()>>,
    /// Verdicts that are left out and that no line has told of.
    skipped: Arc<AtomicU64>,
    recent: Arc<Recent>,
}

/// What the log calls the pool at this socket.
pub(crate) fn pool_at(socket: &Path) -> String {
    // Only an empty path has no absolute one, and no pool is there.
    let whole = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    whole.to_string_lossy().into_owned()
}

/// Whether a job went as most do.
fn is_usual(receipt: &Receipt) -> bool {
    match receipt.verdict {
        Verdict::Ok => receipt.attempts.len() <= 1,
        Verdict::Cancelled => true,
        Verdict::Deadline | Verdict::DeviceLost | Verdict::Failed | Verdict::Poison => false,
    }
}

impl JobLog {
    /// Opens the log of the pool at this socket in a state folder, and starts its thread.
    pub(crate) fn start(state: &StateFolder, socket: &Path) -> Result<Self, StateError> {
        let folder = state.below(FOLDER)?;
        let (verdicts, waiting) = crossbeam_channel::bounded(WAITING_MAX);
        let (closing, asked) = crossbeam_channel::bounded(1);
        let path = folder.path().to_owned();
        let skipped = Arc::<AtomicU64>::default();
        let recent = Arc::new(Recent::new());
        let writer = Writer {
            folder,
            pool: pool_at(socket),
            rings: SUFFIXES.map(|suffix| Ring { suffix, file: None, unwritten: Vec::new() }),
            skipped: Arc::clone(&skipped),
            recent: Arc::clone(&recent),
            is_failing: false,
        };
        let thread = thread::Builder::new().name("job log".into());
        let thread = thread.spawn(move || writer.run(&waiting, &asked));
        thread.map_err(|error| StateError::Io(path, error))?;
        Ok(Self { verdicts, closing, skipped, recent })
    }

    /// What decides which verdicts it gets. One log has one of them.
    pub(crate) fn admission(&self, now: Timestamp) -> Admission {
        let usual = Bucket::full(USUAL, now);
        Admission { usual, unusual: BTreeMap::new(), skipped: Arc::clone(&self.skipped) }
    }

    /// Logs a verdict that was [admitted](Admission::admits), with its encoded receipt, and never waits for the disk.
    pub(crate) fn keep(&self, client: Client, receipt: Vec<u8>) {
        let given = Given { at: clock::time_of_day(), client, receipt };
        if self.verdicts.try_send(given).is_err() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of the latest verdict.
    pub(crate) fn latest(&self) -> u64 {
        self.recent.latest()
    }

    /// The last verdicts of this pool, those of one client or all.
    pub(crate) fn recent(&self, asked: &AskedVerdicts, whose: Option<&Client>) -> LastVerdicts {
        self.recent.told(asked, whose)
    }

    /// Writes what waits, and ends. A disk that takes nothing is not waited for.
    pub(crate) fn close(&self) {
        let (sender, closed) = crossbeam_channel::bounded(0);
        let asked = self.closing.send_timeout(sender, CLOSE_TIMEOUT);
        let ended = closed.recv_timeout(CLOSE_TIMEOUT);
        if asked.is_err() || ended == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the disk takes the last verdicts too slowly: some are not logged");
        }
    }
}

/// The files of one kind.
#[derive(Debug)]
struct Ring {
    suffix: &'static str,
    /// The file that is written now, and its bytes.
    file: Option<(File, u64)>,
    /// Whole lines, and perhaps the rest of one, that the disk has not taken.
    unwritten: Vec<u8>,
}

/// The thread's side.
struct Writer {
    folder: StateFolder,
    /// The pool's socket.
    pool: String,
    rings: [Ring; 2],
    skipped: Arc<AtomicU64>,
    recent: Arc<Recent>,
    /// What the log has been told of.
    is_failing: bool,
}

impl Writer {
    fn run(mut self, verdicts: &Receiver<Given>, asked: &Receiver<Sender<()>>) {
        self.prune();
        for entry in read::newest(&self.folder, &self.pool) {
            self.recent.keep(entry);
        }
        let mut prune_at = clock::now() + PRUNE_EVERY;
        loop {
            let closing = select! {
                recv(asked) -> closing => closing.map_err(|_| RecvTimeoutError::Disconnected),
                recv(verdicts) -> first => {
                    // The log is gone, and has not asked for the end.
                    let Ok(first) = first else { return };
                    self.take(first);
                    asked.recv_timeout(GATHER)
                },
                default(clock::until(prune_at)) => {
                    self.prune();
                    prune_at = clock::now() + PRUNE_EVERY;
                    Err(RecvTimeoutError::Timeout)
                },
            };
            verdicts.try_iter().for_each(|verdict| self.take(verdict));
            self.tell_skipped();
            self.write();
            if !matches!(closing, Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    }

    fn write(&mut self) {
        let written = self.rings.iter_mut().try_for_each(|ring| ring.write(&self.folder));
        match written {
            Err(error) if !self.is_failing => {
                let folder = self.folder.path().display();
                tracing::warn!(%folder, %error, "verdicts are not logged");
                self.is_failing = true;
            }
            // The log says so already.
            Err(_) => {}
            Ok(()) => self.is_failing = false,
        }
    }

    /// Puts a verdict among what is to be written.
    fn take(&mut self, Given { at, client: Client { principal, token }, receipt }: Given) {
        let receipt: Receipt =
            codec::decode(&receipt).expect("what was encoded here can be decoded");
        let ring = &mut self.rings[usize::from(!is_usual(&receipt))];
        let time = humantime::format_rfc3339_millis(at).to_string();
        let job = LoggedJob { time, principal: principal.to_string(), receipt };
        let line = Line::Job(Box::new(Entry { job, pool: self.pool.clone(), token }));
        if !ring.add(&line) {
            self.skipped.fetch_add(1, Ordering::Relaxed);
        }
        // Memory has room for it, whatever the disk says.
        if let Line::Job(entry) = line {
            self.recent.keep(*entry);
        }
        if ring.unwritten.len() >= TOGETHER {
            self.write();
        }
    }

    /// Writes a line of what was left out, where there is room for it.
    fn tell_skipped(&mut self) {
        let skipped = self.skipped.swap(0, Ordering::Relaxed);
        if skipped == 0 {
            return;
        }
        let time = humantime::format_rfc3339_millis(clock::time_of_day()).to_string();
        if !self.rings[0].add(&Line::Skipped { time, skipped }) {
            self.skipped.fetch_add(skipped, Ordering::Relaxed);
        }
    }

    fn prune(&self) {
        for suffix in SUFFIXES {
            if let Err(error) = self.folder.prune(suffix, BOUNDS) {
                tracing::debug!(%error, "old verdicts cannot be removed");
            }
        }
    }
}

impl Ring {
    /// Adds a line, if there is room for it.
    fn add(&mut self, line: &Line) -> bool {
        let before = self.unwritten.len();
        let is_written =
            before < UNWRITTEN_MAX && serde_json::to_writer(&mut self.unwritten, line).is_ok();
        if is_written {
            self.unwritten.push(b'\n');
        } else {
            self.unwritten.truncate(before);
        }
        is_written
    }

    /// Writes what there is. What the disk does not take stays, so that the next try goes on with it.
    fn write(&mut self, folder: &StateFolder) -> io::Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let is_gone = |file: &File| file.metadata().is_ok_and(|meta| meta.nlink() == 0);
        let is_over = |(file, bytes): &(File, u64)| *bytes >= FILE_BYTES || is_gone(file);
        // A full file is kept until there is another; one that another pool has removed is of no use.
        if self.file.as_ref().is_none_or(is_over) {
            self.file = Some((new_file(folder, self.suffix)?, 0));
            folder.prune(self.suffix, BOUNDS)?;
        }
        let Some((file, bytes)) = &mut self.file else { return Ok(()) };
        while !self.unwritten.is_empty() {
            let count = file.write(&self.unwritten)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            *bytes += count as u64;
            self.unwritten.drain(..count);
        }
        Ok(())
    }
}

/// A file named by the time, so that names are in the order of their verdicts.
fn new_file(folder: &StateFolder, suffix: &str) -> io::Result<File> {
    let since = clock::time_of_day().duration_since(SystemTime::UNIX_EPOCH);
    let mut ms = since.unwrap_or_default().as_millis();
    loop {
        let name = format!("{ms:014}-{}{suffix}", std::process::id());
        match folder.append(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => ms += 1,
            opened => return opened,
        }
    }
}
