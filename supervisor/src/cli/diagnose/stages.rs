//! The order of the checks, from the machine to a pool on each device.
//!
//! Each device is tested in its own pool, so that a failure names its device. A pool over all devices serves
//! only to check isolation. A check that can no longer run is a skip with its reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gridpool_protocol::diagnose::{Check, Group, Line, Outcome, Plan, Subject};
use gridpool_protocol::ids::{DeviceId, Role};
use gridpool_protocol::status::WorkerStatus;

use super::{Diagnosis, faults, host, isolation, leftovers, limits};
use crate::cli::CommandError;
use crate::cli::child::ChildProcess;
use crate::cli::private::{self, PrivatePool};
use crate::config::Settings;
use crate::devices::{self, Unanswered, VERSION_TIMEOUT};
use crate::shell::{PoolDevice, WorkerCommand};
use gridpool_core::config::PoolConfig;

/// The groups that need a device.
const OF_DEVICES: [Group; 5] =
    [Group::Isolation, Group::Batches, Group::Models, Group::Allocation, Group::Faults];
/// How long the checks of drivers and libraries may be silent: a cold driver needs 1 to 3 s for each GPU.
const LIBRARY_SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long the checks on a device may be silent: the largest batch on one busy core.
const DEVICE_SILENCE_MAX: Duration = Duration::from_secs(600);
/// The check that names the processes with a context on a GPU.
const PROCESSES: &str = "processes";
/// The check for ONNX Runtime.
const ONNXRUNTIME: &str = "onnxruntime";

/// The environment of the checks on devices.
struct Site<'a> {
    settings: &'a Settings,
    worker: PathBuf,
    folder: PathBuf,
    socket: PathBuf,
    devices: Vec<PoolDevice>,
    /// The GPUs in use, and by which processes.
    busy: BTreeMap<DeviceId, String>,
}

/// Runs the wanted checks.
pub(super) fn run(diagnosis: &mut Diagnosis<'_>, settings: &Settings) -> Result<(), CommandError> {
    if diagnosis.wants(Group::Environment) {
        check_host(diagnosis, settings)?;
    }
    let Some(worker) = worker_binary(diagnosis, settings)? else {
        return skip_devices(diagnosis, "there is no worker binary of this build");
    };
    diagnosis.progress.set_message("devices");
    let found = devices::resolve(&settings.devices, &worker);
    let gpus: Vec<_> = found.iter().flatten().filter(|device| !device.uuid.is_empty()).collect();
    let has_gpus = !gpus.is_empty();
    let busy = check_libraries(diagnosis, &worker, settings, &gpus)?;
    let devices = match found {
        Ok(devices) => devices,
        Err(error) => {
            let next = "without a GPU: `gridpool diagnose --devices cpu:2`";
            diagnosis.add(host::fail("devices", error.to_string(), next))?;
            return skip_devices(diagnosis, "there is no device");
        }
    };
    if !limits_allow_a_pool(diagnosis, settings, devices.len(), has_gpus)? {
        return skip_devices(diagnosis, "the limits of this process do not allow a pool");
    }
    let folder = diagnosis.scratch.make("gridpool-diagnose-");
    let socket = folder.as_ref().map(|folder| folder.join("pool.sock"));
    let check =
        host::temporary_folder(&std::env::temp_dir(), socket.as_deref().map_err(|error| *error));
    let is_fit = check.outcome == Outcome::Pass;
    if diagnosis.wants(Group::Environment) || !is_fit {
        diagnosis.add(check)?;
    }
    let (Ok(folder), true) = (folder, is_fit) else {
        return skip_devices(diagnosis, "there is no folder for the sockets of a pool");
    };
    let socket = folder.join("pool.sock");
    let site = Site { settings, worker, folder, socket, devices, busy };
    site.check_isolation(diagnosis)?;
    site.devices.iter().try_for_each(|device| site.check_device(diagnosis, device))
}

fn check_host(diagnosis: &mut Diagnosis<'_>, settings: &Settings) -> Result<(), CommandError> {
    diagnosis.add(host::kernel())?;
    diagnosis.add(host::memory())?;
    if limits::file_size().outcome == Outcome::Pass {
        diagnosis.add(host::shared_memory())?;
    }
    diagnosis.add(host::dev_shm())?;
    diagnosis.add(host::preloaded())?;
    diagnosis.add(leftovers::workers())?;
    diagnosis.add(host::socket(&settings.socket))
}

/// Adds the checks of limits. Returns whether a pool can start under them.
fn limits_allow_a_pool(
    diagnosis: &mut Diagnosis<'_>,
    settings: &Settings,
    devices: usize,
    has_gpus: bool,
) -> Result<bool, CommandError> {
    let standbys = settings.limits.standbys;
    let checks = [
        limits::open_files(&settings.models, devices, standbys),
        limits::processes(devices, standbys),
        limits::file_size(),
        limits::address_space(has_gpus),
    ];
    let mut allow = true;
    for check in checks {
        let is_fit = check.outcome != Outcome::Fail;
        allow &= is_fit;
        if diagnosis.wants(Group::Environment) || !is_fit {
            diagnosis.add(check)?;
        }
    }
    Ok(allow)
}

/// The worker's binary, if it exists and is of this build.
fn worker_binary(
    diagnosis: &mut Diagnosis<'_>,
    settings: &Settings,
) -> Result<Option<PathBuf>, CommandError> {
    let program = match devices::worker_binary(settings.worker_bin.as_deref()) {
        Ok(program) => program,
        Err(error) => {
            let next = "do as it says, then run this again";
            diagnosis.add(host::fail(host::WORKER_BINARY, error.to_string(), next))?;
            return Ok(None);
        }
    };
    let version = devices::version_of(&program).map_err(|error| match error {
        Unanswered::Late => format!("it prints nothing for {} s", VERSION_TIMEOUT.as_secs()),
        Unanswered::System(error) => error.to_string(),
    });
    let check = host::worker_version(&program, version);
    let is_ours = check.outcome == Outcome::Pass;
    if diagnosis.wants(Group::Environment) || !is_ours {
        diagnosis.add(check)?;
    }
    Ok(is_ours.then_some(program))
}

/// Checks drivers and libraries, with a process for each GPU, which sees only that GPU. Returns the GPUs in
/// use, and by which processes.
fn check_libraries(
    diagnosis: &mut Diagnosis<'_>,
    worker: &Path,
    settings: &Settings,
    gpus: &[&PoolDevice],
) -> Result<BTreeMap<DeviceId, String>, CommandError> {
    let is_shown = diagnosis.wants(Group::Environment);
    let mut subjects: Vec<_> =
        gpus.iter().map(|gpu| (Some(gpu.uuid.clone()), Some(gpu.id))).collect();
    if subjects.is_empty() && is_shown {
        subjects.push((None, None));
    }
    let mut busy = BTreeMap::new();
    for (uuid, device) in subjects {
        let onnxruntime = settings.onnxruntime.clone();
        let name = uuid.clone().unwrap_or_default();
        let subject = Subject::Environment { uuid, onnxruntime };
        let of = Of { group: Group::Environment, device, silence_max: LIBRARY_SILENCE_MAX };
        ask(diagnosis, worker, subject, &name, of, |diagnosis, mut check| {
            let holders = check.facts.get("processes").filter(|_| check.name == PROCESSES);
            if let (Some(device), true) = (device, holders.is_some_and(|count| count != "0")) {
                busy.insert(device, check.says.clone());
                check.outcome = if diagnosis.flags.busy { Outcome::Pass } else { Outcome::Skip };
                check.next =
                    "diagnose skips the checks of this device while it is in use".to_owned();
            }
            if check.name == ONNXRUNTIME
                && check.outcome == Outcome::Skip
                && !settings.models.is_empty()
            {
                // Models are named, so ONNX Runtime is needed.
                check.outcome = Outcome::Fail;
            }
            if is_shown { diagnosis.add(check) } else { Ok(()) }
        })?;
    }
    Ok(if diagnosis.flags.busy { BTreeMap::new() } else { busy })
}

impl Site<'_> {
    fn command(&self) -> WorkerCommand {
        private::worker_command(self.settings, self.worker.clone(), cores())
    }

    /// Checks isolation in a pool over all devices, with standbys.
    fn check_isolation(&self, diagnosis: &mut Diagnosis<'_>) -> Result<(), CommandError> {
        if !diagnosis.wants(Group::Isolation) {
            return Ok(());
        }
        diagnosis.progress.set_message("isolation");
        let idle = |device: &&PoolDevice| !self.busy.contains_key(&device.id);
        let devices: Vec<PoolDevice> = self.devices.iter().filter(idle).cloned().collect();
        let Some(first) = devices.first() else { return Ok(()) };
        let command = self.command();
        // The checks read the workers' mappings and environments from outside.
        let confinement = command.confinement.clone().inspectable();
        let pool = PrivatePool::start(
            self.settings.limits.clone(),
            WorkerCommand { confinement, ..command },
            &devices,
            &self.socket,
        );
        let pool = match pool {
            Ok(pool) => pool,
            Err(error) => {
                let next = "correct what it names, then run this again";
                let check = Check::fail(Group::Isolation, "workers", error.to_string(), next);
                return diagnosis.add(check);
            }
        };
        let roles = self.roles();
        let ready: Vec<_> = roles.iter().map(|&role| pool.wait_ready(&[role])).collect();
        diagnosis.add(isolation::supervisor())?;
        for why in ready.into_iter().filter_map(Result::err) {
            let next = "correct what it names, then run this again";
            diagnosis.add(Check::fail(Group::Isolation, "workers", why.to_string(), next))?;
        }
        let serves = |row: &&WorkerStatus| row.state.serves();
        for row in pool.shell().status().workers.iter().filter(serves) {
            let is_its = |device: &&PoolDevice| row.name.starts_with(&format!("{}#", device.id));
            if let Some(device) = devices.iter().find(is_its) {
                diagnosis.add(isolation::worker(row, device))?;
            }
        }
        drop(pool);
        let (folder, socket) = (self.folder.as_path(), &self.socket);
        isolation::contamination(self.command(), first, roles, folder, socket)
            .into_iter()
            .try_for_each(|check| diagnosis.add(check))
    }

    /// The roles that have workers.
    fn roles(&self) -> &'static [Role] {
        if self.settings.models.is_empty() { &[Role::Grid] } else { &[Role::Grid, Role::Infer] }
    }

    /// Checks every op and model, the device's memory, and recovery from a fault.
    fn check_device(
        &self,
        diagnosis: &mut Diagnosis<'_>,
        device: &PoolDevice,
    ) -> Result<(), CommandError> {
        let groups = [Group::Batches, Group::Models, Group::Allocation, Group::Faults];
        let mut wanted: Vec<Group> =
            groups.into_iter().filter(|&group| diagnosis.wants(group)).collect();
        if wanted.contains(&Group::Models) && self.settings.models.is_empty() {
            wanted.retain(|&group| group != Group::Models);
            let next = "name one with --model NAME=PATH, or [[model]] in the config file";
            let skip = Check::skip(Group::Models, "models", "no model is named", next);
            diagnosis.add(skip.on(device.id))?;
        }
        if wanted.is_empty() {
            return Ok(());
        }
        if let Some(who) = self.busy.get(&device.id) {
            let why = format!("{who}: the checks would take memory and time from them");
            let next = "end them, or type --busy to run the checks all the same";
            return skip(diagnosis, &wanted, device.id, &why, next);
        }
        diagnosis.progress.set_message(format!("{} starts", device.id));
        let limits = PoolConfig { standbys: 0, ..self.settings.limits.clone() };
        let alone = std::slice::from_ref(device);
        let pool = match PrivatePool::start(limits, self.command(), alone, &self.socket) {
            Ok(pool) => pool,
            Err(error) => return no_pool(diagnosis, &wanted, device.id, &error.to_string()),
        };
        pool.shell().allow_chaos(true);
        if let Err(why) = pool.wait_ready(&[Role::Grid]) {
            return no_pool(diagnosis, &wanted, device.id, &why.to_string());
        }
        wanted.into_iter().try_for_each(|group| self.check_group(diagnosis, &pool, device, group))
    }

    /// Runs one group of checks on a device whose pool serves grids.
    fn check_group(
        &self,
        diagnosis: &mut Diagnosis<'_>,
        pool: &PrivatePool,
        device: &PoolDevice,
        group: Group,
    ) -> Result<(), CommandError> {
        let (socket, id) = (self.socket.clone(), device.id);
        let subject = match group {
            Group::Environment | Group::Isolation => return Ok(()),
            Group::Batches => Subject::Batches { socket, device: id },
            Group::Allocation => {
                let uuid = Some(device.uuid.clone()).filter(|uuid| !uuid.is_empty());
                Subject::Allocation { socket, device: id, uuid }
            }
            Group::Faults => {
                diagnosis.progress.set_message(format!("a fault on {id}"));
                return diagnosis.add(faults::recovery(&self.socket, device));
            }
            Group::Models => {
                diagnosis.progress.set_message(format!("models on {id}"));
                if let Err(why) = pool.wait_ready(&[Role::Infer]) {
                    return no_pool(diagnosis, &[group], id, &why.to_string());
                }
                Subject::Models {
                    socket,
                    device: id,
                    onnxruntime: self.settings.onnxruntime.clone(),
                    models: self.settings.models.clone(),
                    threads: cores(),
                }
            }
        };
        let of = Of { group, device: Some(id), silence_max: DEVICE_SILENCE_MAX };
        ask(diagnosis, &self.worker, subject, &device.uuid, of, Diagnosis::add)
    }
}

/// What a child process checks, and how long it may be silent.
#[derive(Clone, Copy, Debug)]
struct Of {
    group: Group,
    device: Option<DeviceId>,
    silence_max: Duration,
}

/// Runs a child process that sees the GPU `uuid`, and takes its checks as they come. If the process fails,
/// that is a failed check too.
fn ask<'a>(
    diagnosis: &mut Diagnosis<'a>,
    worker: &Path,
    subject: Subject,
    uuid: &str,
    of: Of,
    mut take: impl FnMut(&mut Diagnosis<'a>, Check) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let flags = diagnosis.flags;
    let (ops, sizes) = (flags.ops.clone(), flags.sizes.clone());
    let plan = Plan { subject, ops, sizes, quick: flags.quick };
    let plan = serde_json::to_string(&plan).map_err(|error| CommandError::Output(error.into()))?;
    let (mut found, mut doing) = (0, String::new());
    let role = ["diagnose", "--plan", &plan];
    let mut helper = match ChildProcess::start(worker, &role, uuid, of.silence_max) {
        Ok(helper) => helper,
        Err(error) => return take(diagnosis, broken(&of, &doing, &error.to_string())),
    };
    loop {
        match helper.next() {
            Ok(Some(Line::Doing(what))) => {
                diagnosis.progress.set_message(what.clone());
                doing = what;
            }
            Ok(Some(Line::Check(check))) => {
                found += 1;
                take(diagnosis, check)?;
            }
            Ok(None) if found > 0 => return Ok(()),
            Ok(None) => {
                return take(diagnosis, broken(&of, &doing, "it reported no check"));
            }
            Err(error) => return take(diagnosis, broken(&of, &doing, &error.to_string())),
        }
    }
}

/// The check for a child process that failed.
fn broken(of: &Of, doing: &str, why: &str) -> Check {
    let group = of.group;
    let says = match doing {
        "" => why.to_owned(),
        doing => format!("during {doing}: {why}"),
    };
    let next = format!(
        "it has met something that crashes or hangs: correct that, then `gridpool diagnose --only {group}`"
    );
    let check = Check::fail(group, "checking process", says, next);
    match of.device {
        Some(device) => check.on(device),
        None => check,
    }
}

/// Fails the first of these groups with the reason why there is no pool, and skips the others.
fn no_pool(
    diagnosis: &mut Diagnosis<'_>,
    groups: &[Group],
    device: DeviceId,
    why: &str,
) -> Result<(), CommandError> {
    let Some((&first, others)) = groups.split_first() else { return Ok(()) };
    let next =
        "correct what it names; `gridpool serve` with the same flags logs each start in full";
    diagnosis.add(Check::fail(first, "start of the pool", why, next).on(device))?;
    skip(diagnosis, others, device, "no worker is ready here", "correct what failed above")
}

fn skip(
    diagnosis: &mut Diagnosis<'_>,
    groups: &[Group],
    device: DeviceId,
    why: &str,
    next: &str,
) -> Result<(), CommandError> {
    let mut skips = groups.iter().map(|&group| Check::skip(group, "all checks", why, next));
    skips.try_for_each(|skip| diagnosis.add(skip.on(device)))
}

/// Skips all groups that need a device.
fn skip_devices(diagnosis: &mut Diagnosis<'_>, why: &str) -> Result<(), CommandError> {
    for group in OF_DEVICES {
        if diagnosis.wants(group) {
            let next = "correct what failed above, then run this again";
            diagnosis.add(Check::skip(group, "all checks", why, next))?;
        }
    }
    Ok(())
}

/// Threads of a CPU device that is tested alone.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
