//! Starts workers, from one thread that lives as long as the pool: a worker dies with the thread that
//! spawned it (PDEATHSIG). Spawning without `pre_exec` takes 1 ms, however much memory the supervisor has.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use gridpool_protocol::chaos::DEADLY_VARIABLE;
use gridpool_protocol::ids::{DeviceKind, Role, WorkerId};
use gridpool_protocol::log::FORMAT_VARIABLE;
use gridpool_protocol::tensor::options::ModelPlan;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::cache;
use super::confinement::{Confinement, Inherits};
use super::link::{Link, LinkError};
use super::pidfd::PidFd;
use super::pinned::Pinned;
use super::process::{BootFolder, lock_folders};
use super::reader::Reader;
use super::sends::{SendWatch, Sends};
use super::stderr::Stderr;
use super::{PoolDevice, Shared};
use crate::logging;
use gridpool_core::event::WorkerEvent;
use gridpool_core::policy::PolicyTable;

/// How workers are started.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The `gridpool-worker` binary.
    pub program: Pinned,
    /// Threads of one CPU device.
    pub cpu_threads: usize,
    /// How often a worker tests its device while it serves.
    pub known_answer_every: Duration,
    /// Bytes of memory by which a worker may grow after it was READY.
    pub memory_growth_max: u64,
    /// Descriptors by which it may grow after that.
    pub descriptors_growth_max: u32,
    /// The response to each fault.
    pub policy: PolicyTable,
    /// The models that inference workers load. Without models there are no inference workers.
    pub models: Vec<ModelPlan>,
    /// ONNX Runtime's library, if the user named one.
    pub onnxruntime: Option<PathBuf>,
    /// Environment variables of the workers, in addition to those that they inherit.
    pub environment: Vec<(OsString, OsString)>,
    /// What they give up before they serve.
    pub confinement: Confinement,
    /// Whether they may be made to fault on purpose.
    pub allows_chaos: bool,
}

/// A worker to start, and the models that it must load.
pub(super) type Request = (WorkerId, Vec<ModelPlan>);

/// The body of the spawning thread. It ends with the pool.
pub(super) fn serve(
    requests: &Receiver<Request>,
    shared: &Arc<Shared>,
    devices: &[PoolDevice],
    mut boot: Option<BootFolder>,
    sends: &SendWatch,
) {
    for (worker, models) in requests {
        let device = devices.iter().find(|device| device.id == worker.device);
        let device = device.expect("the pool spawns only on its devices");
        let command = shared.command.lock().clone();
        let folder = boot_folder(boot.as_mut()).map_err(StartError::System);
        let started = folder
            .and_then(|folder| start(shared, &command, worker, models, device, &folder, sends));
        if let Err(error) = started {
            tracing::error!(%worker, %error, "worker could not be started");
            shared.lock().doomed.remove(&worker);
            let (detail, is_final) = match error {
                StartError::Program(error) => {
                    let never = [ErrorKind::NotFound, ErrorKind::PermissionDenied];
                    let is_final = never.contains(&error.kind())
                        || error.raw_os_error() == Some(libc::ENOEXEC);
                    (format!("{}: {error}", command.program), is_final)
                }
                StartError::System(error) => (error.to_string(), false),
            };
            shared.post_worker(worker, WorkerEvent::SpawnFailed { detail, is_final });
        }
    }
}

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    /// The program cannot be run. Another try may fail in the same way.
    #[error(transparent)]
    Program(io::Error),
    /// The system has no free socket, descriptor or thread, or the folder for sockets is gone.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The folder for the socket at which the worker listens.
fn boot_folder(boot: Option<&mut BootFolder>) -> io::Result<PathBuf> {
    let Some(boot) = boot else { return Ok(std::env::temp_dir()) };
    let _folders = lock_folders();
    boot.restore()?;
    Ok(boot.path().to_owned())
}

/// Starts the process, links it to the core, and starts its reader.
fn start(
    shared: &Arc<Shared>,
    command: &WorkerCommand,
    worker: WorkerId,
    models: Vec<ModelPlan>,
    device: &PoolDevice,
    boot_folder: &Path,
    watch: &SendWatch,
) -> Result<(), StartError> {
    let (lifeline, theirs) = UnixStream::pair()?;
    let (beacon, lit) = UnixStream::pair()?;
    let (stderr, said) = UnixStream::pair()?;
    let ends = Ends { lifeline: theirs.into(), beacon: lit.into(), stderr: said.into() };
    // Nobody takes it for another's process before it is known as ours.
    let starting = shared.starting.lock();
    let child = spawn(command, worker, models, device, boot_folder, ends, shared.worker_spin);
    let child = child.map_err(StartError::Program)?;
    let pid = child.id();
    tracing::debug!(%worker, pid, "worker started");
    if let Some(groups) = &shared.groups {
        groups.admit(worker, pid);
    }
    let is_read = PidFd::open(pid).and_then(|pidfd| {
        let sends = Arc::new(Sends::new(worker, pidfd.try_clone()?));
        watch.watch(&sends);
        let mut link = Link::new(pid, sends, lifeline.try_clone()?);
        if worker.group.role() == Role::Grid {
            match link.record_position() {
                Ok(()) | Err(LinkError::Gone) => {}
                Err(error @ LinkError::Stuck(_)) => return Err(io::Error::other(error)),
            }
        }
        shared.lock().link(worker, link);
        drop(starting);
        let stderr = Stderr::follow(worker, stderr)?;
        let reader = Reader { worker, pidfd, lifeline, beacon, stderr };
        reader.start(child, Arc::clone(shared))
    });
    if is_read.is_err() {
        // The process exists and has no reader: end it here.
        shared.lock().workers.remove(&worker);
        end(worker, pid);
    }
    Ok(is_read?)
}

/// Kills and reaps a child that could not be given a reader.
fn end(worker: WorkerId, pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("process numbers fit i32"));
    let ended = kill(pid, Signal::SIGKILL).and_then(|()| waitpid(pid, None));
    if let Err(errno) = ended {
        tracing::error!(%worker, %errno, "a worker without a reader could not be ended");
    }
}

/// The worker's ends of its sockets.
struct Ends {
    lifeline: OwnedFd,
    beacon: OwnedFd,
    stderr: OwnedFd,
}

fn spawn(
    command: &WorkerCommand,
    worker: WorkerId,
    models: Vec<ModelPlan>,
    device: &PoolDevice,
    boot_folder: &Path,
    ends: Ends,
    spin: Duration,
) -> io::Result<Child> {
    let mut process = command.program.command();
    command.confinement.restrict(&mut process, Inherits::Worker);
    if !command.allows_chaos {
        process.env_remove(DEADLY_VARIABLE);
    }
    process
        .arg(worker.group.role().name())
        .args(["--worker", &worker.to_string()])
        .arg("--boot-folder")
        .arg(boot_folder)
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
        .process_group(0)
        .args(command.confinement.worker_arguments());
    match worker.group.role() {
        Role::Grid => {
            let every = command.known_answer_every.as_millis().to_string();
            process.args(["--known-answer-every-ms", &every]);
        }
        Role::Infer => {
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
            if let Some(folder) = cache::folder(worker.group.role()) {
                process.env(cache::VARIABLE, folder);
            }
        }
    }
    process.spawn()
}
