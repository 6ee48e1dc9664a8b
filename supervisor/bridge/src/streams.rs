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
        self.generation.send_if_modified(|known| is_newer(known, generation));
    }

    /// Waits until a later stream of jobs than this is there.
    pub(crate) async fn made_anew(&self, generation: Generation) {
        let mut found = self.generation.subscribe();
        // The sender lives as long as self.
        drop(found.wait_for(|found| *found > generation).await);
    }
}

/// Takes in which stream of jobs there is. Of several that ask, an older answer may come later.
fn is_newer(known: &mut Generation, found: Generation) -> bool {
    let is_newer = found > *known;
    *known = found.max(*known);
    is_newer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_answer_does_not_take_a_host_back_to_a_stream_that_is_gone() {
        let [old, new] = [10, 20].map(Generation::made_at);
        let mut known = old;
        assert!(is_newer(&mut known, new));
        assert!(!is_newer(&mut known, old) && !is_newer(&mut known, new));
        assert_eq!(known, new);
    }
}
