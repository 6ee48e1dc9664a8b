//! The GPU of a worker: opened once, checked, and then given dispatches.

use std::fs;
use std::sync::Arc;

use gridpool_kernels::module::{CUDA_VERSION_MIN, module_hash};
use gridpool_protocol::chaos::DeviceFault;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::shared::SharedSlice;

use super::driver::{DeviceHandle, Driver};
use super::gpu::Gpu;
use super::lane::Lane;
use super::launch::Module;
use super::memory::Allocator;
use super::solve::{Solving, Work};
use super::{chaos, pipeline};
use crate::chunk::ChunkLimits;
use crate::device::{Device, DispatchReport, GridDispatch};
use crate::fault::Fault;
use crate::gauges::Gauges;
use crate::search::SearchAttempt;
use crate::tally::{Tally, Totals};

/// Keeps the device memory of a dispatch small at any size. Each lane holds its chunk, three stages
/// between two steps, two planes of labels and three of the result.
const CHUNK_LIMITS: ChunkLimits = ChunkLimits { items_max: 1 << 20, cells_max: 32 << 20 };

/// Chunks under way: one is copied in, one is computed, one is copied out, and one is prepared or waited
/// for.
const LANES: usize = 4;

/// The one GPU that this process sees, with the kernels loaded.
#[derive(Debug)]
pub struct CudaDevice {
    info: DeviceInfo,
    pub(super) gpu: Gpu,
    pub(super) lanes: Vec<Lane>,
    pub(super) chunk_limits: ChunkLimits,
    /// From the first solver or search on.
    pub(super) solving: Option<Solving>,
}

impl CudaDevice {
    /// Opens the only visible device, the `index`th GPU of the host, makes a context, and loads
    /// and launches every kernel once. The calling thread is the one that may use it.
    ///
    /// # Errors
    /// A [`Fault`]: no driver, one that is too old, not exactly one visible device, one that is
    /// not `expected_uuid`, or a call that fails.
    pub fn open(index: u32, expected_uuid: Option<&str>) -> Result<Self, Fault> {
        Self::over(Driver::open(CUDA_VERSION_MIN)?, index, expected_uuid)
    }

    /// Describes the only visible device, without a context on it.
    ///
    /// # Errors
    /// As [`CudaDevice::open`].
    pub fn describe(index: u32, expected_uuid: Option<&str>) -> Result<DeviceInfo, Fault> {
        let driver = Driver::open(CUDA_VERSION_MIN)?;
        let device = driver.only_device()?;
        info(&driver, device, index, expected_uuid)
    }

    /// Uses the driver that is given.
    pub(super) fn over(
        driver: Driver,
        index: u32,
        expected_uuid: Option<&str>,
    ) -> Result<Self, Fault> {
        let device = driver.only_device()?;
        let info = info(&driver, device, index, expected_uuid)?;
        driver.enter_context(device)?;
        let module = Module::load(&driver)?;
        let lanes =
            (0..LANES).map(|number| Lane::open(driver, number)).collect::<Result<_, Fault>>()?;
        let allocator = Allocator::new(driver);
        let gpu = Gpu::new(driver, module, allocator);
        let mut device = Self { info, gpu, lanes, chunk_limits: CHUNK_LIMITS, solving: None };
        device.load_kernels()?;
        Ok(device)
    }

    /// Uses smaller chunks, so that a test of many chunks need not be large.
    #[must_use]
    pub fn with_chunk_limits(self, chunk_limits: ChunkLimits) -> Self {
        Self { chunk_limits, ..self }
    }

    /// Launches every kernel over no values: a driver loads a kernel at its first launch, and a
    /// failure to do so should end a worker before it serves.
    fn load_kernels(&mut self) -> Result<(), Fault> {
        let Gpu { driver, module, .. } = &self.gpu;
        let lane = &mut self.lanes[0];
        let stream = lane.stream();
        lane.launcher().launch_all_over_nothing(driver, module)?;
        driver.synchronize(stream)?;
        lane.launcher().collect(driver, &mut Tally::default())
    }
}

/// What a device is, if it is the one that is expected.
fn info(
    driver: &Driver,
    device: DeviceHandle,
    index: u32,
    expected_uuid: Option<&str>,
) -> Result<DeviceInfo, Fault> {
    let uuid = uuid_text(driver.uuid(device)?);
    if let Some(want) = expected_uuid.filter(|want| *want != uuid) {
        return Err(Fault::WrongDevice { want: want.to_owned(), got: uuid });
    }
    let (kind, name, driver) = (DeviceKind::Gpu, driver.name(device)?, driver_version());
    Ok(DeviceInfo { kind, index, name, uuid, driver })
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_hash(&self) -> &str {
        module_hash()
    }

    fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(self.gpu.allocator.gauges())
    }

    fn run(&mut self, dispatch: &GridDispatch<'_>) -> Result<DispatchReport, Fault> {
        let mut done = Totals::of(dispatch);
        let Self { gpu, lanes, chunk_limits, solving, .. } = self;
        let work = Work::of(dispatch, solving, gpu)?;
        pipeline::run(gpu, lanes, work, *chunk_limits, &mut done)?;
        Ok(done.into_report(gpu.allocator.take_count()))
    }

    fn search(&mut self, attempts: &[SearchAttempt<'_>]) -> Result<DispatchReport, Fault> {
        let mut done = Totals::of_searches(attempts.len());
        let Self { gpu, solving, .. } = self;
        Solving::loaded(solving, gpu)?.search(gpu, attempts, &mut done)?;
        Ok(done.into_report(gpu.allocator.take_count()))
    }

    fn adopt(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
        self.gpu.adopt(&arena)
    }

    fn release(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
        self.gpu.release(&arena)
    }

    fn inject(&mut self, fault: DeviceFault) -> Result<(), Fault> {
        chaos::inject(&self.gpu.driver, self.lanes[0].stream(), fault)
    }
}

/// `GPU-` and the 16 bytes in groups of 4, 2, 2, 2 and 6, as NVML and `nvidia-smi` write it.
pub(super) fn uuid_text(uuid: [u8; 16]) -> String {
    let groups = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    format!("GPU-{}", groups.map(gridpool_protocol::program::hex).join("-"))
}

/// The kernel module's version, or `unknown` if this process cannot read it.
pub(super) fn driver_version() -> String {
    let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    version_in(&text).unwrap_or("unknown").to_owned()
}

/// The first word made of numbers and dots.
fn version_in(text: &str) -> Option<&str> {
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.split_whitespace().find(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_nvidia_smi_writes_it() {
        let uuid = std::array::from_fn(|at| u8::try_from(16 * at + 10).unwrap_or(255));
        assert_eq!(uuid_text(uuid), "GPU-0a1a2a3a-4a5a-6a7a-8a9a-aabacadaeafa");
    }

    #[test]
    fn the_version_is_found_in_both_kinds_of_kernel_module() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\n\
                      GCC version:  gcc version 12.2.0";
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build";
        assert_eq!(version_in(closed), Some("550.54.15"));
        assert_eq!(version_in(open), Some("580.159.03"));
        assert_eq!(version_in(""), None);
    }
}
