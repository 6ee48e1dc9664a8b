//! The events that the shell reports to the core. The core answers with the actions in `action`.

mod exit;
mod helper;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::handover::JobNews;
use gridpool_protocol::ids::{
    AttemptId, ClientId, ContentHash, DeviceId, JobId, JobKey, Role, WorkerId,
};
pub use gridpool_protocol::message::Release;
use gridpool_protocol::message::{AttemptError, ModelCommand, Priority};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::{DeviceInfo, RunReport};
use gridpool_protocol::search::Score;
use gridpool_protocol::status::LoadPhase;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::trace::TraceId;

use crate::config::PoolConfig;
use crate::placing::DeviceMemory;
use crate::policy::PolicyTable;
use crate::quota::Quotas;

pub use exit::{Exit, ExitStatus};
pub use helper::{Helper, HelperEvent};

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

/// What a job asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// A program over grids.
    Program {
        /// Hash of the program. Jobs whose programs have one hash may run in one dispatch.
        hash: Arc<str>,
    },
    /// A run of a model.
    Model {
        /// The model, which the worker must have.
        name: Arc<str>,
    },
    /// Programs over pairs, whose items are the programs. It runs in a dispatch of its own.
    Search {
        /// What a verdict says of each pair.
        score: Score,
    },
}

impl Work {
    /// The role of the workers that do it.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Program { .. } | Self::Search { .. } => Role::Grid,
            Self::Model { .. } => Role::Infer,
        }
    }

    /// As a receipt names it.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        match self {
            Self::Program { hash } => Arc::clone(hash),
            Self::Model { name } => format!("model:{name}").into(),
            Self::Search { score } => format!("search:{score}").into(),
        }
    }

    /// The model that a worker must have for it.
    #[must_use]
    pub fn model(&self) -> Option<&Arc<str>> {
        match self {
            Self::Program { .. } | Self::Search { .. } => None,
            Self::Model { name } => Some(name),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// How much work a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A run of a model.
    Model {
        /// Of its input and its result.
        bytes: u64,
    },
    /// A program over a batch.
    Program {
        /// Cells of the batch.
        cells: u32,
        /// Steps of the program.
        steps: usize,
    },
    /// Programs over pairs.
    Search {
        /// Cells of all pairs.
        cells: u32,
        /// Bytes of all programs.
        program_bytes: u32,
    },
}

/// Bytes of a program of the machine for each of its instructions.
const BYTES_PER_INSTRUCTION: u32 = 8;
/// What an instruction of the machine costs beside a step of a chain: it runs in loops, and over values of any shape.
const INSTRUCTION_COST: u64 = 16;

impl Size {
    /// What a job costs beside its cells or bytes: about what a launch takes in cells.
    const COST_PER_JOB: u64 = 4_096;

    /// What a job of this size costs its client's share. The costs in [`PoolConfig`] are of the same kind.
    #[must_use]
    pub fn cost(self) -> u64 {
        let own = match self {
            Self::Model { bytes } => bytes,
            Self::Program { cells, steps } => u64::from(cells).saturating_mul(steps as u64),
            Self::Search { cells, program_bytes } => {
                let instructions = u64::from(program_bytes / BYTES_PER_INSTRUCTION);
                (u64::from(cells) * instructions).saturating_mul(INSTRUCTION_COST)
            }
        };
        own.saturating_add(Self::COST_PER_JOB)
    }
}

/// A submission as the core sees it: everything but the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequest {
    /// The shell's number for it, never used twice.
    pub job: JobId,
    /// What it asks for.
    pub work: Work,
    /// Who it is for.
    pub principal: Principal,
    /// The principal's name for it.
    pub key: JobKey,
    /// Equal for two submissions of one key if they are the same job.
    pub fingerprint: u64,
    /// Its program or model in words, for logs.
    pub label: Arc<str>,
    /// Jobs that it stands for: more than one if it is a bundle of small ones. Limits and sums count these.
    pub jobs: u32,
    /// Items: grids of a batch, programs of a search, 1 for a run of a model.
    pub items: u32,
    /// Its cost against the client's fair share: the [cost](Size::cost) of its size.
    pub cost: u64,
    /// Bytes that the supervisor itself holds for it.
    pub inline_bytes: u64,
    /// Bytes of its input and its result, wherever they are.
    pub bytes: u64,
    /// From acceptance.
    pub deadline: Duration,
    /// Order among the client's own jobs.
    pub priority: Priority,
    /// Whether it may run more than once.
    pub idempotent: bool,
    /// Whether its shards may run on several workers. Each writes its own results, which must be in shared memory.
    pub divisible: bool,
    /// Whether its result comes in the answer: a dying worker cannot write it, and another attempt need not wait.
    pub answer_inline: bool,
    /// The trace that it is a part of, for its receipt.
    pub trace: Option<TraceId>,
    /// Hash of its work and payload, if [`Core::asks_for_content`](super::Core::asks_for_content) wants it.
    pub content: Option<ContentHash>,
}

impl JobRequest {
    /// Whether it stands for several jobs.
    #[must_use]
    pub fn is_bundle(&self) -> bool {
        self.jobs > 1
    }
}

/// Something that has happened, by its source.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A client has connected, asks for something, or is gone.
    Client(ClientId, ClientEvent),
    /// The content of a suspect job, as [`Action::HashContent`](crate::action::Action) asked.
    ContentHashed {
        /// The job.
        job: JobId,
        /// Its hash; `None` if it could not be read.
        content: Option<ContentHash>,
    },
    /// The driver reports a fault of a device, whether or not it affects a worker.
    DeviceFault {
        /// The device.
        device: DeviceId,
        /// An Xid, the result of an NVML call, or a recovery action.
        fault: FaultCode,
    },
    /// The driver says what memory a device has.
    DeviceMemory {
        /// The device.
        device: DeviceId,
        /// Its memory.
        memory: DeviceMemory,
    },
    /// Finish the accepted jobs, then stop.
    DrainRequested,
    /// Finish the accepted jobs, then stop; the second time, stop now, if that is a second or more later.
    EndRequested,
    /// A step of handing everything over to the pool that takes this one's place.
    HandOver(HandOver),
    /// The pool whose place this one has taken says something.
    Predecessor(Predecessor),
    /// Go on with these limits and responses to faults. What [`PoolConfig::over`] keeps stays as it is.
    Reconfigured(Box<PoolConfig>, PolicyTable),
    /// Each model of now must be loaded: the first that cannot be is [missing](crate::action::Action::ModelMissing).
    ModelsRequired,
    /// From now on each principal has this quota. Without such an event, none has any.
    QuotasSet(Quotas),
    /// A helper process sent something, is wanted, or is gone.
    Helper(Helper, HelperEvent),
    /// Stop now, whatever is running.
    StopRequested,
    /// Nothing but time has passed.
    TimePassed,
    /// A worker sent something, or is gone.
    Worker(WorkerId, WorkerEvent),
}

impl Event {
    /// Whether there are many such events, so that the core takes in several before it does what follows.
    #[must_use]
    pub fn is_frequent(&self) -> bool {
        matches!(
            self,
            Self::Client(_, ClientEvent::Submitted(_))
                | Self::Worker(_, WorkerEvent::Answered { .. })
        )
    }
}

/// How far a pool is replaced by its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// A successor is ready. From now on it is told of every job.
    Begun,
    /// It does not take over, or does not come up.
    Failed,
    /// It serves.
    Done {
        /// The connections that end by themselves, and may submit until then: the gateway's.
        stay: Vec<ClientId>,
    },
    /// A successor comes up, and gets the devices one by one. The first must be free before it is ready.
    OneByOne,
}

/// What a pool learns of its predecessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// This device is free of its workers.
    Freed(DeviceId),
    /// It has ended, and nothing of it runs.
    Gone,
    /// A job of its own.
    Told(JobNews),
}

/// What a client does.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// It cancels a job.
    CancelRequested {
        /// The job.
        key: JobKey,
    },
    /// It has opened its connection.
    Connected,
    /// Its connection has ended: no client waits for its jobs.
    Gone,
    /// It asks to change the models, as an operator may.
    ModelsChangeRequested {
        /// Its number for this request.
        request: u64,
        /// The change.
        command: Box<ModelCommand>,
    },
    /// It asks to release a device or to unblock denylisted jobs, as an operator may.
    ReleaseRequested {
        /// Its number for this request.
        request: u64,
        /// What to release.
        release: Release,
    },
    /// It submits a job.
    Submitted(Box<JobRequest>),
}

/// What a worker sends, and what the shell learns of its process.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerEvent {
    /// It answered one attempt.
    Answered {
        /// The attempt.
        attempt: AttemptId,
        /// What came of it.
        result: Result<RunReport, AttemptError>,
    },
    /// Its process is ending: its beacon has closed. Messages that it sent may still arrive, and it may
    /// still write to shared memory.
    BeaconLost {
        /// What it has said about its end so far.
        last_words: Option<String>,
    },
    /// It has closed its channel: it sends and receives no more messages, and should end.
    ChannelClosed,
    /// It has carried out a command, or failed to.
    CommandEnded {
        /// The number of the command.
        number: u64,
        /// Why it could not.
        result: Result<(), String>,
    },
    /// Its process is gone, and its channel was read to the end.
    Exited(Exit),
    /// It gave a sign of life.
    Heard,
    /// It says how far it is with loading a model.
    Loading {
        /// The model's full name.
        model: String,
        /// How far.
        phase: LoadPhase,
    },
    /// It reports its models. Before that it has none.
    ModelsReported(Vec<ModelInfo>),
    /// It gave a sign of life, and has finished a part of what it runs since the one before.
    Progressed,
    /// It is tested and waits for work. The device is as it found it.
    Ready(DeviceInfo),
    /// The device memory of its process is free again, after its end.
    Reclaimed,
    /// It could not be started at all.
    SpawnFailed {
        /// Why.
        detail: String,
        /// Whether another try would end the same way: the program does not exist, for example.
        is_final: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_costs_its_cells_in_each_step_or_its_bytes_and_a_launch() {
        assert_eq!(Size::Program { cells: 900, steps: 3 }.cost(), 2_700 + 4_096);
        assert_eq!(Size::Model { bytes: 900 }.cost(), 900 + 4_096);
        assert_eq!(Size::Search { cells: 900, program_bytes: 80 }.cost(), 144_000 + 4_096);
        assert_eq!(Size::Model { bytes: u64::MAX }.cost(), u64::MAX);
    }
}
