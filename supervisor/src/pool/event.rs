//! What the core is told and what it orders: past tense in, imperative out.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{
    AttemptId, ClientId, ContentHash, DeviceId, JobId, JobKey, Role, WorkerId,
};
use gridpool_protocol::message::{AttemptError, Priority, Refusal};
use gridpool_protocol::receipt::{DeviceInfo, ItemRange, Receipt, RunReport};

/// Time since the pool started. A number, not an `Instant`, so that a log of events replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub Duration);

impl Timestamp {
    /// The moment `later` after this one.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }

    /// The time since `earlier`; zero if that lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0.as_secs_f64())
    }
}

/// A submission as the core sees it: everything but the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequest {
    /// The shell's number for it, never used twice.
    pub job: JobId,
    /// Whose workers run it.
    pub role: Role,
    /// The model that it asks, which its worker must have; none for a program.
    pub model: Option<Arc<str>>,
    /// The client's name for it.
    pub key: JobKey,
    /// Its program or model in words, for logs.
    pub label: Arc<str>,
    /// Hash of the program. Jobs whose programs have one hash may join one launch.
    pub program_hash: Arc<str>,
    /// Grids of the batch.
    pub items: u32,
    /// What it costs a client's share: cells and a constant.
    pub cost: u64,
    /// Bytes that the supervisor itself holds for it.
    pub inline_bytes: u64,
    /// From acceptance.
    pub deadline: Duration,
    /// Order among the client's own jobs.
    pub priority: Priority,
    /// Whether it may run more than once.
    pub idempotent: bool,
    /// Whether parts of it may run on several workers: each writes its own items' places of the
    /// result, so that must lie in shared memory.
    pub divisible: bool,
    /// Whether its result comes in the answer. A worker that is dying writes to no place of such a
    /// job, so another attempt need not wait until its process is gone.
    pub answer_inline: bool,
    /// What it is, if [`Pool::looks_convicted`](super::Pool::looks_convicted) asked for that.
    pub content: Option<ContentHash>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// By itself, with this code.
    Code(i32),
    /// By the shell's SIGKILL, because it is of another version. So would the next one be.
    Incompatible,
    /// By the shell's SIGKILL, because it broke the protocol. Nobody outside sent that.
    Rejected,
    /// By a signal.
    Signal(i32),
}

/// The end of a worker and what it said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// How it ended.
    pub status: ExitStatus,
    /// The fault that it ended over, if it got to name one.
    pub fault: Option<FaultCode>,
    /// Its own sentence, if it got to say one.
    pub last_words: Option<String>,
}

impl Exit {
    /// How it ended, for the policy.
    #[must_use]
    pub fn code(&self) -> FaultCode {
        match self.status {
            ExitStatus::Code(code) => FaultCode::Exit(code),
            ExitStatus::Incompatible => FaultCode::Incompatible,
            ExitStatus::Rejected => FaultCode::Rejected,
            ExitStatus::Signal(signal) => FaultCode::Signal(signal),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            ExitStatus::Code(code) => write!(f, "exit code {code}")?,
            ExitStatus::Incompatible | ExitStatus::Rejected => {
                write!(f, "killed by the supervisor")?;
            }
            ExitStatus::Signal(signal) => match nix::sys::signal::Signal::try_from(signal) {
                Ok(name) => write!(f, "signal {signal} ({name})")?,
                Err(_) => write!(f, "signal {signal}")?,
            },
        }
        match &self.last_words {
            Some(words) => write!(f, ": {words}"),
            None => Ok(()),
        }
    }
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A worker's process is ending: its first thread has lost its socket. What it said before may
    /// still be on its way, and what it writes to shared memory may still land.
    BeaconLost {
        /// Which.
        worker: WorkerId,
        /// What it has said of its end so far.
        last_words: Option<String>,
    },
    /// A client wants a job back.
    CancelRequested {
        /// Who.
        client: ClientId,
        /// Which.
        key: JobKey,
    },
    /// A connection was opened.
    ClientConnected {
        /// Which.
        client: ClientId,
    },
    /// A connection has ended: its jobs are nobody's any more.
    ClientGone {
        /// Which.
        client: ClientId,
    },
    /// What a suspect job is, as [`Action::HashContent`] asked.
    ContentHashed {
        /// Which.
        job: JobId,
        /// Its hash; `None` if it could not be read.
        content: Option<ContentHash>,
    },
    /// The driver tells of a fault of a device, be there a worker that meets it or not.
    DeviceFault {
        /// Which.
        device: DeviceId,
        /// What: an Xid, a result of NVML, or a recovery action.
        fault: FaultCode,
    },
    /// Finish what is accepted, then stop.
    DrainRequested,
    /// A client submitted a job.
    JobSubmitted {
        /// Who.
        client: ClientId,
        /// What.
        request: JobRequest,
    },
    /// A worker says which models it has. Before that it has none.
    ModelsOffered {
        /// Which worker.
        worker: WorkerId,
        /// All that can be asked.
        models: BTreeSet<Arc<str>>,
    },
    /// A worker was ordered to change its models: what it dies of may be that.
    ModelsOrdered {
        /// Which worker.
        worker: WorkerId,
    },
    /// It has done so, or could not.
    ModelsSettled {
        /// Which worker.
        worker: WorkerId,
    },
    /// An operator takes something back that the pool had decided.
    ReleaseRequested {
        /// What.
        release: Release,
    },
    /// Nothing is left that a worker of this role could do: finish what is accepted, then keep none.
    RestRequested,
    /// A worker could not be started at all.
    SpawnFailed {
        /// Which.
        worker: WorkerId,
        /// Why.
        detail: String,
        /// Whether another try would end the same way: there is no such program, say.
        is_final: bool,
    },
    /// Stop now, whatever is running.
    StopRequested,
    /// Nothing but time.
    TimePassed,
    /// There is something to do again for workers of this role.
    WakeRequested,
    /// A worker answered one attempt.
    WorkerAnswered {
        /// Which.
        worker: WorkerId,
        /// The attempt.
        attempt: AttemptId,
        /// What came of it.
        result: Result<RunReport, AttemptError>,
    },
    /// A worker's process is gone, and its channel was read to the end.
    WorkerExited {
        /// Which.
        worker: WorkerId,
        /// How.
        exit: Exit,
    },
    /// A worker gave a sign of life.
    WorkerHeard {
        /// Which.
        worker: WorkerId,
    },
    /// A worker is tested and waits for work.
    WorkerReady {
        /// Which.
        worker: WorkerId,
        /// Its device as it found it.
        device: DeviceInfo,
    },
    /// The device's memory that a process held is free again, after its end.
    WorkerReclaimed {
        /// Whose.
        worker: WorkerId,
    },
}

/// What an operator may take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Jobs of this content are accepted again.
    Content(ContentHash),
    /// Jobs of any content are.
    Contents,
    /// The device is out of service: it is tried again now.
    Device(DeviceId),
}

/// One attempt to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Which run of which job.
    pub attempt: AttemptId,
    /// The items of the job that it is about.
    pub part: ItemRange,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Action {
    /// Tell the client that the job is accepted.
    Accept {
        /// Whom.
        client: ClientId,
        /// The job.
        key: JobKey,
    },
    /// Forget the payload of a submission that became no job of its own.
    Discard {
        /// Which.
        job: JobId,
    },
    /// Send the worker attempts to run in one launch: their jobs have one program.
    Dispatch {
        /// To whom.
        worker: WorkerId,
        /// At least one.
        attempts: Vec<Assignment>,
    },
    /// Give the verdict and forget the payload.
    Finish {
        /// Whom to tell; nobody if the client is gone.
        client: Option<ClientId>,
        /// The job.
        job: JobId,
        /// The client's name for it.
        key: JobKey,
        /// Verdict and proof.
        receipt: Box<Receipt>,
    },
    /// Say what the job is: it is suspect. Comes back as [`Event::ContentHashed`].
    HashContent {
        /// Which.
        job: JobId,
    },
    /// Send SIGKILL.
    Kill {
        /// To whom.
        worker: WorkerId,
    },
    /// Everything has ended: leave.
    Leave,
    /// Tell the client that the job is not accepted, and forget its payload.
    Refuse {
        /// Whom.
        client: ClientId,
        /// The submission.
        job: JobId,
        /// The client's name for it.
        key: JobKey,
        /// Why.
        refusal: Refusal,
    },
    /// Repeat a verdict that was given before.
    Replay {
        /// Whom to tell.
        client: ClientId,
        /// The client's name for the job.
        key: JobKey,
        /// Verdict and proof.
        receipt: Box<Receipt>,
    },
    /// Start a process for the worker.
    Spawn {
        /// Which.
        worker: WorkerId,
    },
    /// Ask the worker to end.
    Stop {
        /// Whom.
        worker: WorkerId,
    },
    /// Tell the worker that nobody wants an answer to the attempt: it need not begin.
    Withdraw {
        /// Whom.
        worker: WorkerId,
        /// What.
        attempt: AttemptId,
    },
}
