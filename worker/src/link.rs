//! What every worker process has, whatever its role: its channel to the supervisor, the arenas that it is
//! handed, and the thread that gives signs of life and watches what no deadline does.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::channel::{self, ChannelError, Receiver, Sender};
use gridpool_protocol::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::limits::{HEARTBEAT_EVERY, PROTOCOL_VERSION};
use gridpool_protocol::message::{FromWorker, ToWorker};
use nix::libc;

use crate::arenas::Arenas;
use crate::between::{Between, STEP_MAX};
use crate::fault::Fault;
use crate::gauges::Gauges;
use crate::process;
use crate::wear::{GrowthMax, Holding, Wear};

/// Who this worker is and who started it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name.
    pub worker: WorkerId,
    /// Where the supervisor listens for its channel.
    pub bootstrap: String,
    /// The supervisor's process.
    pub supervisor_pid: u32,
    /// How long it may look for a message before it sleeps.
    pub spin: Duration,
    /// How far it may grow.
    pub growth_max: GrowthMax,
}

/// Ends the process without running any destructor: after a sticky fault even a destructor's driver
/// call may block for ever.
pub fn end_process(code: i32) -> ! {
    #[expect(unsafe_code, reason = "_exit is the end that runs nothing")]
    // SAFETY: the call takes a number and does not return.
    unsafe {
        libc::_exit(code)
    }
}

/// A worker's ends of what ties it to its supervisor.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) replies: Sender<FromWorker>,
    pub(crate) arenas: Arenas,
    /// The step between jobs that is being made.
    pub(crate) between: Arc<Between>,
    pub(crate) growth_max: GrowthMax,
    pub(crate) wear: Arc<Wear>,
}

/// Sets the process up and connects. `None` if the supervisor is gone already.
pub(crate) fn connect(
    identity: &Identity,
    lifeline: OwnedFd,
) -> Result<Option<(Link, Receiver<ToWorker>)>, String> {
    let lives = process::die_with(identity.supervisor_pid).map_err(|errno| errno.to_string())?;
    if !lives {
        return Ok(None);
    }
    if let Err(error) = process::volunteer_for_the_oom_killer() {
        tracing::warn!(%error, "the kernel may take the supervisor for this worker's memory");
    }
    process::mark_descriptors().map_err(|error| format!("close_range: {error}"))?;
    let (replies, mut requests) =
        channel::connect(&identity.bootstrap).map_err(|error| Chain(&error).to_string())?;
    requests.set_spin(identity.spin);
    let hello = FromWorker::Hello {
        version: PROTOCOL_VERSION,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        worker: identity.worker,
    };
    replies.send(&hello).map_err(|error| Chain(&error).to_string())?;
    let arenas = Arenas::take_from(UnixStream::from(lifeline))?;
    let (between, wear, growth_max) = (Arc::default(), Arc::default(), identity.growth_max);
    Ok(Some((Link { replies, arenas, between, growth_max, wear }, requests)))
}

impl Link {
    /// Starts the thread that gives signs of life, and says in them what the device holds once there is
    /// one. It ends a worker whose device does not come back from a step between jobs.
    pub(crate) fn beat(
        &self,
        gauges: Arc<OnceLock<Arc<Gauges>>>,
    ) -> Result<mpsc::Sender<()>, Fault> {
        let (replies, between) = (self.replies.clone(), Arc::clone(&self.between));
        let (wear, growth_max) = (Arc::clone(&self.wear), self.growth_max);
        let (stop, stopped) = mpsc::channel::<()>();
        let beat = move || {
            while stopped.recv_timeout(HEARTBEAT_EVERY) == Err(RecvTimeoutError::Timeout) {
                let memory = gauges.get().map_or_else(Default::default, |gauges| gauges.memory());
                if replies.send(&FromWorker::Heartbeat { memory }).is_err() {
                    return;
                }
                if let Ok(now) = Holding::now() {
                    wear.note(now, growth_max);
                }
                if between.is_stuck(clock::now()) {
                    let message = format!(
                        "the device has not come back from a step between jobs in {} s",
                        STEP_MAX.as_secs()
                    );
                    let code = exit::DEVICE_LOST;
                    let last = FromWorker::Dying { code, fault: None, message, attempt: None };
                    // Whether that arrives or not, the worker is of no more use.
                    drop(replies.send(&last));
                    end_process(code);
                }
            }
        };
        let thread = thread::Builder::new().name("heartbeat".into()).spawn(beat);
        thread.map_err(|error| Fault::Threads { threads: 1, reason: error.to_string() })?;
        Ok(stop)
    }

    /// The worker is READY: from now on it is known how far it grows.
    pub(crate) fn is_fresh(&self) {
        match Holding::now() {
            Ok(fresh) => self.wear.start(fresh),
            Err(error) => tracing::warn!(%error, "how far this worker grows is not known"),
        }
    }

    /// If the worker has grown too far, says so and gives its exit code.
    pub(crate) fn worn_out(&self) -> Option<i32> {
        let why = self.wear.worn()?;
        Some(self.ends(exit::WORN, None, why.to_owned(), None))
    }

    /// Says why the worker ends; gives its exit code.
    pub(crate) fn last_words(&self, fault: &Fault, attempt: Option<AttemptId>) -> i32 {
        self.ends(fault.exit_code(), Some(fault.code()), fault.to_string(), attempt)
    }

    /// The same where no job has met the fault: whatever waits in the channel has not begun, and no job
    /// is to be held to account for what the device does by itself.
    pub(crate) fn last_words_between_jobs(&self, fault: &Fault) -> i32 {
        let code = exit::DEVICE_LOST;
        let named = (fault.exit_code() == code).then(|| fault.code());
        self.ends(code, named, fault.to_string(), None)
    }

    /// Says that the worker ends with this exit code, and gives that.
    pub(crate) fn ends(
        &self,
        code: i32,
        fault: Option<FaultCode>,
        message: String,
        attempt: Option<AttemptId>,
    ) -> i32 {
        self.say(&FromWorker::Dying { code, fault, message, attempt });
        code
    }

    /// See [`say`].
    pub(crate) fn say(&self, message: &FromWorker) {
        say(&self.replies, message);
    }
}

/// Sends a message. If the supervisor is gone, the lifeline ends this process.
pub(crate) fn say(replies: &Sender<FromWorker>, message: &FromWorker) {
    match replies.send(message) {
        Ok(()) => {}
        Err(error @ ChannelError::Encode(_)) => {
            tracing::error!(error = %Chain(&error), "the supervisor cannot be told");
        }
        Err(
            error @ (ChannelError::Decode(_) | ChannelError::Disconnected | ChannelError::Io(_)),
        ) => tracing::debug!(error = %Chain(&error), "the supervisor does not listen"),
    }
}
