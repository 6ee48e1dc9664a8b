//! Three threads per worker process. The first reads its messages, then waits for its exit and reports that
//! last, so no answer is lost behind the exit. The second waits for the loss of its beacon, which comes long
//! before the exit. The third reads its standard error (`stderr`).

use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gridpool_ipc::channel::{ChannelError, ReplyReader, Sender};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::FromWorker;
use nix::libc::{self, SIGKILL};

use super::Shared;
use super::death_report::{self, Death};
use super::inbox::{Answered, Batch};
use super::link::Link;
use super::pidfd::PidFd;
use super::stderr::Stderr;
use gridpool_core::event::{Event, Exit, ExitStatus, WorkerEvent};

/// How long to wait before a worker is connected to again when descriptors have run out.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Answers that are handled together. The first clients then hear while the next answers are decoded.
const ANSWERS_MAX: usize = 16;

/// The supervisor's handles on one worker process.
pub(super) struct Reader {
    pub(super) worker: WorkerId,
    pub(super) pidfd: PidFd,
    pub(super) lifeline: UnixStream,
    pub(super) beacon: UnixStream,
    pub(super) stderr: Stderr,
}

impl Reader {
    /// Starts the thread.
    pub(super) fn start(self, child: Child, shared: Arc<Shared>) -> io::Result<()> {
        let worker = self.worker;
        let beacon = self.beacon.try_clone()?;
        let for_beacon = Arc::clone(&shared);
        let watch = move || watch(worker, beacon, &for_beacon);
        thread::Builder::new().name(format!("{worker} beacon")).spawn(watch)?;
        thread::Builder::new().name(worker.to_string()).spawn(move || self.read(child, &shared))?;
        Ok(())
    }

    fn read(self, mut child: Child, shared: &Shared) {
        let Self { worker, pidfd, lifeline, beacon, stderr } = self;
        let mut last_words = LastWords::default();
        let mut replies = ReplyReader::new(lifeline);
        replies.set_spin(shared.spin);
        let heard = listen(worker, &pidfd, &mut replies, shared, &mut last_words);
        let rejection = heard.err();
        if let Some(Rejection { why, .. }) = &rejection {
            last_words = LastWords { message: Some(why.clone()), ..LastWords::default() };
            signal(worker, &pidfd);
        } else {
            shared.post_worker(worker, WorkerEvent::ChannelClosed);
        }
        let status = reap(worker, &pidfd, &mut child);
        if let Some(groups) = &shared.groups {
            groups.remove(worker);
        }
        let mut core = shared.lock();
        let link = core.workers.remove(&worker);
        let ordered = link.as_ref().and_then(|link| link.ordered);
        let rejected = link.as_ref().and_then(|link| link.rejected.clone());
        let position = link.as_ref().and_then(Link::last_position);
        let status = match rejection {
            Some(Rejection { is_final: true, .. }) => ExitStatus::Incompatible,
            Some(Rejection { is_final: false, .. }) => ExitStatus::Rejected,
            None if rejected.is_some() => ExitStatus::Rejected,
            None => status,
        };
        let LastWords { fault, message, attempt: met_by } = last_words;
        let is_ordered = ordered.is_some_and(|(_, signal)| status == ExitStatus::Signal(signal));
        let exit = Exit { status, fault, last_words: rejected.or(message), is_ordered };
        let exited = Event::Worker(worker, WorkerEvent::Exited(exit));
        core.handle(shared, shared.timestamp(), exited);
        let report = core.reports.remove(&worker);
        core.untold += usize::from(report.is_some());
        let capsules = shared.capsules.get();
        let suspect = capsules.and_then(|own| own.judge(&mut core, worker, link));
        drop(core);
        // A process that the worker started may still hold the other end: do not wait for it.
        drop(beacon.shutdown(Shutdown::Both));
        let stderr = stderr.close();
        if let Some(report) = report {
            let pid = child.id();
            let (report, capsule) = (*report, None);
            let mut death = Death { report, pid, ordered, met_by, position, stderr, capsule };
            if let Some((capsules, suspect)) = capsules.zip(suspect) {
                capsules.write(suspect, &mut death);
            }
            death_report::tell(&death);
            shared.deaths.keep(&death);
            shared.lock().untold -= 1;
            shared.ended.notify_all();
        }
        shared.await_memory(worker, child.id());
    }
}

/// Waits for the loss of the worker's beacon, and reports it unless the exit is already known.
fn watch(worker: WorkerId, mut beacon: UnixStream, shared: &Shared) {
    let mut bytes = [0; 64];
    loop {
        match beacon.read(&mut bytes) {
            // Before a worker makes its beacon, this is its standard output: it may print something.
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
    }
    let mut core = shared.lock();
    if core.workers.contains_key(&worker) {
        tracing::debug!(%worker, "beacon lost");
        core.with_link(worker, |link| {
            link.is_ending = true;
            Ok(())
        });
        let last_words = core.workers.get(&worker).and_then(|link| link.last_words.clone());
        let lost = Event::Worker(worker, WorkerEvent::BeaconLost { last_words });
        core.handle(shared, shared.timestamp(), lost);
    }
}

/// The last message of a worker before it ended.
#[derive(Default)]
struct LastWords {
    fault: Option<FaultCode>,
    message: Option<String>,
    /// The attempt that met the fault.
    attempt: Option<AttemptId>,
}

/// Why the supervisor rejects a worker.
struct Rejection {
    why: String,
    /// Every process of that binary would do the same.
    is_final: bool,
}

impl From<String> for Rejection {
    fn from(why: String) -> Self {
        Self { why, is_final: false }
    }
}

/// Turns the worker's messages into events until its lifeline closes.
fn listen(
    worker: WorkerId,
    pidfd: &PidFd,
    replies: &mut ReplyReader,
    shared: &Shared,
    last_words: &mut LastWords,
) -> Result<(), Rejection> {
    let (mut introduced, mut answers) = (false, Vec::new());
    loop {
        let taken = replies.take();
        if !matches!(taken, Ok(Some(FromWorker::Answer { .. } | FromWorker::Answers(_)))) {
            // Answers that came together are handled together, before what follows them.
            hand_in(shared, worker, &mut answers);
        }
        let next = taken.and_then(|taken| taken.map_or_else(|| replies.recv(), Ok));
        let message = match next {
            Ok(message) => message,
            Err(ChannelError::Disconnected) => return Ok(()),
            Err(error) => return Err(Chain(&error).to_string().into()),
        };
        if !introduced && !matches!(message, FromWorker::Hello { .. }) {
            return Err("it did not say who it is first".to_owned().into());
        }
        match message {
            FromWorker::Hello { .. } if introduced => {
                return Err("it said twice who it is".to_owned().into());
            }
            FromWorker::Hello { version, build, worker: name, listens_at } => {
                if version != PROTOCOL_VERSION || build != env!("CARGO_PKG_VERSION") {
                    let why = format!(
                        "the worker binary is gridpool-worker {build} (protocol {version}), the \
                         supervisor gridpool {} (protocol {PROTOCOL_VERSION}): install both from \
                         one build",
                        env!("CARGO_PKG_VERSION")
                    );
                    return Err(Rejection { why, is_final: true });
                }
                if name != worker.name() {
                    return Err(format!("it calls itself {name}").into());
                }
                let Some(channel) = connect(&listens_at, pidfd)? else { return Ok(()) };
                if let Some(link) = shared.lock().workers.get_mut(&worker) {
                    link.open(channel);
                }
                introduced = true;
                shared.post_worker(worker, WorkerEvent::Heard);
            }
            FromWorker::Ready { device } => {
                tracing::info!(%worker, device = device.name, uuid = device.uuid, "worker ready");
                shared.post_worker(worker, WorkerEvent::Ready(device));
            }
            FromWorker::Heartbeat { memory, chunks } => shared.heard(worker, memory, chunks),
            FromWorker::Answer { attempt, result } => {
                if let Ok(answer) = &result
                    && let Err(error) = answer.report.check()
                {
                    hand_in(shared, worker, &mut answers);
                    return Err(error.to_string().into());
                }
                note(shared, worker, &mut answers, (attempt, result));
            }
            FromWorker::Answers(mut together) => {
                hand_in(shared, worker, &mut answers);
                let checked = together.check();
                shared.hand_in(Batch::Joined(worker, together));
                checked.map_err(|error| error.to_string())?;
            }
            FromWorker::Forgot => shared.forgot(worker),
            FromWorker::Models { models } => {
                if let Some(model) = models.iter().find(|model| !model.onnxruntime.is_empty()) {
                    let version = &model.onnxruntime;
                    shared.lock().with_link(worker, |link| {
                        link.onnxruntime.clone_from(version);
                        Ok(())
                    });
                }
                shared.post_worker(worker, WorkerEvent::ModelsReported(models));
            }
            FromWorker::Loading { model, phase } => {
                tracing::debug!(%worker, model, %phase, "loading");
                shared.post_worker(worker, WorkerEvent::Loading { model, phase });
            }
            FromWorker::CommandEnded { number, result } => {
                shared.post_worker(worker, WorkerEvent::CommandEnded { number, result });
            }
            FromWorker::Dying { code, fault, message, attempt } => {
                tracing::debug!(%worker, code, message, "worker says that it is ending");
                shared.lock().with_link(worker, |link| {
                    link.last_words = Some(message.clone());
                    Ok(())
                });
                *last_words = LastWords { fault, message: Some(message), attempt };
            }
        }
    }
}

/// Adds an answer to those that came with it.
fn note(shared: &Shared, worker: WorkerId, answers: &mut Vec<Answered>, answer: Answered) {
    answers.push(answer);
    if answers.len() == ANSWERS_MAX {
        hand_in(shared, worker, answers);
    }
}

/// Hands answers that came together to the core.
fn hand_in(shared: &Shared, worker: WorkerId, answers: &mut Vec<Answered>) {
    if !answers.is_empty() {
        shared.hand_in(Batch::Answers(worker, std::mem::take(answers)));
    }
}

/// Connects to the listener of a worker; `None` if the worker was killed since: its exit says more. While descriptors
/// or threads have run out, it tries again: the worker cannot help that. The core kills one that takes too long to be
/// READY.
fn connect(listener: &str, pidfd: &PidFd) -> Result<Option<Sender>, Rejection> {
    loop {
        let error = match Sender::connect(listener) {
            Ok(channel) => return Ok(Some(channel)),
            Err(error) => error,
        };
        let is_short = matches!(&error, ChannelError::Io(error)
            if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EMFILE | libc::ENFILE)));
        let pause = if is_short { CONNECT_PAUSE } else { Duration::ZERO };
        match pidfd.wait(Some(pause)) {
            Ok(true) => return Ok(None),
            Ok(false) if is_short => {}
            Ok(false) | Err(_) => return Err(Chain(&error).to_string().into()),
        }
    }
}

/// Waits for the exit of the process and returns its status.
fn reap(worker: WorkerId, pidfd: &PidFd, child: &mut Child) -> ExitStatus {
    if let Err(error) = pidfd.wait(None) {
        tracing::error!(%worker, %error, "waiting on a pidfd");
    }
    match child.wait() {
        Ok(status) => match status.code() {
            Some(code) => ExitStatus::Code(code),
            None => status.signal().map_or(ExitStatus::KILLED, ExitStatus::Signal),
        },
        Err(error) => {
            tracing::error!(%worker, %error, "waiting for a child");
            ExitStatus::KILLED
        }
    }
}

fn signal(worker: WorkerId, pidfd: &PidFd) {
    if let Err(error) = pidfd.send_signal(SIGKILL) {
        tracing::error!(%worker, %error, "SIGKILL could not be sent");
    }
}
