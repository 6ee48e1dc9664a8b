//! The CUDA device: the kernels of `gridpool-kernels` on the one GPU that this process sees.
//!
//! - `api` is the driver's functions by address; the only file that names cudarc.
//! - `driver` calls them: every result is checked, every failure a [`Fault`](crate::fault::Fault).
//! - `gpu` is what the lanes share; `memory` is buffers that grow; `scratch` says how much of them a program
//!   needs between steps.
//! - `schedule` lists the kernels of a program with what each works on; `launch` starts kernels,
//!   counts and times them.
//! - `lane` takes a chunk through copies and kernels, whose places `pass` works out; `deliver` puts
//!   results in place; `pipeline` sends chunks round the lanes.
//! - `solve` runs solvers, with a module, a stream and buffers of its own.
//! - `device` is the [`Device`](crate::device::Device); `resident` times kernels alone.
//! - `compute` is a stream for ONNX Runtime, with copies and times, and with programs over grids that lie on the device
//!   already; `grids` says where such a program finds and leaves what.
//! - `inspect` checks the library and the device for `gridpool diagnose`, `exercise` checks plain memory.
//! - `chaos` injects faults.
//!
//! Nothing here calls the driver from a `Drop`: after a sticky fault such a call can block forever. The
//! end of the process frees what it holds on the device.

mod api;
mod chaos;
mod compute;
mod deliver;
mod device;
mod driver;
mod exercise;
#[cfg(test)]
mod fake;
mod gpu;
mod grids;
mod inspect;
mod lane;
mod launch;
mod limits;
mod locked;
mod memory;
mod parts;
mod pass;
mod pipeline;
mod resident;
mod schedule;
mod scratch;
mod solve;

pub use compute::{CaptureError, ComputeStream, GridKernels, StreamGraph};
pub use device::CudaDevice;
pub use exercise::{MemoryFault, PlainMemory};
pub use grids::{GridPlaces, GridsOnDevice};
pub use inspect::{DeviceFacts, Library};
pub use limits::{CopyLimits, LimitError};
pub use locked::LockedArena;
pub use resident::Resident;
