//! `gridpool-worker`: the supervisor starts it, one role per process. Users do not run it.

use std::io::{IsTerminal, Write};
#[cfg(feature = "infer")]
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use gridpool_bench::{BenchError, limits};
use gridpool_device::cpu::CpuDevice;
use gridpool_device::cuda::CudaDevice;
use gridpool_device::device::Device;
use gridpool_device::fault::{self, Fault};
use gridpool_kernels::{module, reference};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::color::Colors;
use gridpool_protocol::exit;
use gridpool_protocol::fault::Overrides;
use gridpool_protocol::ids::{self, DeviceKind, WorkerName};
use gridpool_protocol::log::{FILTER_VARIABLE, LogFormat};
#[cfg(feature = "infer")]
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_worker::growth::GrowthMax;
use gridpool_worker::judge;
use gridpool_worker::link::Identity;
use gridpool_worker::sandbox::{Confinement, ConfinementArguments};
#[cfg(feature = "infer")]
use gridpool_worker::serve::models::{self, Plan, parse_model};
use gridpool_worker::{monitor, probe, process, replay, serve};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A worker process of gridpool. `gridpool` starts it; it is not useful by itself.
#[derive(Debug, Parser)]
#[command(version = gridpool_protocol::build::text())]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Serve grid jobs on one device; standard input is the lifeline.
    Grid {
        #[command(flatten)]
        supervisor: SupervisorArguments,
        /// How often it tests its device while it serves, in milliseconds.
        #[arg(long, default_value_t = 60_000)]
        known_answer_every_ms: u64,
        /// Threads of a CPU device.
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// The GPU that this worker must find.
        #[arg(long)]
        uuid: Option<String>,
    },
    /// Serve inference requests on one device; standard input is the lifeline.
    #[cfg(feature = "infer")]
    Infer {
        #[command(flatten)]
        supervisor: SupervisorArguments,
        /// Threads of a CPU device.
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// The GPU that this worker must find.
        #[arg(long)]
        uuid: Option<String>,
        /// ONNX Runtime's library; by default it is searched for.
        #[arg(long)]
        onnxruntime: Option<PathBuf>,
        /// A model as JSON; repeat the option for each model.
        #[arg(long = "model", value_parser = parse_model)]
        models: Vec<ModelPlan>,
    },
    /// Measure for `gridpool bench`: prints a line of JSON for each row.
    Bench {
        /// What to measure, as JSON.
        #[arg(long)]
        plan: String,
        /// The process id of `gridpool bench`.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Check the machine for `gridpool diagnose`: prints a line of JSON for each check.
    Diagnose {
        /// What to check, as JSON.
        #[arg(long)]
        plan: String,
        /// The process id of `gridpool diagnose`.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Recompute verdicts of `gridpool search` by the reference, as standard input asks.
    Judge {
        /// The process id of `gridpool search`.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Run one batch without a pool, as standard input asks: for `gridpool replay --under`.
    Replay {
        /// On the CPU, not on the first GPU that this process sees.
        #[arg(long)]
        cpu: bool,
    },
    /// Measure the copy rates of a GPU, or of the CPU's memory, as standard input asks.
    Limits {
        /// The GPU that this process must find; without it, the CPU is measured.
        #[arg(long)]
        uuid: Option<String>,
        /// How often each measurement is repeated.
        #[arg(long)]
        repetitions: u32,
        /// Shorter repetitions.
        #[arg(long)]
        quick: bool,
        /// The process id of `gridpool bench`.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Watch GPUs through NVML: prints a line of JSON for each event.
    Monitor {
        /// A GPU to watch; repeat the option for each GPU.
        #[arg(long)]
        uuid: Vec<String>,
        #[command(flatten)]
        sandbox: ConfinementArguments,
        /// The supervisor's process id.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Print the GPUs of this machine as JSON.
    Probe,
}

/// The arguments of every serving worker.
#[derive(Debug, Args)]
struct SupervisorArguments {
    /// The name of this process: `gpu0#1`.
    #[arg(long)]
    worker: WorkerName,
    /// The folder for the socket at which this worker listens for its channel.
    #[arg(long)]
    boot_folder: PathBuf,
    /// The supervisor's process id.
    #[arg(long)]
    supervisor_pid: u32,
    /// How long it polls for a message before it sleeps, in microseconds.
    #[arg(long, default_value_t = 0)]
    spin_us: u32,
    /// Bytes of memory by which it may grow after it was READY.
    #[arg(long, default_value_t = 4 << 30)]
    memory_growth_max: u64,
    /// Descriptors by which it may grow after it was READY.
    #[arg(long, default_value_t = 4_096)]
    descriptors_growth_max: u64,
    /// The pool's changes to the responses to faults: `cuda 2=restart,cuda 218=fail_job`.
    #[arg(long, default_value = "")]
    policy: Overrides,
    #[command(flatten)]
    sandbox: ConfinementArguments,
}

impl SupervisorArguments {
    /// This worker's identity. Also applies the pool's fault policy.
    fn identity(self, role: ids::Role) -> Identity {
        fault::obey(self.policy);
        Identity {
            worker: self.worker,
            boot_folder: self.boot_folder,
            supervisor_pid: self.supervisor_pid,
            spin: Duration::from_micros(self.spin_us.into()),
            growth_max: GrowthMax {
                memory: self.memory_growth_max,
                descriptors: self.descriptors_growth_max,
            },
            confinement: Confinement::of_worker(self.sandbox, role, self.worker.device.kind),
        }
    }
}

fn main() -> ExitCode {
    start_log();
    if let Err(errno) = process::reset_signals() {
        tracing::warn!(%errno, "cannot reset signals");
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return answer(&error),
    };
    match arguments.role {
        Role::Grid { supervisor, known_answer_every_ms, threads, uuid } => {
            let identity = supervisor.identity(ids::Role::Grid);
            let worker = identity.worker;
            let every = Duration::from_millis(known_answer_every_ms);
            serve::serve(&identity, every, || open(worker, threads, uuid.as_deref()))
        }
        #[cfg(feature = "infer")]
        Role::Infer { supervisor, threads, uuid, onnxruntime, models } => {
            let identity = supervisor.identity(ids::Role::Infer);
            models::serve(&identity, &Plan { uuid, threads, library: onnxruntime, models })
        }
        Role::Bench { plan, supervisor_pid } => {
            let work = || gridpool_bench::run(&plan, &mut std::io::stdout());
            work_for(supervisor_pid, work, BenchError::exit_code)
        }
        Role::Diagnose { plan, supervisor_pid } => {
            let work = || gridpool_diagnose::run(&plan, &mut std::io::stdout());
            work_for(supervisor_pid, work, gridpool_diagnose::DiagnoseError::exit_code)
        }
        Role::Judge { supervisor_pid } => {
            let work = || judge::serve(std::io::stdin().lock(), &mut std::io::stdout());
            work_for(supervisor_pid, work, judge::exit_code)
        }
        Role::Replay { cpu } => replay_once(cpu),
        Role::Limits { uuid, repetitions, quick, supervisor_pid } => {
            let work = || {
                let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout());
                limits::serve(uuid.as_deref(), repetitions, quick, &mut input, &mut out)
            };
            work_for(supervisor_pid, work, BenchError::exit_code)
        }
        Role::Monitor { uuid, sandbox, supervisor_pid } => {
            watch(supervisor_pid, &uuid, &Confinement::of_monitor(sandbox))
        }
        Role::Probe => {
            let found = serde_json::to_string(&probe::probe()).map_err(std::io::Error::other);
            match found.and_then(|line| writeln!(std::io::stdout(), "{line}")) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    tracing::error!(%error, "standard output");
                    ExitCode::from(exit::cli::INTERNAL)
                }
            }
        }
    }
}

/// Answers a wrong command line, `--help` and `--version`. The version names the kernels too, because two builds
/// of one protocol may compute differently.
fn answer(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| {
        if error.kind() != ErrorKind::DisplayVersion {
            return Ok(());
        }
        let mut out = std::io::stdout();
        writeln!(out, "kernels {} on a GPU", module::module_hash())?;
        writeln!(out, "kernels {} on a CPU", reference::source_hash())
    });
    match (printed, error.exit_code()) {
        (Ok(()), 0) => ExitCode::SUCCESS,
        (_, _) => ExitCode::from(exit::cli::USAGE),
    }
}

/// Writes the log to standard error, as the environment configures.
fn start_log() {
    let filter = std::env::var(FILTER_VARIABLE).ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    match LogFormat::from_environment() {
        LogFormat::Human => {
            let lines = lines.with_ansi(Colors::of(std::io::stderr().is_terminal()).any());
            tracing_subscriber::registry().with(filter).with(lines).init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true);
            let lines = lines.with_current_span(false).with_span_list(false);
            tracing_subscriber::registry().with(filter).with(lines).init();
        }
    }
}

/// Watches GPUs until the supervisor ends. Runs no destructors at its end: NVML may be stuck.
fn watch(supervisor: u32, uuids: &[String], confinement: &Confinement) -> ExitCode {
    match process::die_with(supervisor) {
        Ok(true) => {}
        Ok(false) => return ExitCode::from(exit::cli::OK),
        Err(errno) => tracing::warn!(%errno, "this process may outlive its supervisor"),
    }
    if let Err(error) = confinement.enter() {
        tracing::error!(error = %Chain(&error), "the monitor cannot start");
        return ExitCode::from(exit::cli::CONFIG);
    }
    let mut out = std::io::stdout();
    let ended = monitor::run(uuids, std::io::stdin(), &mut out);
    fault::end_process(ended.unwrap_or_else(|error| {
        tracing::debug!(%error, "the supervisor does not listen");
        exit::worker::OK
    }))
}

/// Runs a bench or diagnose role until it is done or the supervisor ends.
fn work_for<E: std::error::Error>(
    supervisor: u32,
    work: impl FnOnce() -> Result<(), E>,
    code: fn(&E) -> u8,
) -> ExitCode {
    match process::die_with(supervisor) {
        Ok(true) => {}
        Ok(false) => return ExitCode::from(exit::cli::INTERNAL),
        Err(errno) => tracing::warn!(%errno, "this process may outlive its supervisor"),
    }
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The supervisor shows the last line of standard error to the user.
            drop(writeln!(std::io::stderr(), "{}", Chain(&error)));
            ExitCode::from(code(&error))
        }
    }
}

/// Runs one batch. Runs no destructors at the end: after a fault the driver may be stuck.
fn replay_once(cpu: bool) -> ExitCode {
    let opened: Result<Box<dyn Device>, Fault> = match cpu {
        true => CpuDevice::open(0, 1).map(|device| Box::new(device) as Box<dyn Device>),
        false => CudaDevice::open(0, None).map(|device| Box::new(device) as Box<dyn Device>),
    };
    let ran = opened.map_err(std::io::Error::other);
    let ran = ran.and_then(|device| replay::run(device, std::io::stdin().lock()));
    let code = match ran {
        Ok(items) => {
            drop(writeln!(std::io::stdout(), "ran {items} items"));
            exit::worker::OK
        }
        Err(error) => {
            drop(writeln!(std::io::stderr(), "{}", Chain(&error)));
            exit::worker::STICKY
        }
    };
    fault::end_process(code)
}

fn open(worker: WorkerName, threads: usize, uuid: Option<&str>) -> Result<Box<dyn Device>, Fault> {
    let index = worker.device.index;
    Ok(match worker.device.kind {
        DeviceKind::Cpu => Box::new(CpuDevice::open(index, threads)?),
        DeviceKind::Gpu => Box::new(CudaDevice::open(index, uuid)?),
    })
}
