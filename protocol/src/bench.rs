//! What `gridpool bench` and the processes that measure for it say to each other: a plan to one, and
//! from one a line of JSON for each thing that it does. [`Row`] is also a row of `--json`; field names
//! are part of the interface.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{DeviceId, DeviceKind};
use crate::tensor::model::ProviderNodes;
use crate::tensor::options::ModelPlan;

/// What a measuring process is to do, as JSON after `--plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What is measured.
    pub subject: Subject,
    /// Only programs whose name contains one of these; all if there is none.
    pub ops: Vec<String>,
    /// Items of one job.
    pub batches: Vec<u32>,
    /// Timed repetitions of each row.
    pub repetitions: u32,
    /// Fewer programs and shorter repetitions.
    pub quick: bool,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// The reference library in the measuring process, on all cores.
    Library,
    /// A model, called directly in the measuring process and through a pool that serves it, in turns.
    Model(Box<ModelSubject>),
    /// A pool, through its socket.
    Pool {
        /// The pool's socket.
        socket: PathBuf,
        /// Its devices.
        devices: u32,
        /// What they are: a receipt that names another kind is a fault.
        kind: DeviceKind,
        /// Which rows are wanted.
        rows: PoolRows,
    },
    /// The kernels of one GPU over data that lies on it.
    Resident {
        /// NVML's index.
        index: u32,
        /// `GPU-…`.
        uuid: String,
    },
}

/// A model to be measured, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSubject {
    /// The socket of the pool that serves it.
    pub socket: PathBuf,
    /// The pool's only device, on which the measuring process loads it too.
    pub device: DeviceId,
    /// `GPU-…`; empty on a CPU device.
    pub uuid: String,
    /// Threads of a CPU device.
    pub threads: usize,
    /// ONNX Runtime's library, if it is named.
    pub onnxruntime: Option<PathBuf>,
    /// The model, as the pool's workers load it.
    pub model: ModelPlan,
}

/// Which rows of a pool are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolRows {
    /// Every batch size, latencies, and the cost of scheduling.
    All,
    /// Large batches alone, to see how they scale over devices.
    Large,
    /// One rate for each program, to compare with the library.
    Native,
    /// How long it takes from the death of a worker to the next right answer. The pool allows chaos.
    Recovery {
        /// Processes that stand by on every device.
        standbys: u32,
        /// Workers killed for a row.
        kills: u32,
    },
}

/// One line from a measuring process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Line {
    /// What it begins to do, for the one who waits.
    Doing(String),
    /// What it has measured.
    Row(Box<Row>),
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// What the machine can do: copies, and one launch there and back.
    Limits,
    /// The same ops by the CPU's cores, without a GPU.
    Native,
    /// One job at a time, from a client's call to its answer.
    Latency,
    /// Requests of a model under way all the time, directly and through a pool.
    Models,
    /// One request of a model at a time, directly and through a pool.
    ModelLatency,
    /// Jobs under way all the time, client memory to client memory.
    EndToEnd,
    /// From the death of a worker, or the deadline of an endless job, to the next right answer.
    Recovery,
    /// What the pool adds to each item of a program that does nothing.
    Scheduling,
    /// Kernels alone, over data that lies on the device.
    Resident,
}

/// What grids a row works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Workload {
    /// Ragged, like the grids of ARC tasks, 169 cells on average; or those of the tasks that
    /// `GRIDPOOL_ARC` names.
    #[serde(rename = "arc")]
    Arc,
    /// Random grids of 30 x 30.
    #[serde(rename = "30x30")]
    Square,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arc => "arc",
            Self::Square => "30x30",
        })
    }
}

/// What a row's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Bytes in a second.
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
    /// Items in a second.
    #[serde(rename = "items/s")]
    ItemsPerSecond,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Nanoseconds for each item.
    #[serde(rename = "ns/item")]
    NanosecondsPerItem,
}

/// The repetitions of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// How many there were.
    pub repetitions: u32,
}

impl Spread {
    /// Of `values`; `None` if there is none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        let repetitions = u32::try_from(values.len()).unwrap_or(u32::MAX);
        Some(Self { median, min, max, repetitions })
    }
}

/// How long single jobs took, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Jobs measured.
    pub jobs: u32,
    /// Half of them took no longer.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Where the time of the middle half of the jobs went; it adds up to their mean.
    pub hops: Option<Hops>,
}

/// Where a job's time went, microseconds, from its receipt and its client's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hops {
    /// Client library and socket, there and back: what the supervisor does not see.
    pub client_us: f64,
    /// In the core's queue, from acceptance to dispatch.
    pub queue_us: f64,
    /// The channel to the worker, there and back, and the supervisor's own work.
    pub channel_us: f64,
    /// In the worker, but for the kernels: decoding, copies, launching, waiting.
    pub worker_us: f64,
    /// The kernels, by the device's own clock.
    pub device_us: f64,
}

/// What the receipts of the timed jobs say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The workers that ran them.
    pub workers: Vec<String>,
    /// The device of each worker: kind, name and UUID.
    pub devices: Vec<String>,
    /// Jobs.
    pub jobs: u64,
    /// Launches by kernel, in order of the first; a launch that several jobs joined counts once.
    pub kernels: Vec<Launches>,
    /// Launches that the supervisor ordered meanwhile.
    pub runs: u64,
    /// Bytes copied to the devices.
    pub h2d_bytes: u64,
    /// Bytes copied back.
    pub d2h_bytes: u64,
    /// Buffers made or enlarged and arenas registered; 0 in the steady state.
    pub allocations: u64,
    /// Items with an error in place of a result.
    pub item_errors: u64,
    /// Of a model: which provider ran how many nodes, in each run.
    pub nodes: Vec<ProviderNodes>,
}

/// How often a kernel was launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launches {
    /// The kernel; on a CPU device the reference function.
    pub name: String,
    /// Its launches.
    pub launches: u64,
}

/// One measurement. What does not apply is absent: `null` in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is about.
    pub section: Section,
    /// What was measured: a program's or a model's name, or which limit.
    pub name: String,
    /// The program.
    pub program: Option<String>,
    /// By what: `library`, `cpu:1 pool`, `pool`, `direct`, or a device's name.
    pub runner: String,
    /// On which grids.
    pub workload: Option<Workload>,
    /// Items of one job.
    pub batch: Option<u32>,
    /// Jobs under way at a time.
    pub jobs: Option<u32>,
    /// Devices at work.
    pub devices: u32,
    /// Contexts of a model: how many runs of it may be under way at once.
    pub contexts: Option<u32>,
    /// Most rows of one run of a model; 1 where its requests are not joined.
    pub max_batch: Option<u32>,
    /// What `value` counts.
    pub unit: Unit,
    /// The measurement; absent where it was skipped, or the results were wrong.
    pub value: Option<Spread>,
    /// Bytes moved for each item, both ways together.
    pub bytes_per_item: Option<f64>,
    /// The rate over the better native rate of the same program on such grids.
    pub to_native: Option<f64>,
    /// Bytes moved in a second over what these devices copy both ways at once.
    pub of_limit: Option<f64>,
    /// A pool's rate of a model over the better direct rate with as many contexts.
    pub to_direct: Option<f64>,
    /// The rate of a model over that of the same runner with one context.
    pub to_one_context: Option<f64>,
    /// Times of single jobs.
    pub latency: Option<Latency>,
    /// Where it ran.
    pub proof: Option<Proof>,
    /// Why it was not measured.
    pub skipped: Option<String>,
    /// What was wrong: results that differ from the reference's, or a device that did no work.
    pub fault: Option<String>,
}

impl Row {
    /// A row without a measurement.
    #[must_use]
    pub fn new(section: Section, name: &str, runner: &str, unit: Unit) -> Self {
        Self {
            section,
            name: name.to_owned(),
            program: None,
            runner: runner.to_owned(),
            workload: None,
            batch: None,
            jobs: None,
            devices: 1,
            contexts: None,
            max_batch: None,
            unit,
            value: None,
            bytes_per_item: None,
            to_native: None,
            of_limit: None,
            to_direct: None,
            to_one_context: None,
            latency: None,
            proof: None,
            skipped: None,
            fault: None,
        }
    }

    /// The same with a sentence in the place of a measurement.
    #[must_use]
    pub fn wrong(self, fault: String) -> Self {
        Self { value: None, latency: None, fault: Some(fault), ..self }
    }
}

/// What a process that measures limits is told on its standard input, one JSON text a line. It
/// answers each with one [`Measured`], so that several start together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Copies to the device; on a CPU, memory by one thread.
    In,
    /// Copies from the device; on a CPU, memory by all threads.
    Out,
    /// Both at once.
    Both,
    /// One grid there and back, with one launch between.
    RoundTrip,
}

/// The answer to a [`Measure`], and the greeting before the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The device, as it found itself.
    pub device: String,
    /// The driver's version; empty on a CPU.
    pub driver: String,
    /// Bytes in a second, one number for each repetition.
    pub bytes_per_second: Vec<f64>,
    /// Of a round trip.
    pub latency: Option<Latency>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_of_its_values() {
        assert_eq!(Spread::of(Vec::new()), None);
        let of = |values: &[f64]| Spread::of(values.to_vec()).unwrap();
        assert_eq!(
            of(&[3.0, 1.0, 2.0]),
            Spread { median: 2.0, min: 1.0, max: 3.0, repetitions: 3 }
        );
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn a_wrong_row_has_no_rate() {
        let mut row = Row::new(Section::EndToEnd, "rot90", "pool", Unit::ItemsPerSecond);
        row.value = Spread::of(vec![1.0]);
        let row = row.wrong("item 3 differs".to_owned());
        assert_eq!((row.value, row.latency), (None, None));
        assert!(row.fault.is_some());
    }
}
