//! Keeps the streams there: somebody may remove them, or the only server lose its disk.

use std::sync::Arc;
use std::time::Duration;

use gridpool_nats::{Generation, Streams};
use gridpool_protocol::chain::Chain;
use tokio::time::sleep;

use crate::Bridge;

/// How often the bridge looks whether they are there.
const KEEP_EVERY: Duration = Duration::from_secs(10);

impl Bridge {
    /// Makes streams again that are gone, until the bridge is to end. They have the names of the old ones, so what this
    /// process holds is of use again, but for the lanes.
    pub(crate) async fn keep_streams(self: Arc<Self>) {
        let (nats, limits) = (&self.settings.nats, &self.settings.limits);
        loop {
            tokio::select! {
                () = sleep(KEEP_EVERY) => {}
                () = self.counts.leaving() => return,
            }
            match Streams::open(&self.streams.connection, &nats.prefix, Some(limits)).await {
                Ok(streams) => self.found(streams.opened_generation()),
                Err(error) => {
                    let error = Chain(&error).to_string();
                    tracing::debug!(error, "whether the streams are there");
                }
            }
        }
    }

    /// This stream of jobs is there now.
    pub(crate) fn found(&self, generation: Generation) {
        self.generation.send_if_modified(|known| {
            let is_new = *known != generation;
            *known = generation;
            is_new
        });
    }

    /// Waits until another stream of jobs than this is there.
    pub(crate) async fn made_anew(&self, generation: &Generation) {
        let mut found = self.generation.subscribe();
        // The sender lives as long as self.
        drop(found.wait_for(|found| found != generation).await);
    }
}
