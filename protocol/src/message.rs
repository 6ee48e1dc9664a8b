//! What each side may say. Adding a message, or a field, is a new [`PROTOCOL_VERSION`].
//!
//! [`PROTOCOL_VERSION`]: crate::limits::PROTOCOL_VERSION

mod model;
mod worker;

use serde::{Deserialize, Serialize};

use crate::chaos::Chaos;
use crate::codec;
use crate::ids::{ArenaId, ContentHash, JobKey};
use crate::metrics::Metrics;
use crate::program::Ties;
use crate::receipt::{Receipt, Verdict};
use crate::status::{PolicyRule, Status};

pub use model::{DeviceModel, ModelOrder};
pub use worker::{Answer, AttemptError, FromWorker, InferMember, Lifeline, Member, Run, ToWorker};

/// Bytes inside a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inline(#[serde(with = "codec::bytes")] pub Vec<u8>);

/// A part of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The arena.
    pub arena: ArenaId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Slice {
    /// Whether two slices share a byte.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.arena == other.arena
            && self.offset < other.offset.saturating_add(other.bytes)
            && other.offset < self.offset.saturating_add(self.bytes)
    }
}

/// Where an input lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// In shared memory.
    Arena(Slice),
    /// In the message.
    Inline(Inline),
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// To shared memory.
    Arena(Slice),
    /// Into the answer.
    Inline,
}

/// Which of a client's waiting jobs goes first. Clients share the pool fairly whatever they ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Priority {
    /// Before the client's other jobs.
    High,
    /// In order.
    #[default]
    Normal,
    /// After the client's other jobs.
    Low,
}

/// A program over a batch, as its client describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The program's text.
    pub program: String,
    /// How the program breaks ties.
    pub ties: Ties,
    /// What to run it over.
    pub payload: Payload,
}

/// A batch and the place of its result: handed from the client through the supervisor to a worker
/// as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// Items of the batch: grids, or pairs if the program takes pairs.
    pub items: u32,
    /// Cells of all grids together.
    pub cells: u32,
    /// The packed batch.
    pub input: Input,
    /// Where the packed result goes.
    pub output: Destination,
}

/// A request of a model, as its client describes it: handed from the client through the supervisor to a
/// worker as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The model's name.
    pub model: String,
    /// Its inputs, packed as [`tensor`](crate::tensor) says.
    pub input: Input,
    /// Where its outputs go, packed likewise. They may take less than the slice has.
    pub output: Destination,
}

/// A request of a model as its client submits it. It gets a verdict as any job does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferSubmission {
    /// The client's name for it.
    pub key: JobKey,
    /// What to ask.
    pub call: ModelCall,
    /// From acceptance; zero is a deadline that has passed.
    pub deadline_ms: u64,
    /// Order among the client's own jobs.
    pub priority: Priority,
    /// Whether it may run more than once. If not, it gets one attempt, and no other runs beside it.
    pub idempotent: bool,
}

/// A job as its client submits it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The client's name for it.
    pub key: JobKey,
    /// What to run over what.
    pub call: Call,
    /// From acceptance; zero is a deadline that has passed.
    pub deadline_ms: u64,
    /// Order among the client's own jobs.
    pub priority: Priority,
    /// Whether it may run more than once. If not, it gets one attempt.
    pub idempotent: bool,
    /// A fault that it meets on purpose; only a pool that was started with `--allow-chaos` takes it.
    pub chaos: Option<Chaos>,
}

/// Client to supervisor. `request` is echoed in the reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMessage {
    /// First message of a connection.
    Hello {
        /// The client's [`PROTOCOL_VERSION`](crate::limits::PROTOCOL_VERSION).
        version: u32,
    },
    /// Run a job.
    Submit(Box<Submission>),
    /// Give up a job.
    Cancel {
        /// The job.
        key: JobKey,
    },
    /// Make an arena for this connection.
    CreateArena {
        /// Echoed.
        request: u64,
        /// Its least size.
        bytes: u64,
    },
    /// Give an arena back.
    DropArena {
        /// The arena.
        arena: ArenaId,
    },
    /// Ask a model.
    Infer(Box<InferSubmission>),
    /// Change the models of the pool: on all of its devices, or on none.
    Model {
        /// Echoed.
        request: u64,
        /// How.
        order: ModelOrder,
    },
    /// Say which models there are.
    Models {
        /// Echoed.
        request: u64,
        /// The first row that is wanted.
        from: u32,
    },
    /// Say what the pool does about which fault.
    Policy {
        /// Echoed.
        request: u64,
    },
    /// Describe the pool.
    Status {
        /// Echoed.
        request: u64,
    },
    /// Send a signal to a worker.
    Kill {
        /// Echoed.
        request: u64,
        /// `gpu0`, or `gpu0#4` for that generation and no other.
        worker: String,
        /// The signal's number.
        signal: i32,
    },
    /// Take a decision of the pool back.
    Release {
        /// Echoed.
        request: u64,
        /// A device out of service (`gpu0`), the content of a convicted job (64 hexadecimal digits), or
        /// `jobs` for all of these.
        what: String,
    },
    /// Finish what is accepted, then stop.
    Drain {
        /// Echoed.
        request: u64,
    },
    /// Say what was counted.
    Metrics {
        /// Echoed.
        request: u64,
    },
}

/// Which limit a BUSY reply is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Memory of all arenas, or of this client's.
    Arenas,
    /// Jobs of this client.
    ClientJobs,
    /// Inline bytes of all jobs.
    QueueBytes,
    /// Jobs of all clients.
    QueueJobs,
}

impl Limit {
    /// Whether the client's own jobs may have filled it, so that taking their answers makes room.
    #[must_use]
    pub fn is_own(self) -> bool {
        match self {
            Self::Arenas | Self::ClientJobs => true,
            Self::QueueBytes | Self::QueueJobs => false,
        }
    }

    /// What is full, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Arenas => "shared memory is used up",
            Self::ClientJobs => "this client has as many jobs as it may",
            Self::QueueBytes => "the queue holds as many bytes as it may",
            Self::QueueJobs => "the queue is full",
        }
    }
}

/// Why a submission or a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A queue is full: try again later.
    #[error("BUSY: {}", .0.words())]
    Busy(Limit),
    /// The pool finishes what it has and accepts nothing new.
    #[error("the pool is draining")]
    Draining,
    /// The request makes no sense; trying again will not help.
    #[error("{0}")]
    Invalid(String),
    /// A job of this content was convicted: workers died of it, alone.
    #[error(
        "POISON: a job with this program and batch killed its workers, so it is refused; `gridpool \
         release {0}` allows it again"
    )]
    Poison(ContentHash),
    /// The key names another live job.
    #[error("key {0} belongs to another job that has no verdict yet")]
    KeyInUse(JobKey),
}

/// Supervisor to client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ServerMessage {
    /// Answer to `Hello`.
    Welcome {
        /// The supervisor's [`PROTOCOL_VERSION`](crate::limits::PROTOCOL_VERSION).
        version: u32,
    },
    /// The job is accepted: it will get exactly one `Done`.
    Accepted {
        /// The job.
        key: JobKey,
    },
    /// The job is not accepted, and forgotten.
    Refused {
        /// The job.
        key: JobKey,
        /// Why.
        refusal: Refusal,
    },
    /// The verdict.
    Done {
        /// The job.
        key: JobKey,
        /// Verdict and proof.
        receipt: Box<Receipt>,
        /// The packed result, if it goes into the answer.
        output: Option<Inline>,
        /// Said before: the verdict is remembered, its result is gone.
        replayed: bool,
    },
    /// The arena, its descriptor beside the message.
    ArenaCreated {
        /// Echoed.
        request: u64,
        /// Its name.
        arena: ArenaId,
        /// Its size.
        bytes: u64,
    },
    /// Answer to `Policy`: every fault, in the order of the tables.
    Policy {
        /// Echoed.
        request: u64,
        /// One row for each.
        rules: Vec<PolicyRule>,
    },
    /// Answer to `Status`.
    Status {
        /// Echoed.
        request: u64,
        /// The pool.
        status: Box<Status>,
    },
    /// The request was done; for `Kill`, the worker that got the signal.
    Granted {
        /// Echoed.
        request: u64,
        /// What was done.
        what: String,
    },
    /// The request was not granted.
    Denied {
        /// Echoed.
        request: u64,
        /// Why.
        refusal: Refusal,
    },
    /// The connection ends here, and why. Whatever changes in this protocol, this stays where it is:
    /// clients of other versions are told so.
    Closing {
        /// One sentence.
        reason: String,
    },
    /// To every client: the pool was drained, and all that it had accepted has its verdict.
    Drained {
        /// How many verdicts of each kind it has given since the order to drain; none is 0.
        verdicts: Vec<(Verdict, u64)>,
    },
    /// Answer to `Models`: what each inference worker that serves says of its models.
    Models {
        /// Echoed.
        request: u64,
        /// One row for each model of each device, from the wanted one on; as many as go into a message,
        /// and at least one if there are any.
        models: Vec<DeviceModel>,
        /// How many rows there are in all.
        total: u32,
    },
    /// Answer to `Metrics`.
    Metrics {
        /// Echoed.
        request: u64,
        /// What was counted.
        metrics: Box<Metrics>,
    },
}
