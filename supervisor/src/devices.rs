//! Finds the devices that `--devices` selects, and says of a worker's row which it is on and how busy that is. A child
//! process (`gridpool-worker probe`) asks NVML, since NVML can hang and this process never loads a CUDA library.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gridpool_core::config::PoolConfig;
use gridpool_core::placing::{self, DeviceMemory};
use gridpool_protocol::ids::{DeviceId, DeviceKind};
use gridpool_protocol::status::{DeviceStatus, WorkerStatus};
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::placement::Placement;
use serde::Deserialize;

use crate::config::DeviceSelection;
use crate::shell::PoolDevice;

/// How long NVML may take; a cold driver needs 1 to 3 s for each GPU.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a binary may take to print its version.
pub(crate) const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const PROBE_BYTES_MAX: u64 = 1 << 20;
/// Advice for a machine without a GPU.
const TRY_CPU: &str = "to try gridpool on the CPU type --devices cpu:2";

/// The device of a worker, by the worker's name or by its own: `gpu0` of `gpu0#4`.
pub(crate) fn device_of(worker: &str) -> &str {
    worker.split('#').next().unwrap_or(worker)
}

/// How busy the device of a worker is, percent. GPU: share of time in which a kernel ran on it. CPU: CPU time of the
/// worker by time, so 200 for two CPUs; `cpu_us` is how much it grew in a second.
pub(crate) fn busy_percent(
    worker: &WorkerStatus,
    gpus: &[DeviceStatus],
    cpu_us: Option<f64>,
) -> Option<f64> {
    let gpu = gpus.iter().find(|gpu| gpu.name == device_of(&worker.name));
    let of_gpu = gpu.and_then(|gpu| gpu.busy_percent).map(f64::from);
    of_gpu.or_else(|| cpu_us.map(|us| us / 1e4))
}

/// Why there are no devices to serve.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// The worker's binary is missing.
    #[error(
        "{}: build it with `cargo build --release`, or name it with --worker-bin",
        match .0.is_dir() {
            true => format!("{} is a folder, not the worker's binary", .0.display()),
            false => format!("there is no file {}", .0.display()),
        }
    )]
    NoWorkerBinary(PathBuf),
    /// There is no GPU, or no driver.
    #[error("no GPU found ({0}); {TRY_CPU}")]
    NoGpu(String),
    /// A selected GPU does not exist.
    #[error("there is no GPU {wanted}; {found}; {TRY_CPU}")]
    NoSuchGpu {
        /// The selection.
        wanted: String,
        /// The GPUs that exist, in words.
        found: String,
    },
    /// Two selections name one GPU.
    #[error("GPU {index} ({uuid}) is named twice")]
    Twice {
        /// NVML's index.
        index: u32,
        /// `GPU-…`.
        uuid: String,
    },
    /// The probe did not answer.
    #[error("cannot list the GPUs: {0}; {TRY_CPU}")]
    Probe(String),
}

#[derive(Debug, Deserialize)]
struct Found {
    gpus: Vec<Gpu>,
    error: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Gpu {
    index: u32,
    uuid: String,
    name: String,
    memory: Option<GpuMemory>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct GpuMemory {
    used: u64,
    total: u64,
}

/// The worker's binary: the named file, or the file beside this program.
///
/// # Errors
/// [`DevicesError::NoWorkerBinary`] if there is none.
pub fn worker_binary(named: Option<&Path>) -> Result<PathBuf, DevicesError> {
    const NAME: &str = "gridpool-worker";
    let beside = || std::env::current_exe().ok()?.parent().map(|folder| folder.join(NAME));
    let path = named.map(Path::to_owned).or_else(beside).unwrap_or_else(|| PathBuf::from(NAME));
    // Makes the path absolute: the system would search PATH for a bare name, and start another binary.
    match path.canonicalize() {
        Ok(whole) if whole.is_file() => Ok(whole),
        Ok(_) | Err(_) => Err(DevicesError::NoWorkerBinary(path)),
    }
}

/// The selected devices, without repetition, GPUs in the order of NVML.
///
/// # Errors
/// [`DevicesError`] if a selected GPU does not exist. A CPU device never replaces it.
pub fn resolve(
    selections: &[DeviceSelection],
    worker: &Path,
) -> Result<Vec<PoolDevice>, DevicesError> {
    let wants_gpu = selections.iter().any(|selection| match selection {
        DeviceSelection::AllGpus | DeviceSelection::GpuIndex(_) | DeviceSelection::GpuUuid(_) => {
            true
        }
        DeviceSelection::Cpu(_) => false,
    });
    let gpus = if wants_gpu { list_gpus(worker)? } else { Vec::new() };
    choose(selections, &gpus)
}

fn choose(selections: &[DeviceSelection], gpus: &[Gpu]) -> Result<Vec<PoolDevice>, DevicesError> {
    let mut devices: Vec<PoolDevice> = Vec::new();
    for selection in selections {
        let chosen = match selection {
            DeviceSelection::AllGpus => gpus.iter().map(gpu_device).collect(),
            DeviceSelection::Cpu(count) => (0..*count).map(cpu_device).collect(),
            DeviceSelection::GpuIndex(index) => {
                vec![find(gpus, &index.to_string(), |gpu| gpu.index == *index)?]
            }
            DeviceSelection::GpuUuid(uuid) => vec![find(gpus, uuid, |gpu| gpu.uuid == *uuid)?],
        };
        for device in chosen {
            if devices.iter().any(|other| other.id == device.id) {
                return Err(DevicesError::Twice { index: device.id.index, uuid: device.uuid });
            }
            devices.push(device);
        }
    }
    Ok(devices)
}

fn find(
    gpus: &[Gpu],
    wanted: &str,
    is_it: impl Fn(&Gpu) -> bool,
) -> Result<PoolDevice, DevicesError> {
    gpus.iter().find(|gpu| is_it(gpu)).map(gpu_device).ok_or_else(|| {
        let list: Vec<_> =
            gpus.iter().map(|gpu| format!("{} ({}, {})", gpu.index, gpu.name, gpu.uuid)).collect();
        DevicesError::NoSuchGpu {
            wanted: wanted.to_owned(),
            found: format!("there is {}", list.join(", ")),
        }
    })
}

fn gpu_device(gpu: &Gpu) -> PoolDevice {
    let id = DeviceId { kind: DeviceKind::Gpu, index: gpu.index };
    let memory = gpu.memory.map(|GpuMemory { used, total }| DeviceMemory { used, total });
    PoolDevice { id, uuid: gpu.uuid.clone(), memory }
}

fn cpu_device(index: u32) -> PoolDevice {
    PoolDevice { id: DeviceId { kind: DeviceKind::Cpu, index }, uuid: String::new(), memory: None }
}

/// Versions of the NVIDIA driver of this machine; empty ones are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct DriverVersions {
    /// Its own: 570.86.15.
    pub(crate) driver: String,
    /// That of CUDA: 12.8.
    pub(crate) cuda: String,
}

/// What the driver of this machine says of itself.
pub(crate) fn driver_of(worker: &Path) -> Result<DriverVersions, Unanswered> {
    driver_by(&mut Command::new(worker))
}

/// The same by the binary that this command runs.
pub(crate) fn driver_by(worker: &mut Command) -> Result<DriverVersions, Unanswered> {
    let text = answer_of(worker.arg("probe"), PROBE_TIMEOUT)?;
    serde_json::from_str(&text).map_err(|error| Unanswered::System(error.into()))
}

fn list_gpus(worker: &Path) -> Result<Vec<Gpu>, DevicesError> {
    let text = answer_of(Command::new(worker).arg("probe"), PROBE_TIMEOUT).map_err(|error| {
        DevicesError::Probe(match error {
            Unanswered::Late => format!("NVML did not answer within {PROBE_TIMEOUT:?}"),
            Unanswered::System(error) => error.to_string(),
        })
    })?;
    let found: Found = serde_json::from_str(&text)
        .map_err(|error| DevicesError::Probe(format!("the probe's answer is not JSON: {error}")))?;
    match found.error {
        Some(error) => Err(DevicesError::NoGpu(error)),
        None if found.gpus.is_empty() => Err(DevicesError::NoGpu("NVML lists none".to_owned())),
        None => Ok(found.gpus),
    }
}

/// Why a child process gave no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It took too long and was killed.
    Late,
    /// The system failed to start, read or kill it.
    System(io::Error),
}

/// The output of a worker binary's `--version`: its build and its kernels.
pub(crate) fn version_of(worker: &Path) -> Result<String, Unanswered> {
    version_by(&mut Command::new(worker))
}

/// The same of the binary that this command runs.
pub(crate) fn version_by(worker: &mut Command) -> Result<String, Unanswered> {
    answer_of(worker.arg("--version").stderr(Stdio::null()), VERSION_TIMEOUT)
}

/// The standard output of a process that ends within `limit`.
fn answer_of(command: &mut Command, limit: Duration) -> Result<String, Unanswered> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(Unanswered::System)?;
    let text = read_answer(&mut child, limit);
    // It has answered or it hangs, so kill it. A process that hangs in the kernel is left behind; the system
    // reaps it when this process ends.
    child.kill().map_err(Unanswered::System)?;
    let text = text?;
    child.wait().map_err(Unanswered::System)?;
    Ok(text)
}

fn read_answer(child: &mut Child, limit: Duration) -> Result<String, Unanswered> {
    let output = child.stdout.take().expect("it was piped");
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut text = String::new();
        let read = output.take(PROBE_BYTES_MAX).read_to_string(&mut text);
        // The receiver is gone if the process took too long.
        drop(sender.send(read.map(|_| text)));
    };
    let thread = thread::Builder::new().name("probe".into()).spawn(read);
    thread.map_err(Unanswered::System)?;
    match receiver.recv_timeout(limit) {
        Ok(read) => read.map_err(Unanswered::System),
        Err(_) => Err(Unanswered::Late),
    }
}

/// The models of a pool with these devices: each that says only how many it needs gets some.
///
/// # Errors
/// A sentence about the first model that cannot be placed: the pool has not its devices, or too few, or they have not
/// the memory that is planned for it.
pub fn place(
    models: &[ModelPlan],
    devices: &[PoolDevice],
    limits: &PoolConfig,
) -> Result<Vec<ModelPlan>, String> {
    check_placements(models, devices)?;
    let known: Vec<_> = devices.iter().map(|device| (device.id, device.memory)).collect();
    let mut placed = models.to_vec();
    placing::place_all(&mut placed, &known, 1 + limits.standbys)?;
    check_memory(&placed, devices, limits)?;
    Ok(placed)
}

/// Checks that the pool has the devices of each model.
fn check_placements(models: &[ModelPlan], devices: &[PoolDevice]) -> Result<(), String> {
    let has = |id: DeviceId| devices.iter().any(|device| device.id == id);
    for plan in models {
        let own = plan.options.devices.iter().flat_map(Placement::devices);
        if let Some(other) = own.into_iter().find(|&id| !has(id)) {
            let names: Vec<_> = devices.iter().map(|device| device.id.to_string()).collect();
            return Err(format!(
                "the model `{}` cannot be placed: the pool has no device {other}; it has {}",
                plan.name,
                names.join(", ")
            ));
        }
    }
    Ok(())
}

/// Checks that the models of each device stay within the memory that is planned for them, if there is such a plan.
fn check_memory(
    models: &[ModelPlan],
    devices: &[PoolDevice],
    limits: &PoolConfig,
) -> Result<(), String> {
    let (max, processes) = (limits.model_bytes_max, u64::from(1 + limits.standbys));
    if max == 0 {
        return Ok(());
    }
    for device in devices.iter().map(|device| device.id) {
        let is_on = |plan: &&ModelPlan| {
            plan.options.devices.as_ref().is_none_or(|devices| devices.has(device))
        };
        let own = models.iter().filter(is_on).filter_map(|plan| plan.options.device_bytes);
        let wanted = own.fold(0, u64::saturating_add).saturating_mul(processes);
        if wanted > max {
            return Err(format!(
                "the models of {device} may take {wanted} bytes, more than {max}, the `model_bytes_max` of a device: \
                 lower their `device_bytes`, or give them other `devices`"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::options::ModelOptions;

    use super::*;

    fn gpus() -> Vec<Gpu> {
        let gpu = |index| Gpu {
            index,
            uuid: format!("GPU-{index}"),
            name: "H200".to_owned(),
            memory: None,
        };
        vec![gpu(0), gpu(1)]
    }

    fn names(selections: &[DeviceSelection]) -> Result<Vec<String>, String> {
        let devices = choose(selections, &gpus()).map_err(|error| error.to_string())?;
        Ok(devices.iter().map(|device| device.id.to_string()).collect())
    }

    #[test]
    fn what_the_probe_says_of_memory_decides_where_a_model_goes() {
        let answer = r#"{"gpus": [
            {"index": 0, "uuid": "GPU-0", "name": "H200", "memory": {"used": 90000000000, "total": 150000000000}},
            {"index": 1, "uuid": "GPU-1", "name": "H200", "memory": {"used": 5000000000, "total": 150000000000}},
            {"index": 2, "uuid": "GPU-2", "name": "H200", "memory": null}], "error": null}"#;
        let found: Found = serde_json::from_str(answer).unwrap();
        let devices = choose(&[DeviceSelection::AllGpus], &found.gpus).unwrap();
        let options = ModelOptions { device_count: Some(1), ..ModelOptions::default() };
        let models = [ModelPlan { name: "m".to_owned(), path: "/m.onnx".into(), options }];
        let placed = place(&models, &devices, &PoolConfig::DEFAULT).unwrap();
        assert_eq!(placed[0].options.devices.as_ref().unwrap().to_string(), "gpu1");
    }

    #[test]
    fn selections_name_devices_and_nothing_replaces_a_missing_gpu() {
        use DeviceSelection::{AllGpus, Cpu, GpuIndex, GpuUuid};
        assert_eq!(names(&[AllGpus]).unwrap(), ["gpu0", "gpu1"]);
        assert_eq!(
            names(&[GpuUuid("GPU-1".to_owned()), Cpu(2)]).unwrap(),
            ["gpu1", "cpu0", "cpu1"]
        );
        let missing = names(&[GpuIndex(7)]).unwrap_err();
        assert!(missing.contains("there is no GPU 7; there is 0 (H200, GPU-0)"), "{missing}");
        let twice = names(&[GpuIndex(0), GpuUuid("GPU-0".to_owned())]).unwrap_err();
        assert_eq!(twice, "GPU 0 (GPU-0) is named twice");
    }
}
