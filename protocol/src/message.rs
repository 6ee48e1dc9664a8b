//! The messages of both sides. A new message or field needs a new [`PROTOCOL_VERSION`].
//!
//! [`PROTOCOL_VERSION`]: crate::limits::PROTOCOL_VERSION

mod done;
mod job;
mod limit;
mod model;
mod page;
mod release;
mod work;
mod worker;

use serde::{Deserialize, Serialize};

use crate::codec;
use crate::ids::{ArenaId, ContentHash, JobKey, WorkerSelector};
use crate::metrics::Metrics;
use crate::receipt::{Receipt, Verdict};
use crate::status::{PolicyRule, Status};
use crate::timeline;

pub use done::EncodedDone;
pub use job::{JobSelector, JobView, ParseJobSelectorError, without_place};
pub use limit::Limit;
pub use model::{DeviceModel, ModelCommand, RepositoryCommand};
pub use page::{AskedVerdicts, Death, LastVerdicts, LoggedJob, Secret, TokenOrder};
pub use release::{ParseReleaseError, Release};
pub use work::{
    Destination, Inline, Input, Packing, Payload, Priority, Slice, Submission, Terms, Work,
};
pub use worker::{
    Answers, Assignment, AttemptAnswer, AttemptError, BorrowedDispatch, Dispatch, FromWorker,
    JoinedAnswer, OnLifeline, OwnReport, SharedArena, ToWorker,
};

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
    /// Change the models of the pool: on all of its devices, or on none.
    Model {
        /// Echoed.
        request: u64,
        /// How.
        command: ModelCommand,
    },
    /// Load or unload a model of the pool's model repository.
    Repository {
        /// Echoed.
        request: u64,
        /// How.
        command: RepositoryCommand,
    },
    /// Say what a job is doing.
    Job {
        /// Echoed.
        request: u64,
        /// Which.
        job: JobSelector,
    },
    /// List the models.
    Models {
        /// Echoed.
        request: u64,
        /// The first wanted row.
        from: u32,
    },
    /// List the pool's response to each fault.
    Policy {
        /// Echoed.
        request: u64,
    },
    /// Describe the pool.
    Status {
        /// Echoed.
        request: u64,
        /// From the gateway: that of the operator who asks, if one does.
        token: Option<Secret>,
    },
    /// Send a signal to a worker.
    Kill {
        /// Echoed.
        request: u64,
        /// Which.
        worker: WorkerSelector,
        /// The signal's number.
        signal: i32,
    },
    /// Return a device to service, or allow denylisted jobs again.
    Release {
        /// Echoed.
        request: u64,
        /// Which decision of the pool to take back.
        release: Release,
    },
    /// Finish the accepted jobs, then stop.
    Drain {
        /// Echoed.
        request: u64,
    },
    /// Send the metrics.
    Metrics {
        /// Echoed.
        request: u64,
    },
    /// Have the binary that is installed now take this pool's place.
    Upgrade {
        /// Echoed.
        request: u64,
        /// Replace workers one by one: no device ever holds those of both pools.
        one_by_one: bool,
    },
    /// From the gateway: an order of a client that has shown a token for it.
    ByToken {
        /// Echoed.
        request: u64,
        /// The token, which the supervisor checks itself.
        token: Secret,
        /// The order.
        order: TokenOrder,
    },
    /// List the last deaths of workers.
    Deaths {
        /// Echoed.
        request: u64,
        /// Only those with a larger number.
        after: u64,
        /// From the gateway: that of the client who asks, if it has one.
        token: Option<Secret>,
    },
    /// List the last verdicts.
    Verdicts {
        /// Echoed.
        request: u64,
        /// Which.
        asked: AskedVerdicts,
    },
    /// Send the timeline.
    Timeline {
        /// Echoed.
        request: u64,
        /// How much of it is known.
        after: timeline::Mark,
    },
}

/// Why a submission or a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A queue is full: try again later.
    #[error("BUSY: {0}")]
    Busy(Limit),
    /// The jobs of a bundle, which it may have accepted before, must each be submitted by itself: together they go over
    /// a limit, or one of them might be what a worker died of.
    #[error("its jobs must be submitted one by one")]
    Bundled,
    /// The pool drains: it finishes its jobs and accepts no new ones.
    #[error("the pool is draining")]
    Draining,
    /// The request is wrong. Another try would fail, too.
    #[error("{0}")]
    Invalid(String),
    /// This user, or this connection, may not give that order.
    #[error("{0}")]
    NotAllowed(String),
    /// The content is denylisted: a job of this content killed its workers while it ran alone.
    #[error(
        "POISON: a job with this program and batch killed its workers, so it is refused; `gridpool \
         release {0}` allows it again"
    )]
    Poison(ContentHash),
    /// The key names another live job.
    #[error("key {0} belongs to another job that has no verdict yet")]
    KeyInUse(JobKey),
    /// The request is right, but the pool could not carry it out.
    #[error("{0}")]
    Unable(String),
}

/// How the reason begins for which a pool ends the connection of a user whom it does not serve.
pub const NOT_SHARED: &str = "it belongs to ";

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
    /// The job is not accepted.
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
        #[serde(with = "codec::nested")]
        receipt: Box<Receipt>,
        /// The packed result, if it travels in the message.
        output: Option<Inline>,
        /// The verdict was sent before. The pool remembers it, but not the result.
        replayed: bool,
    },
    /// The arena. Its descriptor comes with the message.
    ArenaCreated {
        /// Echoed.
        request: u64,
        /// Its name.
        arena: ArenaId,
        /// Its size.
        bytes: u64,
    },
    /// Answer to `Deaths`, `Job`, `Metrics`, `Models`, `Policy`, `Status`, `Timeline` and `Verdicts`.
    Reply {
        /// Echoed.
        request: u64,
        /// What was asked for.
        reply: Reply,
    },
    /// Sent to every client: the pool has drained, and every accepted job has its verdict.
    Drained {
        /// The number of verdicts of each kind since the drain began; none is 0.
        verdicts: Vec<(Verdict, u64)>,
    },
    /// The request was carried out.
    Granted {
        /// Echoed.
        request: u64,
        /// A sentence about what was done.
        what: String,
    },
    /// The request was not granted.
    Denied {
        /// Echoed.
        request: u64,
        /// Why.
        refusal: Refusal,
    },
    /// The connection ends here, for this reason. This variant must keep its position in all versions, so that
    /// clients of other versions can read it.
    Closing {
        /// One sentence.
        reason: String,
    },
}

/// What the pool says of itself. To let a client ask for more, add a variant here and to
/// [`ClientMessage`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To `Deaths`: the last ones, the latest last.
    Deaths(Vec<Death>),
    /// To `Job`: what it is doing; `None` if there is no such job, or it is another user's and you are no operator.
    Job(Option<Box<JobView>>),
    /// To `Metrics`: what was counted.
    Metrics(Box<Metrics>),
    /// To `Models`: the models of each inference worker that serves.
    Models {
        /// One row for each model and device, from the wanted one on: as many as fit a message, and at least
        /// one if there are any.
        models: Vec<DeviceModel>,
        /// The number of all rows.
        total: u32,
    },
    /// To `Policy`: one row for every fault, in the order of the tables.
    Policy(Vec<PolicyRule>),
    /// To `Status`: the pool.
    Status(Box<Status>),
    /// To `Timeline`: what comes next.
    Timeline(Box<timeline::Part>),
    /// To `Verdicts`: the last ones.
    Verdicts(LastVerdicts),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_every_version_read_why_a_connection_ends() {
        let closing = ServerMessage::Closing { reason: "no".to_owned() };
        assert_eq!(codec::encode(&closing).unwrap(), [9, 2, b'n', b'o']);
    }
}
