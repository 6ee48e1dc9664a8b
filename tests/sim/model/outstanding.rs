//! What a worker was sent and has not answered.

use std::time::Duration;

use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, JobId};
use gridpool_protocol::receipt::AttemptOutcome;

/// An attempt that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) attempt: AttemptId,
    /// Its bytes in the channel.
    pub(super) inline_bytes: u64,
    /// If its job has its verdict: when the worker must have finished it, and its outcome.
    pub(super) free_at: Option<(Timestamp, AttemptOutcome)>,
    /// Its shard was queued again when its worker was killed.
    pub(super) moved: bool,
}

/// Attempts that were sent together and are not answered, in order of sending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dispatch {
    pub(super) attempts: Vec<Sent>,
    /// The cost of all attempts of the dispatch.
    pub(super) cost: u64,
    /// How many were sent.
    pub(super) sent: usize,
    /// When they were sent.
    pub(super) since: Timestamp,
    /// All of them may run again and none is suspect: another dispatch may wait behind them.
    pub(super) may_lead: bool,
    /// One of their jobs was a suspect when they were sent.
    pub(super) has_suspects: bool,
    /// Its suspects were split when its worker was killed.
    pub(super) split: bool,
}

/// The dispatches of one worker, the one that it runs first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outstanding(pub(super) Vec<Dispatch>);

impl Dispatch {
    /// These run beside it.
    pub(super) fn grows_by(&mut self, other: Self) {
        self.attempts.extend(other.attempts);
        self.cost += other.cost;
        self.sent += other.sent;
        self.may_lead &= other.may_lead;
        self.has_suspects |= other.has_suspects;
    }

    pub(super) fn inline_bytes(&self) -> u64 {
        self.attempts.iter().map(|sent| sent.inline_bytes).sum()
    }

    /// Whether an attempt of `job` is in it.
    pub(super) fn has(&self, job: JobId) -> bool {
        self.attempts.iter().any(|sent| sent.attempt.job == job)
    }
}

impl Outstanding {
    pub(super) fn front(&self) -> &Dispatch {
        &self.0[0]
    }

    /// All outstanding attempts.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Sent> {
        self.0.iter_mut().flat_map(|dispatch| &mut dispatch.attempts)
    }

    pub(super) fn free_at(&self) -> Option<Timestamp> {
        self.front().attempts.iter().filter_map(|sent| sent.free_at).map(|(at, _)| at).min()
    }

    /// Removes an attempt of the front dispatch. Attempts of the next one that were cut off have at least
    /// until `free_at`.
    pub(super) fn answered(&mut self, attempt: AttemptId, free_at: Timestamp) -> Option<Sent> {
        let front = self.0.first_mut()?;
        let at = front.attempts.iter().position(|sent| sent.attempt == attempt)?;
        let answered = front.attempts.remove(at);
        if front.attempts.is_empty() {
            self.0.remove(0);
            self.all().filter_map(|sent| sent.free_at.as_mut()).for_each(|(at, _)| {
                *at = free_at.max(*at);
            });
        }
        Some(answered)
    }

    /// The supervisor did not run for `gap`.
    pub(super) fn excuse(&mut self, gap: Duration) {
        for dispatch in &mut self.0 {
            dispatch.since = dispatch.since.after(gap);
        }
        self.all().filter_map(|sent| sent.free_at.as_mut()).for_each(|(at, _)| *at = at.after(gap));
    }
}
