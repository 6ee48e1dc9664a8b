//! From what `--devices` asks for to the devices there are. NVML is asked by a process of its own
//! (`gridpool-worker probe`): it can hang, and this process never loads a CUDA library.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gridpool_protocol::ids::{DeviceId, DeviceKind};
use serde::Deserialize;

use crate::config::DeviceSelection;
use crate::shell::PoolDevice;

/// How long NVML may take; a cold driver needs 1 to 3 s for each GPU.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of an answer.
const PROBE_BYTES_MAX: u64 = 1 << 20;
/// What to type on a machine without a GPU.
const TRY_CPU: &str = "to try gridpool on the CPU type --devices cpu:2";

/// Why there are no devices to serve.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// The worker's binary is not there.
    #[error(
        "{} is not there: build it with `cargo build --release`, or name it with --worker-bin",
        .0.display()
    )]
    NoWorkerBinary(PathBuf),
    /// There is no GPU, or no driver.
    #[error("no GPU found ({0}); {TRY_CPU}")]
    NoGpu(String),
    /// A GPU that was asked for is not there.
    #[error("there is no GPU {wanted}; {found}; {TRY_CPU}")]
    NoSuchGpu {
        /// What was asked for.
        wanted: String,
        /// What there is, in words.
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
    /// The process that asks NVML did not answer.
    #[error("the GPUs could not be listed: {0}; {TRY_CPU}")]
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
}

/// The worker's binary: the one that was named, or the one beside this program.
///
/// # Errors
/// [`DevicesError::NoWorkerBinary`] if there is none.
pub fn worker_binary(named: Option<&Path>) -> Result<PathBuf, DevicesError> {
    const NAME: &str = "gridpool-worker";
    let beside = || std::env::current_exe().ok()?.parent().map(|folder| folder.join(NAME));
    let path = named.map(Path::to_owned).or_else(beside).unwrap_or_else(|| PathBuf::from(NAME));
    // A bare name would be looked up in PATH, and another binary be started than was looked at.
    match path.canonicalize() {
        Ok(whole) if whole.is_file() => Ok(whole),
        Ok(_) | Err(_) => Err(DevicesError::NoWorkerBinary(path)),
    }
}

/// The devices that the selections name, each once, GPUs in the order of NVML.
///
/// # Errors
/// [`DevicesError`] if a GPU is asked for that is not there. No CPU device ever takes its place.
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
            if devices.contains(&device) {
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
    PoolDevice { id, uuid: gpu.uuid.clone() }
}

fn cpu_device(index: u32) -> PoolDevice {
    PoolDevice { id: DeviceId { kind: DeviceKind::Cpu, index }, uuid: String::new() }
}

fn list_gpus(worker: &Path) -> Result<Vec<Gpu>, DevicesError> {
    let text = answer_of(Command::new(worker).arg("probe"), PROBE_TIMEOUT).map_err(|error| {
        DevicesError::Probe(match error {
            Unanswered::Late => format!("NVML did not answer within {PROBE_TIMEOUT:?}"),
            Unanswered::System(error) => error.to_string(),
        })
    })?;
    let found: Found = serde_json::from_str(&text)
        .map_err(|error| DevicesError::Probe(format!("its answer is no JSON: {error}")))?;
    match found.error {
        Some(error) => Err(DevicesError::NoGpu(error)),
        None if found.gpus.is_empty() => Err(DevicesError::NoGpu("NVML lists none".to_owned())),
        None => Ok(found.gpus),
    }
}

/// Why a process that was asked for one thing has not said it.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It takes too long, and was ended.
    Late,
    /// It could not be started, read or ended.
    System(io::Error),
}

/// Everything that a process prints on its standard output, if it ends within `limit`.
pub(crate) fn answer_of(command: &mut Command, limit: Duration) -> Result<String, Unanswered> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(Unanswered::System)?;
    let text = read_answer(&mut child, limit);
    // It has answered, or it hangs: either way it is of no further use. One that sits in the kernel
    // for good is left behind; the system reaps it when this process ends.
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
        // Nobody listens any more if it took too long.
        drop(sender.send(read.map(|_| text)));
    };
    let thread = thread::Builder::new().name("probe".into()).spawn(read);
    thread.map_err(Unanswered::System)?;
    match receiver.recv_timeout(limit) {
        Ok(read) => read.map_err(Unanswered::System),
        Err(_) => Err(Unanswered::Late),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus() -> Vec<Gpu> {
        let gpu = |index| Gpu { index, uuid: format!("GPU-{index}"), name: "H200".to_owned() };
        vec![gpu(0), gpu(1)]
    }

    fn names(selections: &[DeviceSelection]) -> Result<Vec<String>, String> {
        let devices = choose(selections, &gpus()).map_err(|error| error.to_string())?;
        Ok(devices.iter().map(|device| device.id.to_string()).collect())
    }

    #[test]
    fn selections_name_devices_and_nothing_stands_in_for_a_missing_one() {
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
