//! Buffers that are kept from chunk to chunk and grow when a chunk needs more. In the steady state nothing
//! is allocated. Nothing is freed on `Drop`.

#![expect(unsafe_code, reason = "frees and views memory that the driver gave to this type alone")]

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use gridpool_kernels::argument::DeviceAddress;

use super::driver::Driver;
use crate::fault::Fault;
use crate::gauges::Gauges;

/// Small batches that differ in size should share one allocation.
const BUFFER_BYTES_MIN: usize = 64 * 1024;
/// Buffers up to this size double; larger ones grow by it.
const GROWTH_BYTES_MAX: usize = 32 << 20;

fn grown(bytes: usize) -> usize {
    if bytes > GROWTH_BYTES_MAX {
        return bytes.next_multiple_of(GROWTH_BYTES_MAX);
    }
    bytes.next_power_of_two().max(BUFFER_BYTES_MIN)
}

/// The driver's memory, and a count of allocations.
#[derive(Debug)]
pub(super) struct Allocator {
    driver: Driver,
    gauges: Arc<Gauges>,
    /// Since the last [`Allocator::take_count`].
    allocations: u32,
}

impl Allocator {
    pub(super) fn new(driver: Driver) -> Self {
        Self { driver, gauges: Arc::default(), allocations: 0 }
    }

    pub(super) fn gauges(&self) -> &Arc<Gauges> {
        &self.gauges
    }

    /// Counts one more buffer or registered arena.
    pub(super) fn count(&mut self) {
        self.allocations += 1;
    }

    /// Allocations since the last call.
    pub(super) fn take_count(&mut self) -> u32 {
        std::mem::take(&mut self.allocations)
    }
}

/// Memory on the device.
#[derive(Debug, Default)]
pub(super) struct DeviceBuffer {
    start: DeviceAddress,
    bytes: usize,
}

impl DeviceBuffer {
    /// Makes the buffer at least `bytes` long; a buffer that grows loses its contents.
    ///
    /// The device must not be using it: a lane is waited for before its next chunk.
    pub(super) fn reserve(&mut self, allocator: &mut Allocator, bytes: usize) -> Result<(), Fault> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let old = std::mem::take(self);
        if old.bytes > 0 {
            // SAFETY: the address came from `allocate`, and the buffer has just forgotten it.
            unsafe { allocator.driver.free(old.start)? };
            allocator.gauges.device.subtract(old.bytes);
        }
        self.start = allocator.driver.allocate(grown(bytes))?;
        self.bytes = grown(bytes);
        allocator.gauges.device.add(self.bytes);
        allocator.count();
        Ok(())
    }

    /// The address of a byte.
    pub(super) fn at(&self, offset: usize) -> DeviceAddress {
        self.start.plus(offset)
    }
}

/// Page-locked memory on the host, which the device copies at full speed and kernels can write.
#[derive(Debug)]
pub(super) struct PinnedBuffer {
    start: NonNull<u8>,
    device: DeviceAddress,
    bytes: usize,
}

impl Default for PinnedBuffer {
    fn default() -> Self {
        Self { start: NonNull::dangling(), device: DeviceAddress::default(), bytes: 0 }
    }
}

impl PinnedBuffer {
    /// Makes the buffer at least `bytes` long and keeps its contents.
    ///
    /// The device must not be using it: a lane is waited for before its next chunk.
    pub(super) fn reserve(&mut self, allocator: &mut Allocator, bytes: usize) -> Result<(), Fault> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let driver = allocator.driver;
        let start = driver.allocate_host(grown(bytes))?;
        // SAFETY: `allocate_host` has just given this address.
        let device = unsafe { driver.mapped(start.as_ptr())? };
        let mut old = std::mem::replace(self, Self { start, device, bytes: grown(bytes) });
        allocator.gauges.pinned.add(self.bytes);
        allocator.count();
        if old.bytes > 0 {
            self.bytes()[..old.bytes].copy_from_slice(old.bytes());
            allocator.gauges.pinned.subtract(old.bytes);
            // SAFETY: the address came from `allocate_host`, and nothing else knows it any more.
            unsafe { driver.free_host(old.start)? };
        }
        Ok(())
    }

    /// The whole buffer. No copy and no kernel that uses it may be under way.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `bytes` bytes from `start` are this buffer's alone, and were zeroed when made.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// A byte, for a copy by address.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }

    /// The device address of the first byte.
    pub(super) fn on_device(&self) -> DeviceAddress {
        self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_in_few_steps_and_waste_no_more_than_one() {
        for (bytes, want) in [
            (1, 64 << 10),
            (65 << 10, 128 << 10),
            (17 << 20, 32 << 20),
            ((32 << 20) + 1, 64 << 20),
            (65 << 20, 96 << 20),
        ] {
            assert_eq!(grown(bytes), want);
        }
    }
}
