//! Lists the GPUs of this machine through NVML, in a separate process because a call of NVML can hang in the
//! kernel forever. It prints one JSON document and ends.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde::Serialize;

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// NVML's index: the order of the PCI bus.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// The product's name.
    pub name: String,
    /// Its memory; none if the driver does not tell.
    pub memory: Option<Memory>,
}

/// Memory of a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// What is used of it.
    pub used: u64,
    /// All of it.
    pub total: u64,
}

/// The GPUs that were found, or why there are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The GPUs, in NVML's order.
    pub gpus: Vec<Gpu>,
    /// The driver's version; empty without one.
    pub driver: String,
    /// The CUDA version that the driver has, such as 12.8; empty if it is not known.
    pub cuda: String,
    /// Why there are no GPUs, if that is an error.
    pub error: Option<String>,
}

/// Asks NVML.
#[must_use]
pub fn probe() -> Found {
    match ask() {
        Ok(found) => found,
        Err(error) => {
            let error = if matches!(error, NvmlError::LibloadingError(_)) {
                "there is no NVIDIA driver here: libnvidia-ml.so.1 is missing".to_owned()
            } else {
                error.to_string()
            };
            Found {
                gpus: Vec::new(),
                driver: String::new(),
                cuda: String::new(),
                error: Some(error),
            }
        }
    }
}

fn ask() -> Result<Found, NvmlError> {
    let nvml = Nvml::init()?;
    let gpu = |index| -> Result<Gpu, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let memory = device.memory_info();
        let memory = memory.inspect_err(|error| tracing::debug!(index, %error, "its memory"));
        let memory = memory.ok().map(|own| Memory { used: own.used, total: own.total });
        Ok(Gpu { index, uuid: device.uuid()?, name: device.name()?, memory })
    };
    let mut gpus = Vec::new();
    for index in 0..nvml.device_count()? {
        match gpu(index) {
            Ok(gpu) => gpus.push(gpu),
            // A GPU that has fallen off the bus must not hide the others.
            Err(error) => tracing::warn!(index, %error, "a GPU that does not answer is left out"),
        }
    }
    let cuda = nvml.sys_cuda_driver_version().map(cuda_text);
    let cuda = cuda.inspect_err(|error| tracing::debug!(%error, "the driver's CUDA version"));
    let (driver, cuda) = (nvml.sys_driver_version()?, cuda.unwrap_or_default());
    Ok(Found { gpus, driver, cuda, error: None })
}

/// The version of a number such as 12080.
fn cuda_text(number: i32) -> String {
    format!("{}.{}", number / 1_000, number % 1_000 / 10)
}
