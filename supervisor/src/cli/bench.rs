//! `gridpool bench`: measures the machine's limits, its cores alone, and pools over its devices, in one run
//! and one table.
//!
//! - `flags` is the command line. Child processes measure, since this process has neither a reference nor
//!   CUDA; `limits` adds up the limits of the devices.
//! - `models` plans the measurements of models; a run with models measures nothing else.
//! - `solvers` reads the solvers of a file and their tasks, and adds up their rows.
//! - `ledger` relates each row to the others; `table`, `plot` and a JSON document show the rows.
//!
//! Owns the order of the steps and the exit code. May not measure anything itself.

mod flags;
mod ledger;
mod limits;
mod machine;
mod models;
mod plot;
mod solvers;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use gridpool_protocol::bench::{Line, ModelSubject, Plan, PoolRows, Row, Subject};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::ids::{DeviceId, DeviceKind, Role};
use gridpool_protocol::tensor::options::ModelPlan;
use indicatif::ProgressBar;
use serde::Serialize;

use super::child::{ChildError, ChildProcess};
use super::output::{self, Output};
use super::private::{self, NotReady, PrivatePool};
use super::scratch::Scratch;
use super::{CommandError, system};
use crate::config::Settings;
use crate::devices;
use crate::shell::{PoolDevice, WorkerCommand};
use ledger::Ledger;
use limits::Measurers;
use machine::Machine;
use solvers::{Solvers, Summary};
use table::Table;

pub(super) use flags::{BenchFlags, COLUMNS};
pub(super) use machine::TASKS;

/// Numbers of devices to measure together, as far as the machine has them.
const COUNTS: [usize; 4] = [1, 2, 4, 8];
/// How often a neighbour may be killed because it hangs: more often than there is time for.
const NEIGHBOUR_KILLS_MAX: usize = 100_000;
/// How long a process may be silent: the largest batch on one core, compared and timed.
const SILENCE_MAX: Duration = Duration::from_secs(900);

/// Why there is no table, or why its rates are missing.
#[derive(Debug, thiserror::Error)]
pub(super) enum BenchError {
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("{0}")]
    Models(String),
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("{0} rows are wrong: each has its reason in place of a rate")]
    Wrong(usize),
}

impl BenchError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Child(ChildError::Ended { code: Some(code), .. }) => match u8::try_from(*code) {
                Ok(code @ (exit::USAGE | exit::DATA | exit::UNAVAILABLE | exit::WORKER)) => code,
                Ok(_) | Err(_) => exit::INTERNAL,
            },
            Self::Models(_) => exit::USAGE,
            Self::NotReady(NotReady::Misconfigured(_) | NotReady::OutOfService { .. }) => {
                exit::WORKER
            }
            Self::Child(_) | Self::NotReady(NotReady::Late { .. }) | Self::Wrong(_) => {
                exit::INTERNAL
            }
        }
    }
}

/// Measures and shows everything.
pub(super) fn run(flags: &BenchFlags, settings: &Settings) -> Result<u8, CommandError> {
    // Before the measurements, which take minutes: a path that cannot be written fails now.
    let picture = flags.plot.as_deref().map(|path| Output::open("--plot", path, flags.json));
    let picture = picture.transpose()?;
    let models = models::plans(flags, &settings.models)?;
    let solvers = Solvers::of(flags)?;
    let worker = devices::worker_binary(settings.worker_bin.as_deref())?;
    let pool_devices = devices::resolve(&settings.devices, &worker)?;
    let scratch = Scratch::new().map_err(system("a thread for signals"))?;
    let folder = scratch.make("gridpool-bench-");
    let folder = folder.map_err(system("a folder for the pools' sockets"))?;
    let (of_solvers, refused) = match solvers {
        Some(solvers) => {
            let file = folder.join("solvers");
            let refused = solvers.write(&file)?;
            (Some(file), refused)
        }
        None => (None, Vec::new()),
    };
    let mut bench = Bench {
        flags,
        solvers: of_solvers,
        refused,
        settings,
        worker,
        socket: folder.join("pool.sock"),
        machine: Machine::here(),
        ledger: Ledger::default(),
        table: Table::default(),
        progress: ProgressBar::new_spinner(),
        out: output::report_beside(picture.as_ref()),
    };
    bench.measure(&pool_devices, &models)?;
    bench.finish(picture)
}

struct Bench<'a> {
    flags: &'a BenchFlags,
    settings: &'a Settings,
    /// The file of the solvers to measure, and rows of those that cannot be.
    solvers: Option<PathBuf>,
    refused: Vec<Row>,
    worker: PathBuf,
    socket: PathBuf,
    machine: Machine,
    ledger: Ledger,
    table: Table,
    progress: ProgressBar,
    /// Where the table goes.
    out: Box<dyn Write>,
}

/// The JSON document.
#[derive(Serialize)]
struct BenchDocument<'a> {
    machine: &'a Machine,
    quick: bool,
    rows: &'a [Row],
    /// With `--solvers`, one for each runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    summaries: Option<Vec<Summary>>,
}

impl Bench<'_> {
    fn measure(&mut self, all: &[PoolDevice], models: &[ModelPlan]) -> Result<(), CommandError> {
        if !self.flags.json {
            let line = self.machine.line();
            writeln!(self.out, "{line}\n").map_err(CommandError::Output)?;
        }
        let kind = all.first().map_or(DeviceKind::Cpu, |device| device.id.kind);
        if let Some(kills) = self.flags.recovery {
            return self.recovery(&all[..all.len().min(1)], kills);
        }
        if self.flags.search {
            let threads = (self.machine.cores / all.len().max(1)).max(1);
            return self.pool(all, threads, PoolRows::Search);
        }
        if let (Some(device), false) = (all.first(), models.is_empty()) {
            let of_model = if self.flags.isolation { Subject::Isolation } else { Subject::Model };
            return models.iter().try_for_each(|model| self.model(device, model, of_model));
        }
        let cores = self.machine.cores;
        if self.solvers.is_some() {
            std::mem::take(&mut self.refused).into_iter().try_for_each(|row| self.row(row))?;
            self.process(Subject::Library, "")?;
            self.pool(all, (cores / all.len().max(1)).max(1), PoolRows::Large)?;
            return self.resident(all);
        }
        let counts = counts(all.len());
        self.limits(all, kind, &counts)?;
        self.process(Subject::Library, "")?;
        let native = PoolDevice {
            id: DeviceId { kind: DeviceKind::Cpu, index: 0 },
            uuid: String::new(),
            memory: None,
        };
        self.pool(&[native], cores, PoolRows::Native)?;
        for (at, &count) in counts.iter().enumerate() {
            let rows = if at == 0 { PoolRows::All } else { PoolRows::Large };
            self.pool(&all[..count], (cores / all.len()).max(1), rows)?;
        }
        self.resident(all)
    }

    /// The kernels of the first device alone, if it is a GPU.
    fn resident(&mut self, all: &[PoolDevice]) -> Result<(), CommandError> {
        match all.first() {
            Some(PoolDevice { id: DeviceId { kind: DeviceKind::Gpu, index }, uuid, .. }) => {
                let subject = Subject::Resident { index: *index, uuid: uuid.clone() };
                self.process(subject, uuid)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Kills workers of one device, with a standby and without.
    fn recovery(&mut self, device: &[PoolDevice], kills: u32) -> Result<(), CommandError> {
        let cores = self.machine.cores;
        for standbys in [1, 0] {
            self.pool(device, cores, PoolRows::Recovery { standbys, kills })?;
        }
        Ok(())
    }

    fn limits(
        &mut self,
        all: &[PoolDevice],
        kind: DeviceKind,
        counts: &[usize],
    ) -> Result<(), CommandError> {
        let Self { flags, progress, worker, .. } = self;
        let uuids: Vec<String> = match kind {
            DeviceKind::Cpu => Vec::new(),
            DeviceKind::Gpu => all.iter().map(|device| device.uuid.clone()).collect(),
        };
        progress.set_message("limits");
        let measurers = Measurers::start(worker, &uuids, flags.repetitions, flags.quick);
        let doing = |what: &str| progress.set_message(format!("limits: {what}"));
        let limits = measurers.and_then(|m| m.measure(counts, kind == DeviceKind::Gpu, doing));
        let limits = limits.map_err(BenchError::from)?;
        if kind == DeviceKind::Gpu {
            self.machine.gpus = limits.devices;
            self.machine.driver = limits.driver;
        }
        limits.rows.into_iter().try_for_each(|row| self.row(row))
    }

    fn pool(
        &mut self,
        pool_devices: &[PoolDevice],
        cpu_threads: usize,
        rows: PoolRows,
    ) -> Result<(), CommandError> {
        let kind = pool_devices.first().map_or(DeviceKind::Cpu, |device| device.id.kind);
        let subject = Subject::Pool {
            socket: self.socket.clone(),
            devices: u32::try_from(pool_devices.len()).unwrap_or(u32::MAX),
            kind,
            rows,
        };
        self.with_pool(pool_devices, cpu_threads, subject, "")
    }

    /// A model in a pool of one device.
    fn model(
        &mut self,
        device: &PoolDevice,
        model: &ModelPlan,
        subject: fn(Box<ModelSubject>) -> Subject,
    ) -> Result<(), CommandError> {
        let threads = self.machine.cores;
        let subject = subject(Box::new(ModelSubject {
            socket: self.socket.clone(),
            device: device.id,
            uuid: device.uuid.clone(),
            threads,
            onnxruntime: self.settings.onnxruntime.clone(),
            model: model.clone(),
        }));
        self.with_pool(std::slice::from_ref(device), threads, subject, &device.uuid)
    }

    /// Starts a pool, runs a measuring process that sees the GPU `uuid`, and stops the pool.
    fn with_pool(
        &mut self,
        pool_devices: &[PoolDevice],
        cpu_threads: usize,
        subject: Subject,
        uuid: &str,
    ) -> Result<(), CommandError> {
        let models = match &subject {
            Subject::Isolation(subject) => vec![subject.model.clone(), subject.neighbour()],
            Subject::Model(subject) => subject.served(),
            Subject::Library | Subject::Pool { .. } | Subject::Resident { .. } => Vec::new(),
        };
        let recovery = match &subject {
            Subject::Pool { rows: PoolRows::Recovery { standbys, kills }, .. } => {
                Some((*standbys, *kills))
            }
            Subject::Isolation(_)
            | Subject::Library
            | Subject::Model(_)
            | Subject::Pool { .. }
            | Subject::Resident { .. } => None,
        };
        let mut limits = self.settings.limits.clone();
        if let Some((standbys, kills)) = recovery {
            limits.standbys = standbys;
            // Each of its endless jobs costs a worker.
            limits.kills_max = limits.kills_max.max(kills as usize + 1);
        }
        if let Subject::Isolation(_) = &subject {
            // So does each time that the neighbour hangs.
            limits.kills_max = limits.kills_max.max(NEIGHBOUR_KILLS_MAX);
        }
        let command = private::worker_command(self.settings, self.worker.clone(), cpu_threads);
        let command = WorkerCommand { models, ..command };
        self.progress.set_message("workers start");
        let pool = PrivatePool::start(limits, command, pool_devices, &self.socket)?;
        if recovery.is_some() {
            pool.shell().allow_chaos(true);
        }
        // The measurements do not include the start.
        pool.wait_ready(&[Role::Grid, Role::Infer]).map_err(not_ready)?;
        self.process(subject, uuid)
    }

    /// Runs a measuring process, and takes its rows.
    fn process(&mut self, subject: Subject, uuid: &str) -> Result<(), CommandError> {
        let Self { flags, .. } = self;
        let plan = Plan {
            subject,
            ops: flags.ops.clone(),
            batches: flags.batches(),
            repetitions: flags.repetitions,
            quick: flags.quick,
            solvers: self.solvers.clone(),
        };
        let plan =
            serde_json::to_string(&plan).map_err(|error| CommandError::Output(error.into()))?;
        let process =
            ChildProcess::start(&self.worker, &["bench", "--plan", &plan], uuid, SILENCE_MAX);
        let mut process = process.map_err(BenchError::from)?;
        while let Some(line) = process.next().map_err(BenchError::from)? {
            match line {
                Line::Doing(what) => self.progress.set_message(what),
                Line::Row(row) => self.row(*row)?,
            }
        }
        Ok(())
    }

    fn row(&mut self, row: Row) -> Result<(), CommandError> {
        let row = self.ledger.add(row);
        self.progress.tick();
        if self.flags.json {
            return Ok(());
        }
        let printed = self.progress.suspend(|| self.table.row(&mut self.out, row));
        printed.map_err(CommandError::Output)
    }

    /// The document, the picture, and the exit code.
    fn finish(&mut self, picture: Option<Output>) -> Result<u8, CommandError> {
        self.progress.finish_and_clear();
        let (rows, machine) = (&self.ledger.rows, &self.machine);
        let summaries = self.solvers.as_ref().map(|_| Summary::all(rows));
        if self.flags.json {
            let quick = self.flags.quick;
            super::say_json(&BenchDocument { machine, quick, rows, summaries })?;
        } else if let Some(summaries) = summaries {
            self.table.summaries(&mut self.out, &summaries).map_err(CommandError::Output)?;
        }
        if let Some(picture) = picture
            && let Some(svg) = plot::svg(rows, machine)
        {
            picture.write(|out| out.write_all(svg.as_bytes()))?;
        }
        match self.ledger.faults() {
            0 => Ok(exit::OK),
            faults => Err(BenchError::Wrong(faults).into()),
        }
    }
}

/// Gives the error "no worker can start" the form that all commands share.
fn not_ready(why: NotReady) -> CommandError {
    match why {
        NotReady::Misconfigured(faults) => CommandError::Misconfigured(faults),
        NotReady::OutOfService { .. } | NotReady::Late { .. } => BenchError::from(why).into(),
    }
}

/// 1, 2, 4, 8 below the number of all devices, then that number.
fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = COUNTS.into_iter().filter(|&count| count < all).collect();
    counts.push(all);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_counts_are_powers_of_two_and_all() {
        let wants: [(usize, &[usize]); 5] =
            [(1, &[1]), (2, &[1, 2]), (3, &[1, 2, 3]), (8, &[1, 2, 4, 8]), (9, &[1, 2, 4, 8, 9])];
        for (all, want) in wants {
            assert_eq!(counts(all), want);
        }
    }
}
