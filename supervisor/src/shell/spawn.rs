//! Starting workers, from one thread that lives as long as the pool: a worker dies with the thread
//! that spawned it (PDEATHSIG), and spawning without `pre_exec` takes 1 ms whatever our size.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use gridpool_protocol::channel::Listener;
use gridpool_protocol::ids::{DeviceKind, Role, WorkerId};
use gridpool_protocol::log::FORMAT_VARIABLE;
use gridpool_protocol::tensor::options::ModelPlan;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::attendant::Attendant;
use super::core::Core;
use super::link::Link;
use super::pidfd::PidFd;
use super::process::BootFolder;
use super::stderr::Stderr;
use super::{PoolDevice, Shared};
use crate::logging;
use crate::pool::event::Event;
use crate::pool::policy::PolicyTable;

/// How workers are started.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The `gridpool-worker` binary.
    pub program: PathBuf,
    /// Threads of one CPU device.
    pub cpu_threads: usize,
    /// How often a worker tests its device while it serves.
    pub known_answer_every: Duration,
    /// Bytes of memory by which a worker may grow after it was READY.
    pub memory_growth_max: u64,
    /// Descriptors, likewise.
    pub descriptors_growth_max: u32,
    /// What is done about which fault.
    pub policy: PolicyTable,
    /// What inference workers load; without any there are no such workers.
    pub models: Vec<ModelPlan>,
    /// ONNX Runtime's library, if it is named.
    pub onnxruntime: Option<PathBuf>,
    /// Variables that the workers have beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
}

/// The body of the spawning thread: one order after the other until the pool is gone.
pub(super) fn serve(
    orders: &Receiver<WorkerId>,
    shared: &Arc<Shared>,
    command: &WorkerCommand,
    devices: &[PoolDevice],
    mut boot: Option<BootFolder>,
) {
    for worker in orders {
        let device = devices.iter().find(|device| device.id == worker.device);
        let device = device.expect("the pool spawns only on its devices");
        let restored = boot.as_mut().map_or(Ok(()), BootFolder::restore);
        let started = restored.map_err(StartError::System);
        if let Err(error) = started.and_then(|()| start(shared, command, worker, device)) {
            tracing::error!(%worker, %error, "worker could not be started");
            shared.lock().doomed.remove(&worker);
            let (detail, is_final) = match error {
                StartError::Program(error) => {
                    let never = [ErrorKind::NotFound, ErrorKind::PermissionDenied];
                    let is_final = never.contains(&error.kind())
                        || error.raw_os_error() == Some(libc::ENOEXEC);
                    (format!("{}: {error}", command.program.display()), is_final)
                }
                StartError::System(error) => (error.to_string(), false),
            };
            shared.post(Event::SpawnFailed { worker, detail, is_final });
        }
    }
}

/// Why there is no process.
#[derive(Debug, thiserror::Error)]
enum StartError {
    /// The program cannot be run; another try may end the same way.
    #[error(transparent)]
    Program(io::Error),
    /// The system has no socket, descriptor or thread to give, or its folder for them is gone.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Starts the process, makes it known, and gives it an attendant.
fn start(
    shared: &Arc<Shared>,
    command: &WorkerCommand,
    worker: WorkerId,
    device: &PoolDevice,
) -> Result<(), StartError> {
    // ipc-channel panics where it can make no folder for its socket; this says why there is none.
    drop(tempfile::tempdir()?);
    let (listener, name) = Listener::open()?;
    let (lifeline, theirs) = UnixStream::pair()?;
    let (beacon, lit) = UnixStream::pair()?;
    let (stderr, said) = UnixStream::pair()?;
    let ends = Ends { lifeline: theirs.into(), beacon: lit.into(), stderr: said.into() };
    let duty = Duty::of(worker, &mut shared.lock());
    let child = spawn(command, duty, worker, device, &name, ends, shared.worker_spin);
    let child = child.map_err(StartError::Program)?;
    let pid = child.id();
    tracing::debug!(%worker, pid, "worker started");
    let attended = PidFd::open(pid).and_then(|pidfd| {
        let link = Link::new(pid, pidfd.try_clone()?, lifeline.try_clone()?);
        shared.lock().link(worker, link);
        let stderr = Stderr::follow(worker, stderr)?;
        let attendant = Attendant { worker, pidfd, lifeline, beacon, listener, stderr };
        attendant.start(child, Arc::clone(shared))
    });
    if attended.is_err() {
        // The process exists and nobody attends to it: end it here.
        shared.lock().workers.remove(&worker);
        end(worker, pid);
    }
    Ok(attended?)
}

/// Kills and reaps a child that could not be given an attendant.
fn end(worker: WorkerId, pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("process numbers fit i32"));
    let ended = kill(pid, Signal::SIGKILL).and_then(|()| waitpid(pid, None));
    if let Err(errno) = ended {
        tracing::error!(%worker, %errno, "an unattended worker could not be ended");
    }
}

/// The worker's ends of its sockets.
struct Ends {
    lifeline: OwnedFd,
    beacon: OwnedFd,
    stderr: OwnedFd,
}

/// What a worker is there for.
enum Duty {
    Grid,
    Infer(Vec<ModelPlan>),
}

impl Duty {
    fn of(worker: WorkerId, core: &mut Core) -> Self {
        match core.pool.role(worker) {
            Role::Grid => Self::Grid,
            Role::Infer => Self::Infer(core.catalogue.start(worker)),
        }
    }

    fn role(&self) -> Role {
        match self {
            Self::Grid => Role::Grid,
            Self::Infer(_) => Role::Infer,
        }
    }
}

fn spawn(
    command: &WorkerCommand,
    duty: Duty,
    worker: WorkerId,
    device: &PoolDevice,
    bootstrap: &str,
    ends: Ends,
    spin: Duration,
) -> io::Result<Child> {
    let mut process = Command::new(&command.program);
    process
        .arg(duty.role().name())
        .args(["--worker", &worker.to_string()])
        .args(["--bootstrap", bootstrap])
        .args(["--supervisor-pid", &std::process::id().to_string()])
        .args(["--spin-us", &spin.as_micros().to_string()])
        .args(["--memory-growth-max", &command.memory_growth_max.to_string()])
        .args(["--descriptors-growth-max", &command.descriptors_growth_max.to_string()])
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        .stdin(Stdio::from(ends.lifeline))
        .stdout(Stdio::from(ends.beacon))
        .stderr(Stdio::from(ends.stderr))
        .env(FORMAT_VARIABLE, logging::format().name())
        .process_group(0);
    match duty {
        Duty::Grid => {
            let every = command.known_answer_every.as_millis().to_string();
            process.args(["--known-answer-every-ms", &every]);
        }
        Duty::Infer(models) => {
            if let Some(library) = &command.onnxruntime {
                process.arg("--onnxruntime").arg(library);
            }
            for model in models {
                let model = serde_json::to_string(&model).map_err(io::Error::other)?;
                process.args(["--model", &model]);
            }
        }
    }
    if let Some(rules) = command.policy.worker_argument() {
        process.args(["--policy", &rules]);
    }
    match worker.device.kind {
        DeviceKind::Cpu => {
            process.args(["--threads", &command.cpu_threads.to_string()]);
            process.env("CUDA_VISIBLE_DEVICES", "");
        }
        DeviceKind::Gpu => {
            process.args(["--uuid", &device.uuid]);
            process.env("CUDA_VISIBLE_DEVICES", &device.uuid);
        }
    }
    process.spawn()
}
