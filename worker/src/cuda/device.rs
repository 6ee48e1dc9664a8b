//! The GPU of a worker: opened once, checked, and then given batches.

#![expect(unsafe_code, reason = "registers arenas with the driver")]

use std::fs;
use std::ops::Range;

use gridpool_kernels::module::{CUDA_VERSION_MIN, module_hash};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::shared::SharedSlice;

use super::driver::Driver;
use super::lane::{Direct, Done, Lane};
use super::launch::Module;
use crate::chunk::{ChunkLimits, cut};
use crate::device::{Device, Task, Work};
use crate::fault::Fault;

/// Large enough to amortise launches, small enough that a batch of any size needs little of a
/// device's memory: half a gigabyte at most, for the chunk, three stages between two steps, two
/// planes of labels and three of the result.
const CHUNK_LIMITS: ChunkLimits = ChunkLimits { items_max: 1 << 20, cells_max: 32 << 20 };

/// The one GPU that this process sees, with the kernels loaded.
#[derive(Debug)]
pub struct CudaDevice {
    driver: Driver,
    info: DeviceInfo,
    module: Module,
    lane: Lane,
    chunk_limits: ChunkLimits,
    /// Addresses of registered arenas.
    arenas: Vec<Range<usize>>,
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

    /// The same over a driver that is given.
    pub(super) fn over(
        driver: Driver,
        index: u32,
        expected_uuid: Option<&str>,
    ) -> Result<Self, Fault> {
        let device = driver.only_device()?;
        let uuid = uuid_text(driver.uuid(device)?);
        if let Some(want) = expected_uuid.filter(|want| *want != uuid) {
            return Err(Fault::WrongDevice { want: want.to_owned(), got: uuid });
        }
        let info = DeviceInfo {
            kind: DeviceKind::Gpu,
            index,
            name: driver.name(device)?,
            uuid,
            driver: driver_version(),
        };
        driver.enter_context(device)?;
        let module = Module::load(&driver)?;
        let mut lane = Lane::open(driver)?;
        lane.load_kernels(&module)?;
        Ok(Self { driver, info, module, lane, chunk_limits: CHUNK_LIMITS, arenas: Vec::new() })
    }

    /// The same device with smaller chunks, so that a test of many chunks need not be large.
    #[must_use]
    pub fn with_chunk_limits(self, chunk_limits: ChunkLimits) -> Self {
        Self { chunk_limits, ..self }
    }

    fn is_adopted(&self, slice: &SharedSlice<'_>) -> bool {
        let range = addresses(slice);
        self.arenas.iter().any(|arena| arena.start <= range.start && range.end <= arena.end)
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_hash(&self) -> &str {
        module_hash()
    }

    fn run(&mut self, task: &Task<'_>) -> Result<Work, Fault> {
        let direct =
            Direct { input: self.is_adopted(&task.input), output: self.is_adopted(&task.output) };
        let mut done = Done::default();
        for chunk in cut(task.program, task.tables, self.chunk_limits) {
            self.lane.run(&self.module, task, &chunk, direct, &mut done)?;
        }
        Ok(Work {
            kernels: done.tally.into_uses(),
            item_errors: done.item_errors,
            h2d_bytes: done.h2d_bytes,
            d2h_bytes: done.d2h_bytes,
        })
    }

    fn adopt(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
        // SAFETY: the caller keeps the arena mapped until it has released it.
        match unsafe { self.driver.register(arena.as_ptr(), arena.bytes()) } {
            Ok(()) => self.arenas.push(addresses(&arena)),
            Err(fault) if fault.ends_worker() => return Err(fault),
            // Where pages cannot be locked, its copies go through staging, as inline ones do.
            Err(fault) => tracing::warn!(%fault, "an arena is copied through staging"),
        }
        Ok(())
    }

    fn release(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
        let range = addresses(&arena);
        let Some(at) = self.arenas.iter().position(|known| *known == range) else { return Ok(()) };
        self.arenas.swap_remove(at);
        self.driver.unregister(arena.as_ptr())
    }
}

fn addresses(slice: &SharedSlice<'_>) -> Range<usize> {
    let start = slice.as_ptr().addr();
    start..start + slice.bytes()
}

/// `GPU-` and the 16 bytes in groups of 4, 2, 2, 2 and 6, as NVML and `nvidia-smi` write it.
pub(super) fn uuid_text(uuid: [u8; 16]) -> String {
    let groups = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    format!("GPU-{}", groups.map(gridpool_protocol::program::hex).join("-"))
}

/// The kernel module's version as the kernel module gives it, or `unknown` where it is hidden from
/// this process.
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
