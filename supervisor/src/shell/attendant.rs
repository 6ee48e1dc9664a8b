//! One thread per worker process: reads all it says, waits for its end, and reports that last. So an
//! answer is never lost behind the exit that followed it.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::channel::{ChannelError, Listener, Receiver};
use gridpool_protocol::codec;
use gridpool_protocol::frame::FrameReader;
use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{FromWorker, Lifeline};
use nix::libc::SIGKILL;

use super::Shared;
use super::pidfd::PidFd;
use crate::pool::event::{Event, Exit, ExitStatus};

/// A worker that has closed its channel has this long to end by itself.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// What an attendant needs of its worker.
pub(super) struct Attendant {
    pub(super) worker: WorkerId,
    pub(super) pidfd: PidFd,
    pub(super) lifeline: UnixStream,
    pub(super) listener: Listener,
}

impl Attendant {
    /// Starts the thread.
    pub(super) fn start(self, child: Child, shared: Arc<Shared>) -> io::Result<()> {
        let name = self.worker.to_string();
        thread::Builder::new().name(name).spawn(move || self.attend(child, &shared))?;
        Ok(())
    }

    fn attend(self, mut child: Child, shared: &Shared) {
        let Self { worker, pidfd, lifeline, listener } = self;
        let mut last_words = None;
        let mut rejected = false;
        match connect(worker, lifeline, listener, shared) {
            Ok(Some(channel)) => {
                if let Err(error) = listen(worker, &channel, shared, &mut last_words) {
                    tracing::error!(%worker, %error, "worker broke the protocol");
                    (last_words, rejected) = (Some(error), true);
                    signal(worker, &pidfd);
                }
            }
            // It ended, or was killed, before it connected.
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%worker, %error, "worker did not connect");
                (last_words, rejected) = (Some(error), true);
                signal(worker, &pidfd);
            }
        }
        let status = reap(worker, &pidfd, &mut child);
        let status = if rejected { ExitStatus::Rejected } else { status };
        let exit = Exit { status, last_words };
        tracing::debug!(%worker, %exit, "worker ended");
        shared.lock().workers.remove(&worker);
        shared.post(Event::WorkerExited { worker, exit });
    }
}

/// Waits for the worker's ends of the channel. `None` if the worker ended first.
fn connect(
    worker: WorkerId,
    lifeline: UnixStream,
    listener: Listener,
    shared: &Shared,
) -> Result<Option<Receiver<FromWorker>>, String> {
    // Only the worker has the other end, so its death ends this read.
    let Ok(Some(frame)) = FrameReader::new(lifeline).read(None) else { return Ok(None) };
    match codec::decode(&frame.body) {
        Ok(Lifeline::Connected) => {}
        Ok(other @ Lifeline::Arena { .. }) => return Err(format!("it said {other:?} first")),
        Err(error) => return Err(Chain(&error).to_string()),
    }
    let (sender, receiver) = listener.accept().map_err(|error| Chain(&error).to_string())?;
    if let Some(link) = shared.lock().workers.get_mut(&worker) {
        link.open(sender);
    }
    Ok(Some(receiver))
}

/// Turns what the worker says into events until it says no more.
fn listen(
    worker: WorkerId,
    channel: &Receiver<FromWorker>,
    shared: &Shared,
    last_words: &mut Option<String>,
) -> Result<(), String> {
    let mut introduced = false;
    loop {
        let message = match channel.recv() {
            Ok(message) => message,
            Err(ChannelError::Disconnected) => return Ok(()),
            Err(error) => return Err(Chain(&error).to_string()),
        };
        if !introduced && !matches!(message, FromWorker::Hello { .. }) {
            return Err("it did not say who it is first".to_owned());
        }
        match message {
            FromWorker::Hello { version, build, worker: name } => {
                if version != PROTOCOL_VERSION || build != env!("CARGO_PKG_VERSION") {
                    return Err(format!(
                        "the worker binary is gridpool-worker {build} (protocol {version}), the \
                         supervisor gridpool {} (protocol {PROTOCOL_VERSION}): install both from \
                         one build",
                        env!("CARGO_PKG_VERSION")
                    ));
                }
                if name != worker {
                    return Err(format!("it calls itself {name}"));
                }
                introduced = true;
                shared.post(Event::WorkerHeard { worker });
            }
            FromWorker::Ready { device } => {
                tracing::info!(%worker, device = device.name, uuid = device.uuid, "worker ready");
                shared.post(Event::WorkerReady { worker, device });
            }
            FromWorker::Heartbeat => shared.post(Event::WorkerHeard { worker }),
            FromWorker::Answer { attempt, result } => shared.answered(worker, attempt, result),
            FromWorker::Forgot => shared.forgot(worker),
            FromWorker::Dying { code, message, attempt } => {
                let attempt = attempt.map_or_else(|| "none".to_owned(), |a| a.to_string());
                tracing::error!(%worker, code, attempt, message, "worker is ending");
                *last_words = Some(message);
            }
        }
    }
}

/// Waits for the end of the process and takes its status.
fn reap(worker: WorkerId, pidfd: &PidFd, child: &mut Child) -> ExitStatus {
    let ended = pidfd.wait(Some(EXIT_GRACE)).unwrap_or(false);
    if !ended {
        signal(worker, pidfd);
        if let Err(error) = pidfd.wait(None) {
            tracing::error!(%worker, %error, "waiting on a pidfd");
        }
    }
    match child.wait() {
        Ok(status) => match status.code() {
            Some(code) => ExitStatus::Code(code),
            None => ExitStatus::Signal(status.signal().unwrap_or(SIGKILL)),
        },
        Err(error) => {
            tracing::error!(%worker, %error, "waiting for a child");
            ExitStatus::Signal(SIGKILL)
        }
    }
}

fn signal(worker: WorkerId, pidfd: &PidFd) {
    if let Err(error) = pidfd.send_signal(SIGKILL) {
        tracing::error!(%worker, %error, "SIGKILL could not be sent");
    }
}
