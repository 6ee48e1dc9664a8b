//! Removes jobs that have ended from the stream, where the servers have kept them, and tells of jobs that no host can
//! read.
//!
//! A server that takes over a copied stream may not know that a job was acknowledged. The job then stays, though no
//! lane has it, and counts against the limits of the stream until it is too old. So does a job of a version that no
//! host is of, once its client has given it up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridpool_nats::NatsError;
use gridpool_protocol::chain::Chain;
use tokio::time::sleep;

use crate::Bridge;

/// Most jobs that a round removes.
const REMOVED_MAX: u64 = 1_000;
/// A round goes through the stream each time that this many times `ack_wait` have passed.
const EVERY_ACK_WAITS: u32 = 2;

impl Bridge {
    /// Sweeps until the bridge is to end. A job is left to its host until it was in the stream for a whole pause.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let (mut old, mut told) = (0, BTreeSet::new());
        loop {
            tokio::select! {
                () = sleep(self.settings.limits.ack_wait * EVERY_ACK_WAITS) => {}
                () = self.counts.leaving() => return,
            }
            match self.remove_ended(old).await {
                Ok((removed, last)) => {
                    old = last;
                    if removed > 0 {
                        tracing::info!(removed, "jobs that had ended were still in the stream");
                    }
                }
                Err(error) => {
                    tracing::debug!(error = Chain(&error).to_string(), "the stream is not swept");
                }
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

    /// Removes jobs that have their result from the front of the stream, up to the one of that number. Returns how many
    /// there were, and the number of the last job of the stream.
    async fn remove_ended(&self, old: u64) -> Result<(u64, u64), NatsError> {
        let mut removed = 0;
        loop {
            let (first, last) = self.streams.span_of_jobs().await?.into_inner();
            if first > old || removed == REMOVED_MAX || !self.has_ended(first).await? {
                return Ok((removed, last));
            }
            removed += u64::from(self.streams.remove_job(first).await?);
        }
    }

    /// Whether the job of this number is there, and has its result. What is no job is removed by whoever takes it.
    async fn has_ended(&self, number: u64) -> Result<bool, NatsError> {
        match self.streams.key_at(number).await? {
            Some(key) => self.streams.results.are_there(key).await,
            None => Ok(false),
        }
    }
}
