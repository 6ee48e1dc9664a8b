//! The module `gridpool._native`: the Rust client as Python objects. The package beside it, `python/gridpool`, gives
//! them names, defaults and documents.
//!
//! Owns what crosses the border: Python objects in, Python objects out, errors, the GIL, forks and the end of the
//! interpreter. May not know how the pool works.

mod arrays;
mod client;
mod cluster;
mod colors;
mod completions;
mod convert;
mod errors;
mod input;
mod load;
mod model;
mod outputs;
mod process;
mod search;
mod terms;
mod timed;

use pyo3::exceptions::PyImportError;
use pyo3::{ffi, prelude::*};

/// The Rust side of the package `gridpool`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter(module.py())?;
    module.add_class::<client::Client>()?;
    module.add_class::<client::Loaded>()?;
    module.add_class::<completions::Completions>()?;
    module.add_class::<completions::Canceller>()?;
    module.add_class::<load::ModelLoad>()?;
    module.add_class::<outputs::Outputs>()?;
    module.add_class::<outputs::View>()?;
    module.add_class::<search::Search>()?;
    module.add_function(wrap_pyfunction!(client::describe, module)?)?;
    module.add_function(wrap_pyfunction!(process::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(process::before_exit, module)?)?;
    module.add_function(wrap_pyfunction!(timed::time_calls, module)?)?;
    module.add("PROTOCOL_VERSION", gridpool_protocol::limits::PROTOCOL_VERSION)
}

/// Refuses an interpreter beside the first of the process. PyO3 makes types once for all of them and takes the GIL as
/// the first one's: a process in which another had the module hung when it ended. PyO3's own check is not made of a
/// module that CPython initialises in phases.
fn check_interpreter(py: Python<'_>) -> PyResult<()> {
    #[expect(unsafe_code, reason = "PyO3 has no other way to ask")]
    // SAFETY: `py` says that this thread runs an interpreter.
    let current = unsafe { ffi::PyInterpreterState_Get() };
    #[expect(unsafe_code, reason = "as above")]
    // SAFETY: this is called by that interpreter, so it lives.
    let number = unsafe { ffi::PyInterpreterState_GetID(current) };
    match number {
        0 => Ok(()),
        1.. => Err(PyImportError::new_err(
            "gridpool works in the first interpreter of a process alone: import it there, or in a process of its own",
        )),
        ..0 => Err(PyErr::fetch(py)),
    }
}
