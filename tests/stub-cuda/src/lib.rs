//! A driver without a GPU: `libcuda` and `libnvidia-ml` for tests, which follow a script.
//!
//! Device memory is host memory, and every access of a copy or a kernel is checked against what is allocated.
//! Copies and kernels stay in their stream until a call waits for them, as late as on a real device. Kernels
//! run by name, from their argument, on the reference of `gridpool-kernels`. So tests cover everything above
//! the driver, but not the PTX.
//!
//! - [`script`] reads what goes wrong and when; [`machine`] is the device and follows it.
//! - [`cuda`] and [`nvml`] are the functions by the names that loaders ask for. The library
//!   `libgridpool_stub_cuda.so` serves as `libcuda.so` and `libnvidia-ml.so.1` of a process, and reads its
//!   script from `STUB_CUDA_SCRIPT`. Linked into a test, each thread [installs its own](machine::install).

pub mod cuda;
mod kernel;
pub mod machine;
mod memory;
pub mod nvml;
pub mod script;
