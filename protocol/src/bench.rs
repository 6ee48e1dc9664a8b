//! The messages between `gridpool bench` and its measuring processes: each process gets a plan and writes a
//! line of JSON for each step and result. [`Row`] is also a row of `--json`, so its field names are part of
//! the interface.

mod model;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::DeviceKind;
use crate::named::named;
use crate::tensor::model::ProviderNodes;

pub use model::{ModelSubject, step_model};

/// The task of a measuring process, as JSON after `--plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What is measured.
    pub subject: Subject,
    /// Measure only programs whose name contains one of these; all if the list is empty.
    pub ops: Vec<String>,
    /// Items of one job.
    pub batches: Vec<u32>,
    /// Timed repetitions of each row.
    pub repetitions: u32,
    /// Fewer programs and shorter repetitions.
    pub quick: bool,
    /// A file with a [`SolverTask`] in each line: these are measured in place of other programs.
    pub solvers: Option<PathBuf>,
}

/// A solver, and the grids that are copied for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SolverTask {
    /// Its task's name.
    pub name: String,
    /// Its program.
    pub text: String,
    /// The task's inputs, rows of colours.
    pub inputs: Vec<Vec<Vec<u8>>>,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// The reference library in the measuring process, on all cores.
    Library,
    /// A model of a pool, while [its neighbour](ModelSubject::neighbour) is in trouble.
    Isolation(Box<ModelSubject>),
    /// A model, alternately called in the measuring process and through a pool.
    Model(Box<ModelSubject>),
    /// A pool, through its socket.
    Pool {
        /// The pool's socket.
        socket: PathBuf,
        /// Its devices.
        devices: u32,
        /// The kind of its devices. A receipt that names another kind is an error.
        kind: DeviceKind,
        /// Which rows are wanted.
        rows: PoolRows,
    },
    /// The kernels of one GPU, over data in its memory.
    Resident {
        /// NVML's index.
        index: u32,
        /// `GPU-…`.
        uuid: String,
    },
}

/// Which rows of a pool are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolRows {
    /// Every batch size, latencies, and the cost of scheduling.
    All,
    /// Only large batches, to measure scaling over devices.
    Large,
    /// One rate for each program, to compare with the library.
    Native,
    /// The time from the death of a worker to the next right answer. The pool must allow chaos.
    Recovery {
        /// Standby processes on each device.
        standbys: u32,
        /// Workers to kill for a row.
        kills: u32,
    },
    /// Searches, from texts to verdicts.
    Search,
}

/// One line from a measuring process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Line {
    /// The step that begins, to show progress.
    Doing(String),
    /// A result.
    Row(Box<Row>),
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Limits of the machine: copies, and one launch there and back.
    Limits,
    /// The same ops by the CPU's cores, without a GPU.
    Native,
    /// One job at a time, from a client's call to its answer.
    Latency,
    /// Requests of a model, several in flight, directly and through a pool.
    Models,
    /// One request of a model at a time, while another model on the same device is in trouble.
    Isolation,
    /// One request of a model at a time, directly and through a pool.
    ModelLatency,
    /// Jobs, several in flight, from client memory to client memory.
    EndToEnd,
    /// From the death of a worker, or the deadline of an endless job, to the next right answer.
    Recovery,
    /// The pool's overhead for each item of a program that does nothing.
    Scheduling,
    /// Kernels alone, over data in device memory.
    Resident,
    /// Searches: programs evaluated on pairs, of which only verdicts come back.
    Search,
}

named! {
    /// The grids of a row.
    pub enum Workload {
        /// Ragged grids like those of ARC tasks, 169 cells on average; or the grids of the tasks that
        /// `GRIDPOOL_ARC` names.
        Arc = "arc",
        /// Random grids of 30 x 30.
        Square = "30x30",
    }
}

named! {
    /// The unit of a row's value.
    pub enum Unit {
        /// Bytes in a second.
        BytesPerSecond = "bytes/s",
        /// Items in a second.
        ItemsPerSecond = "items/s",
        /// Microseconds.
        Microseconds = "us",
        /// Nanoseconds for each item.
        NanosecondsPerItem = "ns/item",
    }
}

/// The repetitions of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// Their number.
    pub repetitions: u32,
}

impl Spread {
    /// Summarizes `values`; `None` if there are none.
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

/// The latencies of single jobs, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Jobs measured.
    pub jobs: u32,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The time of the middle half of the jobs by station. It adds up to their mean.
    pub hops: Option<Hops>,
}

/// A job's time by station, microseconds, from its receipt and its client's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hops {
    /// In the client library and the socket, both ways.
    pub client_us: f64,
    /// In the core's queue, from acceptance to dispatch.
    pub queue_us: f64,
    /// In the channel to the worker, both ways, and in the supervisor.
    pub channel_us: f64,
    /// In the worker without the kernels: decoding, copies, launching, waiting.
    pub worker_us: f64,
    /// In the kernels, by the device's clock.
    pub device_us: f64,
}

/// The sum of the receipts of the timed jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The workers that ran them.
    pub workers: Vec<String>,
    /// The device of each worker: kind, name and UUID.
    pub devices: Vec<String>,
    /// Jobs.
    pub jobs: u64,
    /// Launches by kernel, in the order of first use. A launch that several jobs share counts once.
    pub kernels: Vec<Launches>,
    /// Dispatches that the supervisor sent meanwhile.
    pub runs: u64,
    /// Bytes copied to the devices.
    pub h2d_bytes: u64,
    /// Bytes copied back.
    pub d2h_bytes: u64,
    /// Buffers made or enlarged and arenas registered; 0 in the steady state.
    pub allocations: u64,
    /// Items with an error in place of a result.
    pub item_errors: u64,
    /// For a model, the number of nodes that each provider ran, in each run.
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

/// One measurement. A field that does not apply is `null` in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The group of measurements.
    pub section: Section,
    /// The name of the program, model or limit.
    pub name: String,
    /// The program.
    pub program: Option<String>,
    /// What ran it: `library`, `cpu:1 pool`, `pool`, `direct`, or a device's name. In a row of isolation, the model.
    pub runner: String,
    /// The grids; absent for a solver, which has copies of its own task's.
    pub workload: Option<Workload>,
    /// Items of one job.
    pub batch: Option<u32>,
    /// Jobs in flight. In a row of isolation, how often the neighbour was in trouble.
    pub jobs: Option<u32>,
    /// Devices at work.
    pub devices: u32,
    /// Contexts of a model: the number of its runs that may overlap.
    pub contexts: Option<u32>,
    /// The largest number of rows in one run of a model; 1 if its requests are not joined.
    pub max_batch: Option<u32>,
    /// The unit of `value`.
    pub unit: Unit,
    /// The measurement; absent if it was skipped or the results were wrong.
    pub value: Option<Spread>,
    /// Bytes moved for each item, both ways together.
    pub bytes_per_item: Option<f64>,
    /// The rate divided by the better native rate of the program on such grids.
    pub to_native: Option<f64>,
    /// Bytes per second, divided by the rate at which these devices copy in both directions at once.
    pub of_limit: Option<f64>,
    /// A pool's rate of a model, divided by the better direct rate with as many contexts.
    pub to_direct: Option<f64>,
    /// The rate of a model, divided by the runner's rate with one context.
    pub to_one_context: Option<f64>,
    /// The longest time beside a neighbour in trouble, divided by the 99th percentile beside an idle one.
    pub to_idle: Option<f64>,
    /// Times of single jobs.
    pub latency: Option<Latency>,
    /// Items of a run of a solver that needed more memory than the first launch gives each.
    pub unfit_items: Option<u64>,
    /// Where it ran.
    pub proof: Option<Proof>,
    /// Why it was not measured.
    pub skipped: Option<String>,
    /// The error: results that differ from the reference's, or a device that did no work.
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
            to_idle: None,
            latency: None,
            unfit_items: None,
            proof: None,
            skipped: None,
            fault: None,
        }
    }

    /// Replaces the measurement with a sentence.
    #[must_use]
    pub fn wrong(self, fault: String) -> Self {
        Self { value: None, latency: None, fault: Some(fault), ..self }
    }
}

/// A request to a process that measures limits, as one line of JSON on its standard input. The process
/// answers each with one [`Measured`]. Several processes can so measure at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Copies to the device; on a CPU, memory by one thread.
    In,
    /// Copies from the device; on a CPU, memory by all threads.
    Out,
    /// Copies in both directions at once.
    Both,
    /// One grid there and back, with one launch between.
    RoundTrip,
}

/// The answer to a [`Measure`], and the first line of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The device, as the process found it.
    pub device: String,
    /// The driver's version; empty on a CPU.
    pub driver: String,
    /// Bytes in a second, one number for each repetition.
    pub bytes_per_second: Vec<f64>,
    /// Times of round trips.
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
