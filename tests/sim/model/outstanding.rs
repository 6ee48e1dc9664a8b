//! What a worker was sent and has not answered.

use std::time::Duration;

use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::limits::PROGRESS_EVERY_MAX;
use gridpool_protocol::receipt::AttemptOutcome;

use super::Model;
use super::slots::State;

/// An attempt that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) attempt: AttemptId,
    /// Its bytes in the channel.
    pub(super) inline_bytes: u64,
    pub(super) cost: u64,
    /// Parts of a nanosecond that its worker has spent on it, 2^32 each.
    pub(super) spent: u128,
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
    /// The highest of one of them.
    pub(super) cost_max: u64,
    /// How many were sent.
    pub(super) sent: usize,
    /// When they were sent.
    pub(super) since: Timestamp,
    /// Until when the time of the worker is divided among them.
    pub(super) divided: Timestamp,
    /// They run as one and are answered together: when they began, or their worker last told of progress.
    pub(super) progressed: Option<Timestamp>,
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

impl Sent {
    /// What its worker has spent on it.
    pub(super) fn spent(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.spent >> 32).expect("an age"))
    }
}

impl Dispatch {
    /// Divides the time until now among its attempts, by their cost.
    fn divides_time(&mut self, now: Timestamp) {
        let time = now.since(self.divided).as_nanos() << 32;
        let cost: u128 = self.attempts.iter().map(|sent| u128::from(sent.cost)).sum();
        for sent in &mut self.attempts {
            sent.spent += time / cost.max(1) * u128::from(sent.cost);
        }
        self.divided = now;
    }

    /// These run beside it from now on.
    pub(super) fn grows_by(&mut self, other: Self) {
        self.divides_time(other.since);
        self.attempts.extend(other.attempts);
        self.cost += other.cost;
        self.cost_max = self.cost_max.max(other.cost_max);
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

    /// When the grace of the worker is over: of attempts that run as one, it may go on with those that are wanted, as
    /// long as it makes progress; if none is wanted, it has the longest grace of them.
    pub(super) fn free_at(&self) -> Option<Timestamp> {
        let Dispatch { attempts, progressed, .. } = self.front();
        let ends: Vec<_> =
            attempts.iter().filter_map(|sent| sent.free_at).map(|(at, _)| at).collect();
        match progressed {
            Some(_) if ends.len() == attempts.len() => ends.into_iter().max(),
            Some(at) => ends.into_iter().min().map(|end| end.max(at.after(PROGRESS_EVERY_MAX))),
            None => ends.into_iter().min(),
        }
    }

    /// The worker has finished a part of the front dispatch.
    pub(super) fn progresses(&mut self, now: Timestamp) {
        self.0
            .iter_mut()
            .take(1)
            .filter_map(|front| front.progressed.as_mut())
            .for_each(|at| *at = now);
    }

    /// Removes an attempt of the front dispatch. Attempts of the next one that were cut off have at least
    /// until `free_at`, and so have those that are answered as one with it.
    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        free_at: Timestamp,
    ) -> Option<Sent> {
        let front = self.0.first_mut()?;
        let at = front.attempts.iter().position(|sent| sent.attempt == attempt)?;
        front.divides_time(now);
        let answered = front.attempts.remove(at);
        if front.attempts.is_empty() {
            self.0.remove(0);
            self.0.iter_mut().for_each(|next| next.divided = now);
            self.all().filter_map(|sent| sent.free_at.as_mut()).for_each(|(at, _)| {
                *at = free_at.max(*at);
            });
        } else if front.progressed.is_some() {
            let cut_off = front.attempts.iter_mut().filter_map(|sent| sent.free_at.as_mut());
            cut_off.for_each(|(at, _)| *at = free_at.max(*at));
        }
        self.progresses(now);
        Some(answered)
    }

    /// The worker is lost: the attempts that it ran.
    pub(super) fn lost(&mut self, now: Timestamp) -> Vec<Sent> {
        let Some(front) = self.0.first_mut() else { return Vec::new() };
        front.divides_time(now);
        front.attempts.clone()
    }

    /// The supervisor did not run for `gap`.
    pub(super) fn excuse(&mut self, gap: Duration) {
        for dispatch in &mut self.0 {
            dispatch.since = dispatch.since.after(gap);
            dispatch.divided = dispatch.divided.after(gap);
            dispatch.progressed = dispatch.progressed.map(|at| at.after(gap));
        }
        self.all().filter_map(|sent| sent.free_at.as_mut()).for_each(|(at, _)| *at = at.after(gap));
    }
}

impl Model {
    /// A worker has finished a part of what it runs.
    pub(super) fn progressed(&mut self, now: Timestamp, worker: WorkerId) {
        let Some(at) = self.is_current(now, worker) else { return };
        let State::Busy { outstanding } = &mut self.slot_mut(at).state else { return };
        let before = outstanding.free_at();
        outstanding.progresses(now);
        if before != outstanding.free_at() {
            self.coverage.hit("cut off: the worker goes on for others");
        }
    }
}
