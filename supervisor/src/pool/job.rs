//! One accepted job, from acceptance to its verdict.

use std::sync::Arc;

use gridpool_protocol::ids::{AttemptId, ClientId, ContentHash, WorkerId};
use gridpool_protocol::limits::JOIN_INLINE_BYTES_MAX;
use gridpool_protocol::receipt::{
    Attempt, AttemptOutcome, DeviceInfo, Receipt, RunReport, Verdict,
};

use super::config::PoolConfig;
use super::event::{Assignment, JobRequest, Timestamp};
use super::micros;
use super::part::{Part, PartState};
use super::queue::{Joining, Suspects};

/// Attempts that a receipt shows, so that the verdict fits a frame; the oldest of those that gave
/// nothing are left out first.
const ATTEMPTS_SHOWN_MAX: usize = 128;

/// What is known of what a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The shell was asked, and has not said.
    Asked,
    /// What the shell said; `None` if it could not be read.
    Said(Option<ContentHash>),
    /// Nobody has asked.
    Unknown,
}

/// One accepted job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) request: JobRequest,
    /// Whom to answer.
    pub(super) client: ClientId,
    /// The client's connection is gone: nobody waits for the verdict.
    pub(super) orphaned: bool,
    /// At least one, in order of their items.
    pub(super) parts: Vec<Part>,
    pub(super) deadline: Timestamp,
    /// Deaths of workers with evidence against this job.
    pub(super) deaths: u32,
    /// The suspects that it belongs to, if it is one: a worker died that ran all of them, or was killed
    /// because they took too long. They join each other alone, and nobody waits behind them.
    pub(super) suspects: Option<Suspects>,
    /// Its hash, for the memory of convicts.
    pub(super) content: Content,
    /// Workers enough have died of it: the reason of its verdict, which waits for its hash.
    pub(super) convicted: Option<String>,
    /// Attempts of all parts begun: the number of the latest.
    begun: u32,
    /// Items with an error in place of a result, in the parts that were answered.
    item_errors: u32,
    pub(super) accepted: Timestamp,
    pub(super) dispatched: Option<Timestamp>,
    attempts: Vec<Attempt>,
}

impl Job {
    pub(super) fn new(
        now: Timestamp,
        client: ClientId,
        request: JobRequest,
        parts: Vec<Part>,
    ) -> Self {
        Self {
            client,
            orphaned: false,
            parts,
            deadline: now.after(request.deadline),
            deaths: 0,
            suspects: None,
            content: Content::Unknown,
            convicted: None,
            begun: 0,
            item_errors: 0,
            accepted: now,
            dispatched: None,
            attempts: Vec::new(),
            request,
        }
    }

    /// With whom it may share a launch, if it may.
    pub(super) fn joins(&self, config: &PoolConfig, window: usize) -> Option<Joining> {
        let may = self.parts.len() == 1
            && !self.runs_alone(window)
            && self.request.idempotent
            && self.request.cost <= config.join_cost_max
            && self.request.inline_bytes <= JOIN_INLINE_BYTES_MAX as u64;
        let program = || (window == 1).then(|| Arc::clone(&self.request.program_hash));
        may.then(|| Joining { program: program(), suspects: self.suspects })
    }

    /// Whether nobody is to run beside it: a worker died that ran nothing else, and in a launch of its own
    /// so would the next one, with all that it has in hand.
    pub(super) fn runs_alone(&self, window: usize) -> bool {
        window > 1 && self.deaths > 0
    }

    /// Whether something of it is in the queue.
    pub(super) fn waits(&self) -> bool {
        self.parts.iter().any(|part| part.state == PartState::Queued)
    }

    /// Whether a worker was lost with it before, in a way that speaks against it or those beside it.
    pub(super) fn is_on_trial(&self) -> bool {
        self.suspects.is_some() || self.deaths > 0
    }

    /// Whether it may be tried again before the process that ran it is gone: that writes to no place of
    /// it, and nothing of it runs anywhere else.
    pub(super) fn may_move(&self) -> bool {
        !self.has_a_place() && self.request.idempotent && !self.orphaned
    }

    /// Whether its result has a place that a worker writes to by itself.
    pub(super) fn has_a_place(&self) -> bool {
        !self.request.answer_inline || self.parts.len() > 1
    }

    /// The part that `attempt` runs.
    pub(super) fn part_of(&self, attempt: AttemptId) -> Option<usize> {
        let runs = |part: &Part| match part.state {
            PartState::Running { number, .. } => number == attempt.number,
            PartState::Ended | PartState::Queued => false,
        };
        self.parts.iter().position(runs)
    }

    /// Its attempts in workers' hands, each with the part and the worker.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, AttemptId, WorkerId)> {
        let job = self.request.job;
        let runs = move |(index, part): (usize, &Part)| match part.state {
            PartState::Running { number, worker } => {
                Some((index, AttemptId { job, number }, worker))
            }
            PartState::Ended | PartState::Queued => None,
        };
        self.parts.iter().enumerate().filter_map(runs)
    }

    /// Whether no part waits or runs.
    pub(super) fn has_ended(&self) -> bool {
        self.parts.iter().all(|part| part.state == PartState::Ended)
    }

    /// Begins the next attempt of a part, on `worker`.
    pub(super) fn begin(&mut self, now: Timestamp, part: usize, worker: WorkerId) -> Assignment {
        self.begun += 1;
        self.dispatched.get_or_insert(now);
        let (job, number) = (self.request.job, self.begun);
        let part = &mut self.parts[part];
        assert_eq!(part.state, PartState::Queued, "a part of {job} is already running");
        part.tries += 1;
        part.was_begun = true;
        part.state = PartState::Running { number, worker };
        Assignment { attempt: AttemptId { job, number }, part: part.items }
    }

    /// The running attempt of a part was answered.
    pub(super) fn answered(&mut self, part: usize, device: DeviceInfo, report: RunReport) {
        let (worker, part) = self.end(part);
        let items = part.items;
        self.item_errors = self.item_errors.saturating_add(report.item_errors);
        self.note(Attempt::answered(worker.to_string(), device, items, report));
    }

    /// The running attempt of a part ended without an answer.
    pub(super) fn failed(
        &mut self,
        part: usize,
        device: DeviceInfo,
        outcome: AttemptOutcome,
        detail: String,
    ) {
        let (worker, part) = self.end(part);
        part.avoid = Some(worker.device);
        let items = part.items;
        self.note(Attempt::unreported(worker.to_string(), device, items, outcome, detail));
    }

    /// The running attempt of a part ended because of another's: it counts for nothing.
    pub(super) fn preempted(&mut self, part: usize, device: DeviceInfo, detail: String) {
        let (worker, part) = self.end(part);
        part.tries -= 1;
        let items = part.items;
        let outcome = AttemptOutcome::Preempted;
        self.note(Attempt::unreported(worker.to_string(), device, items, outcome, detail));
    }

    /// What the worker of its latest lost attempt died of is known now.
    pub(super) fn explain(&mut self, worker: WorkerId, detail: &str) {
        let name = worker.to_string();
        let lost = |attempt: &&mut Attempt| {
            attempt.worker == name && attempt.outcome == AttemptOutcome::WorkerDied
        };
        if let Some(attempt) = self.attempts.iter_mut().rev().find(lost) {
            detail.clone_into(&mut attempt.detail);
        }
    }

    fn end(&mut self, part: usize) -> (WorkerId, &mut Part) {
        let job = self.request.job;
        let part = &mut self.parts[part];
        match std::mem::replace(&mut part.state, PartState::Ended) {
            PartState::Running { worker, .. } => (worker, part),
            PartState::Ended | PartState::Queued => unreachable!("{job} has no attempt to end"),
        }
    }

    fn note(&mut self, attempt: Attempt) {
        if self.attempts.len() == ATTEMPTS_SHOWN_MAX {
            let useless = |attempt: &Attempt| attempt.outcome != AttemptOutcome::Ok;
            let oldest = self.attempts.iter().position(useless).unwrap_or(0);
            self.attempts.remove(oldest);
        }
        self.attempts.push(attempt);
    }

    /// The proof that goes with `verdict`.
    pub(super) fn into_receipt(self, now: Timestamp, verdict: Verdict, reason: String) -> Receipt {
        let waited = self.dispatched.unwrap_or(now).since(self.accepted);
        Receipt {
            job: self.request.job.to_string(),
            key: self.request.key.to_string(),
            program_hash: self.request.program_hash.to_string(),
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
