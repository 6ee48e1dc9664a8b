//! What a job needs before it runs: no result yet, and its input.

use std::time::Duration;

use gridpool_client::PackedInput;
use gridpool_nats::NatsError;
use gridpool_protocol::receipt::Verdict;
use tokio::sync::watch;

use crate::Bridge;
use crate::batches::BatchError;
use crate::job::{GIVE_BACK_AFTER, comes_true};
use crate::taken::{Fate, Taken};

/// How soon another host may have a job whose batch is not whole, where enough others wait for theirs.
const CROWDED_AFTER: Duration = Duration::from_secs(2);

impl Bridge {
    /// The input of a job, if it still is to be run. It may be waited for: nothing else waits for that.
    pub(crate) async fn prepare(
        &self,
        taken: &Taken,
        cancelled: &watch::Receiver<bool>,
    ) -> Result<PackedInput, Fate> {
        let job = &taken.job;
        let found = match taken.delivered {
            ..=1 => self.streams.results.find(job.key).await,
            // Another host may have published it just now.
            _ => self.streams.results.find_surely(job.key).await,
        };
        match found {
            Ok(Some(_)) | Err(NatsError::Version { .. }) => return Err(Fate::Known),
            Ok(None) => {}
            // The stream takes one result all the same.
            Err(error) => tracing::debug!(%error, "looking for an earlier result"),
        }
        if let Some(fate) = self.poison(job) {
            return Err(fate);
        }
        let left = taken.left().ok_or_else(|| self.late(job))?;
        let mut told = cancelled.clone();
        let input = tokio::select! {
            input = self.input(job, (taken.age(), left)) => input,
            true = comes_true(&mut told) => return Err(self.cancelled(job)),
        };
        match input {
            Ok(input) => Ok(input),
            // The server that leads has said so, more than once.
            Err(BatchError::Nats(error @ NatsError::Data { .. })) => {
                Err(self.own(job, Verdict::Failed, error.to_string()))
            }
            Err(BatchError::Nats(error)) => {
                tracing::debug!(%error, job = %job.key, "fetching a batch");
                Err(Fate::GiveBack(GIVE_BACK_AFTER))
            }
            Err(BatchError::Crowded) => Err(Fate::GiveBack(CROWDED_AFTER)),
            Err(BatchError::Pool(error)) => Err(self.failed(job, error).await),
        }
    }
}
