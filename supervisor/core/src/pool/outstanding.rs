//! What a worker was sent and has not answered: the dispatch that it runs, and at most one more that waits
//! in its channel. Knows attempts and times; must not know jobs.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::ids::{AttemptId, JobId};
use gridpool_protocol::limits::PROGRESS_EVERY_MAX;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::AttemptOutcome;

use crate::event::Timestamp;

/// One attempt that was sent and not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) attempt: AttemptId,
    /// The shard of its job.
    pub(super) shard: usize,
    /// Its program or model, in words.
    pub(super) label: Arc<str>,
    /// When it was sent.
    pub(super) since: Timestamp,
    /// Who its job is for.
    pub(super) principal: Principal,
    /// Bytes of its payload in the channel.
    inline_bytes: u64,
    cost: u64,
    /// What the clock of its worker showed when it began.
    began: u128,
    /// Set once its job has a verdict: the end of its grace, and the outcome as the reason for a kill. Has an effect
    /// only in the front dispatch; see [`Outstanding::free_at`].
    free_at: Option<(Timestamp, AttemptOutcome)>,
    /// Its shard waits again, or runs elsewhere: the worker is dying, and its answer will have no effect.
    pub(super) moved: bool,
}

/// Attempts that were sent to a worker to run together and are not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dispatch {
    /// The worker answers the first one first, mostly.
    pub(super) sent: VecDeque<Sent>,
    /// The sum over all its attempts, those already answered included.
    pub(super) cost: u64,
    /// The highest of one of them.
    pub(super) cost_max: u64,
    /// When it was sent.
    pub(super) since: Timestamp,
    /// Whether another dispatch may wait behind it or run beside it: only if it may be ended early.
    pub(super) may_lead: bool,
    /// Whether a worker was lost with one of its jobs before: then another loss is no evidence against the
    /// device.
    pub(super) has_suspects: bool,
    unanswered: Unanswered,
}

/// What the attempts of a dispatch come to that are not answered. Each answer asks, and there are many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unanswered {
    cost: u128,
    /// Bytes that may still be in the channel.
    inline_bytes: u64,
    /// How many are cut off.
    cut_off: usize,
}

impl Sent {
    /// An attempt that is about to be sent.
    pub(super) fn new(
        attempt: AttemptId,
        shard: usize,
        label: Arc<str>,
        principal: Principal,
        inline_bytes: u64,
    ) -> Self {
        Self {
            attempt,
            shard,
            label,
            since: Timestamp::default(),
            principal,
            inline_bytes,
            cost: 0,
            began: 0,
            free_at: None,
            moved: false,
        }
    }

    /// Whether its job has its verdict already.
    pub(super) fn is_cut_off(&self) -> bool {
        self.free_at.is_some()
    }
}

impl Dispatch {
    /// One of up to so many attempts.
    pub(super) fn new(now: Timestamp, attempts_max: usize) -> Self {
        let (sent, unanswered) = (VecDeque::with_capacity(attempts_max), Unanswered::default());
        Self {
            sent,
            cost: 0,
            cost_max: 0,
            since: now,
            may_lead: true,
            has_suspects: false,
            unanswered,
        }
    }

    /// Adds an attempt before the dispatch is sent.
    pub(super) fn add(&mut self, sent: Sent, cost: u64, may_run_again: bool, is_suspect: bool) {
        self.unanswered.cost += u128::from(cost);
        self.unanswered.inline_bytes += sent.inline_bytes;
        self.sent.push_back(Sent { since: self.since, cost, ..sent });
        self.cost = self.cost.saturating_add(cost);
        self.cost_max = self.cost_max.max(cost);
        self.may_lead &= may_run_again && !is_suspect;
        self.has_suspects |= is_suspect;
    }

    /// Bytes of unanswered attempts that may still be in the channel.
    pub(super) fn inline_bytes(&self) -> u64 {
        self.unanswered.inline_bytes
    }

    /// Takes an answered attempt out.
    fn remove(&mut self, attempt: AttemptId) -> Option<Sent> {
        let at = self.sent.iter().position(|sent| sent.attempt == attempt)?;
        let answered = self.sent.remove(at)?;
        self.unanswered.cost -= u128::from(answered.cost);
        self.unanswered.inline_bytes -= answered.inline_bytes;
        self.unanswered.cut_off -= usize::from(answered.is_cut_off());
        Some(answered)
    }

    /// Cuts an attempt off, if it has that one.
    fn cut_off(&mut self, attempt: AttemptId, free_at: (Timestamp, AttemptOutcome)) -> bool {
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.attempt == attempt) else {
            return false;
        };
        self.unanswered.cut_off += usize::from(!sent.is_cut_off());
        sent.free_at = Some(free_at);
        true
    }

    /// Adds another dispatch, whose attempts run beside its own.
    fn absorb(&mut self, other: Self) {
        let Self { sent, cost, cost_max, since: _, may_lead, has_suspects, unanswered } = other;
        self.sent.extend(sent);
        self.cost = self.cost.saturating_add(cost);
        self.cost_max = self.cost_max.max(cost_max);
        self.may_lead &= may_lead;
        self.has_suspects |= has_suspects;
        self.unanswered.cost += unanswered.cost;
        self.unanswered.inline_bytes += unanswered.inline_bytes;
        self.unanswered.cut_off += unanswered.cut_off;
    }

    /// Whether a job of it has its verdict already.
    pub(super) fn is_cut_off(&self) -> bool {
        self.unanswered.cut_off > 0
    }
}

/// What a worker has spent on an attempt that has ended, and whose it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) principal: Principal,
    pub(super) time: Duration,
}

/// The clock of a worker: what a unit of cost has had of its time. While attempts run together, each has a part
/// of the time by its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CostClock {
    now: u128,
    read: Timestamp,
}

impl CostClock {
    /// Its unit: this part of a nanosecond.
    const PARTS: u32 = 32;

    /// Time has passed for attempts that cost so much together.
    fn advance(&mut self, now: Timestamp, cost: u128) {
        if now == self.read {
            // Answers that came together.
            return;
        }
        let passed = now.since(self.read).as_nanos() << Self::PARTS;
        self.now += passed / cost.max(1);
        self.read = now;
    }

    fn charge(self, sent: &Sent) -> Charge {
        let nanos = ((self.now - sent.began) * u128::from(sent.cost)) >> Self::PARTS;
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Charge { principal: sent.principal.clone(), time }
    }
}

/// Whether an answer was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// The front dispatch had the attempt. `is_last`: the worker has nothing left. `moved`: the answer
    /// comes too late.
    Known { is_last: bool, moved: bool, charge: Charge },
    /// The front dispatch has no such attempt, or had its answer already.
    Unknown,
}

impl Answered {
    /// Whether the worker has nothing left.
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::Known { is_last, .. } => *is_last,
            Self::Unknown => false,
        }
    }
}

/// One or two dispatches. The worker answers all of the front one before it begins the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub(super) front: Dispatch,
    pub(super) second: Option<Dispatch>,
    /// The suspects of the front dispatch have been split already.
    pub(super) is_split: bool,
    clock: CostClock,
    /// When the worker began the front dispatch, or last told that it has finished a part of it. `None` if its
    /// attempts do not run as one: then each is stopped by itself.
    progressed: Option<Timestamp>,
}

impl Outstanding {
    pub(super) fn new(front: Dispatch, is_concurrent: bool) -> Self {
        let clock = CostClock { now: 0, read: front.since };
        let progressed = (!is_concurrent).then_some(front.since);
        Self { front, second: None, is_split: false, clock, progressed }
    }

    /// Both dispatches, the front one first.
    pub(super) fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        std::iter::once(&self.front).chain(&self.second)
    }

    /// All attempts of both.
    pub(super) fn all(&self) -> impl Iterator<Item = &Sent> {
        self.dispatches().flat_map(|dispatch| &dispatch.sent)
    }

    /// Removes an answered attempt. After the last of the front dispatch, the second begins. Attempts that were cut off
    /// have at least `grace` from now on: those that begin, and those that are answered as one with this one.
    pub(super) fn answer(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        grace: Duration,
    ) -> Answered {
        let cost = self.front.unanswered.cost;
        let Some(answered) = self.front.remove(attempt) else { return Answered::Unknown };
        self.clock.advance(now, cost);
        self.progress(now);
        let (charge, moved) = (self.clock.charge(&answered), answered.moved);
        if self.front.sent.is_empty() {
            let Some(next) = self.second.take() else {
                return Answered::Known { is_last: true, moved, charge };
            };
            self.front = next;
            self.front.sent.iter_mut().for_each(|sent| sent.began = self.clock.now);
            self.is_split = false;
        } else if self.progressed.is_none() {
            return Answered::Known { is_last: false, moved, charge };
        }
        if self.front.is_cut_off() {
            for sent in &mut self.front.sent {
                sent.free_at = sent.free_at.map(|(at, why)| (at.max(now.after(grace)), why));
            }
        }
        Answered::Known { is_last: false, moved, charge }
    }

    /// Adds a dispatch, whose attempts run beside the others.
    pub(super) fn absorb(&mut self, now: Timestamp, mut other: Dispatch) {
        self.advance(now);
        other.sent.iter_mut().for_each(|sent| sent.began = self.clock.now);
        self.front.absorb(other);
    }

    /// The worker is lost: what it has spent on each attempt that had begun.
    pub(super) fn charges(&mut self, now: Timestamp) -> Vec<Charge> {
        self.advance(now);
        self.front.sent.iter().map(|sent| self.clock.charge(sent)).collect()
    }

    fn advance(&mut self, now: Timestamp) {
        self.clock.advance(now, self.front.unanswered.cost);
    }

    /// The attempt's job has its verdict; the worker must finish the attempt by `at`.
    pub(super) fn cut_off(&mut self, attempt: AttemptId, at: Timestamp, outcome: AttemptOutcome) {
        let mut dispatches = std::iter::once(&mut self.front).chain(&mut self.second);
        let is_known = dispatches.any(|dispatch| dispatch.cut_off(attempt, (at, outcome)));
        assert!(is_known, "a running attempt is outstanding");
    }

    /// The worker has finished a part of the front dispatch.
    pub(super) fn progress(&mut self, now: Timestamp) {
        self.progressed = self.progressed.map(|_| now);
    }

    /// When the worker must be killed, unless it answers before; and with which outcome the first attempt was cut off.
    ///
    /// A dispatch that runs as one is answered as one. So if others in it are wanted, the worker goes on for them: it
    /// is killed only if it makes no progress. If none is wanted, it has the grace of each.
    pub(super) fn free_at(&self) -> Option<(Timestamp, AttemptOutcome)> {
        if !self.front.is_cut_off() {
            return None;
        }
        let cut_off = || self.front.sent.iter().filter_map(|sent| sent.free_at);
        let (first, outcome) = cut_off().min_by_key(|&(at, _)| at)?;
        let at = match self.progressed {
            None => first,
            Some(_) if self.front.unanswered.cut_off == self.front.sent.len() => {
                cut_off().map(|(at, _)| at).max()?
            }
            Some(progressed) => first.max(progressed.after(PROGRESS_EVERY_MAX)),
        };
        Some((at, outcome))
    }

    /// Whose attempts, late or cancelled, the worker has not stopped in time.
    pub(super) fn overdue(&self, now: Timestamp) -> BTreeSet<Principal> {
        let is_overdue = |sent: &&Sent| match sent.free_at {
            Some((at, AttemptOutcome::Cancelled | AttemptOutcome::Deadline)) => at <= now,
            Some(_) | None => false,
        };
        self.front.sent.iter().filter(is_overdue).map(|sent| sent.principal.clone()).collect()
    }

    /// The supervisor was not running for about `gap`: extends its timeouts.
    pub(super) fn excuse(&mut self, gap: Duration) {
        self.clock.read = self.clock.read.after(gap);
        self.progressed = self.progressed.map(|at| at.after(gap));
        for dispatch in [Some(&mut self.front), self.second.as_mut()].into_iter().flatten() {
            dispatch.since = dispatch.since.after(gap);
            for sent in &mut dispatch.sent {
                sent.since = sent.since.after(gap);
                sent.free_at = sent.free_at.map(|(at, why)| (at.after(gap), why));
            }
        }
    }

    /// The one job that a death would be evidence against, if its attempt was moved.
    pub(super) fn moved_alone(&self) -> Option<JobId> {
        let alone = self.front.sent.front().filter(|_| self.front.sent.len() == 1)?;
        alone.moved.then_some(alone.attempt.job)
    }
}
