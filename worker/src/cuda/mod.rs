//! The CUDA device: the kernels of `gridpool-kernels` on the one GPU that this process sees.
//!
//! - `api` is the driver's functions by address; the only file that names cudarc.
//! - `driver` calls them: every result is checked, every failure a [`Fault`](crate::fault::Fault).
//! - `memory` is buffers that grow; `launch` starts kernels, counts and times them;
//!   `schedule` says which ones for a program; `lane` takes a chunk of a batch through copies and
//!   kernels; `device` is the [`Device`](crate::device::Device).
//!
//! Nothing here calls the driver from a `Drop`: after a sticky fault such a call can block for
//! ever. What a process holds on a device goes with the process.

mod api;
mod device;
mod driver;
#[cfg(test)]
mod fake;
mod lane;
mod launch;
mod memory;
mod schedule;

pub use device::CudaDevice;
