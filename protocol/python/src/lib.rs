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

use pyo3::prelude::*;

/// The Rust side of the package `gridpool`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
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
