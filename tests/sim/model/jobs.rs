//! What becomes of a job, from its acceptance to its end: its parts and their attempts.

use gridpool::pool::config::PoolConfig;
use gridpool::pool::event::{JobRequest, Timestamp};
use gridpool_protocol::ids::{AttemptId, ClientId, ContentHash, DeviceId, JobId, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::{AttemptOutcome, ItemRange, RunReport, Verdict};

use super::Model;
use super::bisection::SharedLosses;
use super::losses::Failure;
use super::seats::State;

/// Most parts of one job.
const PARTS_MAX: u64 = 64;

/// A part of a job, known from its first dispatch on.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) items: ItemRange,
    pub(super) running: Option<(AttemptId, WorkerId)>,
    pub(super) answered: bool,
    /// Attempts that count.
    pub(super) tries: u32,
    pub(super) device_errors: u32,
    /// Where its last attempt failed.
    pub(super) failed_on: Option<DeviceId>,
}

impl Part {
    fn waits(&self) -> bool {
        self.running.is_none() && !self.answered
    }
}

/// One accepted job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) client: ClientId,
    pub(super) request: JobRequest,
    pub(super) orphaned: bool,
    pub(super) deadline: Timestamp,
    /// Into how many parts it must be cut.
    pub(super) parts_due: u32,
    /// Those that have been dispatched, in order of their items.
    pub(super) parts: Vec<Part>,
    pub(super) begun: u32,
    pub(super) evidence: u32,
    /// What it is, as far as somebody asked and was told.
    pub(super) content: Option<Option<ContentHash>>,
    /// Enough workers died of it: nothing of it waits or runs any more.
    pub(super) convicted: bool,
    /// With whom it may share a launch: with jobs of the same number. Until it is lost that is 0.
    pub(super) group: u64,
    pub(super) shared: Option<SharedLosses>,
    pub(super) first_dispatch: Option<Timestamp>,
    pub(super) accepted: Timestamp,
    pub(super) item_errors: u32,
    pub(super) attempts: Vec<(WorkerId, AttemptOutcome, ItemRange)>,
}

impl Job {
    pub(super) fn new(
        now: Timestamp,
        client: ClientId,
        request: JobRequest,
        devices: usize,
        config: &PoolConfig,
    ) -> Self {
        Self {
            client,
            orphaned: false,
            deadline: now.after(request.deadline),
            parts_due: parts_due(&request, devices as u64, config),
            parts: Vec::new(),
            begun: 0,
            evidence: 0,
            content: None,
            convicted: false,
            group: 0,
            shared: None,
            first_dispatch: None,
            accepted: now,
            item_errors: 0,
            attempts: Vec::new(),
            request,
        }
    }

    /// Whether some of it runs.
    pub(super) fn runs(&self) -> bool {
        self.parts.iter().any(|part| part.running.is_some())
    }

    /// Whether `attempt` is what one of its parts runs now.
    pub(super) fn runs_attempt(&self, attempt: AttemptId) -> bool {
        let mut running = self.parts.iter().filter_map(|part| part.running);
        running.any(|(id, _)| id == attempt)
    }

    /// Whether nothing of it may wait.
    fn is_out(&self) -> bool {
        self.orphaned || self.convicted
    }

    /// Parts that wait and were dispatched before.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| !self.is_out() && part.waits())
    }

    /// Whether a part waits that was never dispatched.
    pub(super) fn has_fresh_part(&self) -> bool {
        !self.is_out() && self.parts.len() < self.parts_due as usize
    }

    /// Whether any part of it waits.
    pub(super) fn waits(&self) -> bool {
        self.has_fresh_part() || self.waiting().next().is_some()
    }

    /// The part that `attempt` runs.
    pub(super) fn part_of(&mut self, attempt: AttemptId) -> &mut Part {
        let runs = |part: &&mut Part| part.running.is_some_and(|(id, _)| id == attempt);
        self.parts.iter_mut().find(runs).expect("an attempt in a worker's hands is a part's")
    }

    /// What its items cost, a share of the whole.
    pub(super) fn cost(&self, items: ItemRange) -> u64 {
        let until = |item: u32| match item == self.request.items {
            true => self.request.cost,
            false => self.request.cost * u64::from(item) / u64::from(self.request.items),
        };
        until(items.end) - until(items.start)
    }

    /// No part costs more.
    pub(super) fn part_cost_max(&self) -> u64 {
        let items = self.request.items.div_ceil(self.parts_due);
        (self.request.cost * u64::from(items)).div_ceil(self.request.items.into())
    }

    /// Whether it may share a launch, or run beside others in a worker that runs `window` at a time:
    /// there not once a worker died of it alone.
    pub(super) fn may_join(&self, window: usize) -> bool {
        let killed_alone = window > 1 && self.evidence > 0;
        self.parts_due == 1 && self.request.idempotent && !killed_alone
    }

    /// Whether its worker died of it, or of somebody it was with, or was killed for those behind it.
    pub(super) fn is_suspect(&self) -> bool {
        self.group != 0 || self.evidence > 0
    }

    /// Whether workers write its result to a place of its own, and not into their answer.
    pub(super) fn is_written_in_place(&self) -> bool {
        !self.request.answer_inline || self.parts_due > 1
    }
}

/// A large job is worth so many parts: as many as it has times the least cost of one, at most some for
/// each device that may serve when it is accepted, and at most one an item.
fn parts_due(request: &JobRequest, devices: u64, config: &PoolConfig) -> u32 {
    let may = devices > 1 && request.idempotent && request.divisible;
    let most = [devices * u64::from(config.parts_per_device), request.items.into(), PARTS_MAX];
    let due = most.into_iter().fold(request.cost / config.part_cost_min, u64::min);
    if may { u32::try_from(due.max(1)).expect("there are few") } else { 1 }
}

impl Model {
    /// The worker runs `attempt` no more, and this is what it said of it.
    pub(super) fn attempt_answered(
        &mut self,
        attempt: AttemptId,
        worker: WorkerId,
        result: &Result<RunReport, AttemptError>,
        now: Timestamp,
    ) {
        let live = self.jobs.get_mut(&attempt.job);
        let Some(job) = live.filter(|job| job.runs_attempt(attempt)) else {
            self.coverage.hit("answer: after its job's verdict");
            return;
        };
        if job.deadline == now {
            self.coverage.hit("answer: at the deadline");
        }
        let part = job.part_of(attempt);
        let items = part.items;
        match result {
            Ok(report) => {
                part.running = None;
                part.answered = true;
                job.attempts.push((worker, AttemptOutcome::Ok, items));
                job.item_errors += report.item_errors;
                if job.runs() || job.waits() {
                    self.coverage.hit("split: a part was answered before the others");
                } else {
                    if job.parts_due > 1 && !job.orphaned {
                        self.coverage.hit("split: all parts were answered");
                    }
                    self.end(attempt.job, Verdict::Ok);
                }
            }
            Err(AttemptError::Refused(_)) => {
                self.coverage.hit("answer: refused");
                part.running = None;
                job.attempts.push((worker, AttemptOutcome::Refused, items));
                self.fail(now, attempt.job, Verdict::Failed);
            }
            Err(AttemptError::Device(_)) => {
                self.coverage.hit("answer: device error");
                part.device_errors += 1;
                let outcome = AttemptOutcome::DeviceError;
                let failure =
                    Failure { outcome, nobodys_fault: false, shared: false, given_up: false };
                self.attempt_failed(now, attempt, worker, failure);
            }
        }
    }

    pub(super) fn jobs_are_late(&mut self, now: Timestamp) {
        let late: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.deadline <= now).map(|(&id, _)| id).collect();
        for id in late {
            let job = &self.jobs[&id];
            let workers = job.parts.iter().filter_map(|part| part.running);
            for (attempt, worker) in workers {
                let at = self.seat_of(worker).expect("whoever runs something has a seat");
                let seat = self.seat(at);
                let batches = seat.hands();
                let in_front = batches[0].attempts.iter().any(|sent| sent.attempt == attempt);
                let dies = matches!(seat.state, State::Killed { .. });
                self.coverage.hit(match (dies, in_front, batches[0].attempts.len()) {
                    (true, ..) => "deadline: while its worker is being killed",
                    (false, false, _) => "deadline: sent and not begun",
                    (false, true, 1) => "deadline: running",
                    (false, true, _) => "deadline: beside others in its launch",
                });
            }
            if !job.runs() {
                self.coverage.hit(match (job.accepted == now, job.convicted) {
                    (true, _) => "deadline: at submission",
                    (false, true) => "deadline: before its content was known",
                    (false, false) => "deadline: queued",
                });
            }
            self.cut_off(now, id, AttemptOutcome::Deadline);
            self.end(id, Verdict::Deadline);
        }
    }

    pub(super) fn jobs_have_no_device(&mut self, now: Timestamp) {
        if self.devices.values().any(super::Device::may_serve) {
            return;
        }
        let waiting: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.waits()).map(|(&id, _)| id).collect();
        for id in waiting {
            if self.jobs[&id].runs() {
                self.coverage.hit("no device: an old process holds a part of a job that waits");
            }
            self.fail(now, id, Verdict::DeviceLost);
        }
    }

    pub(super) fn cut_off_all(&mut self, now: Timestamp) {
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.cut_off(now, id, AttemptOutcome::Cancelled);
            self.end(id, Verdict::Cancelled);
        }
    }

    /// The job ends before its attempts do. Their devices must be free after a grace; if the job is
    /// late and has its worker to itself, at once; if a part of it failed, when it would be late.
    pub(super) fn cut_off(&mut self, now: Timestamp, id: JobId, outcome: AttemptOutcome) {
        let job = self.jobs.get_mut(&id).expect("it is live");
        let grace = now.after(self.config.cancel_grace);
        let failed = outcome == AttemptOutcome::Preempted;
        let free_at = if failed { grace.max(job.deadline) } else { grace };
        let mut cut_off = Vec::new();
        for part in &mut job.parts {
            let Some((attempt, worker)) = part.running.take() else { continue };
            job.attempts.push((worker, outcome, part.items));
            cut_off.push((attempt, worker));
        }
        // When a client goes, all that it had running is withdrawn.
        let is_withdrawn = job.orphaned;
        for (attempt, worker) in cut_off {
            if !is_withdrawn {
                self.withdraws(worker, attempt);
            }
            let at = self.seat_of(worker).expect("whoever runs something has a seat");
            let one_at_a_time = self.window == 1;
            let seat = self.seat_mut(at);
            let own = seat.hands().iter().map(|batch| batch.attempts.len()).sum::<usize>() == 1;
            let at_once = own && one_at_a_time && outcome == AttemptOutcome::Deadline;
            seat.frees(attempt, if at_once { now } else { free_at });
        }
    }

    /// A worker that runs several at a time is told that nobody wants an answer.
    pub(super) fn withdraws(&mut self, worker: WorkerId, attempt: AttemptId) {
        if self.window > 1 {
            self.due.withdrawals.insert((worker, attempt));
        }
    }

    /// From here on a verdict is due.
    pub(super) fn end(&mut self, id: JobId, verdict: Verdict) {
        let job = self.jobs.remove(&id).expect("it is live");
        self.fair.leaves(job.client, &job.request);
        let verdict = if job.orphaned { Verdict::Cancelled } else { verdict };
        let (counter, name) = match verdict {
            Verdict::Cancelled => (&mut self.counters.cancelled, "verdict CANCELLED"),
            Verdict::Deadline => (&mut self.counters.deadline, "verdict DEADLINE"),
            Verdict::DeviceLost => (&mut self.counters.device_lost, "verdict DEVICE_LOST"),
            Verdict::Failed => (&mut self.counters.failed, "verdict FAILED"),
            Verdict::Ok => (&mut self.counters.ok, "verdict OK"),
            Verdict::Poison => (&mut self.counters.poison, "verdict POISON"),
        };
        *counter += 1;
        self.coverage.hit(name);
        self.due.verdicts.insert(id, (job, verdict));
    }
}
