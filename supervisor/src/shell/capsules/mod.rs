//! Writes a capsule of each death that the core calls worth one, from a thread of its own behind a queue that never
//! waits. `copy` reads what the worker ran; [`crate::capsule`] has the document.
//!
//! What the worker ran is copied at the first sign of its end: jobs that run again may be done, and their shared memory
//! used for something else, before the process is gone.

mod copy;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use gridpool_core::action::KillReason;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::receipt::{Attempt, ItemRange};
use gridpool_protocol::status::{CapsuleMode, CapsuleStatus, CapsulesStatus};
use gridpool_protocol::tensor::options::ModelPlan;

use super::core::Core;
use super::death_report::{self, Death};
use super::held::HeldJob;
use super::link::Link;
use super::{Shared, Shell};
use crate::capsule::{Capsule, JOBS_MAX, Manner, SUFFIX, VERSION};
use crate::config::CapsuleOptions;
use crate::devices::version_by;
use crate::logging;
use crate::state::{StateError, StateFolder};
pub(crate) use copy::hash_file;
use copy::{Copied, Models};

/// The folder of capsules, in the state folder.
pub(crate) const FOLDER: &str = "capsules";
/// Most requests that wait. A worker takes two at its end; more workers than that do not die at once.
const REQUESTS_MAX: usize = 64;
/// Most workers whose work is kept while it is not known what they died of.
const COPIES_MAX: usize = 4;
/// Capsules that the status shows.
const LATEST_MAX: usize = 16;
/// The host's name, as the system says it.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

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
            worker: OnceLock::new(),
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

    /// A worker is killed, or ends: what it ran is copied, if it may be the cause.
    pub(super) fn copy(&self, worker: WorkerId, link: &Link, reason: KillReason) {
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
        if !is_innocent && !link.running.is_empty() {
            let begun = link.running.values().cloned().collect();
            // Without it, the same is read later.
            drop(self.requests.try_send(Request::Copy { worker, begun }));
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
        let link = link?;
        let Some(Suspicion { name, attempts }) = suspicion else {
            if !link.running.is_empty() {
                drop(self.requests.try_send(Request::Forget { worker }));
            }
            return None;
        };
        let all = link.running;
        let begun: Vec<Begun> = attempts
            .iter()
            .filter_map(|attempt| all.get(attempt))
            .take(JOBS_MAX)
            .cloned()
            .collect();
        let histories =
            begun.iter().map(|begun| core.pool.attempts_of(begun.attempt.job)).collect();
        let models = match begun.iter().any(|begun| begun.model.is_some()) {
            true => core.pool.model_plans().unwrap_or_default(),
            false => Vec::new(),
        };
        (!begun.is_empty()).then_some(Suspect { name, begun, histories, models, death: None })
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

/// The thread's data.
struct Writer {
    shared: Arc<Shared>,
    folder: StateFolder,
    options: CapsuleOptions,
    status: Arc<Mutex<CapsulesStatus>>,
    /// What workers ran that are ending, the oldest first.
    copies: VecDeque<(WorkerId, BTreeMap<AttemptId, Copied>)>,
    models: Models,
    /// What the worker's binary says of itself.
    worker: OnceLock<String>,
}

impl Writer {
    /// The body of the thread. It ends with the process.
    fn serve(mut self, requests: &Receiver<Request>) {
        self.prune();
        for request in requests {
            match request {
                Request::Copy { worker, begun } => {
                    let copied = self.copy(&begun);
                    self.copies.push_back((worker, copied));
                    if self.copies.len() > COPIES_MAX {
                        self.copies.pop_front();
                    }
                }
                Request::Forget { worker } => drop(self.take(worker)),
                Request::Write(suspect) => self.write(*suspect),
                Request::Flush(done) => drop(done),
            }
        }
    }

    /// The copy of what a worker ran.
    fn take(&mut self, worker: WorkerId) -> Option<BTreeMap<AttemptId, Copied>> {
        let at = self.copies.iter().position(|(own, _)| *own == worker)?;
        Some(self.copies.remove(at)?.1)
    }

    fn copy(&self, begun: &[Begun]) -> BTreeMap<AttemptId, Copied> {
        let CapsuleOptions { mode, bytes_max: mut left, .. } = self.options;
        let is_live = |begun: &Begun| self.shared.lock().held(begun.attempt.job).is_some();
        let one = |begun: &Begun| (begun.attempt, Copied::of(begun, mode, &mut left, is_live));
        begun.iter().map(one).collect()
    }

    fn write(&mut self, suspect: Suspect) {
        let Suspect { name, begun, histories, models, death } = suspect;
        let Some(death) = death else { return };
        let worker = death.report.worker;
        let mut copied = self.take(worker).unwrap_or_else(|| self.copy(&begun));
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
        let capsule = Capsule {
            gridpool_capsule: VERSION,
            name: name.to_string(),
            time: logging::now(),
            host: fs::read_to_string(HOST_NAME).unwrap_or_default().trim().to_owned(),
            gridpool: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            worker: self.worker.get_or_init(|| self.version()).clone(),
            driver: death.report.device.driver.clone(),
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
        self.prune();
    }

    /// What the worker's binary says of itself.
    fn version(&self) -> String {
        let mut command = self.shared.command.lock().program.command();
        version_by(&mut command).unwrap_or_default().trim().to_owned()
    }

    /// Removes old capsules.
    fn prune(&self) {
        match self.folder.prune(SUFFIX, self.options.folder) {
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
