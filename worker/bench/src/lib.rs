//! The measuring side of `gridpool bench`: a process that gets a [`Plan`] and prints a [`Line`] for each
//! step.
//!
//! - `workload` makes the grids, `programs` names what runs over them.
//! - `native` is the reference library on all cores: it is a baseline, and every result is compared with it
//!   before anything is timed. `library` measures it.
//! - `load` keeps jobs in flight in a pool, `evidence` adds up their receipts, `pool` makes rows of them.
//! - `recovery` kills the workers of a pool and measures how soon the next right answer comes.
//! - `search` measures searches, from texts to verdicts; `solvers` measures solvers over copies of their own grids.
//! - `repeat` warms up and repeats; `memory` limits the memory of a row.
//! - `models` sends requests to a model, through the engine in this process and through a pool.
//! - `resident` times the kernels alone. `limits` measures the limits of the hardware, in a process of its own
//!   for each device.
//!
//! This crate does not compare rows: `gridpool bench` does.

mod evidence;
pub mod failure;
mod library;
pub mod limits;
mod load;
pub mod memory;
#[cfg(feature = "infer")]
mod models;
pub mod native;
mod pool;
mod programs;
pub mod random;
mod recovery;
mod repeat;
mod resident;
mod search;
mod solvers;
pub mod workload;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use gridpool_client::ClientError;
use gridpool_protocol::batch::BatchError;
use gridpool_protocol::bench::{Line, Plan, PoolRows, Row, Subject, Workload};
use gridpool_protocol::exit::cli as exit;

use serde::Serialize;

use failure::Failure;
use pool::Pool;
use recovery::Recovery;
use search::Searches;
use workload::{Source, TasksError};

/// The grids that all rows are measured on.
const WORKLOADS: [Workload; 2] = [Workload::Arc, Workload::Square];
/// Most items of the batch for native rates: more items make no core faster.
const NATIVE_ITEMS_MAX: u32 = 50_000;
/// The variable that names a folder of real tasks.
const TASKS: &str = "GRIDPOOL_ARC";

/// Why measuring stopped early.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A batch of bench is not valid.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The pool does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] gridpool_device::fault::Fault),
    /// A device, or the machine, cannot be measured.
    #[error(transparent)]
    Limits(#[from] gridpool_device::cuda::LimitError),
    /// ONNX Runtime is missing or not usable.
    #[cfg(feature = "infer")]
    #[error(transparent)]
    Library(#[from] gridpool_infer::LibraryError),
    /// A model does not answer.
    #[error("{name} cannot be asked: {why}")]
    Model {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// This build has no inference.
    #[error("this gridpool-worker was built without models: build it with the feature `infer`")]
    NoModels,
    /// `--ops` matches no program.
    #[error("--ops {ops}: no program of bench has that in its name: there are {names}")]
    NoProgram {
        /// The text to match.
        ops: String,
        /// The names of all programs.
        names: String,
    },
    /// The plan is not valid.
    #[error("the plan: {0}")]
    Plan(#[source] serde_json::Error),
    /// Standard input or output is closed.
    #[error("standard input or output")]
    Output(#[from] io::Error),
    /// The real grids cannot be read.
    #[error("{0}")]
    Tasks(String),
}

impl BenchError {
    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoProgram { .. } => exit::USAGE,
            Self::Tasks(_) => exit::DATA,
            Self::Model { .. } => exit::UNAVAILABLE,
            #[cfg(feature = "infer")]
            Self::Library(_) => exit::WORKER,
            Self::NoModels => exit::WORKER,
            Self::Batch(_)
            | Self::Client(_)
            | Self::Device(_)
            | Self::Limits(_)
            | Self::Output(_)
            | Self::Plan(_) => exit::INTERNAL,
        }
    }
}

impl From<TasksError> for BenchError {
    fn from(error: TasksError) -> Self {
        Self::Tasks(gridpool_protocol::chain::Chain(&error).to_string())
    }
}

/// Runs the plan and prints a line of JSON for each step.
///
/// # Errors
/// [`BenchError`] at the first failure that prevents further rows; a wrong result is a row.
pub fn run(plan: &str, out: &mut dyn Write) -> Result<(), BenchError> {
    let plan: Plan = serde_json::from_str(plan).map_err(BenchError::Plan)?;
    if let Some(file) = &plan.solvers {
        return solvers::measure(&plan, file, &mut Report { out });
    }
    if programs::chosen(&plan).next().is_none() {
        return Err(BenchError::NoProgram { ops: plan.ops.join(","), names: programs::names() });
    }
    let mut report = Report { out };
    if let Subject::Model(_) | Subject::Isolation(_) = &plan.subject {
        return measure_model(&plan, &mut report);
    }
    let tasks = env::var_os(TASKS).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let source = Source::open(tasks.as_deref())?;
    match &plan.subject {
        Subject::Model(_) | Subject::Isolation(_) => unreachable!("it was measured above"),
        Subject::Library => library::measure(&plan, &source, &mut report),
        Subject::Pool { socket, devices, kind, rows: PoolRows::Recovery { standbys, kills } } => {
            let (devices, kind, standbys, kills) = (*devices, *kind, *standbys, *kills);
            let source = &source;
            Recovery { source, socket, devices, kind, standbys, kills }.measure(&mut report)
        }
        Subject::Pool { socket, devices, kind: _, rows: PoolRows::Search } => {
            let searches = Searches { plan: &plan, source: &source, socket, devices: *devices };
            searches.measure(&mut report)
        }
        Subject::Pool { socket, devices, kind, rows } => {
            let pool =
                Pool { plan: &plan, source: &source, socket, devices: *devices, kind: *kind };
            pool.measure(*rows, &mut report)
        }
        Subject::Resident { index, uuid } => {
            resident::measure(&plan, &source, *index, uuid, &mut report)
        }
    }
}

#[cfg(feature = "infer")]
fn measure_model(plan: &Plan, report: &mut Report<'_>) -> Result<(), BenchError> {
    match &plan.subject {
        Subject::Isolation(subject) => models::isolation::measure(plan, subject, report),
        Subject::Model(subject) => models::measure(plan, subject, report),
        Subject::Library | Subject::Pool { .. } | Subject::Resident { .. } => {
            unreachable!("it measures no model")
        }
    }
}

#[cfg(not(feature = "infer"))]
fn measure_model(_: &Plan, _: &mut Report<'_>) -> Result<(), BenchError> {
    Err(BenchError::NoModels)
}

/// Items of the batch for native rates.
fn native_batch(plan: &Plan) -> u32 {
    let largest = plan.batches.iter().copied().max().unwrap_or(NATIVE_ITEMS_MAX);
    largest.clamp(1, NATIVE_ITEMS_MAX)
}

/// A count as a number to divide by; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
fn count(count: u64) -> f64 {
    count as f64
}

/// Writes the lines.
struct Report<'a> {
    out: &'a mut dyn Write,
}

impl Report<'_> {
    /// Announces the next row.
    fn doing(&mut self, row: &Row) -> Result<(), BenchError> {
        let workload = row.workload.map(|workload| workload.to_string()).unwrap_or_default();
        let batch = row.batch.unwrap_or(1);
        let devices = if row.devices == 1 { "device" } else { "devices" };
        self.line(&Line::Doing(format!(
            "{} on {} {devices}: {}, {workload}, jobs of {batch}",
            row.runner, row.devices, row.name
        )))
    }

    fn row(&mut self, row: Row) -> Result<(), BenchError> {
        self.line(&Line::Row(Box::new(row)))
    }

    /// Reports a row with its measurement, or with the reason why it has none.
    fn measured(&mut self, row: Row, measured: Result<Row, Failure>) -> Result<(), BenchError> {
        match measured {
            Ok(row) => self.row(row),
            Err(Failure::Skipped(why)) => self.row(Row { skipped: Some(why), ..row }),
            Err(Failure::Wrong(fault)) => self.row(row.wrong(fault)),
            Err(Failure::Lost(error)) => Err(error.into()),
        }
    }

    fn line(&mut self, line: &Line) -> Result<(), BenchError> {
        Ok(write_line(self.out, line)?)
    }
}

/// Writes a line of JSON.
///
/// # Errors
/// Those of `out`.
pub fn write_line(out: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(line)?;
    writeln!(out, "{text}")?;
    out.flush()
}
