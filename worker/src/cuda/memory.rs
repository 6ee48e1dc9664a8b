//! Buffers that are kept between batches and grow when a batch needs more. Growing loses the
//! content. Nothing is freed on `Drop`.

#![expect(unsafe_code, reason = "frees and views memory that the driver gave to this type alone")]

use std::ptr::NonNull;
use std::slice;

use super::driver::{DeviceAddress, Driver};
use crate::fault::Fault;

/// Small batches that differ in size should not each allocate.
const BUFFER_BYTES_MIN: usize = 64 * 1024;

fn grown(bytes: usize) -> usize {
    bytes.next_power_of_two().max(BUFFER_BYTES_MIN)
}

/// Memory on the device.
#[derive(Debug, Default)]
pub(super) struct DeviceBuffer {
    start: DeviceAddress,
    bytes: usize,
}

impl DeviceBuffer {
    /// Makes the buffer at least `bytes` long.
    ///
    /// The device must not be using it: every batch is waited for before the next.
    pub(super) fn reserve(&mut self, driver: &Driver, bytes: usize) -> Result<(), Fault> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let old = std::mem::take(self);
        if old.bytes > 0 {
            // SAFETY: the address came from `allocate`, and the buffer has just forgotten it.
            unsafe { driver.free(old.start)? };
        }
        self.start = driver.allocate(grown(bytes))?;
        self.bytes = grown(bytes);
        Ok(())
    }

    /// The address of a byte.
    pub(super) fn at(&self, offset: usize) -> DeviceAddress {
        self.start.plus(offset)
    }
}

/// Page-locked memory on the host, which the device copies at full speed.
#[derive(Debug)]
pub(super) struct PinnedBuffer {
    start: NonNull<u8>,
    bytes: usize,
}

impl Default for PinnedBuffer {
    fn default() -> Self {
        Self { start: NonNull::dangling(), bytes: 0 }
    }
}

impl PinnedBuffer {
    /// Makes the buffer at least `bytes` long.
    ///
    /// The device must not be using it: every batch is waited for before the next.
    pub(super) fn reserve(&mut self, driver: &Driver, bytes: usize) -> Result<(), Fault> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let old = std::mem::take(self);
        if old.bytes > 0 {
            // SAFETY: the address came from `allocate_host`, and the buffer has just forgotten it.
            unsafe { driver.free_host(old.start)? };
        }
        self.start = driver.allocate_host(grown(bytes))?;
        self.bytes = grown(bytes);
        Ok(())
    }

    /// All of it. No copy from or to it may be under way.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `bytes` bytes from `start` are this buffer's alone, and were zeroed when made.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}
