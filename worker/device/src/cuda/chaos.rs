//! Injects faults on a GPU: kernels that break the context, and exhausted memory.

#![expect(unsafe_code, reason = "starts kernels that fault, and frees what it has allocated")]

use std::ffi::c_void;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::chaos::{ChaosKernel, PTX};
use gridpool_protocol::chaos::DeviceFault;

use super::driver::{Driver, Stream};
use crate::fault::Fault;

/// The first request when memory is to be used up; each refusal halves it.
const PIECE_BYTES_MAX: usize = 1 << 30;
/// Memory counts as used up when a request of this size is refused.
const PIECE_BYTES_MIN: usize = 64 << 10;

/// Causes `fault`. It starts a kernel in `stream` and does not wait for it, so that the next job meets
/// the fault as if the kernel were its own.
pub(super) fn inject(driver: &Driver, stream: Stream, fault: DeviceFault) -> Result<(), Fault> {
    let Some(ChaosKernel { name, number }) = ChaosKernel::of(fault) else {
        return use_up_memory(driver);
    };
    // Once in the life of a process: no process survives this kernel.
    let function = driver.function(driver.load_module(PTX)?, name)?;
    let mut arguments = [(&raw const number).cast_mut().cast::<c_void>()];
    // SAFETY: the kernel takes one number by value, which the driver copies before it returns. What it
    // stores, it stores where nothing lies or at the start of its own module's array.
    unsafe { driver.launch(function, [1, 1, 0], &mut arguments, stream) }
}

/// Takes all memory of the device, and gives it back. The fault is the driver's error for no memory.
fn use_up_memory(driver: &Driver) -> Result<(), Fault> {
    let mut taken: Vec<DeviceAddress> = Vec::new();
    let mut bytes = PIECE_BYTES_MAX;
    let full = loop {
        match driver.allocate(bytes) {
            Ok(piece) => taken.push(piece),
            Err(fault) if fault.ends_worker() => return Err(fault),
            Err(_) if bytes > PIECE_BYTES_MIN => bytes /= 2,
            Err(fault) => break fault,
        }
    };
    for piece in taken {
        // SAFETY: the address came from `allocate`, and nothing else has ever known it.
        unsafe { driver.free(piece)? };
    }
    Err(full)
}
