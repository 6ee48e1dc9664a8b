//! What supervisor and worker say to each other: over ipc-channel, and over the lifeline what needs a
//! descriptor.

use serde::{Deserialize, Serialize};

use super::{Inline, ModelCall, ModelOrder, Payload};
use crate::chaos::ChaosFault;
use crate::fault::FaultCode;
use crate::ids::{ArenaId, AttemptId, ClientId, WorkerId};
use crate::program::Ties;
use crate::receipt::{DeviceInfo, ItemRange, RunReport};
use crate::status::WorkerMemory;
use crate::tensor::model::ModelInfo;

/// Supervisor to worker, over ipc-channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Withdraw what of these requests has not begun. Each is answered all the same.
    Cancel {
        /// The attempts.
        attempts: Vec<AttemptId>,
    },
    /// Run these requests of models, beside whatever runs, and answer each.
    Infer(Vec<InferMember>),
    /// Run these attempts and answer each.
    Run(Box<Run>),
    /// Change the models, beside whatever runs, then say `Ordered`. Requests that came before are run
    /// with the models as they were.
    Model {
        /// Echoed.
        order: u64,
        /// How.
        what: ModelOrder,
    },
    /// Unmap these arenas, then say `Forgot`.
    Forget {
        /// The arenas.
        arenas: Vec<ArenaId>,
    },
    /// End.
    Stop,
}

/// Attempts of one program, perhaps of many jobs, that a worker runs in one launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The program's text.
    pub program: String,
    /// How the program breaks ties.
    pub ties: Ties,
    /// At least one, at most [`JOIN_MAX`](crate::limits::JOIN_MAX). Each gets an answer of its own.
    pub members: Vec<Member>,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The attempt.
    pub attempt: AttemptId,
    /// The whole batch and the place of the whole result.
    pub payload: Payload,
    /// The items that this attempt is about: it reads no other, and writes no other's result.
    pub part: ItemRange,
    /// What this attempt meets on purpose.
    pub chaos: Option<ChaosFault>,
}

/// One attempt at a request of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferMember {
    /// The attempt.
    pub attempt: AttemptId,
    /// Whose it is: requests of one client begin in the order they come.
    pub client: ClientId,
    /// What to ask.
    pub call: ModelCall,
    /// Time that is left to it; whoever has not begun by then need not begin.
    pub deadline_ms: u64,
}

/// Worker to supervisor, over ipc-channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// First message: who speaks.
    Hello {
        /// The worker's [`PROTOCOL_VERSION`](crate::limits::PROTOCOL_VERSION).
        version: u32,
        /// Its package version.
        build: String,
        /// The name it was started under.
        worker: WorkerId,
    },
    /// Every kernel has run once and the known answers were right.
    Ready {
        /// The device as the worker found it.
        device: DeviceInfo,
    },
    /// Alive. Sent every 250 ms from a thread of its own.
    Heartbeat {
        /// What the worker holds.
        memory: WorkerMemory,
    },
    /// The answer to one attempt of a `Run`.
    Answer {
        /// The attempt.
        attempt: AttemptId,
        /// What came of it.
        result: Result<Answer, AttemptError>,
    },
    /// The arenas of `Forget` are unmapped.
    Forgot,
    /// The models of an inference worker, before it says `Ready` and whenever that changes.
    Models {
        /// Those that serve and those that could not be loaded.
        models: Vec<ModelInfo>,
    },
    /// What came of `Model`; `Models` has come before.
    Ordered {
        /// Which.
        order: u64,
        /// Why nothing has changed, if so.
        result: Result<(), String>,
    },
    /// Last words: the process ends with this exit code.
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
pub struct Answer {
    /// What was done.
    pub report: RunReport,
    /// The packed result, if it goes into the answer.
    pub output: Option<Inline>,
}

/// An attempt that failed and left the worker whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptError {
    /// The device said no, for this job alone; another attempt may do better.
    Device(String),
    /// Another attempt would end the same way: the batch is not what the submission said, or the
    /// policy gives none.
    Refused(String),
}

/// Supervisor to worker, over the lifeline socket: what needs a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifeline {
    /// Worker to supervisor, once: its ipc-channel ends are on their way.
    Connected,
    /// An arena, its descriptor beside the message.
    Arena {
        /// Its name.
        arena: ArenaId,
        /// Its size.
        bytes: u64,
    },
}
