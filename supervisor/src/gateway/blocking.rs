//! Calls that block, on threads outside of the async runtime.

use super::failure::Failure;

/// Runs a call that computes for long, or that may wait for the pool to read.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::internal(error.to_string()))?
}
