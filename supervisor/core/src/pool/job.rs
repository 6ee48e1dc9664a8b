//! One accepted job, from acceptance to its verdict.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::ids::{AttemptId, ClientId, ContentHash, Group, WorkerId};
use gridpool_protocol::limits::JOIN_INLINE_BYTES_MAX;
use gridpool_protocol::receipt::{
    Attempt, AttemptOutcome, DeviceInfo, Receipt, RunReport, Verdict,
};

use super::micros;
use super::queue::{Joining, Owner, Position, SuspectGroup};
use super::shard::{Shard, ShardState};
use crate::action::Assignment;
use crate::config::{Concurrency, PoolConfig, RoleLimits};
use crate::event::{JobRequest, Timestamp, Work};

/// Attempts that a receipt shows, so that the verdict fits a frame. The oldest that gave no result are left
/// out first.
const ATTEMPTS_SHOWN_MAX: usize = 128;

/// The longest number of a job or a key, as text.
const NUMBER_BYTES: usize = 32;

/// A worker counts an attempt as late this long after the core does. So it never drops one whose job has
/// no verdict yet.
const DROP_MARGIN: Duration = Duration::from_millis(50);

/// What the core knows of a job's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The core has asked for its hash.
    Requested,
    /// Its hash; `None` if the shell could not read it.
    Known(Option<ContentHash>),
    /// The core has not asked.
    Unknown,
}

/// One accepted job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) request: Box<JobRequest>,
    /// The group of the workers that run it.
    pub(super) group: Group,
    /// The client to answer.
    pub(super) client: ClientId,
    /// The client's connection has ended: no client waits for the verdict.
    pub(super) orphaned: bool,
    /// Its client is to submit it to the successor of this pool.
    pub(super) is_given_back: bool,
    /// At least one, in order of their items.
    pub(super) shards: Vec<Shard>,
    pub(super) deadline: Timestamp,
    /// Deaths of workers with evidence against this job.
    pub(super) deaths: u32,
    /// Its group of suspects, if it is one: a worker died while it ran all of them, or was killed because
    /// they took too long. They join only each other, and nothing waits behind them.
    pub(super) suspects: Option<SuspectGroup>,
    /// Its hash, for the denylist.
    pub(super) content: Content,
    /// Enough workers have died of it: the reason of its verdict POISON, which waits for its hash.
    pub(super) poison: Option<String>,
    /// Attempts of all shards begun: the number of the latest.
    begun: u32,
    /// Items with an error in place of a result, in the shards that were answered.
    item_errors: u32,
    pub(super) accepted: Timestamp,
    pub(super) dispatched: Option<Timestamp>,
    attempts: Vec<Attempt>,
}

impl Job {
    pub(super) fn new(
        now: Timestamp,
        client: ClientId,
        request: Box<JobRequest>,
        group: Group,
        shards: Vec<Shard>,
    ) -> Self {
        Self {
            group,
            client,
            orphaned: false,
            is_given_back: false,
            shards,
            deadline: now.after(request.deadline),
            deaths: 0,
            suspects: None,
            content: Content::Unknown,
            poison: None,
            begun: 0,
            item_errors: 0,
            accepted: now,
            dispatched: None,
            attempts: Vec::new(),
            request,
        }
    }

    /// Whose its shards are in the queue.
    pub(super) fn owner(&self) -> Owner {
        Owner { principal: self.request.principal.clone(), client: self.client }
    }

    /// The position of a shard in the queue.
    pub(super) fn position(&self, shard: usize) -> Position {
        let shard = u32::try_from(shard).expect("a job has few shards");
        Position { priority: self.request.priority, job: self.request.job, shard }
    }

    /// The shard at a position in the queue.
    pub(super) fn shard_at(&self, position: Position) -> &Shard {
        &self.shards[position.shard as usize]
    }

    /// The jobs that may run in one dispatch with it, if any may.
    pub(super) fn joins(&self, limits: &RoleLimits) -> Option<Joining> {
        let may = self.shards.len() == 1
            && !self.runs_alone(limits.concurrency)
            && self.request.idempotent
            && !matches!(self.request.work, Work::Search { .. })
            && self.request.cost <= limits.join_cost_max
            && self.request.inline_bytes <= JOIN_INLINE_BYTES_MAX as u64;
        let program = match (limits.concurrency, &self.request.work) {
            (Concurrency::Concurrent { .. }, _) | (_, Work::Search { .. }) => None,
            (
                Concurrency::Exclusive { .. },
                Work::Program { hash: name } | Work::Model { name },
            ) => Some(name),
        };
        may.then(|| Joining { program: program.map(Arc::clone), suspects: self.suspects })
    }

    /// Whether it must run alone: a worker that ran only this job died, and the next may die too, with
    /// every attempt beside it.
    pub(super) fn runs_alone(&self, concurrency: Concurrency) -> bool {
        concurrency.is_concurrent() && self.deaths > 0
    }

    /// Whether a shard of it is in the queue.
    pub(super) fn waits(&self) -> bool {
        self.shards.iter().any(|shard| shard.state == ShardState::Queued)
    }

    /// Deaths of workers that are enough evidence against it: of a bundle one, for none of its jobs is convicted.
    pub(super) fn deaths_max(&self, config: &PoolConfig) -> u32 {
        if self.request.is_bundle() { 1 } else { config.poison_deaths }
    }

    /// Whether a worker was lost with it before, and it or a job beside it may be the cause.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspects.is_some() || self.deaths > 0
    }

    /// Whether it may run again before the process that ran it is gone: that process cannot write its
    /// result, and no other shard runs elsewhere.
    pub(super) fn may_move(&self) -> bool {
        !self.writes_shared_memory() && self.request.idempotent && !self.orphaned
    }

    /// Whether workers write its result to shared memory.
    pub(super) fn writes_shared_memory(&self) -> bool {
        !self.request.answer_inline || self.shards.len() > 1
    }

    /// The shard that `attempt` runs.
    pub(super) fn shard_of(&self, attempt: AttemptId) -> Option<usize> {
        let runs = |shard: &Shard| match shard.state {
            ShardState::Running { number, .. } => number == attempt.number,
            ShardState::Ended | ShardState::Queued => false,
        };
        self.shards.iter().position(runs)
    }

    /// Its outstanding attempts, each with the shard and the worker.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, AttemptId, WorkerId)> {
        let job = self.request.job;
        let runs = move |(index, shard): (usize, &Shard)| match shard.state {
            ShardState::Running { number, worker } => {
                Some((index, AttemptId { job, number }, worker))
            }
            ShardState::Ended | ShardState::Queued => None,
        };
        self.shards.iter().enumerate().filter_map(runs)
    }

    /// Whether no shard waits or runs.
    pub(super) fn has_ended(&self) -> bool {
        self.shards.iter().all(|shard| shard.state == ShardState::Ended)
    }

    /// Begins the next attempt of a shard, on `worker`.
    pub(super) fn begin(&mut self, now: Timestamp, shard: usize, worker: WorkerId) -> Assignment {
        self.begun += 1;
        self.dispatched.get_or_insert(now);
        let (job, number) = (self.request.job, self.begun);
        let shard = &mut self.shards[shard];
        assert_eq!(shard.state, ShardState::Queued, "a shard of {job} is already running");
        shard.tries += 1;
        shard.was_begun = true;
        shard.begun = now;
        shard.makes_room = false;
        shard.state = ShardState::Running { number, worker };
        let drop_after = self.deadline.since(now) + DROP_MARGIN;
        Assignment { attempt: AttemptId { job, number }, shard: shard.items, drop_after }
    }

    /// The running attempt of a shard was answered, by a worker of this name.
    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        shard: usize,
        (worker, device): (Arc<str>, Arc<DeviceInfo>),
        report: RunReport,
    ) {
        let (_, shard) = self.end(shard);
        let (items, begun) = (shard.items, shard.begun);
        self.item_errors = self.item_errors.saturating_add(report.item_errors);
        self.note((begun, now), Attempt::answered(worker, device, items, report));
    }

    /// The running attempt of a shard ended without an answer.
    pub(super) fn failed(
        &mut self,
        now: Timestamp,
        shard: usize,
        device: Arc<DeviceInfo>,
        outcome: AttemptOutcome,
        detail: String,
    ) {
        let (worker, shard) = self.end(shard);
        shard.avoid = Some(worker.device);
        let (items, begun) = (shard.items, shard.begun);
        let attempt = Attempt::unreported(worker.to_string(), device, items, outcome, detail);
        self.note((begun, now), attempt);
    }

    /// The running attempt of a shard was preempted: it does not count.
    pub(super) fn preempted(
        &mut self,
        now: Timestamp,
        shard: usize,
        device: Arc<DeviceInfo>,
        detail: String,
    ) {
        let (worker, shard) = self.end(shard);
        shard.tries -= 1;
        let (items, begun) = (shard.items, shard.begun);
        let outcome = AttemptOutcome::Preempted;
        let attempt = Attempt::unreported(worker.to_string(), device, items, outcome, detail);
        self.note((begun, now), attempt);
    }

    /// Records why the worker of its latest lost attempt died, now that it is known.
    pub(super) fn explain(&mut self, worker: WorkerId, detail: &str, capsule: Option<&str>) {
        let name = worker.to_string();
        let lost = |attempt: &&mut Attempt| {
            *attempt.worker == *name
                && matches!(attempt.outcome, AttemptOutcome::WorkerDied | AttemptOutcome::Hang)
        };
        if let Some(attempt) = self.attempts.iter_mut().rev().find(lost) {
            detail.clone_into(&mut attempt.detail);
            capsule.unwrap_or_default().clone_into(&mut attempt.capsule);
        }
    }

    /// Its attempts so far.
    pub(super) fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The death that cost its latest attempt has this capsule.
    pub(super) fn names_capsule(&mut self, capsule: Option<&str>) {
        if let (Some(attempt), Some(capsule)) = (self.attempts.last_mut(), capsule) {
            capsule.clone_into(&mut attempt.capsule);
        }
    }

    fn end(&mut self, shard: usize) -> (WorkerId, &mut Shard) {
        let job = self.request.job;
        let shard = &mut self.shards[shard];
        match std::mem::replace(&mut shard.state, ShardState::Ended) {
            ShardState::Running { worker, .. } => (worker, shard),
            ShardState::Ended | ShardState::Queued => unreachable!("{job} has no attempt to end"),
        }
    }

    /// Adds an attempt that began and ended at these times.
    fn note(&mut self, (begun, ended): (Timestamp, Timestamp), mut attempt: Attempt) {
        attempt.begun_us = micros(begun.since(self.accepted));
        attempt.ended_us = micros(ended.since(self.accepted));
        if self.attempts.len() == ATTEMPTS_SHOWN_MAX {
            let useless = |attempt: &Attempt| attempt.outcome != AttemptOutcome::Ok;
            let oldest = self.attempts.iter().position(useless).unwrap_or(0);
            self.attempts.remove(oldest);
        }
        if self.attempts.is_empty() {
            // Most jobs have one attempt a shard.
            self.attempts.reserve_exact(self.shards.len().min(ATTEMPTS_SHOWN_MAX));
        }
        self.attempts.push(attempt);
    }

    /// The receipt that goes with `verdict`.
    pub(super) fn into_receipt(self, now: Timestamp, verdict: Verdict, reason: String) -> Receipt {
        let waited = self.dispatched.unwrap_or(now).since(self.accepted);
        Receipt {
            host: String::new(),
            job: text(self.request.job),
            key: text(self.request.key),
            program_hash: self.request.work.name(),
            trace_id: self.request.trace.map(|trace| trace.to_string()).unwrap_or_default(),
            items: self.request.items,
            item_errors: self.item_errors,
            verdict,
            reason,
            queue_us: micros(waited),
            total_us: micros(now.since(self.accepted)),
            attempts: self.attempts,
        }
    }
}

/// A number as text, whose memory does not grow meanwhile: every receipt has two.
fn text(number: impl fmt::Display) -> String {
    let mut text = String::with_capacity(NUMBER_BYTES);
    write!(text, "{number}").expect("a text takes what is written");
    text
}
