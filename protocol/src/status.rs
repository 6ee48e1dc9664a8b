//! What `gridpool status` shows. Serialises to its JSON; fields may be added, none renamed.

use serde::{Deserialize, Serialize};

use crate::fault::{FaultClass, Response};
use crate::ids::DeviceKind;
use crate::receipt::Verdict;

/// The whole pool at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The supervisor's own process.
    pub supervisor: SupervisorStatus,
    /// One row per worker slot, in device order.
    pub workers: Vec<WorkerStatus>,
    /// The process that watches the GPUs; nothing without any.
    pub monitor: Option<MonitorStatus>,
    /// The process that serves HTTP; nothing without `--http`.
    pub http: Option<HttpStatus>,
    /// One row per GPU, as the monitor said last.
    pub devices: Vec<DeviceStatus>,
    /// One row per device that is out of service.
    pub quarantines: Vec<QuarantineStatus>,
    /// What waits.
    pub queue: QueueStatus,
    /// Sums since the supervisor started.
    pub counters: Counters,
}

/// The supervisor's own process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Whether it is finishing what it has and accepts nothing new.
    pub draining: bool,
    /// Connections open.
    pub clients: u32,
    /// Bytes of all arenas.
    pub arena_bytes: u64,
    /// The most they ever were.
    pub arena_bytes_high: u64,
    /// The most bytes that ever waited for one client to read them.
    pub outbox_bytes_high: u64,
}

/// The device of a worker slot, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotDevice {
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// Position among the devices of its kind.
    pub index: u32,
    /// The product's name; empty until a worker has said it.
    pub name: String,
    /// `GPU-…`; empty on a CPU device.
    pub uuid: String,
}

/// What a worker slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// Waiting for the next start.
    Backoff,
    /// Running a job.
    Busy,
    /// Out of service: it died too often without doing any work.
    Quarantined,
    /// Idle, and ready for a job.
    Ready,
    /// READY, and waiting to take over.
    Standby,
    /// Started and not yet READY.
    Starting,
    /// Told to end, or killed, and not yet gone.
    Stopping,
    /// Ended, and not started again because the pool drains.
    Stopped,
    /// Killed and still there; its device is out of service.
    Unkillable,
}

impl WorkerState {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Backoff,
        Self::Busy,
        Self::Quarantined,
        Self::Ready,
        Self::Standby,
        Self::Starting,
        Self::Stopping,
        Self::Stopped,
        Self::Unkillable,
    ];

    /// As JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::Busy => "busy",
            Self::Quarantined => "quarantined",
            Self::Ready => "ready",
            Self::Standby => "standby",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Unkillable => "unkillable",
        }
    }
}

/// One worker process, or a device without any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// `cpu0#1`.
    pub name: String,
    /// Process id; 0 where there is no process.
    pub pid: u32,
    /// What it is for: `grid`.
    pub role: String,
    /// The device.
    pub device: SlotDevice,
    /// What it is doing.
    pub state: WorkerState,
    /// Its number among all processes of its device.
    pub generation: u32,
    /// Jobs answered by it and those that were in its place before.
    pub jobs_done: u64,
    /// Items of those that it gave a result for; a request of a model is one.
    pub items_done: u64,
    /// Processes that were in its place before.
    pub restarts: u32,
    /// What ended the process of its device that died last, or an empty text.
    pub last_fault: String,
    /// From the order to start it to READY; `None` before that.
    pub start_us: Option<u64>,
    /// From the first sign that the process before it was dying to its end; `None` if there was none.
    pub end_us: Option<u64>,
    /// Bytes of arenas mapped now.
    pub arena_bytes: u64,
    /// What its process holds.
    pub memory: WorkerMemory,
    /// What it has in hand, if it is busy.
    pub run: Option<RunStatus>,
    /// Time that its process has had on CPUs, microseconds; 0 where there is no process.
    pub cpu_us: u64,
    /// Memory of the host that its process holds, arenas included; 0 where there is no process.
    pub resident_bytes: u64,
}

/// What a busy worker has in hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStatus {
    /// The job that it has had longest: `job17`.
    pub job: String,
    /// The program or the model of that, cut to [`RUN_TEXT_MAX`] characters; empty if the job has its
    /// verdict already.
    pub what: String,
    /// Jobs that it runs together, that one included.
    pub jobs: u32,
    /// Items of all of them.
    pub items: u64,
    /// Microseconds since it was sent that one.
    pub for_us: u64,
}

/// Longest text of a program in a status, characters.
pub const RUN_TEXT_MAX: usize = 120;

/// What a worker process holds beside its arenas, as it said last, and the most it ever held.
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

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Jobs.
    pub jobs: u64,
    /// The most that ever waited.
    pub jobs_high: u64,
    /// Inline payload of all jobs without a verdict.
    pub bytes: u64,
    /// The most it ever was.
    pub bytes_high: u64,
    /// Microseconds since the oldest job that waits was accepted; `None` if none waits.
    pub oldest_us: Option<u64>,
}

/// A device out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineStatus {
    /// `gpu0`.
    pub device: String,
    /// For which workers: `grid` or `infer`.
    pub role: String,
    /// The fault that it was last put out for.
    pub why: String,
    /// Microseconds until it is tried again; `None` if that is not before somebody releases it.
    pub tried_in_us: Option<u64>,
}

/// The process that watches the GPUs through NVML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorStatus {
    /// Process id; 0 where there is no process.
    pub pid: u32,
    /// Whether it has given a sign of life.
    pub up: bool,
    /// Processes started after the first.
    pub restarts: u32,
}

/// The process that serves HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpStatus {
    /// Where it listens: `127.0.0.1:8000`.
    pub address: String,
    /// Process id; 0 where there is no process.
    pub pid: u32,
    /// Whether it has given a sign of life.
    pub up: bool,
    /// Processes started after the first.
    pub restarts: u32,
}

/// What the monitor said last of a GPU; zeros if it has said nothing yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// `gpu0`.
    pub name: String,
    /// `GPU-…`.
    pub uuid: String,
    /// Bytes in use, whoever uses them.
    pub memory_used: u64,
    /// Bytes of the device.
    pub memory_total: u64,
    /// Share of the last moments in which anything ran on it, whoever ran that; `None` where NVML does
    /// not say.
    pub busy_percent: Option<u32>,
    /// What it draws, milliwatts; `None` where NVML does not say.
    pub power_mw: Option<u32>,
    /// Processes with a context, as NVML numbers them.
    pub processes: Vec<u32>,
    /// NVML's recovery action; see `gridpool status --policy`.
    pub recovery: Option<u32>,
    /// The last Xid since the pool started.
    pub last_xid: Option<u32>,
    /// How many there were.
    pub xids: u64,
    /// What NVML returned instead of an answer, if it does now.
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
    /// Submissions refused because a job of that content was convicted.
    pub refused_poison: u64,
    /// Times that a device was put out of service.
    #[serde(default)]
    pub quarantines: u64,
    /// Attempts begun.
    pub attempts: u64,
    /// Launches ordered; each of one attempt or of several that were joined.
    pub runs: u64,
    /// Attempts that shared a launch with another job's.
    pub joined: u64,
    /// Processes started after the first of their device.
    pub restarts: u64,
    /// Messages of processes that are gone, dropped.
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
