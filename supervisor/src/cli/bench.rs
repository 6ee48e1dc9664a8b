//! `gridpool bench`: what the machine can do, what its cores do alone, and what pools over its devices
//! do, in one run and one table.
//!
//! - `flags` is what may be typed. Processes of their own measure: this one holds neither a reference nor
//!   CUDA. `limits` puts those of the devices together.
//! - `models` is which models are measured, with how many contexts: then nothing else is.
//! - `ledger` says what a row means beside the others; `table`, `plot` and a JSON document show them.
//!
//! Owns the order of things and the exit code. May not measure anything itself.

mod flags;
mod ledger;
mod limits;
mod machine;
mod models;
mod plot;
mod table;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridpool_protocol::bench::{Line, ModelSubject, Plan, PoolRows, Row, Subject};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::ids::{DeviceId, DeviceKind, Role};
use gridpool_protocol::tensor::options::ModelPlan;
use indicatif::ProgressBar;
use serde::Serialize;

use super::child::{ChildError, Helper};
use super::private::{self, NotReady, Private};
use super::{CommandError, system};
use crate::config::Settings;
use crate::devices;
use crate::shell::{PoolDevice, WorkerCommand};
use ledger::Ledger;
use limits::Measurers;
use machine::Machine;
use table::Table;

pub(super) use flags::{BenchFlags, COLUMNS};

/// How many devices are measured together, where there are as many.
const COUNTS: [usize; 4] = [1, 2, 4, 8];
/// How long a process may be silent: the largest batch on one core, compared and timed.
const SILENCE_MAX: Duration = Duration::from_secs(900);

/// Why there is no table, or why it cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub(super) enum BenchError {
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("--plot {}: there is no folder {}: make it first", path.display(), folder.display())]
    NoFolder { path: PathBuf, folder: PathBuf },
    #[error("the picture {}", path.display())]
    Plot {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{0}")]
    Models(String),
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("{0} rows are wrong: they have no rate, and say why")]
    Wrong(usize),
}

impl BenchError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Child(ChildError::Ended { code: Some(code), .. }) => match u8::try_from(*code) {
                Ok(code @ (exit::USAGE | exit::DATA | exit::UNAVAILABLE | exit::WORKER)) => code,
                Ok(_) | Err(_) => exit::INTERNAL,
            },
            Self::Models(_) | Self::NoFolder { .. } => exit::USAGE,
            Self::NotReady(NotReady::Misconfigured(_) | NotReady::OutOfService { .. }) => {
                exit::WORKER
            }
            Self::Child(_)
            | Self::NotReady(NotReady::Late { .. })
            | Self::Plot { .. }
            | Self::Wrong(_) => exit::INTERNAL,
        }
    }
}

/// Measures and shows everything.
pub(super) fn run(flags: &BenchFlags, settings: &Settings) -> Result<u8, CommandError> {
    check_plot(flags.plot.as_deref())?;
    let models = models::plans(flags, &settings.models)?;
    let worker = devices::worker_binary(settings.worker_bin.as_deref())?;
    let pool_devices = devices::resolve(&settings.devices, &worker)?;
    let folder = tempfile::Builder::new().prefix("gridpool-bench-").tempdir();
    let folder = folder.map_err(system("a folder for the pools' sockets"))?;
    let mut bench = Bench {
        flags,
        settings,
        worker,
        socket: folder.path().join("pool.sock"),
        machine: Machine::here(),
        ledger: Ledger::default(),
        table: Table::default(),
        progress: ProgressBar::new_spinner(),
    };
    bench.measure(&pool_devices, &models)?;
    bench.finish()
}

struct Bench<'a> {
    flags: &'a BenchFlags,
    settings: &'a Settings,
    worker: PathBuf,
    socket: PathBuf,
    machine: Machine,
    ledger: Ledger,
    table: Table,
    progress: ProgressBar,
}

/// Everything, for other programs.
#[derive(Serialize)]
struct Document<'a> {
    machine: &'a Machine,
    quick: bool,
    rows: &'a [Row],
}

impl Bench<'_> {
    fn measure(&mut self, all: &[PoolDevice], models: &[ModelPlan]) -> Result<(), CommandError> {
        if !self.flags.json {
            say(&self.progress, |out| writeln!(out, "{}\n", self.machine.line()))?;
        }
        let kind = all.first().map_or(DeviceKind::Cpu, |device| device.id.kind);
        if let Some(kills) = self.flags.recovery {
            return self.recovery(&all[..all.len().min(1)], kills);
        }
        if let (Some(device), false) = (all.first(), models.is_empty()) {
            return models.iter().try_for_each(|model| self.model(device, model));
        }
        let counts = counts(all.len());
        self.limits(all, kind, &counts)?;
        self.process(Subject::Library, "")?;
        let cores = self.machine.cores;
        let native =
            PoolDevice { id: DeviceId { kind: DeviceKind::Cpu, index: 0 }, uuid: String::new() };
        self.pool(&[native], cores, PoolRows::Native)?;
        for (at, &count) in counts.iter().enumerate() {
            let rows = if at == 0 { PoolRows::All } else { PoolRows::Large };
            self.pool(&all[..count], (cores / all.len()).max(1), rows)?;
        }
        match all.first() {
            Some(PoolDevice { id: DeviceId { kind: DeviceKind::Gpu, index }, uuid }) => {
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

    /// A model, called directly and through a pool of one device.
    fn model(&mut self, device: &PoolDevice, model: &ModelPlan) -> Result<(), CommandError> {
        let threads = self.machine.cores;
        let subject = Subject::Model(Box::new(ModelSubject {
            socket: self.socket.clone(),
            device: device.id,
            uuid: device.uuid.clone(),
            threads,
            onnxruntime: self.settings.onnxruntime.clone(),
            model: model.clone(),
        }));
        self.with_pool(std::slice::from_ref(device), threads, subject, &device.uuid)
    }

    /// Starts a pool, has it measured by a process that sees the GPU `uuid`, and stops it.
    fn with_pool(
        &mut self,
        pool_devices: &[PoolDevice],
        cpu_threads: usize,
        subject: Subject,
        uuid: &str,
    ) -> Result<(), CommandError> {
        let models = match &subject {
            Subject::Model(subject) => vec![subject.model.clone()],
            Subject::Library | Subject::Pool { .. } | Subject::Resident { .. } => Vec::new(),
        };
        let recovery = match &subject {
            Subject::Pool { rows: PoolRows::Recovery { standbys, .. }, .. } => Some(*standbys),
            Subject::Library
            | Subject::Model(_)
            | Subject::Pool { .. }
            | Subject::Resident { .. } => None,
        };
        let mut limits = self.settings.limits.clone();
        limits.standbys = recovery.unwrap_or(limits.standbys);
        let command = private::worker_command(self.settings, self.worker.clone(), cpu_threads);
        let command = WorkerCommand { models, ..command };
        self.progress.set_message("workers start");
        let pool = Private::start(limits, command, pool_devices, &self.socket)?;
        if recovery.is_some() {
            pool.shell().allow_chaos();
        }
        // What is measured is not how they start.
        pool.wait_ready(&[Role::Grid, Role::Infer]).map_err(not_ready)?;
        self.process(subject, uuid)
    }

    /// Has a process measure, and takes its rows.
    fn process(&mut self, subject: Subject, uuid: &str) -> Result<(), CommandError> {
        let Self { flags, .. } = self;
        let plan = Plan {
            subject,
            ops: flags.ops.clone(),
            batches: flags.batches(),
            repetitions: flags.repetitions,
            quick: flags.quick,
        };
        let plan =
            serde_json::to_string(&plan).map_err(|error| CommandError::Output(error.into()))?;
        let process = Helper::start(&self.worker, &["bench", "--plan", &plan], uuid, SILENCE_MAX);
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
        say(&self.progress, |out| self.table.row(out, row))
    }

    /// The document, the picture, and the exit code.
    fn finish(&mut self) -> Result<u8, CommandError> {
        self.progress.finish_and_clear();
        let (rows, machine) = (&self.ledger.rows, &self.machine);
        if self.flags.json {
            super::say_json(&Document { machine, quick: self.flags.quick, rows })?;
        }
        if let Some(path) = &self.flags.plot
            && let Some(svg) = plot::svg(rows, machine)
        {
            let failed = |source| BenchError::Plot { path: path.clone(), source };
            fs::write(path, svg).map_err(failed)?;
        }
        match self.ledger.faults() {
            0 => Ok(exit::OK),
            faults => Err(BenchError::Wrong(faults).into()),
        }
    }
}

/// Minutes of measuring should not end in a picture that has no place.
fn check_plot(path: Option<&Path>) -> Result<(), BenchError> {
    let Some(path) = path else { return Ok(()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => {
            Err(BenchError::NoFolder { path: path.to_owned(), folder: folder.to_owned() })
        }
    }
}

/// As every command says it that no worker can start.
fn not_ready(why: NotReady) -> CommandError {
    match why {
        NotReady::Misconfigured(faults) => CommandError::Misconfigured(faults),
        NotReady::OutOfService { .. } | NotReady::Late { .. } => BenchError::from(why).into(),
    }
}

/// 1, 2, 4, 8 as far as there are so many, and all.
fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = COUNTS.into_iter().filter(|&count| count < all).collect();
    counts.push(all);
    counts
}

/// Prints with the spinner off the screen.
fn say(
    progress: &ProgressBar,
    print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CommandError> {
    progress.suspend(|| print(&mut io::stdout().lock())).map_err(CommandError::Output)
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
