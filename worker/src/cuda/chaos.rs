//! Faults on purpose on a GPU: kernels that break the context, and memory that is used up.

#![expect(unsafe_code, reason = "starts kernels that fault, and frees what it has allocated")]

use std::ffi::c_void;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::chaos::{ChaosKernel, PTX};
use gridpool_protocol::chaos::DeviceFault;

use super::driver::{Driver, Stream};
use crate::fault::Fault;

/// What is asked for first where memory is to be used up; then half of it, and so on.
const PIECE_BYTES_MAX: usize = 1 << 30;
/// A device that has no piece of this size left has none for a job.
const PIECE_BYTES_MIN: usize = 64 << 10;

/// Meets `fault`. A kernel is started in `stream` and not waited for, so that the job that comes after
/// it finds out, as it would if the kernel were its own.
pub(super) fn meet(driver: &Driver, stream: Stream, fault: DeviceFault) -> Result<(), Fault> {
    let Some(ChaosKernel { name, number }) = ChaosKernel::of(fault) else {
        return use_up_memory(driver);
    };
    // Once in the life of a process: whatever this kernel does, the process does not survive it.
    let function = driver.function(driver.load_module(PTX)?, name)?;
    let mut arguments = [(&raw const number).cast_mut().cast::<c_void>()];
    // SAFETY: the kernel takes one number by value, which the driver copies before it returns. What it
    // stores, it stores where nothing lies or at the start of its own module's array.
    unsafe { driver.launch(function, 1, 1, &mut arguments, stream) }
}

/// Takes all memory that the device has, and gives it back. The fault is the driver's own word that
/// there is none left.
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
