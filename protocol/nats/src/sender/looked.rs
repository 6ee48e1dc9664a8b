//! Looks through a full stream for jobs that have ended, as they fill it while no host lives.

use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::Streams;

/// How often it is looked through.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long one look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// What the last look has found.
#[derive(Debug, Default)]
pub(super) struct Looked(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    /// When it was, and whether it has made room.
    look: Option<(Instant, bool)>,
    /// The number at which the next one goes on.
    next: u64,
}

impl Looked {
    /// Looks again, unless it has just done so. Returns whether there is room now.
    pub(super) async fn make_room(&self, streams: &Streams) -> bool {
        let mut last = self.0.lock().await;
        if let Some((at, found)) = last.look
            && at.elapsed() < LOOK_EVERY
        {
            return found;
        }
        let found = match timeout(LOOK_TIMEOUT, streams.remove_past(&mut last.next)).await {
            Ok(Ok(removed)) => removed > 0,
            Ok(Err(error)) => {
                let error = Chain(&error).to_string();
                tracing::debug!(error, "looking for jobs that have ended");
                false
            }
            Err(_) => false,
        };
        last.look = Some((clock::now(), found));
        found
    }

    /// A job of this client has ended, and makes room if no host takes it: who finds none is to look again.
    pub(super) fn is_outdated(&self) {
        // If one looks at this time, the next does a second later.
        if let Ok(mut last) = self.0.try_lock() {
            last.look = None;
        }
    }
}
