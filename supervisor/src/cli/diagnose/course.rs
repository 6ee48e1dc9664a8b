//! The order in which things are looked at, from what a machine has to what a pool does on each device.
//!
//! Each device is tried in a pool of its own, so that what fails has a name; all of them together only to
//! see that no worker has another's. Whatever cannot be looked at any more is told as a skip, with why.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use gridpool_protocol::diagnose::{Check, Group, Line, Outcome, Plan, Subject};
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use tempfile::TempDir;

use super::{Diagnosis, faults, host, isolation, leftovers};
use crate::cli::child::{ChildError, Helper};
use crate::cli::private::{self, Private};
use crate::cli::{CommandError, system};
use crate::config::{DeviceSelection, Settings};
use crate::devices;
use crate::pool::config::PoolConfig;
use crate::shell::{PoolDevice, WorkerCommand};

/// What is not tried where there is no device to try it on.
const OF_DEVICES: [Group; 5] =
    [Group::Isolation, Group::Batches, Group::Allocation, Group::Faults, Group::Models];

/// What the tests of devices need.
struct Site<'a> {
    settings: &'a Settings,
    worker: PathBuf,
    folder: TempDir,
    socket: PathBuf,
    devices: Vec<PoolDevice>,
}

/// Looks at everything that is wanted.
pub(super) fn run(diagnosis: &mut Diagnosis<'_>, settings: &Settings) -> Result<(), CommandError> {
    if diagnosis.wants(Group::Environment) {
        look_at_host(diagnosis, settings)?;
    }
    let Some(worker) = worker_binary(diagnosis, settings)? else {
        return skip_devices(diagnosis, "there is no worker binary of this build");
    };
    diagnosis.progress.set_message("devices");
    let found = devices::resolve(&settings.devices, &worker);
    let gpus: Vec<_> = found.iter().flatten().filter(|device| !device.uuid.is_empty()).collect();
    look_at_libraries(diagnosis, &worker, settings, &gpus)?;
    let devices = match found {
        Ok(devices) => devices,
        Err(error) => {
            let next = "without a GPU: `gridpool diagnose --devices cpu:2`";
            diagnosis.add(host::fail("devices", error.to_string(), next))?;
            return skip_devices(diagnosis, "there is no device to try it on");
        }
    };
    let files = host::open_files(devices.len(), settings.limits.standbys);
    let too_few = files.outcome != Outcome::Pass;
    if diagnosis.wants(Group::Environment) || too_few {
        diagnosis.add(files)?;
    }
    if too_few {
        return skip_devices(diagnosis, "too few files may be open for a pool");
    }
    let folder = tempfile::Builder::new().prefix("gridpool-diagnose-").tempdir();
    let folder = folder.map_err(system("a folder for the pools' sockets"))?;
    let socket = folder.path().join("pool.sock");
    let site = Site { settings, worker, folder, socket, devices };
    site.look_at_isolation(diagnosis)?;
    for device in &site.devices {
        site.look_at_grids(diagnosis, device)?;
        site.look_at_models(diagnosis, device)?;
    }
    Ok(())
}

fn look_at_host(diagnosis: &mut Diagnosis<'_>, settings: &Settings) -> Result<(), CommandError> {
    let is_cpu = |named: &DeviceSelection| matches!(named, DeviceSelection::Cpu(_));
    let has_gpus = !settings.devices.iter().all(is_cpu);
    diagnosis.add(host::kernel())?;
    diagnosis.add(host::address_space(has_gpus))?;
    diagnosis.add(host::memory())?;
    diagnosis.add(host::shared_memory())?;
    diagnosis.add(host::dev_shm())?;
    diagnosis.add(host::temporary_folder())?;
    diagnosis.add(host::preloaded())?;
    diagnosis.add(leftovers::workers())?;
    diagnosis.add(host::socket(&settings.socket))
}

/// The worker's binary, if it is there and of this build.
fn worker_binary(
    diagnosis: &mut Diagnosis<'_>,
    settings: &Settings,
) -> Result<Option<PathBuf>, CommandError> {
    let program = match devices::worker_binary(settings.worker_bin.as_deref()) {
        Ok(program) => program,
        Err(error) => {
            let next = "do that, then run this again";
            diagnosis.add(host::fail(host::WORKER_BINARY, error.to_string(), next))?;
            return Ok(None);
        }
    };
    let version = Command::new(&program)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let check = host::worker_version(&program, version);
    let is_ours = check.outcome == Outcome::Pass;
    if diagnosis.wants(Group::Environment) || !is_ours {
        diagnosis.add(check)?;
    }
    Ok(is_ours.then_some(program))
}

/// Drivers and libraries, by a process for each GPU, which sees that one alone.
fn look_at_libraries(
    diagnosis: &mut Diagnosis<'_>,
    worker: &Path,
    settings: &Settings,
    gpus: &[&PoolDevice],
) -> Result<(), CommandError> {
    if !diagnosis.wants(Group::Environment) {
        return Ok(());
    }
    let subject = |uuid: Option<String>| {
        let onnxruntime = settings.onnxruntime.clone();
        Subject::Environment { uuid, onnxruntime }
    };
    if gpus.is_empty() {
        return ask(diagnosis, worker, subject(None), "", (Group::Environment, None));
    }
    for gpu in gpus {
        let of = (Group::Environment, Some(gpu.id));
        // What each of them says of the whole machine is told once.
        ask(diagnosis, worker, subject(Some(gpu.uuid.clone())), &gpu.uuid, of)?;
    }
    Ok(())
}

impl Site<'_> {
    fn command(&self, cpu_threads: usize) -> WorkerCommand {
        private::worker_command(self.settings, self.worker.clone(), cpu_threads)
    }

    /// All devices together, as a pool has them, with whatever stands by.
    fn look_at_isolation(&self, diagnosis: &mut Diagnosis<'_>) -> Result<(), CommandError> {
        if !diagnosis.wants(Group::Isolation) {
            return Ok(());
        }
        diagnosis.progress.set_message("isolation");
        let command = self.command(1);
        let limits = self.settings.limits.clone();
        let pool = Private::start(limits, command.clone(), &self.devices, &self.socket)?;
        let ready = pool.wait_ready();
        diagnosis.add(isolation::supervisor())?;
        if let Err(why) = ready {
            let next = "the checks of that device say more; mend it, then run this again";
            diagnosis.add(Check::fail(Group::Isolation, "workers", why.to_string(), next))?;
        }
        let serves = |row: &&WorkerStatus| match row.state {
            WorkerState::Busy | WorkerState::Ready | WorkerState::Standby => true,
            WorkerState::Backoff
            | WorkerState::Quarantined
            | WorkerState::Starting
            | WorkerState::Stopping
            | WorkerState::Stopped
            | WorkerState::Unkillable => false,
        };
        for row in pool.shell().status().workers.iter().filter(serves) {
            let is_its = |device: &&PoolDevice| row.name.starts_with(&format!("{}#", device.id));
            if let Some(device) = self.devices.iter().find(is_its) {
                diagnosis.add(isolation::worker(row, device))?;
            }
        }
        drop(pool);
        let Some(first) = self.devices.first() else { return Ok(()) };
        let check = isolation::contamination(command, first, self.folder.path(), &self.socket);
        diagnosis.add(check)
    }

    /// Every op, the device's memory, and a fault.
    fn look_at_grids(
        &self,
        diagnosis: &mut Diagnosis<'_>,
        device: &PoolDevice,
    ) -> Result<(), CommandError> {
        let groups = [Group::Batches, Group::Allocation, Group::Faults];
        let wanted: Vec<Group> =
            groups.into_iter().filter(|&group| diagnosis.wants(group)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let Some(_pool) = self.start(diagnosis, device, &wanted, false)? else { return Ok(()) };
        let (socket, id) = (self.socket.clone(), device.id);
        if wanted.contains(&Group::Batches) {
            let subject = Subject::Batches { socket: socket.clone(), device: id };
            self.ask(diagnosis, subject, device, Group::Batches)?;
        }
        if wanted.contains(&Group::Allocation) {
            let uuid = Some(device.uuid.clone()).filter(|uuid| !uuid.is_empty());
            let subject = Subject::Allocation { socket, device: id, uuid };
            self.ask(diagnosis, subject, device, Group::Allocation)?;
        }
        if wanted.contains(&Group::Faults) {
            diagnosis.progress.set_message(format!("a fault on {id}"));
            diagnosis.add(faults::recovery(&self.socket, device))?;
        }
        Ok(())
    }

    /// Every model that is named.
    fn look_at_models(
        &self,
        diagnosis: &mut Diagnosis<'_>,
        device: &PoolDevice,
    ) -> Result<(), CommandError> {
        if !diagnosis.wants(Group::Models) {
            return Ok(());
        }
        if self.settings.models.is_empty() {
            let skip = Check::skip(
                Group::Models,
                "models",
                "no model is named",
                "name one with --model NAME=PATH, or [[model]] in the config file",
            );
            return diagnosis.add(skip.on(device.id));
        }
        let Some(_pool) = self.start(diagnosis, device, &[Group::Models], true)? else {
            return Ok(());
        };
        let subject = Subject::Models {
            socket: self.socket.clone(),
            device: device.id,
            onnxruntime: self.settings.onnxruntime.clone(),
            models: self.settings.models.clone(),
            threads: cores(),
        };
        self.ask(diagnosis, subject, device, Group::Models)
    }

    /// A pool over one device whose workers are ready; none if they do not come to be, which is said of
    /// each of the groups that wanted it.
    fn start(
        &self,
        diagnosis: &mut Diagnosis<'_>,
        device: &PoolDevice,
        groups: &[Group],
        with_models: bool,
    ) -> Result<Option<Private>, CommandError> {
        diagnosis.progress.set_message(format!("{} starts", device.id));
        let mut command = self.command(cores());
        if !with_models {
            command.models.clear();
        }
        let limits = PoolConfig { standbys: 0, ..self.settings.limits.clone() };
        let pool = Private::start(limits, command, std::slice::from_ref(device), &self.socket)?;
        pool.shell().allow_chaos();
        let Err(why) = pool.wait_ready() else { return Ok(Some(pool)) };
        let next = "mend what it names; `gridpool serve` logs each start of a worker in full";
        for (number, &group) in groups.iter().enumerate() {
            let check = match number {
                0 => Check::fail(group, "start of the pool", why.to_string(), next),
                _ => Check::skip(group, "start of the pool", "no worker is ready here", ""),
            };
            diagnosis.add(check.on(device.id))?;
        }
        Ok(None)
    }

    fn ask(
        &self,
        diagnosis: &mut Diagnosis<'_>,
        subject: Subject,
        device: &PoolDevice,
        group: Group,
    ) -> Result<(), CommandError> {
        ask(diagnosis, &self.worker, subject, &device.uuid, (group, Some(device.id)))
    }
}

/// Has a process that sees the GPU `uuid` look, and takes its checks. One that ends badly is a check too.
fn ask(
    diagnosis: &mut Diagnosis<'_>,
    worker: &Path,
    subject: Subject,
    uuid: &str,
    (group, device): (Group, Option<DeviceId>),
) -> Result<(), CommandError> {
    let flags = diagnosis.flags;
    let (ops, sizes) = (flags.ops.clone(), flags.sizes.clone());
    let plan = Plan { subject, ops, sizes, quick: flags.quick };
    let plan = serde_json::to_string(&plan).map_err(|error| CommandError::Output(error.into()))?;
    let mut found = 0;
    let ended =
        Helper::start(worker, &["diagnose", "--plan", &plan], uuid).and_then(|mut helper| {
            let mut checks = Vec::new();
            while let Some(line) = helper.next()? {
                match line {
                    Line::Doing(what) => diagnosis.progress.set_message(what),
                    Line::Check(check) => {
                        found += 1;
                        checks.push(diagnosis.add(check));
                    }
                }
            }
            Ok(checks)
        });
    let why = match ended {
        Ok(checks) => {
            checks.into_iter().collect::<Result<(), CommandError>>()?;
            if found > 0 {
                return Ok(());
            }
            "it found nothing to look at".to_owned()
        }
        Err(error @ (ChildError::Ended { .. } | ChildError::System { .. })) => error.to_string(),
        Err(error @ (ChildError::Silent { .. } | ChildError::Strange { .. })) => error.to_string(),
    };
    let next = "run this again with --only and this group; if it stays, report it with this line";
    let check = Check::fail(group, "the process that looks", why, next);
    diagnosis.add(match device {
        Some(device) => check.on(device),
        None => check,
    })
}

/// Says of everything that needs a device why it is not tried.
fn skip_devices(diagnosis: &mut Diagnosis<'_>, why: &str) -> Result<(), CommandError> {
    for group in OF_DEVICES {
        if diagnosis.wants(group) {
            let next = "mend what failed above, then run this again";
            diagnosis.add(Check::skip(group, "all checks", why, next))?;
        }
    }
    Ok(())
}

/// Threads of a CPU device that is tried alone.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
