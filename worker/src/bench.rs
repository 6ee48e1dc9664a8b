//! The measuring side of `gridpool bench`: a process that is given a [`Plan`] and prints a
//! [`Line`] for each thing that it does.
//!
//! - `workload` makes the grids, `programs` names what runs over them.
//! - `native` is the reference library on all cores: a baseline, and what every result is compared with
//!   before anything is timed. `library` measures it.
//! - `load` keeps jobs under way in a pool, `evidence` adds up their receipts, `pool` makes rows of them.
//! - `recovery` kills the workers of a pool and measures how soon the next right answer comes.
//! - `repeat` warms up and repeats; `memory` says what a row may take.
//! - `models` asks a model, by the engine in this process and through a pool.
//! - `resident` times the kernels alone. `limits` measures what the machine can do, in a process of its
//!   own for each device.
//!
//! What a row means in proportion to another is not known here: `gridpool bench` puts them together.

mod evidence;
mod library;
pub mod limits;
pub(crate) mod load;
pub(crate) mod memory;
#[cfg(feature = "infer")]
pub(crate) mod models;
pub(crate) mod native;
mod pool;
mod programs;
mod recovery;
mod repeat;
mod resident;
pub(crate) mod workload;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use gridpool_protocol::batch::BatchError;
use gridpool_protocol::bench::{Line, ModelSubject, Plan, PoolRows, Row, Subject, Workload};
use gridpool_protocol::client::ClientError;
use gridpool_protocol::exit::cli as exit;

use pool::Pool;
use recovery::Recovery;
use workload::{Source, TasksError};

/// The grids that everything is measured on.
const WORKLOADS: [Workload; 2] = [Workload::Arc, Workload::Square];
/// Most items of the batch that native rates are measured with: more make no core faster.
const NATIVE_ITEMS_MAX: u32 = 50_000;
/// The variable that names a folder of real tasks.
const TASKS: &str = "GRIDPOOL_ARC";

/// Why the measuring came to an end before its end.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A batch of bench is no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The pool cannot be talked to.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] crate::fault::Fault),
    /// A device, or the machine, cannot be measured.
    #[error(transparent)]
    Limits(#[from] crate::cuda::LimitError),
    /// ONNX Runtime is not there, or will not do.
    #[cfg(feature = "infer")]
    #[error(transparent)]
    Library(#[from] crate::infer::LibraryError),
    /// A model cannot be asked.
    #[error("{name} cannot be asked: {why}")]
    Model {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// This build knows no models.
    #[error("this gridpool-worker was built without models: build it with the feature `infer`")]
    NoModels,
    /// No program has such a name.
    #[error("--ops {ops}: no program of bench has that in its name: there are {names}")]
    NoProgram {
        /// What was asked for.
        ops: String,
        /// What there is.
        names: String,
    },
    /// What it is told is no plan.
    #[error("the plan: {0}")]
    Plan(#[source] serde_json::Error),
    /// Nobody reads, or nobody says what to measure.
    #[error("standard input or output")]
    Output(#[from] io::Error),
    /// The real grids cannot be had.
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

/// Does what the plan says, a line of JSON for each step.
///
/// # Errors
/// [`BenchError`] at the first thing that keeps it from going on; a wrong result is a row.
pub fn run(plan: &str, out: &mut dyn Write) -> Result<(), BenchError> {
    let plan: Plan = serde_json::from_str(plan).map_err(BenchError::Plan)?;
    if programs::chosen(&plan).next().is_none() {
        return Err(BenchError::NoProgram { ops: plan.ops.join(","), names: programs::names() });
    }
    let mut report = Report { out };
    if let Subject::Model(subject) = &plan.subject {
        return measure_model(&plan, subject, &mut report);
    }
    let tasks = env::var_os(TASKS).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let source = Source::open(tasks.as_deref())?;
    match &plan.subject {
        Subject::Model(_) => unreachable!("it was measured above"),
        Subject::Library => library::measure(&plan, &source, &mut report),
        Subject::Pool { socket, devices, kind, rows: PoolRows::Recovery { standbys, kills } } => {
            let (devices, kind, standbys, kills) = (*devices, *kind, *standbys, *kills);
            let source = &source;
            Recovery { source, socket, devices, kind, standbys, kills }.measure(&mut report)
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
fn measure_model(
    plan: &Plan,
    subject: &ModelSubject,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    models::measure(plan, subject, report)
}

#[cfg(not(feature = "infer"))]
fn measure_model(_: &Plan, _: &ModelSubject, _: &mut Report<'_>) -> Result<(), BenchError> {
    Err(BenchError::NoModels)
}

/// Items of the batch that native rates are measured with.
fn native_batch(plan: &Plan) -> u32 {
    let largest = plan.batches.iter().copied().max().unwrap_or(NATIVE_ITEMS_MAX);
    largest.clamp(1, NATIVE_ITEMS_MAX)
}

/// A count as a number to divide by; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
fn count(count: u64) -> f64 {
    count as f64
}

/// Where the lines go.
struct Report<'a> {
    out: &'a mut dyn Write,
}

impl Report<'_> {
    /// Says which row comes next.
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

    fn line(&mut self, line: &Line) -> Result<(), BenchError> {
        let text = serde_json::to_string(line).map_err(io::Error::other)?;
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }
}
