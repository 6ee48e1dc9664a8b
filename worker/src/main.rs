//! `gridpool-worker`: started by the supervisor, one role per process. Not meant to be typed.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
#[cfg(feature = "infer")]
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit;
use gridpool_protocol::fault::Overrides;
use gridpool_protocol::ids::{DeviceKind, WorkerId};
use gridpool_protocol::log::{FILTER_VARIABLE, LogFormat};
#[cfg(feature = "infer")]
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_worker::bench;
use gridpool_worker::cpu::CpuDevice;
use gridpool_worker::cuda::CudaDevice;
use gridpool_worker::device::Device;
use gridpool_worker::diagnose;
use gridpool_worker::fault::{self, Fault};
#[cfg(feature = "infer")]
use gridpool_worker::infer::{
    self,
    serve::{Plan, parse_model},
};
use gridpool_worker::link::{self, Identity};
use gridpool_worker::serve;
use gridpool_worker::wear::GrowthMax;
use gridpool_worker::{beacon, monitor, probe, process};
use tracing_subscriber::EnvFilter;

/// A worker process of gridpool. `gridpool` starts it; it is of no use by itself.
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
        tie: Tie,
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
    /// Serve requests of models on one device; standard input is the lifeline.
    #[cfg(feature = "infer")]
    Infer {
        #[command(flatten)]
        tie: Tie,
        /// Threads of a CPU device.
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// The GPU that this worker must find.
        #[arg(long)]
        uuid: Option<String>,
        /// ONNX Runtime's library; without it, it is looked for.
        #[arg(long)]
        onnxruntime: Option<PathBuf>,
        /// A model as JSON; once for each.
        #[arg(long = "model", value_parser = parse_model)]
        models: Vec<ModelPlan>,
    },
    /// Measure for `gridpool bench`: a line of JSON for each row.
    Bench {
        /// What to measure, as JSON.
        #[arg(long)]
        plan: String,
        /// The process id of `gridpool bench`.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Look for what is wrong, for `gridpool diagnose`: a line of JSON for each thing.
    Diagnose {
        /// What to look at, as JSON.
        #[arg(long)]
        plan: String,
        /// The process id of `gridpool diagnose`.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Measure what a GPU can copy, or the CPU's memory, as standard input says.
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
    /// Watch GPUs through NVML: a line of JSON on standard output for each thing.
    Monitor {
        /// A GPU to watch; once for each.
        #[arg(long)]
        uuid: Vec<String>,
        /// The supervisor's process id.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Print the GPUs of this machine as JSON.
    Probe,
}

/// What every worker process is told.
#[derive(Debug, Args)]
struct Tie {
    /// The name of this process: `gpu0#1`.
    #[arg(long)]
    worker: WorkerId,
    /// Where the supervisor waits for this worker's channel.
    #[arg(long)]
    bootstrap: String,
    /// The supervisor's process id.
    #[arg(long)]
    supervisor_pid: u32,
    /// How long it may look for a message before it sleeps, in microseconds.
    #[arg(long, default_value_t = 0)]
    spin_us: u32,
    /// Bytes of memory by which it may grow after it was READY.
    #[arg(long, default_value_t = 4 << 30)]
    memory_growth_max: u64,
    /// Descriptors by which it may grow after it was READY.
    #[arg(long, default_value_t = 4_096)]
    descriptors_growth_max: u64,
    /// What the pool's config changes about faults: `cuda 2=restart,cuda 218=fail_job`.
    #[arg(long, default_value = "")]
    policy: Overrides,
}

impl Tie {
    /// Who this worker is, from the moment on that it obeys the pool's policy.
    fn identity(self) -> Identity {
        fault::obey(self.policy);
        Identity {
            worker: self.worker,
            bootstrap: self.bootstrap,
            supervisor_pid: self.supervisor_pid,
            spin: Duration::from_micros(self.spin_us.into()),
            growth_max: GrowthMax {
                memory: self.memory_growth_max,
                descriptors: self.descriptors_growth_max,
            },
        }
    }
}

/// Standard input, as what ties this process to its supervisor.
fn lifeline() -> Result<OwnedFd, ExitCode> {
    std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| {
        tracing::error!(%error, "standard input is not the lifeline");
        ExitCode::from(exit::cli::WORKER)
    })
}

fn main() -> ExitCode {
    // Before anything else: what is open now and later is not in the beacon's table.
    let serves = |role: OsString| role == "grid" || role == "infer";
    let serves = std::env::args_os().nth(1).is_some_and(serves);
    let beacon = if serves { beacon::light() } else { Ok(()) };
    start_log();
    if let Err(error) = beacon {
        tracing::warn!(%error, "no beacon: the supervisor will notice this process's death late");
    }
    if let Err(errno) = process::reset_signals() {
        tracing::warn!(%errno, "signals stay as they are");
    }
    match Arguments::parse().role {
        Role::Grid { tie, known_answer_every_ms, threads, uuid } => {
            let identity = tie.identity();
            let worker = identity.worker;
            let every = Duration::from_millis(known_answer_every_ms);
            match lifeline() {
                Ok(lifeline) => serve::serve(&identity, every, lifeline, || {
                    open(worker, threads, uuid.as_deref())
                }),
                Err(code) => code,
            }
        }
        #[cfg(feature = "infer")]
        Role::Infer { tie, threads, uuid, onnxruntime, models } => {
            let identity = tie.identity();
            let plan = Plan { uuid, threads, library: onnxruntime, models };
            match lifeline() {
                Ok(lifeline) => infer::serve::serve(&identity, lifeline, &plan),
                Err(code) => code,
            }
        }
        Role::Bench { plan, supervisor_pid } => {
            let work = || bench::run(&plan, &mut std::io::stdout());
            work_for(supervisor_pid, work, bench::BenchError::exit_code)
        }
        Role::Diagnose { plan, supervisor_pid } => {
            let work = || diagnose::run(&plan, &mut std::io::stdout());
            work_for(supervisor_pid, work, diagnose::DiagnoseError::exit_code)
        }
        Role::Limits { uuid, repetitions, quick, supervisor_pid } => {
            let work = || {
                let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout());
                bench::limits::serve(uuid.as_deref(), repetitions, quick, &mut input, &mut out)
            };
            work_for(supervisor_pid, work, bench::BenchError::exit_code)
        }
        Role::Monitor { uuid, supervisor_pid } => watch(supervisor_pid, &uuid),
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

/// Writes the log to standard error, as the environment says.
fn start_log() {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match LogFormat::from_environment() {
        LogFormat::Human => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
        }
    }
}

/// Watches GPUs for a supervisor, and not after its end. Ends without a destructor: NVML may be stuck.
fn watch(supervisor: u32, uuids: &[String]) -> ExitCode {
    match process::die_with(supervisor) {
        Ok(true) => {}
        Ok(false) => return ExitCode::from(exit::cli::OK),
        Err(errno) => tracing::warn!(%errno, "this process may outlive its supervisor"),
    }
    let mut out = std::io::stdout();
    let ended = monitor::run(uuids, std::io::stdin(), &mut out);
    link::end_process(ended.unwrap_or_else(|error| {
        tracing::debug!(%error, "the supervisor does not listen");
        exit::worker::OK
    }))
}

/// Measures, or looks, for a supervisor, and not after its end.
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
            // Its supervisor shows the last line to whoever typed the command.
            drop(writeln!(std::io::stderr(), "{}", Chain(&error)));
            ExitCode::from(code(&error))
        }
    }
}

fn open(worker: WorkerId, threads: usize, uuid: Option<&str>) -> Result<Box<dyn Device>, Fault> {
    let index = worker.device.index;
    Ok(match worker.device.kind {
        DeviceKind::Cpu => Box::new(CpuDevice::open(index, threads)?),
        DeviceKind::Gpu => Box::new(CudaDevice::open(index, uuid)?),
    })
}
