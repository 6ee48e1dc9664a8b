//! The Rust client's own times, beside those of Python: for `python -m gridpool.bench`.

use gridpool_client::{ClientError, Job};
use gridpool_ipc::clock;
use pyo3::prelude::*;

use crate::client::Client;
use crate::errors;
use crate::input;
use crate::process::detached;

/// Seconds of each of some calls: from a batch in private memory until its answer is dropped, as in Python.
#[pyfunction]
#[pyo3(name = "_time_calls")]
pub(crate) fn time_calls(
    py: Python<'_>,
    client: &Client,
    program: &str,
    grids: &Bound<'_, PyAny>,
    calls: usize,
) -> PyResult<Vec<f64>> {
    let program = client.program(py, program, "cpython")?;
    let batch = input::batch(py, grids, program.grids_per_item() == 2)?;
    let client = client.connection(py)?;
    let mut seconds = Vec::with_capacity(calls);
    for _ in 0..calls {
        let (program, batch) = (program.clone(), batch.clone());
        let (elapsed, ended) = detached(py, || {
            let started = clock::now();
            let answer = Job::program(program, batch).map_err(ClientError::from);
            let answer = answer.and_then(|job| client.run(job));
            let ended = answer.and_then(|answer| {
                // An answer that is not OK is no time.
                answer.ok().map(drop).map_err(|error| ClientError::Unexpected(error.to_string()))
            });
            (started.elapsed(), ended)
        });
        ended.map_err(|error| errors::client(py, &error))?;
        seconds.push(elapsed.as_secs_f64());
    }
    Ok(seconds)
}
