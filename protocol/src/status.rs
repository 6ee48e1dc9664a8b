//! What `gridpool status` shows. Serialises to its JSON: fields may be added, but none renamed. Code that
//! builds one for a test names what matters to it and takes the rest from `Default`.

mod capsules;
mod denylist;
mod load;
mod nats;
mod queue;
mod tracer;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fault::{FaultClass, Response};
use crate::ids::DeviceKind;
use crate::named::named;
use crate::receipt::Verdict;
use crate::sandbox::Protections;
pub use capsules::{CapsuleMode, CapsuleStatus, CapsulesStatus, ParseCapsuleModeError};
pub use denylist::{DENYLIST_SHOWN_MAX, DeniedContent, DenylistStatus};
pub use load::{LoadPhase, LoadStatus, MissingModel};
pub use nats::NatsStatus;
pub use queue::QueueStatus;
pub use tracer::TracerStatus;

/// The whole pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The supervisor's own process.
    pub supervisor: SupervisorStatus,
    /// One row per worker, and one per device without any, in device order.
    pub workers: Vec<WorkerStatus>,
    /// The process that watches the GPUs; nothing without any.
    pub monitor: Option<MonitorStatus>,
    /// The process that serves HTTP; nothing without `--http`.
    pub http: Option<HttpStatus>,
    /// The process that takes jobs of a cluster; nothing without `--nats`.
    #[serde(default)]
    pub nats: Option<NatsStatus>,
    /// The process that sends traces; nothing without `--trace`.
    pub tracer: Option<TracerStatus>,
    /// One row per GPU, as the monitor last reported it.
    pub devices: Vec<DeviceStatus>,
    /// One row per quarantined device and role.
    pub quarantines: Vec<QuarantineStatus>,
    /// The full names of the models that it should have, and of those that are being loaded.
    pub models: Vec<String>,
    /// One row per worker that is loading a model.
    pub loads: Vec<LoadStatus>,
    /// One row per model that no device serves, nor is about to.
    pub missing: Vec<MissingModel>,
    /// One row per principal with a connection or jobs, or that had some lately; `others` for all before.
    #[serde(default)]
    pub principals: Vec<PrincipalStatus>,
    /// What is kept of deaths; nothing if nothing is.
    #[serde(default)]
    pub capsules: Option<CapsulesStatus>,
    /// What the pool refuses, because it killed its workers.
    #[serde(default)]
    pub denylist: DenylistStatus,
    /// The queue.
    pub queue: QueueStatus,
    /// Sums since the supervisor started.
    pub counters: Counters,
}

/// The supervisor's own process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SupervisorStatus {
    /// Process id.
    pub pid: u32,
    /// gridpool's version.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// The socket's path.
    pub socket: String,
    /// Whether `/proc/self/maps` shows a CUDA library. Always false, and looked up each time.
    pub cuda_mapped: bool,
    /// Whether it finishes its jobs and accepts no new ones.
    pub draining: bool,
    /// Connections open.
    pub clients: u32,
    /// Bytes of all arenas that are not gone yet, those of clients that have left included.
    pub arena_bytes: u64,
    /// The most they ever were.
    pub arena_bytes_high: u64,
    /// The most bytes that ever waited for one client.
    pub outbox_bytes_high: u64,
    /// Connections and messages refused at the socket, by reason. Jobs that were refused are in `counters`.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
}

/// The device of a worker, as it was configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerDevice {
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// Position among the devices of its kind.
    pub index: u32,
    /// The product's name; empty until a worker has reported it.
    pub name: String,
    /// `GPU-…`; empty on a CPU device.
    pub uuid: String,
}

named! {
    /// What a worker is doing.
    #[derive(Default)]
    pub enum WorkerState {
        /// Waiting for its next start.
        Backoff = "backoff",
        /// Running a job.
        Busy = "busy",
        /// Its device is quarantined.
        Quarantined = "quarantined",
        /// Idle, and ready for a job.
        Ready = "ready",
        /// READY, and ready to take over.
        Standby = "standby",
        /// Started and not yet READY.
        #[default]
        Starting = "starting",
        /// Told to end or killed, and not gone yet.
        Stopping = "stopping",
        /// Ended; it is not started again because the pool drains.
        Stopped = "stopped",
        /// Killed and still there; its device is quarantined.
        Unkillable = "unkillable",
    }
}

impl WorkerState {
    /// Whether its process serves, or would at once.
    #[must_use]
    pub fn serves(self) -> bool {
        match self {
            Self::Busy | Self::Ready | Self::Standby => true,
            Self::Backoff
            | Self::Quarantined
            | Self::Starting
            | Self::Stopping
            | Self::Stopped
            | Self::Unkillable => false,
        }
    }
}

/// One worker, or a device without any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// `cpu0#1`.
    pub name: String,
    /// Process id; 0 where there is no process.
    pub pid: u32,
    /// Its role: `grid` or `infer`.
    pub role: String,
    /// Its group: `grid`, or the name of a group of models, by default that of its only model.
    pub group: String,
    /// The device.
    pub device: WorkerDevice,
    /// What it is doing.
    pub state: WorkerState,
    /// Its number among all processes of its device.
    pub generation: u32,
    /// Attempts answered by it and the workers that it replaced.
    pub jobs_done: u64,
    /// Items of those that got a result. A request of a model is one item.
    pub items_done: u64,
    /// Runs of models in those that were replays of CUDA graphs. A run that requests share counts once.
    pub graph_replays: u64,
    /// Workers that it replaced, one after the other.
    pub restarts: u32,
    /// Those of them of which the pool knows why, by what ended the worker before.
    #[serde(default)]
    pub restart_reasons: BTreeMap<String, u64>,
    /// What ended the last worker that died on its device; empty if none did.
    pub last_fault: String,
    /// From the command to start it to READY; `None` before that.
    pub start_us: Option<u64>,
    /// From the first sign that the worker before it was dying to its end; `None` if there was none.
    pub end_us: Option<u64>,
    /// Bytes of arenas mapped now.
    pub arena_bytes: u64,
    /// Memory that its process holds.
    pub memory: WorkerMemory,
    /// What it runs, if it is busy.
    pub run: Option<RunStatus>,
    /// CPU time of its process, microseconds; 0 without a process.
    pub cpu_us: u64,
    /// Resident host memory of its process, arenas included; 0 without a process.
    pub resident_bytes: u64,
    /// What the kernel reports of its sandbox.
    #[serde(default)]
    pub protections: Protections,
}

/// What a busy worker runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStatus {
    /// The job that it got first: `job17`.
    pub job: String,
    /// The program or the model of that job, cut to [`RUN_TEXT_MAX`] characters; empty if the job already
    /// has its verdict, or is another user's and you are no operator.
    pub what: String,
    /// Jobs that it runs together, including that one.
    pub jobs: u32,
    /// Items of all of them.
    pub items: u64,
    /// Microseconds since it got that job.
    pub for_us: u64,
}

/// Longest text of a program in a status, characters.
pub const RUN_TEXT_MAX: usize = 120;

/// Memory of a worker process beside its arenas, as it last reported, and the most that it ever held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerMemory {
    /// Bytes of buffers on the device.
    pub device_bytes: u64,
    /// The most they ever were.
    pub device_bytes_high: u64,
    /// Bytes of page-locked buffers on the host.
    pub pinned_bytes: u64,
    /// The most they ever were.
    pub pinned_bytes_high: u64,
    /// Bytes of arenas registered with the device's driver.
    pub registered_bytes: u64,
    /// The most they ever were.
    pub registered_bytes_high: u64,
}

/// What a principal has in the pool, and what it has had since the supervisor started: a user of this machine, or
/// a client of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrincipalStatus {
    /// `uid 1000`, `token NAME`, `address ADDRESS`, or `others`.
    pub principal: String,
    /// The user's name; empty without one.
    pub name: String,
    /// Connections to the pool's socket.
    pub connections: u32,
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that run, and of which no part waits.
    pub running: u64,
    /// Jobs with a verdict.
    pub done: u64,
    /// Submissions refused.
    pub refused: u64,
    /// Bytes of the inputs and results of jobs without a verdict.
    pub bytes: u64,
    /// Shared memory.
    pub arena_bytes: u64,
    /// Seconds that workers have spent on its jobs. Jobs that run together share them by their cost.
    pub device_s: f64,
    /// Workers that it may still cost before its jobs are refused; `None` for `others`.
    pub kills_left: Option<u32>,
    /// Its quota, as the config writes it; empty without one.
    pub quota: String,
}

/// A quarantined device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineStatus {
    /// `gpu0`.
    pub device: String,
    /// The role: `grid` or `infer`.
    pub role: String,
    /// The group: `grid`, or the name of a group of models.
    pub group: String,
    /// The fault that it was last quarantined for.
    pub why: String,
    /// Microseconds until the next probe; `None` if there is none before an operator releases the device.
    pub tried_in_us: Option<u64>,
}

/// The process that watches the GPUs through NVML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorStatus {
    /// Process id; 0 where there is no process.
    pub pid: u32,
    /// Whether it sends heartbeats.
    pub up: bool,
    /// Processes started after the first.
    pub restarts: u32,
    /// What the kernel reports of its sandbox.
    #[serde(default)]
    pub protections: Protections,
}

/// The process that serves HTTP and gRPC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpStatus {
    /// Where it serves HTTP: `127.0.0.1:8000`, or `unix:` and the path of a socket; empty if it does not.
    pub address: String,
    /// Where it serves gRPC, in the same form; empty if it does not.
    #[serde(default)]
    pub grpc: String,
    /// Whether both are served over TLS.
    pub tls: bool,
    /// Process id; 0 where there is no process.
    pub pid: u32,
    /// Whether it sends heartbeats.
    pub up: bool,
    /// Processes started after the first.
    pub restarts: u32,
    /// What the kernel reports of its sandbox.
    #[serde(default)]
    pub protections: Protections,
}

impl HttpStatus {
    /// The addresses as a person writes them: `http://127.0.0.1:8000 and grpc://127.0.0.1:8001`, or
    /// `unix:/run/pool.sock`.
    #[must_use]
    pub fn url(&self) -> String {
        let schemes = if self.tls { ["https", "grpcs"] } else { ["http", "grpc"] };
        let url = |(address, scheme): (&String, &str)| match address.starts_with("unix:") {
            true => address.clone(),
            false => format!("{scheme}://{address}"),
        };
        let addresses = [&self.address, &self.grpc].into_iter().zip(schemes);
        let urls = addresses.filter(|(address, _)| !address.is_empty()).map(url);
        urls.collect::<Vec<_>>().join(" and ")
    }
}

/// What the monitor last reported of a GPU; zeros before its first report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// `gpu0`.
    pub name: String,
    /// `GPU-…`.
    pub uuid: String,
    /// Bytes in use, by all processes.
    pub memory_used: u64,
    /// Bytes of the device.
    pub memory_total: u64,
    /// Share of the last moments in which anything ran on it; `None` if NVML does not report it.
    pub busy_percent: Option<u32>,
    /// Power draw, milliwatts; `None` if NVML does not report it.
    pub power_mw: Option<u32>,
    /// Processes with a context, as NVML numbers them.
    pub processes: Vec<u32>,
    /// NVML's recovery action; see `gridpool status --policy`.
    pub recovery: Option<u32>,
    /// The last Xid since the pool started.
    pub last_xid: Option<u32>,
    /// How many there were.
    pub xids: u64,
    /// NVML's error, if its last call failed.
    pub nvml_error: Option<u32>,
}

/// What the pool does about one fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// As in the config file: `cuda 700`; or `other cuda` for every number without a row.
    pub fault: String,
    /// Its name where it comes from, or an empty text.
    pub name: String,
    /// What kind it is.
    pub class: FaultClass,
    /// What is done.
    pub response: Response,
    /// Whether the config says so; else it is the default.
    pub configured: bool,
    /// What the fault says.
    pub meaning: String,
}

/// Sums since the supervisor started. `accepted` is the sum of the six verdicts and of the jobs that
/// have none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Jobs accepted.
    pub accepted: u64,
    /// Verdicts OK.
    pub ok: u64,
    /// Verdicts FAILED.
    pub failed: u64,
    /// Verdicts DEADLINE.
    pub deadline: u64,
    /// Verdicts POISON.
    pub poison: u64,
    /// Verdicts CANCELLED, those of vanished clients included.
    pub cancelled: u64,
    /// Verdicts DEVICE_LOST.
    pub device_lost: u64,
    /// Submissions refused as BUSY.
    pub refused_busy: u64,
    /// Submissions refused because their content is denylisted.
    pub refused_poison: u64,
    /// Times that a device was quarantined.
    #[serde(default)]
    pub quarantines: u64,
    /// Attempts started.
    pub attempts: u64,
    /// Dispatches: messages that send attempts to a worker.
    pub runs: u64,
    /// Attempts that were dispatched together with another job's.
    pub joined: u64,
    /// Workers started to replace another.
    pub restarts: u64,
    /// Messages that arrived too late and were dropped.
    pub stale: u64,
}

impl Counters {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            ok: self.ok + other.ok,
            failed: self.failed + other.failed,
            deadline: self.deadline + other.deadline,
            poison: self.poison + other.poison,
            cancelled: self.cancelled + other.cancelled,
            device_lost: self.device_lost + other.device_lost,
            refused_busy: self.refused_busy + other.refused_busy,
            refused_poison: self.refused_poison + other.refused_poison,
            quarantines: self.quarantines + other.quarantines,
            attempts: self.attempts + other.attempts,
            runs: self.runs + other.runs,
            joined: self.joined + other.joined,
            restarts: self.restarts + other.restarts,
            stale: self.stale + other.stale,
        }
    }

    /// How many verdicts of each kind were given.
    #[must_use]
    pub fn verdicts(&self) -> [(Verdict, u64); 6] {
        [
            (Verdict::Ok, self.ok),
            (Verdict::Failed, self.failed),
            (Verdict::Deadline, self.deadline),
            (Verdict::Poison, self.poison),
            (Verdict::DeviceLost, self.device_lost),
            (Verdict::Cancelled, self.cancelled),
        ]
    }
}
