//! What the core asks the shell to do.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::handover::JobNews;
use gridpool_protocol::ids::{AttemptId, ClientId, DeviceId, JobId, JobKey, WorkerId};
use gridpool_protocol::message::{ModelCommand, Refusal};
use gridpool_protocol::receipt::{ItemRange, Receipt, Verdict};
use gridpool_protocol::status::MissingModel;
use gridpool_protocol::tensor::options::ModelPlan;

pub use crate::pool::death_report::{
    ATTEMPTS_LISTED_MAX, DeathReport, Disposition, LostAttempt, Next,
};
pub use crate::pool::kill::KillReason;
pub use crate::pool::receipts::Place as EncodedReceipt;
pub use crate::pool::service::Rule;

use crate::event::{Helper, Work};

/// One attempt to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The attempt.
    pub attempt: AttemptId,
    /// The items of the job that it runs.
    pub shard: ItemRange,
    /// The worker may drop it, unbegun, after this time.
    pub drop_after: Duration,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Action {
    /// Tell the client that the job is accepted.
    Accept {
        /// The client.
        client: ClientId,
        /// The submission.
        job: JobId,
        /// The job's name; a repeated submission has that of the job that it repeats.
        key: JobKey,
    },
    /// The work of this worker may be the cause of its death: keep what it ran. Only if the pool
    /// [names](crate::Core::name_capsules) capsules.
    Capsule {
        /// The worker. A process that cannot be killed may end later, or never.
        worker: WorkerId,
        /// The capsule's name.
        name: Arc<str>,
        /// What it ran and may have died of, at least one.
        attempts: Vec<AttemptId>,
    },
    /// Tell the worker to change its models.
    Command {
        /// The worker.
        worker: WorkerId,
        /// The number that its answer must name.
        number: u64,
        /// The change.
        command: Box<ModelCommand>,
    },
    /// Report the death of a worker.
    DeathReport(Box<DeathReport>),
    /// Forget the payload of a submission that repeats an earlier one.
    Discard {
        /// The submission.
        job: JobId,
    },
    /// Send the worker attempts to run together.
    Dispatch {
        /// The worker.
        worker: WorkerId,
        /// At least one.
        attempts: Vec<Assignment>,
    },
    /// Give the verdict and forget the payload.
    Finish {
        /// The client that gets the verdict; `None` if it is gone, or is told to submit the jobs of a bundle again.
        client: Option<ClientId>,
        /// The job.
        job: JobId,
        /// The client's name for it.
        key: JobKey,
        /// Verdict and proof.
        receipt: Box<Receipt>,
        /// Where the same lies encoded, if the pool remembers it: [`Core::encoded`](super::Core::encoded) has it until
        /// the next event.
        encoded: Option<EncodedReceipt>,
    },
    /// Nothing of this pool is left on the device: the successor may start workers there.
    Free {
        /// The device.
        device: DeviceId,
    },
    /// Hash the content of a suspect job. It comes back as
    /// [`Event::ContentHashed`](crate::event::Event::ContentHashed).
    HashContent {
        /// The job.
        job: JobId,
        /// What it was accepted for, which is hashed with its payload: a model's version, whatever the client wrote.
        work: Work,
    },
    /// Do something with the process of a helper.
    Helper(Helper, HelperAction),
    /// Send SIGKILL.
    Kill {
        /// The worker.
        worker: WorkerId,
        /// Why.
        reason: KillReason,
    },
    /// The pool has ended: exit.
    Leave {
        /// How many verdicts of each kind were given since the pool was told to drain or stop.
        verdicts: Vec<(Verdict, u64)>,
    },
    /// All jobs of the client have their verdicts: end its connection, so that it goes to the successor.
    LetGo {
        /// The client.
        client: ClientId,
    },
    /// No device can ever serve programs: every worker refused to start.
    Misconfigured {
        /// One sentence for each device.
        faults: Vec<String>,
    },
    /// A model that is [required](crate::event::Event::ModelsRequired) cannot be loaded.
    ModelMissing(MissingModel),
    /// Write a line to the log.
    Note(Note),
    /// Tell the client that the job is not accepted, and forget its payload.
    Refuse {
        /// The client.
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
        /// The client.
        client: ClientId,
        /// The client's name for the job.
        key: JobKey,
        /// Verdict and proof.
        receipt: Box<Receipt>,
    },
    /// Tell an operator the result of a request.
    Reply {
        /// The operator's connection.
        client: ClientId,
        /// The client's number for the request.
        request: u64,
        /// What was done, in a sentence, or why not.
        result: Result<String, Refusal>,
    },
    /// Start a process for the worker.
    Spawn {
        /// The worker.
        worker: WorkerId,
        /// The models that it must load; none for a role without models.
        models: Vec<ModelPlan>,
    },
    /// Ask the worker to end.
    Stop {
        /// The worker.
        worker: WorkerId,
    },
    /// Tell the successor of a job.
    Tell(JobNews),
    /// Tell the worker that no answer to the attempt is wanted: it need not begin.
    Withdraw {
        /// The worker.
        worker: WorkerId,
        /// The attempt.
        attempt: AttemptId,
    },
}

/// What to do with the process of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelperAction {
    /// Send SIGKILL.
    Kill {
        /// Why.
        reason: HelperEnd,
    },
    /// Start it.
    Start,
    /// Ask it to finish its open requests and end.
    Stop,
}

/// Why a helper process is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelperEnd {
    /// It was asked to end, and did not in time.
    DoesNotStop,
    /// It is of no use, for this reason.
    Lost(String),
    /// It gave no sign of life in time.
    Silent,
    /// It is no longer wanted.
    Unwanted,
}

impl fmt::Display for HelperEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DoesNotStop => "it does not stop",
            Self::Lost(why) => why,
            Self::Silent => "it gives no sign of life",
            Self::Unwanted => "the pool ends",
        })
    }
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A worker failed to carry out a command.
    CommandFailed {
        /// The worker.
        worker: WorkerId,
        /// The command.
        command: Box<ModelCommand>,
        /// Why, as the worker says.
        why: String,
    },
    /// A device is back in service for a group.
    DeviceBack {
        /// The device.
        device: DeviceId,
        /// The name of the group.
        group: Arc<str>,
    },
    /// A device is out of service for a group.
    DeviceOut {
        /// The device.
        device: DeviceId,
        /// The name of the group.
        group: Arc<str>,
        /// The fault that took it out of service.
        why: String,
        /// The rule that took it out of service.
        rule: Option<Rule>,
        /// How long until it is probed; if `None`, an operator must release it first.
        probed_in: Option<Duration>,
    },
    /// The driver reported a fault of a device.
    DriverReport {
        /// The device.
        device: DeviceId,
        /// The fault.
        fault: FaultCode,
        /// The policy's response.
        response: Response,
        /// Whether the report was expected.
        novelty: Novelty,
        /// A worker that the device lost shortly before.
        lost: Option<WorkerId>,
        /// The device has no other process, so the report is about the lost one.
        is_about_lost: bool,
    },
    /// A helper that counted as stuck has ended.
    HelperGone {
        /// The helper.
        helper: Helper,
    },
    /// SIGKILL does not end a helper. The next one starts when it is gone.
    HelperStuck {
        /// The helper.
        helper: Helper,
    },
    /// A helper has ended again too soon: the next one waits longer than the first.
    HelperWaits {
        /// The helper.
        helper: Helper,
        /// The time until the next one starts.
        wait: Duration,
    },
    /// A worker has a model.
    ModelReady {
        /// The worker.
        worker: WorkerId,
        /// The model.
        name: String,
    },
    /// A change of the models has succeeded or failed.
    ModelsChanged {
        /// In a sentence.
        result: Result<String, String>,
    },
    /// An operator released a device or unblocked denylisted jobs.
    Released {
        /// The operator's connection.
        client: ClientId,
        /// What was done, in a sentence.
        what: String,
    },
    /// A worker could not load a model.
    ModelUnavailable {
        /// The worker.
        worker: WorkerId,
        /// The model.
        name: String,
        /// Its file, if the pool should have the model.
        path: Option<PathBuf>,
        /// Why, as the worker says.
        reason: String,
    },
}

/// Whether a report of the driver is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// It follows from the loss of a worker.
    Expected,
    /// It is a new fault.
    New,
    /// It follows from the loss of a worker, and repeats the last report about that worker.
    Repeated,
}
