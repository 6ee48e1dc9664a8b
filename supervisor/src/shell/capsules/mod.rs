//! Writes a capsule of each death that the core calls worth one, from a thread of its own behind a queue that never
//! waits. `copy` reads what the worker ran; [`crate::capsule`] has the document.
//!
//! What the worker ran is copied at the first sign of its end: jobs that run again may be done, and their shared memory
//! used for something else, before the process is gone.

mod copy;
mod versions;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gridpool_core::action::KillReason;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::position::Position;
use gridpool_protocol::receipt::{Attempt, ItemRange};
use gridpool_protocol::status::{CapsuleMode, CapsuleStatus, CapsulesStatus};
use gridpool_protocol::tensor::options::ModelPlan;

use super::core::Core;
use super::death_report::{self, Death};
use super::held::HeldJob;
use super::link::Link;
use super::{Shared, Shell};
use crate::capsule::{Capsule, JOBS_MAX, Manner, SUFFIX, VERSION};
use crate::config::{CapsuleOptions, HOST_NAME};
use crate::logging;
use crate::state::{Bounds, StateError, StateFolder};
pub(crate) use copy::hash_file;
use copy::{Copied, Models, under_way};
use versions::Versions;

/// The folder of capsules, in the state folder.
pub(crate) const FOLDER: &str = "capsules";
/// Most requests that wait. A worker takes two at its end; more workers than that do not die at once.
const REQUESTS_MAX: usize = 64;
/// Most workers whose work is kept while it is not known what they died of, and most bytes of it, but for the latest. A
/// fault of a driver may end all workers of a host at once.
const COPIES_MAX: usize = REQUESTS_MAX;
const COPIES_BYTES_MAX: u64 = 256 << 20;
/// Old capsules are removed so often, also while no worker dies.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// Capsules that the status shows.
const LATEST_MAX: usize = 16;

/// An attempt that a worker was sent and has not answered.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) attempt: AttemptId,
    pub(super) part: ItemRange,
    pub(super) held: Arc<HeldJob>,
    /// The full name of the version that runs it, if it is a request for a model.
    pub(super) model: Option<Arc<str>>,
}

/// What the core has said of a death.
#[derive(Debug)]
pub(super) struct Suspicion {
    pub(super) name: Arc<str>,
    pub(super) attempts: Vec<AttemptId>,
}

/// The queue to the thread, and what was written.
#[derive(Debug)]
pub(super) struct Capsules {
    requests: Sender<Request>,
    status: Arc<Mutex<CapsulesStatus>>,
}

#[derive(Debug)]
enum Request {
    /// A worker is ending: copy what it ran.
    Copy {
        worker: WorkerId,
        begun: Vec<Begun>,
        position: Option<Position>,
    },
    /// Its work was not the cause.
    Forget {
        worker: WorkerId,
    },
    Write(Box<Suspect>),
    /// Drop the sender: all before it is done.
    Flush(Sender<()>),
}

/// A death that is worth a capsule.
#[derive(Debug)]
pub(super) struct Suspect {
    name: Arc<str>,
    begun: Vec<Begun>,
    /// The attempts of each job so far.
    histories: Vec<Vec<Attempt>>,
    models: Vec<ModelPlan>,
    onnxruntime: String,
    death: Option<Death>,
}

impl Shell {
    /// Writes capsules into a folder of this state folder from now on. Call it once, before the pool serves.
    ///
    /// # Errors
    /// [`StateError`]: the folder cannot be used, or the thread not be started.
    pub fn keep_capsules(
        &self,
        state: &StateFolder,
        options: CapsuleOptions,
    ) -> Result<(), StateError> {
        if options.mode == CapsuleMode::Off {
            return Ok(());
        }
        let folder = state.below(FOLDER)?;
        let (requests, taken) = crossbeam_channel::bounded(REQUESTS_MAX);
        let shown = folder.path().display().to_string();
        let status =
            CapsulesStatus { mode: options.mode, folder: shown, ..CapsulesStatus::default() };
        let status = Arc::new(Mutex::new(status));
        let writer = Writer {
            shared: Arc::clone(&self.shared),
            folder,
            options,
            status: Arc::clone(&status),
            copies: VecDeque::new(),
            models: Models::default(),
            versions: Versions::default(),
        };
        let write_all = move || writer.serve(&taken);
        let thread = thread::Builder::new().name("capsules".into()).spawn(write_all);
        thread.map_err(|error| StateError::Io(state.path().to_owned(), error))?;
        let at: String = logging::now().chars().filter(char::is_ascii_alphanumeric).collect();
        let prefix = format!("{}Z-{}", at.get(..15).unwrap_or(&at), std::process::id());
        drop(self.shared.capsules.set(Capsules { requests, status }));
        // Only now: what the core calls worth a capsule waits for it.
        self.shared.lock().pool.name_capsules(&prefix);
        Ok(())
    }
}

impl Capsules {
    pub(super) fn status(&self) -> CapsulesStatus {
        self.status.lock().clone()
    }

    /// A worker is killed, or ends: what it runs is copied, if that may be the cause; not what waits behind it.
    pub(super) fn copy(
        &self,
        worker: WorkerId,
        link: &mut Link,
        front: &[AttemptId],
        reason: KillReason,
    ) {
        let is_innocent = match reason {
            KillReason::DeviceOut | KillReason::Leaving | KillReason::OthersWait => true,
            KillReason::BeaconLost
            | KillReason::Cancelled
            | KillReason::ClosedChannel
            | KillReason::DeviceFault(_)
            | KillReason::Late
            | KillReason::LateWithCommand { .. }
            | KillReason::NotReady { .. }
            | KillReason::Silent { .. }
            | KillReason::UnknownCommand { .. }
            | KillReason::Unwound => false,
        };
        if !is_innocent && !link.is_copied {
            let begun: Vec<Begun> = begun_of(link, front);
            self.ask_for_copy(worker, link, &begun);
        }
    }

    /// Without it, the same is read later.
    fn ask_for_copy(&self, worker: WorkerId, link: &mut Link, begun: &[Begun]) {
        if !begun.is_empty() {
            let position = link.last_position();
            let request = Request::Copy { worker, begun: begun.to_vec(), position };
            link.is_copied = self.requests.try_send(request).is_ok();
        }
    }

    /// A worker has ended, and the core has handled that: what is to be written, if its work is suspect.
    pub(super) fn judge(
        &self,
        core: &mut Core,
        worker: WorkerId,
        link: Option<Link>,
    ) -> Option<Suspect> {
        let suspicion = core.suspicions.remove(&worker);
        let mut link = link?;
        let Some(Suspicion { name, attempts }) = suspicion else {
            if link.is_copied {
                drop(self.requests.try_send(Request::Forget { worker }));
            }
            return None;
        };
        let begun = begun_of(&link, &attempts);
        if !link.is_copied {
            // Its end was known before the loss of its beacon. Ahead of the request to write, which waits for its
            // standard error: its jobs run again meanwhile.
            self.ask_for_copy(worker, &mut link, &begun);
        }
        let histories =
            begun.iter().map(|begun| core.pool.attempts_of(begun.attempt.job)).collect();
        let models = match begun.iter().any(|begun| begun.model.is_some()) {
            true => core.pool.model_plans().unwrap_or_default(),
            false => Vec::new(),
        };
        let onnxruntime = link.onnxruntime;
        let suspect = Suspect { name, begun, histories, models, onnxruntime, death: None };
        (!suspect.begun.is_empty()).then_some(suspect)
    }

    /// Has a capsule written. If too many wait, the death has none; then its name is not in the log.
    pub(super) fn write(&self, mut suspect: Suspect, death: &mut Death) {
        let (name, worker) = (Arc::clone(&suspect.name), death.report.worker);
        suspect.death = Some(death.clone());
        match self.requests.try_send(Request::Write(Box::new(suspect))) {
            Ok(()) => death.capsule = Some(name),
            Err(_) => {
                self.status.lock().lost += 1;
                tracing::warn!(%worker, "too many capsules wait: this death has none");
            }
        }
    }

    /// Waits until what was asked for is written.
    pub(super) fn flush(&self, within: Duration) {
        let (sender, done) = crossbeam_channel::bounded(0);
        if self.requests.send_timeout(Request::Flush(sender), within).is_ok() {
            // Nothing is sent: the sender is dropped in the end.
            done.recv_timeout(within).unwrap_or_default();
        }
    }
}

/// These attempts, as the worker was sent them.
fn begun_of(link: &Link, attempts: &[AttemptId]) -> Vec<Begun> {
    let sent = attempts.iter().filter_map(|attempt| link.begun(*attempt));
    sent.take(JOBS_MAX).cloned().collect()
}

/// Handles what comes, and says `None` whenever so much time has passed. It ends with the senders.
fn serve_all<T>(taken: &Receiver<T>, every: Duration, mut handle: impl FnMut(Option<T>)) {
    let mut next = clock::now() + every;
    loop {
        match taken.recv_deadline(next) {
            Ok(request) => handle(Some(request)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if clock::until(next).is_zero() {
            handle(None);
            next = clock::now() + every;
        }
    }
}

/// What a worker ran that is ending.
struct Copies {
    worker: WorkerId,
    of: BTreeMap<AttemptId, Copied>,
    /// Bytes that its capsule has left.
    left: u64,
}

/// The thread's data.
struct Writer {
    shared: Arc<Shared>,
    folder: StateFolder,
    options: CapsuleOptions,
    status: Arc<Mutex<CapsulesStatus>>,
    /// What workers ran that are ending, the oldest first.
    copies: VecDeque<Copies>,
    models: Models,
    versions: Versions,
}

impl Writer {
    /// The body of the thread. It ends with the process.
    fn serve(mut self, requests: &Receiver<Request>) {
        self.prune(0);
        serve_all(requests, PRUNE_EVERY, |request| match request {
            Some(Request::Copy { worker, begun, position }) => {
                let copies = self.copy(self.none_of(worker), &begun, position.as_ref());
                self.copies.push_back(copies);
                while self.copies.len() > 1
                    && (self.copies.len() > COPIES_MAX || self.copied_bytes() > COPIES_BYTES_MAX)
                {
                    self.copies.pop_front();
                }
            }
            Some(Request::Forget { worker }) => drop(self.take(worker)),
            Some(Request::Write(suspect)) => self.write(*suspect),
            Some(Request::Flush(done)) => drop(done),
            None => self.prune(0),
        });
    }

    /// The copy of what a worker ran.
    fn take(&mut self, worker: WorkerId) -> Option<Copies> {
        let at = self.copies.iter().position(|copies| copies.worker == worker)?;
        self.copies.remove(at)
    }

    fn none_of(&self, worker: WorkerId) -> Copies {
        Copies { worker, of: BTreeMap::new(), left: self.options.bytes_max }
    }

    fn copied_bytes(&self) -> u64 {
        self.copies.iter().map(|copies| self.options.bytes_max - copies.left).sum()
    }

    /// Copies those that were not yet: first those that the worker was at.
    fn copy(&self, mut copies: Copies, begun: &[Begun], position: Option<&Position>) -> Copies {
        let is_live = |begun: &Begun| self.shared.lock().held(begun.attempt.job).is_some();
        let mut all: Vec<_> = begun.iter().zip(under_way(begun, position)).collect();
        all.sort_by_key(|(_, items)| items.is_none());
        for (one, items) in all {
            let Copies { of, left, .. } = &mut copies;
            let entry = of.entry(one.attempt);
            entry.or_insert_with(|| Copied::of(one, items, self.options.mode, left, is_live));
        }
        copies
    }

    fn write(&mut self, suspect: Suspect) {
        let Suspect { name, begun, histories, models, onnxruntime, death } = suspect;
        let Some(death) = death else { return };
        let worker = death.report.worker;
        let copies = self.take(worker).unwrap_or_else(|| self.none_of(worker));
        // It may have begun another dispatch after it was killed.
        let mut copied = self.copy(copies, &begun, death.position.as_ref()).of;
        let jobs = begun.iter().zip(histories).filter_map(|(begun, attempts)| {
            Some(copied.remove(&begun.attempt)?.job(begun, attempts))
        });
        let jobs: Vec<_> = jobs.collect();
        let is_asked = |plan: &ModelPlan| {
            begun.iter().any(|begun| begun.model.as_deref() == Some(&*plan.name))
        };
        let models = models.into_iter().filter(is_asked).map(|plan| self.models.saved(plan));
        let models = models.collect();
        let killed = death.report.killed.map(KillReason::name);
        let driver = &death.report.device.driver;
        let capsule = Capsule {
            gridpool_capsule: VERSION,
            name: name.to_string(),
            time: logging::now(),
            host: fs::read_to_string(HOST_NAME).unwrap_or_default().trim().to_owned(),
            gridpool: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            worker: self.versions.worker(&self.shared),
            driver: driver.clone(),
            cuda: self.versions.cuda(&self.shared, driver),
            onnxruntime,
            mode: self.options.mode,
            manner: Manner::of(&death.report.exit, killed),
            models,
            death: death_report::fields(&death),
            jobs,
        };
        let mut bytes = 0;
        let written = self.folder.write(&format!("{name}{SUFFIX}"), |to| {
            let mut counted = Counted { to, bytes: &mut bytes };
            capsule.write(&mut counted)
        });
        let mut status = self.status.lock();
        match written {
            Ok(()) => {
                status.written += 1;
                let ended = capsule.manner.words();
                let (name, worker) = (name.to_string(), worker.to_string());
                status.latest.push(CapsuleStatus { name, worker, ended, bytes });
                if status.latest.len() > LATEST_MAX {
                    status.latest.remove(0);
                }
            }
            Err(error) => {
                status.lost += 1;
                tracing::error!(%worker, %error, capsule = &*name, "a capsule could not be written");
            }
        }
        drop(status);
        self.prune(bytes);
    }

    /// Removes old capsules; one of so many bytes that was just written stays.
    fn prune(&self, newest_bytes: u64) {
        let Bounds { bytes, age, files } = self.options.folder;
        let bounds = Bounds { bytes: bytes.max(newest_bytes), age, files };
        match self.folder.prune(SUFFIX, bounds) {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "old capsules are removed"),
            Err(error) => tracing::warn!(%error, "old capsules cannot be removed"),
        }
    }
}

/// Counts what is written.
struct Counted<'a> {
    to: &'a mut dyn std::io::Write,
    bytes: &'a mut u64,
}

impl std::io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        *self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_to_a_thread_that_is_never_idle_and_to_one_that_always_is() {
        for is_busy in [true, false] {
            let (sender, taken) = crossbeam_channel::bounded(1);
            let (mut sender, mut told) = (Some(sender), 0);
            let send = |sender: &Option<Sender<()>>| match sender {
                Some(sender) if is_busy => sender.send(()).unwrap(),
                Some(_) | None => {}
            };
            send(&sender);
            serve_all(&taken, Duration::from_millis(1), |request| match request {
                // Each request sends the next.
                Some(()) => send(&sender),
                None => {
                    told += 1;
                    if told == 3 {
                        sender = None;
                    }
                }
            });
            assert_eq!(told, 3, "{is_busy}");
        }
    }
}
