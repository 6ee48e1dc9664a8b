//! Why a job is not taken, as the client hears it.

use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{Limit, Refusal};

use crate::NatsError;
use crate::publish::Full;

/// The refusal of a key whose result is of another job.
pub(super) fn other_job(key: JobKey) -> Refusal {
    Refusal::Invalid(format!("key {key} was used for another job: give each job a key of its own"))
}

/// The refusal of a key under which another build has a job.
pub(super) fn other_build(key: JobKey, error: &NatsError) -> Refusal {
    Refusal::Invalid(format!("the result of key {key} cannot be read: {error}"))
}

/// The refusal of a job that cannot be put into the stream.
pub(super) fn unable(error: NatsError) -> Refusal {
    if let NatsError::Full(full) = error {
        return Refusal::Busy(limit(full));
    }
    if let NatsError::NeverFits { .. } = error {
        return Refusal::Invalid(format!("the job's batch is too large for the cluster: {error}"));
    }
    Refusal::Unable(Chain(&error).to_string())
}

/// The limit as the client knows it.
fn limit(full: Full) -> Limit {
    match full {
        Full::Jobs => Limit::StreamJobs,
        Full::JobBytes => Limit::StreamJobBytes,
        Full::DataBytes | Full::ResultBytes => Limit::StreamDataBytes,
    }
}
