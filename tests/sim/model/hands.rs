//! What a worker was sent and has not answered.

use std::time::Duration;

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, JobId};

/// Attempts that were sent together and are not answered, each with the moment at which it must be
/// off the device, if its job has its verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) attempts: Vec<(AttemptId, Option<Timestamp>)>,
    /// Of all that were sent, in their batch.
    pub(super) cost: u64,
    /// How many were sent.
    pub(super) sent: usize,
    /// When they were sent.
    pub(super) since: Timestamp,
    /// All of them may run again and none ran alone: another batch may wait behind them.
    pub(super) may_lead: bool,
}

/// The batches of one worker, the one that it runs first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hands(pub(super) Vec<Batch>);

impl Batch {
    /// Whether an attempt of `job` is in it.
    pub(super) fn has(&self, job: JobId) -> bool {
        self.attempts.iter().any(|(attempt, _)| attempt.job == job)
    }
}

impl Hands {
    pub(super) fn front(&self) -> &Batch {
        &self.0[0]
    }

    pub(super) fn free_at(&self) -> Option<Timestamp> {
        self.front().attempts.iter().filter_map(|&(_, free_at)| free_at).min()
    }

    /// Strikes off an attempt of the front batch. What is cut off in the next one has from then on
    /// until `free_at` at least.
    pub(super) fn answered(&mut self, attempt: AttemptId, free_at: Timestamp) -> bool {
        let Some(front) = self.0.first_mut() else { return false };
        let before = front.attempts.len();
        front.attempts.retain(|&(id, _)| id != attempt);
        let is_known = front.attempts.len() < before;
        if front.attempts.is_empty() {
            self.0.remove(0);
            let next = self.0.iter_mut().flat_map(|batch| &mut batch.attempts);
            next.filter_map(|(_, cut)| cut.as_mut()).for_each(|at| *at = free_at.max(*at));
        }
        is_known
    }

    /// Nobody listened for `gap`.
    pub(super) fn excuse(&mut self, gap: Duration) {
        for batch in &mut self.0 {
            batch.since = batch.since.after(gap);
            let cut_off = batch.attempts.iter_mut().filter_map(|(_, free_at)| free_at.as_mut());
            cut_off.for_each(|at| *at = at.after(gap));
        }
    }
}
