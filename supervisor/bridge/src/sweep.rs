//! Removes jobs that have ended from the stream, where the servers have kept them, and tells of jobs that no host can
//! read.
//!
//! A server that takes over a copied stream may not know that a job was acknowledged. The job then stays, though no
//! lane has it, and counts against the limits of the stream until it is too old. So does a job that no host takes, as
//! none is of its version or has its model, once its client has given it up or its deadline has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridpool_nats::{LOOKED_AT_MAX, NatsError};
use gridpool_protocol::chain::Chain;
use tokio::time::sleep;

use crate::Bridge;

/// About so many jobs a round removes.
const REMOVED_MAX: u64 = 1_000;
/// A round looks at jobs of the stream each time that this many times `ack_wait` have passed, at the first ones and on
/// from where the last round has come to.
const EVERY_ACK_WAITS: u32 = 2;

impl Bridge {
    /// Sweeps until the bridge is to end.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let (mut next, mut told) = (0, BTreeSet::new());
        loop {
            tokio::select! {
                () = sleep(self.settings.limits.ack_wait * EVERY_ACK_WAITS) => {}
                () = self.counts.leaving() => return,
            }
            if let Err(error) = self.remove_ended(&mut next).await {
                tracing::debug!(error = Chain(&error).to_string(), "the stream is not swept");
            }
            if let Err(error) = self.tell_of_unread(&mut told).await {
                tracing::debug!(error = Chain(&error).to_string(), "the lanes are not looked at");
            }
        }
    }

    /// Tells of versions whose jobs wait while no host is of them, each when it is new.
    async fn tell_of_unread(&self, told: &mut BTreeSet<u32>) -> Result<(), NatsError> {
        let hosts = self.streams.hosts.list().await?;
        let mut unread = BTreeMap::new();
        for lane in self.streams.lanes(&hosts).await?.iter().filter(|lane| lane.unread() > 0) {
            *unread.entry(lane.protocol).or_insert(0) += lane.unread();
        }
        for (protocol, jobs) in &unread {
            if told.insert(*protocol) {
                let ours = self.streams.subjects.version();
                tracing::warn!(
                    protocol,
                    jobs,
                    ours,
                    "jobs wait for a host of their version: there is none"
                );
            }
        }
        told.retain(|protocol| unread.contains_key(protocol));
        Ok(())
    }

    /// Removes jobs that have ended: looks at the first ones, as those before the first that lives cost most, and at
    /// those behind the last round's; and again while all that a look finds have ended.
    async fn remove_ended(&self, next: &mut u64) -> Result<(), NatsError> {
        let mut removed = 0;
        for at in [&mut 0, next] {
            while removed < REMOVED_MAX {
                let now = self.streams.remove_past(at).await?;
                removed += now;
                if now < LOOKED_AT_MAX {
                    break;
                }
            }
        }
        Ok(())
    }
}
