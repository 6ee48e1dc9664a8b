//! Solvers, each over copies of its own task's inputs: by the reference on all cores, through a pool, and the kernels
//! alone, as the plan's subject says.
//!
//! The reference runs each input once. Before a rate is printed, the result of each copy is compared with it.

use std::fs;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gridpool_client::{Answer, Client, Handle, Job, Outputs};
use gridpool_device::cuda::CudaDevice;
use gridpool_device::device::Device;
use gridpool_device::fault::Fault;
use gridpool_ipc::clock;
use gridpool_kernels::reference;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::bench::{Plan, Row, Section, SolverTask, Spread, Subject, Unit};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::{Program, Ties};
use rayon::prelude::*;

use super::evidence::Evidence;
use super::failure::Failure;
use super::native::Library;
use super::repeat::timed;
use super::{BenchError, Report, count, memory, resident};

/// How long the repetitions of a row take together, in a full and in a quick run. There is one at least.
const ROW: Duration = Duration::from_millis(100);
const ROW_QUICK: Duration = Duration::from_millis(10);
/// Jobs in flight.
const JOBS: u32 = 4;
/// The deadline of a job: the slowest solvers take long on few cores.
const DEADLINE: Duration = Duration::from_secs(600);

/// Measures the solvers of a file.
pub(super) fn measure(plan: &Plan, file: &Path, report: &mut Report<'_>) -> Result<(), BenchError> {
    let unreadable = |why: String| BenchError::Tasks(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    let mut runner = Runner::open(&plan.subject)?;
    for line in text.lines() {
        let task: SolverTask = serde_json::from_str(line).map_err(BenchError::Plan)?;
        let row = runner.row(plan, &task.name);
        report.doing(&row)?;
        let items = row.batch.unwrap_or(1);
        let case = Case::new(task, items).map_err(Ended::Row);
        let measured = case.and_then(|case| match &mut runner {
            Runner::Library => Ok(case.by_library(plan, row.clone())?),
            Runner::Pool { client, kind, .. } => {
                Ok(case.by_pool(plan, client, *kind, row.clone())?)
            }
            Runner::Resident(device) => case.by_kernels(plan, device, row.clone()),
        });
        let measured = match measured {
            Err(Ended::Device(fault)) => return Err(fault.into()),
            Err(Ended::Row(failure)) => Err(failure),
            Ok(row) => Ok(row),
        };
        report.measured(row, measured)?;
    }
    Ok(())
}

/// Why a row is not measured.
enum Ended {
    /// The device cannot be used any more.
    Device(Fault),
    Row(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Row(failure)
    }
}

/// What runs the solvers.
enum Runner {
    Library,
    Pool { client: Box<Client>, kind: DeviceKind, devices: u32 },
    Resident(Box<CudaDevice>),
}

impl Runner {
    fn open(subject: &Subject) -> Result<Self, BenchError> {
        match subject {
            Subject::Library => Ok(Self::Library),
            Subject::Pool { socket, devices, kind, rows: _ } => {
                let client = Box::new(Client::connect(socket)?);
                Ok(Self::Pool { client, kind: *kind, devices: *devices })
            }
            Subject::Resident { index, uuid } => {
                Ok(Self::Resident(Box::new(CudaDevice::open(*index, Some(uuid))?)))
            }
            Subject::Isolation(_) | Subject::Model(_) => unreachable!("it measures no programs"),
        }
    }

    /// A row without a measurement.
    fn row(&self, plan: &Plan, name: &str) -> Row {
        let (section, runner, devices, jobs) = match self {
            Self::Library => (Section::Native, "library", 1, None),
            Self::Pool { devices, .. } => (Section::EndToEnd, "pool", *devices, Some(JOBS)),
            Self::Resident(device) => (Section::Resident, &*device.info().name, 1, None),
        };
        Row {
            batch: plan.batches.first().copied(),
            devices,
            jobs,
            ..Row::new(section, name, runner, Unit::ItemsPerSecond)
        }
    }
}

/// A solver, copies of its task's inputs, and what it gives for each input.
struct Case {
    program: Program,
    inputs: Vec<Grid>,
    items: u32,
    want: Outputs,
    /// How long the reference took for all inputs, on one core.
    took: Duration,
}

impl Case {
    fn new(task: SolverTask, items: u32) -> Result<Self, Failure> {
        let program = Program::compile(&task.text, Ties::Cpython);
        let program = program.map_err(|error| Failure::Wrong(error.to_string()))?;
        let inputs = task.inputs.iter().map(|rows| Grid::from_rows(rows));
        let inputs: Vec<Grid> = inputs.collect::<Result<_, _>>().map_err(invalid)?;
        let batch = GridBatch::from_grids(&inputs).map_err(invalid)?;
        let started = clock::now();
        let want = reference::run_batch(&program, &batch).map_err(invalid)?;
        Ok(Self { program, inputs, items, want, took: started.elapsed() })
    }

    /// So many copies of the inputs, one after the other.
    fn copies(&self, items: u32) -> Result<GridBatch, Failure> {
        let mut batch = GridBatch::of_items(1);
        for grid in self.inputs.iter().cycle().take(items as usize) {
            batch.push(grid).map_err(invalid)?;
        }
        let layout = batch.layout().map_err(invalid)?;
        let result = OutputLayout::new(&self.program, layout).map_err(invalid)?;
        // This process and the arenas each hold a batch and its results.
        let bytes = 2 * (layout.bytes() as u64 + u64::from(JOBS) * result.bytes() as u64);
        memory::check_available(bytes).map_err(Failure::Skipped)?;
        Ok(batch)
    }

    fn compare(&self, outputs: &Outputs, by: &str) -> Result<(), Failure> {
        match outputs.first_difference_of_copies(&self.want) {
            Ok(None) => Ok(()),
            Ok(Some(item)) => {
                let input = item % self.inputs.len();
                Err(Failure::Wrong(format!(
                    "item {item} (input {input} of the task) from {by} differs from the reference's"
                )))
            }
            Err(malformed) => Err(Failure::Wrong(malformed.to_string())),
        }
    }

    /// On all cores, over as many copies as they need some time for.
    fn by_library(&self, plan: &Plan, row: Row) -> Result<Row, Failure> {
        let inputs = u32::try_from(self.inputs.len()).unwrap_or(u32::MAX);
        let cores = u32::try_from(rayon::current_num_threads()).unwrap_or(1);
        let rounds = span(plan).as_secs_f64() / f64::from(plan.repetitions);
        let rounds = rounds / self.took.as_secs_f64().max(1e-9);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is bounded"
        )]
        let each = rounds.clamp(1.0, f64::from(self.items)) as u32;
        let items = inputs.saturating_mul(cores).saturating_mul(each).min(self.items);
        let batch = Arc::new(self.copies(items)?);
        let mut library = Library::new(&self.program, batch).map_err(invalid)?;
        // The first run warms up.
        library.run();
        let rates = repeated(plan, || {
            Ok::<_, Failure>(f64::from(items) / timed(|| library.run()).as_secs_f64().max(1e-9))
        })?;
        self.compare(&library.into_outputs(), "all cores")?;
        Ok(Row { batch: Some(items), value: Spread::of(rates), ..row })
    }

    /// Through a pool, from client memory to client memory, several jobs in flight.
    fn by_pool(
        &self,
        plan: &Plan,
        client: &Client,
        kind: DeviceKind,
        row: Row,
    ) -> Result<Row, Failure> {
        let batch = client.load(&self.copies(self.items)?)?;
        let job = Job::over(self.program.clone(), &batch).map_err(invalid)?.with_deadline(DEADLINE);
        let round = |evidence: &mut Evidence| {
            let jobs: Result<Vec<Handle<Outputs>>, _> =
                (0..JOBS).map(|_| client.send(job.clone())).collect();
            let mut answers = Vec::new();
            for handle in jobs? {
                let answer = handle.wait()?;
                evidence.add(&answer.receipt, kind).map_err(Failure::Wrong)?;
                answers.push(answer);
            }
            Ok::<_, Failure>(answers)
        };
        let compare = |answers: &[Answer<Outputs>]| {
            answers.par_iter().try_for_each(|answer| {
                let by = answer.receipt.attempts.last().map_or("?", |attempt| &attempt.worker);
                match answer.outputs() {
                    Some(outputs) => self.compare(outputs, by),
                    None => Err(Failure::Wrong("a job ended OK without results".to_owned())),
                }
            })
        };
        // The first round warms up.
        compare(&round(&mut Evidence::default())?)?;
        let runs = || Ok::<_, Failure>(client.status()?.counters.runs);
        let (before, mut evidence) = (runs()?, Evidence::default());
        let rates = repeated(plan, || {
            let started = clock::now();
            let answers = round(&mut evidence)?;
            let rate = count(u64::from(JOBS * self.items)) / started.elapsed().as_secs_f64();
            compare(&answers)?;
            Ok::<_, Failure>(rate)
        })?;
        let proof = evidence.into_proof(runs()?.saturating_sub(before));
        let items = count(proof.jobs) * f64::from(self.items);
        let bytes = count(proof.h2d_bytes + proof.d2h_bytes);
        Ok(Row {
            value: Spread::of(rates),
            bytes_per_item: (bytes > 0.0).then_some(bytes / items),
            proof: Some(proof),
            ..row
        })
    }

    /// By the kernels of a GPU, in their own time.
    fn by_kernels(&self, plan: &Plan, device: &mut CudaDevice, row: Row) -> Result<Row, Ended> {
        let batch = Arc::new(self.copies(self.items)?);
        let mut time = |repetitions| {
            let timed = device.time_resident(&self.program, &batch, repetitions);
            timed.map_err(Ended::Device)
        };
        let once = Duration::from_secs_f64(time(1)?.device_us.iter().sum::<f64>() / 1e6);
        let others = span(plan).as_nanos() / once.as_nanos().max(1);
        let repetitions = u32::try_from(others).unwrap_or(u32::MAX).clamp(1, plan.repetitions);
        let mut resident = time(repetitions)?;
        let output = mem::take(&mut resident.output);
        let outputs = Outputs::new(self.program.clone(), batch, output).map_err(invalid)?;
        self.compare(&outputs, &row.runner)?;
        let unfit_items = Some(resident.unfit_items);
        Ok(Row { unfit_items, ..resident::timed(resident, device.info(), repetitions, row) })
    }
}

fn invalid(error: impl std::error::Error) -> Failure {
    Failure::Wrong(error.to_string())
}

fn span(plan: &Plan) -> Duration {
    if plan.quick { ROW_QUICK } else { ROW }
}

/// The rates of the plan's repetitions, or of those that begin within a row's time.
fn repeated<E>(plan: &Plan, mut round: impl FnMut() -> Result<f64, E>) -> Result<Vec<f64>, E> {
    let (started, mut rates) = (clock::now(), Vec::new());
    while rates.is_empty()
        || rates.len() < plan.repetitions as usize && started.elapsed() < span(plan)
    {
        rates.push(round()?);
    }
    Ok(rates)
}
