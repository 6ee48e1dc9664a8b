//! The Rust client's own times, beside those of Python: for `python -m gridpool.bench`.

use gridpool_client::Job;
use gridpool_ipc::clock;
use pyo3::prelude::*;

use crate::client::{Answered, Client};
use crate::errors;
use crate::input;
use crate::process::detached;

/// Seconds of each of some calls: from a batch in private memory to the answer.
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
        let job = Job::program(program, batch).map_err(|error| errors::batch(py, &error))?;
        let (elapsed, answer) = detached(py, || {
            let started = clock::now();
            let answer = client.run(job);
            (started.elapsed(), answer)
        });
        // An answer that is not OK is no time.
        Answered::of(py, answer)?;
        seconds.push(elapsed.as_secs_f64());
    }
    Ok(seconds)
}
