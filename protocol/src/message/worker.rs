//! The messages between supervisor and worker: over ipc-channel, and over the lifeline if they carry a
//! descriptor.

use serde::{Deserialize, Serialize};

use super::{Inline, ModelCommand, Payload, Priority, Work};
use crate::chaos::ChaosFault;
use crate::fault::FaultCode;
use crate::ids::{ArenaId, AttemptId, ClientId, WorkerName};
use crate::receipt::{DeviceInfo, ItemRange, RunReport};
use crate::status::{LoadPhase, WorkerMemory};
use crate::tensor::model::ModelInfo;
use crate::trace::TraceId;

/// Supervisor to worker, over ipc-channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Run these attempts and answer each.
    Dispatch(Box<Dispatch>),
    /// Change the models while requests run, then send `CommandEnded`. Earlier requests run with the old models.
    Model {
        /// Echoed.
        number: u64,
        /// How.
        command: Box<ModelCommand>,
    },
    /// Unmap these arenas, then send `Forgot`.
    Forget {
        /// The arenas.
        arenas: Vec<ArenaId>,
    },
    /// End.
    Stop,
}

/// Attempts that a worker runs together. They have the same work and may belong to many jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The work of all attempts.
    pub work: Work,
    /// At least one, at most [`JOIN_MAX`](crate::limits::JOIN_MAX). Each gets an answer of its own.
    pub assignments: Vec<Assignment>,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The attempt.
    pub attempt: AttemptId,
    /// The job's client. A worker begins the requests of one client by priority, and then in their order.
    pub client: ClientId,
    /// The job's priority among those of its client.
    pub priority: Priority,
    /// The bytes of the whole job.
    pub payload: Payload,
    /// The items of this attempt. It reads and writes no others.
    pub shard: ItemRange,
    /// Milliseconds until the deadline. A worker need not begin it later.
    pub deadline_ms: u64,
    /// The job's trace, for the log.
    pub trace: Option<TraceId>,
    /// The fault to inject.
    pub chaos: Option<ChaosFault>,
}

/// Worker to supervisor, over ipc-channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// First message: the worker's name and version.
    Hello {
        /// The worker's [`PROTOCOL_VERSION`](crate::limits::PROTOCOL_VERSION).
        version: u32,
        /// Its package version.
        build: String,
        /// The name that the supervisor gave it.
        worker: WorkerName,
        /// Where it listens for its channel.
        listens_at: String,
    },
    /// Every kernel has run once, and the known-answer tests were right.
    Ready {
        /// The device as the worker found it.
        device: DeviceInfo,
    },
    /// A sign of life, sent every 250 ms by a separate thread.
    Heartbeat {
        /// What the worker holds.
        memory: WorkerMemory,
        /// Chunks of work that its device has finished so far.
        chunks: u64,
    },
    /// The answer to one attempt.
    Answer {
        /// The attempt.
        attempt: AttemptId,
        /// Its result.
        result: Result<AttemptAnswer, AttemptError>,
    },
    /// The arenas of `Forget` are unmapped.
    Forgot,
    /// The models of an inference worker. Sent before `Ready` and after each change.
    Models {
        /// All models, those that could not be loaded included.
        models: Vec<ModelInfo>,
    },
    /// How far it is with loading a model.
    Loading {
        /// The model's full name.
        model: String,
        /// How far.
        phase: LoadPhase,
    },
    /// The result of `Model`, sent after the new `Models`.
    CommandEnded {
        /// Which.
        number: u64,
        /// An error means that nothing has changed.
        result: Result<(), String>,
    },
    /// Last words: the process is about to end with this exit code.
    Dying {
        /// One of [`crate::exit::worker`].
        code: i32,
        /// What went wrong, if it was a fault.
        fault: Option<FaultCode>,
        /// One sentence.
        message: String,
        /// The attempt that was running.
        attempt: Option<AttemptId>,
    },
}

/// A successful attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptAnswer {
    /// What was done.
    pub report: RunReport,
    /// The packed result, if it goes into the answer.
    pub output: Option<Inline>,
}

/// An attempt that failed without harm to the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptError {
    /// The device failed for this job only. Another attempt may succeed.
    Device(String),
    /// Another attempt would fail, too, or the policy allows none.
    Refused(String),
}

/// Supervisor to worker, over the lifeline: what the worker must hear while its device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLifeline {
    /// An arena. Its descriptor comes with the message.
    Arena(SharedArena),
    /// Nobody wants the answer of an attempt any more: stop it, whether it has begun or not, and answer soon.
    Cancel {
        /// The attempt.
        attempt: AttemptId,
    },
}

/// An arena that the supervisor hands to a worker over the lifeline. Its descriptor comes with the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedArena {
    /// Its name.
    pub arena: ArenaId,
    /// Its size.
    pub bytes: u64,
}
