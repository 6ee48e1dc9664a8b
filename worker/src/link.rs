//! The connection of a worker process to its supervisor, for both roles: the channel, the arenas, and the
//! thread that sends heartbeats and watches what no deadline bounds.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_device::fault::{Fault, end_process};
use gridpool_device::gauges::Gauges;
use gridpool_ipc::channel::{ChannelError, Listener, Receiver, Replies};
use gridpool_ipc::clock;
use gridpool_ipc::memory;
use gridpool_ipc::sandbox::trespass;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit::{cli, worker as exit};
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, WorkerName};
use gridpool_protocol::limits::{HEARTBEAT_EVERY, PROTOCOL_VERSION};
use gridpool_protocol::message::{Answers, FromWorker, ToWorker};

use crate::arenas::Arenas;
use crate::cancels::Cancels;
use crate::growth::{Growth, GrowthMax, Holding};
use crate::idle_step::{IdleStep, STEP_MAX};
use crate::sandbox::Confinement;
use crate::{beacon, process};

/// Who this worker is and who started it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name.
    pub worker: WorkerName,
    /// The folder for the socket of its listener.
    pub boot_folder: PathBuf,
    /// The supervisor's process id.
    pub supervisor_pid: u32,
    /// How long it polls for a message before it sleeps.
    pub spin: Duration,
    /// How far it may grow.
    pub growth_max: GrowthMax,
    /// What it gives up before it serves.
    pub confinement: Confinement,
}

/// A worker's connection to its supervisor.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) replies: Replies,
    pub(crate) arenas: Arenas,
    pub(crate) cancels: Cancels,
    /// The current step between jobs.
    pub(crate) idle_step: Arc<IdleStep>,
    pub(crate) growth_max: GrowthMax,
    pub(crate) growth: Arc<Growth>,
}

/// Connects a serving worker to its supervisor, and ends the process with the code that `work` returns. Standard
/// input is the lifeline: it closes when the supervisor ends.
pub(crate) fn serve(identity: &Identity, work: impl FnOnce(Link, &mut Receiver) -> i32) -> ! {
    let lifeline = take_lifeline().unwrap_or_else(|error| {
        tracing::error!(%error, "standard input is not the lifeline");
        end_process(cli::WORKER.into())
    });
    end_process(match connect(identity, lifeline) {
        Ok(Some((link, mut requests))) => work(link, &mut requests),
        Ok(None) => exit::OK,
        Err(StartError { code, why }) => {
            tracing::error!(worker = %identity.worker, error = why, "worker cannot start");
            code
        }
    })
}

/// Takes standard input. A program that a library may start must not inherit it, or it would stay open after
/// this process.
fn take_lifeline() -> io::Result<OwnedFd> {
    let lifeline = io::stdin().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    Ok(lifeline)
}

/// The next message, or `None` at `until`. The error is the exit code of a worker that gets no more messages.
pub(crate) fn next(requests: &mut Receiver, until: Instant) -> Result<Option<ToWorker>, i32> {
    match requests.recv_until(until) {
        Ok(request) => Ok(request),
        Err(ChannelError::Disconnected) => Err(exit::OK),
        Err(error) => {
            tracing::error!(error = %Chain(&error), "cannot decode the supervisor's message");
            Err(exit::PROTOCOL)
        }
    }
}

/// Why a worker does not come to serve, and its exit code.
struct StartError {
    code: i32,
    why: String,
}

impl From<String> for StartError {
    fn from(why: String) -> Self {
        Self { code: exit::PROTOCOL, why }
    }
}

/// Sets the process up, connects, and enters the sandbox. `None` if the supervisor is gone already.
///
/// The supervisor sends nothing of a client before the worker is READY, so the sandbox may wait for the channel:
/// the worker then needs no right to the folder of its socket. No thread may start before.
fn connect(identity: &Identity, lifeline: OwnedFd) -> Result<Option<(Link, Receiver)>, StartError> {
    let lives = process::die_with(identity.supervisor_pid).map_err(|errno| errno.to_string())?;
    if !lives {
        return Ok(None);
    }
    if let Err(error) = memory::volunteer_for_the_oom_killer() {
        tracing::warn!(%error, "if memory runs out, the kernel may kill the supervisor before this worker");
    }
    process::mark_descriptors().map_err(|error| format!("close_range: {error}"))?;
    let lifeline = UnixStream::from(lifeline);
    let ours = lifeline.try_clone().map_err(|error| format!("lifeline: {error}"))?;
    let replies = Replies::new(lifeline);
    let opened = Listener::open(&identity.boot_folder);
    let (listener, listens_at) = opened.map_err(|error| {
        format!("no channel can be opened in {}: {error}", identity.boot_folder.display())
    })?;
    let hello = FromWorker::Hello {
        version: PROTOCOL_VERSION,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        worker: identity.worker,
        listens_at,
    };
    let accepted = replies.send(&hello).and_then(|()| listener.accept());
    let mut requests = accepted.map_err(|error| Chain(&error).to_string())?;
    requests.set_spin(identity.spin);
    confine(&identity.confinement, &replies)?;
    if let Err(error) = beacon::light() {
        tracing::warn!(%error, "no beacon: the supervisor will notice this process's death late");
    }
    let cancels = Cancels::default();
    let arenas = Arenas::take_from(ours, cancels.clone())?;
    let (idle_step, growth, growth_max) = (Arc::default(), Arc::default(), identity.growth_max);
    Ok(Some((Link { replies, arenas, cancels, idle_step, growth_max, growth }, requests)))
}

/// Enters the sandbox.
fn confine(confinement: &Confinement, replies: &Replies) -> Result<(), StartError> {
    confinement.enter().map_err(|error| {
        let (code, why) = (exit::CONFIG, Chain(&error).to_string());
        send(
            replies,
            &FromWorker::Dying { code, fault: None, message: why.clone(), attempt: None },
        );
        StartError { code, why }
    })?;
    let attempts = trespass::of_this_worker().into_iter().chain(trespass::of_this_process());
    for (what, came) in attempts {
        tracing::warn!(what, refused = trespass::is_refused(&came), ?came, "trespass");
    }
    Ok(())
}

impl Link {
    /// Starts the thread that sends heartbeats, which carry the device's memory and progress once there is a device. It
    /// ends a worker whose device is stuck in a step between jobs.
    pub(crate) fn start_heartbeat(&self, gauges: Arc<OnceLock<Arc<Gauges>>>) -> Result<(), Fault> {
        let (replies, idle_step) = (self.replies.clone(), Arc::clone(&self.idle_step));
        let (growth, growth_max) = (Arc::clone(&self.growth), self.growth_max);
        let beat = move || {
            loop {
                thread::park_timeout(HEARTBEAT_EVERY);
                let of = |gauges: &Arc<Gauges>| (gauges.memory(), gauges.chunks());
                let (memory, chunks) = gauges.get().map_or_else(Default::default, of);
                if replies.send(&FromWorker::Heartbeat { memory, chunks }).is_err() {
                    return;
                }
                if let Ok(now) = Holding::now() {
                    growth.note(now, growth_max);
                }
                if idle_step.is_stuck(clock::now()) {
                    let message = format!(
                        "the device has not finished a step between jobs in {} s",
                        STEP_MAX.as_secs()
                    );
                    let code = exit::DEVICE_LOST;
                    let last = FromWorker::Dying { code, fault: None, message, attempt: None };
                    // Even if the message is lost, the worker must end.
                    drop(replies.send(&last));
                    end_process(code);
                }
            }
        };
        let thread = thread::Builder::new().name("heartbeat".into()).spawn(beat);
        thread.map_err(|error| Fault::Threads { threads: 1, reason: error.to_string() })?;
        Ok(())
    }

    /// Marks the worker as READY: its growth is counted from now on.
    pub(crate) fn mark_ready(&self) {
        match Holding::now() {
            Ok(fresh) => self.growth.start(fresh),
            Err(error) => tracing::warn!(%error, "the growth of this worker is unknown"),
        }
    }

    /// If the worker has grown too far, reports that and returns its exit code.
    pub(crate) fn recycle(&self) -> Option<i32> {
        let why = self.growth.recycle_reason()?;
        Some(self.ends(exit::WORN, None, why.to_owned(), None))
    }

    /// Reports why the worker ends; returns its exit code.
    pub(crate) fn report_fault(&self, fault: &Fault, attempt: Option<AttemptId>) -> i32 {
        self.ends(fault.exit_code(), Some(fault.code()), fault.to_string(), attempt)
    }

    /// Reports a fault that the device had between jobs. It blames no job: those that wait in the channel have
    /// not begun.
    pub(crate) fn report_idle_fault(&self, fault: &Fault) -> i32 {
        let code = exit::DEVICE_LOST;
        let named = (fault.exit_code() == code).then(|| fault.code());
        self.ends(code, named, fault.to_string(), None)
    }

    /// Reports that the worker ends with this exit code, and returns the code.
    pub(crate) fn ends(
        &self,
        code: i32,
        fault: Option<FaultCode>,
        message: String,
        attempt: Option<AttemptId>,
    ) -> i32 {
        self.send(&FromWorker::Dying { code, fault, message, attempt });
        code
    }

    /// See [`send`].
    pub(crate) fn send(&self, message: &FromWorker) {
        send(&self.replies, message);
    }

    /// Sends the answers to attempts that ran together. Errors of many programs may be longer than a message: then each
    /// answer goes alone.
    pub(crate) fn answer(&self, answers: Answers) {
        let message = FromWorker::Answers(Box::new(answers));
        let sent = self.replies.send(&message);
        let FromWorker::Answers(answers) = message else { return };
        if !matches!(sent, Err(ChannelError::Encode(_))) || answers.attempts.len() < 2 {
            return note_sent(sent);
        }
        let split = answers.each(|attempt, result| {
            self.send(&FromWorker::Answer { attempt, result });
        });
        if let Err(error) = split {
            tracing::error!(%error, "answers cannot be sent");
        }
    }
}

/// Sends a message. If the supervisor is gone, the lifeline ends this process.
pub(crate) fn send(replies: &Replies, message: &FromWorker) {
    note_sent(replies.send(message));
}

fn note_sent(sent: Result<(), ChannelError>) {
    match sent {
        Ok(()) => {}
        Err(error @ ChannelError::Encode(_)) => {
            tracing::error!(error = %Chain(&error), "a message for the supervisor cannot be encoded");
        }
        Err(
            error @ (ChannelError::Decode(_)
            | ChannelError::Disconnected
            | ChannelError::Frame(_)
            | ChannelError::Io(_)),
        ) => tracing::debug!(error = %Chain(&error), "the supervisor does not listen"),
    }
}
