//! Convictions that the cluster's operator has taken back, as this host's pool hears of them.

use std::sync::Arc;

use gridpool_client::ClientError;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::ContentHash;
use gridpool_protocol::message::Refusal;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::spawn_blocking;

use crate::Bridge;

impl Bridge {
    /// Tells the pool of contents that are released while the bridge lives, so that its own clients' jobs run, too.
    pub(crate) async fn hear_of_releases(self: Arc<Self>) {
        let mut releases = self.streams.poison.releases();
        loop {
            match releases.recv().await {
                Ok(content) => drop(self.release(content).await),
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(
                        missed,
                        "contents that were released stay convicted here for now"
                    );
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Lets the pool run a content that the cluster's operator has released.
    pub(crate) async fn release(&self, content: ContentHash) -> bool {
        let pool = self.pool.clone();
        match spawn_blocking(move || pool.release(content)).await {
            Ok(Ok(said)) => {
                tracing::info!(%content, said, "released, as it was for the cluster");
                true
            }
            // It has not convicted it, or was told before.
            Ok(Err(ClientError::Refused(Refusal::Invalid(said)))) => {
                tracing::debug!(%content, said, "released for the cluster");
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(%content, error = Chain(&error).to_string(), "it stays convicted here");
                false
            }
            Err(error) => {
                tracing::error!(%error, "releasing a content");
                false
            }
        }
    }
}
