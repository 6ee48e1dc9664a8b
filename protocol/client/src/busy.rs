//! When jobs are sent again that a busy pool has refused: after a pause, or as soon as another of the client has ended, if
//! it has as many under way as the pool allows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{Limit, Refusal, Work};

use super::ClientError;
use super::connection::Connection;
use super::state::Pending;

/// Jobs that are sent before the client reads what the pool has answered. It takes no more from a client that does not
/// read.
pub(super) const UNREAD_MAX: usize = 64;
/// Pause between two attempts to connect, and between two submissions to a busy pool.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(20);
/// The same into a stream of a cluster that is full, which many clients share.
const STREAM_RETRY_EVERY: Duration = Duration::from_millis(200);
/// Longest pause between two submissions, if the pool has said when to come again.
const RETRY_EVERY_MAX: Duration = Duration::from_secs(1);

/// The least time after which the job may be accepted.
pub(super) fn said_by(refusal: &Refusal) -> Duration {
    match refusal {
        Refusal::Busy(Limit::StreamDataBytes | Limit::StreamJobBytes | Limit::StreamJobs) => {
            STREAM_RETRY_EVERY
        }
        Refusal::Busy(limit) => limit.again_in().unwrap_or(Duration::ZERO),
        Refusal::Draining
        | Refusal::Invalid(_)
        | Refusal::KeyInUse(_)
        | Refusal::NotAllowed(_)
        | Refusal::Poison(_)
        | Refusal::Unable(_) => Duration::ZERO,
    }
}

/// The pause before a refused job is submitted again. What the pool says may change meanwhile.
pub(super) fn pause_after(refusal: &Refusal) -> Duration {
    said_by(refusal).clamp(RETRY_EVERY, RETRY_EVERY_MAX)
}

/// What the pool counts apart: the jobs of each model, and all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane(Option<String>);

impl Lane {
    pub(super) fn of(work: Work) -> Self {
        match work {
            Work::Model { name } => Self(Some(name)),
            Work::Program { .. } | Work::Search { .. } => Self(None),
        }
    }
}

/// Jobs that wait until another of their lane has ended: the oldest is sent then.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<Lane, BTreeSet<JobKey>>);

impl Held {
    /// Whether the end of a job of this client helps.
    pub(super) fn takes(refusal: &Refusal) -> bool {
        matches!(refusal, Refusal::Busy(limit) if limit.is_own())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, lane: &Lane) -> bool {
        self.0.contains_key(lane)
    }

    pub(super) fn insert(&mut self, lane: Lane, key: JobKey) {
        self.0.entry(lane).or_default().insert(key);
    }

    pub(super) fn remove(&mut self, lane: &Lane, key: JobKey) {
        self.change(lane, |keys| keys.remove(&key));
    }

    /// Takes the oldest. Keys that the client chose itself are in their own order.
    pub(super) fn pop(&mut self, lane: &Lane) -> Option<JobKey> {
        self.change(lane, BTreeSet::pop_first).flatten()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn change<T>(
        &mut self,
        lane: &Lane,
        change: impl FnOnce(&mut BTreeSet<JobKey>) -> T,
    ) -> Option<T> {
        let keys = self.0.get_mut(lane)?;
        let changed = change(keys);
        if keys.is_empty() {
            self.0.remove(lane);
        }
        Some(changed)
    }
}

impl Connection {
    /// Reads what has arrived, if this client has sent much since it last read.
    pub(super) fn read_answers(self: &Arc<Self>) -> Result<(), ClientError> {
        if self.lock().unread >= UNREAD_MAX {
            self.try_for(|_| None::<()>).map(drop)
        } else {
            Ok(())
        }
    }

    /// Sends a job again that the pool refused for the moment.
    pub(super) fn send_again(&self, key: JobKey) -> Result<(), ClientError> {
        loop {
            let mut state = self.lock();
            let epoch = self.wire.epoch();
            // If the client has reconnected, the job has been submitted again already.
            let refused = |pending: &&mut Pending| pending.waits_for_retry();
            let Some(pending) = state.jobs.get_mut(&key).filter(refused) else { return Ok(()) };
            if pending.epoch == epoch {
                state.send_refused(key);
                return Ok(());
            }
            // Its arenas belong to a lost connection.
            let (job, deadline) = (pending.job.clone(), pending.deadline);
            drop(state);
            let buffers = self.buffers(&job, deadline)?;
            buffers.pack(&job);
            if let Some(pending) = self.lock().jobs.get_mut(&key)
                && buffers.are_of(epoch)
            {
                (pending.buffers, pending.epoch) = (buffers, epoch);
            }
        }
    }

    /// Whether to send a refused job again.
    pub(super) fn may_try_again(&self, key: JobKey, refusal: &Refusal) -> bool {
        self.lock().jobs.get(&key).is_some_and(|pending| pending.may_try_again(refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_stream_is_tried_less_often_than_a_full_pool() {
        for full in [Limit::StreamDataBytes, Limit::StreamJobBytes, Limit::StreamJobs] {
            assert_eq!(pause_after(&Refusal::Busy(full)), Duration::from_millis(200));
        }
        assert_eq!(pause_after(&Refusal::Busy(Limit::QueueJobs)), Duration::from_millis(20));
    }
}
