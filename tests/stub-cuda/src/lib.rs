//! A driver without a GPU: `libcuda` and `libnvidia-ml` for tests, which do as a script says.
//!
//! Device memory is host memory, and every access of a copy or a kernel is held to what was allocated.
//! Copies and kernels wait in their stream until somebody waits for that, as late as a real device may
//! be. Kernels run by name, from the argument that they are given, on the reference of
//! `gridpool-kernels`: so everything above the driver is tested as it is, and the PTX is not.
//!
//! - [`script`] reads what shall go wrong and when; [`machine`] is the device and obeys it.
//! - [`cuda`] and [`nvml`] are the functions by the names that loaders ask for. Built as a library
//!   `libgridpool_stub_cuda.so`, which serves as `libcuda.so` and `libnvidia-ml.so.1` of a process, it
//!   reads its script from `GRIDPOOL_STUB_SCRIPT`; linked into a test, each thread [installs its
//!   own](machine::install).

pub mod cuda;
mod kernel;
pub mod machine;
mod memory;
pub mod nvml;
pub mod script;
