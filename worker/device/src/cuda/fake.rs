//! The driver of tests without a GPU: `gridpool-stub-cuda` linked in, with a device of its own for each
//! thread. Its launches give the reference's results unless a test says otherwise. It cannot test the
//! kernels; `tests/gpu.rs` does.

#![expect(unsafe_code, reason = "takes the stub's functions for the driver's")]

use gridpool_kernels::module::CUDA_VERSION_MIN;
use gridpool_stub_cuda::{cuda, machine};

use super::api::Api;
use super::device::CudaDevice;
use super::driver::Driver;
use super::pass::StagingLimits;
use crate::fault::Fault;

mod chaos;
mod codes;
mod results;
mod search;
mod solvers;
mod tests;

/// Everything is copied to the device and back, however small.
const NO_STAGING: StagingLimits = StagingLimits { piece_bytes: 0, packed_bytes: 0 };

/// Launches compute nothing.
const IDLE: &str = "call=cuLaunchKernel idle";

/// A driver on a new device of this thread.
pub(super) fn driver(script: &str) -> Result<Driver, Fault> {
    machine::install(script).expect("a test writes a good script");
    again()
}

/// A driver on this thread's device.
fn again() -> Result<Driver, Fault> {
    // SAFETY: the stub has the driver's functions under the driver's names.
    Driver::over(unsafe { Api::over(cuda::symbol)? }, CUDA_VERSION_MIN)
}

/// Sets other rules for the calls to come.
pub(super) fn set_script(script: &str) {
    machine::with(|device| device.set_script(script)).expect("a test writes a good script");
}

pub(super) fn fail(call: &str, code: u32) {
    set_script(&format!("call={call} code={code}"));
}

pub(super) fn take_calls() -> Vec<&'static str> {
    machine::with(machine::Machine::take_calls)
}

/// The number of pending operations in all streams.
fn waiting() -> usize {
    machine::with(|device| device.waiting())
}

fn launches(calls: &[&str]) -> usize {
    count(calls, "cuLaunchKernel")
}

fn count(calls: &[&str], name: &str) -> usize {
    calls.iter().filter(|call| **call == name).count()
}

/// A device with this script.
fn open(script: &str) -> Result<CudaDevice, Fault> {
    CudaDevice::over(driver(script)?, 0, None)
}

/// A device whose launches give the reference's results.
fn open_computing() -> CudaDevice {
    open("").unwrap()
}
