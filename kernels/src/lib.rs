//! gridpool's grid kernels: what each op means, and how a device computes it.
//!
//! - [`mod@reference`] defines the right results, on plain slices; a CPU device runs it.
//! - `kernels/cuda` computes the same on a GPU. [`module`] holds the PTX made from it, [`argument`] the
//!   kernels' argument.
//! - [`chaos`] holds the kernels that fault on purpose, in a module of their own.
//! - [`known_answer`] is the test that a device passes before it serves.
//!
//! Nothing here calls a driver: the worker decides which device runs what, and when.

pub mod argument;
pub mod chaos;
pub mod known_answer;
pub mod module;
pub mod part;
pub mod ptx;
pub mod reference;
pub mod runs;
pub mod solve;
pub mod template;
