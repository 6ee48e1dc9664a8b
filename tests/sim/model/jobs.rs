//! A job from its acceptance to its end: its shards and their attempts.

use gridpool_core::config::PoolConfig;
use gridpool_core::event::{JobRequest, Timestamp, Work};
use gridpool_protocol::ids::{AttemptId, ClientId, ContentHash, DeviceId, Group, JobId, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::{AttemptOutcome, ItemRange, RunReport, Verdict};

use super::Model;
use super::bisection::SharedLosses;
use super::losses::Failure;
use super::slots::State;

/// Most shards of one job.
const SHARDS_MAX: u64 = 64;

/// A shard of a job, known from its first dispatch on.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) items: ItemRange,
    pub(super) running: Option<(AttemptId, WorkerId)>,
    pub(super) answered: bool,
    /// It was asked to stop for a smaller job, and how often so far.
    pub(super) makes_room: bool,
    pub(super) made_room: u32,
    /// Attempts that count.
    pub(super) tries: u32,
    pub(super) device_errors: u32,
    /// The device where its last attempt failed.
    pub(super) failed_on: Option<DeviceId>,
}

impl Shard {
    fn waits(&self) -> bool {
        self.running.is_none() && !self.answered
    }
}

/// One accepted job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The group of the workers that run it.
    pub(super) group: Group,
    pub(super) client: ClientId,
    pub(super) request: JobRequest,
    pub(super) orphaned: bool,
    pub(super) deadline: Timestamp,
    /// The number of shards that it must be cut into.
    pub(super) shards_due: u32,
    /// The shards that were dispatched, in order of their items.
    pub(super) shards: Vec<Shard>,
    pub(super) begun: u32,
    pub(super) evidence: u32,
    /// Its content hash, as far as the core knows it.
    pub(super) content: Option<Option<ContentHash>>,
    /// Enough workers died of it: no shard of it waits or runs.
    pub(super) denylisted: bool,
    /// Its group of suspects: it may share a dispatch with jobs of the same number. 0 until it is lost.
    pub(super) suspects: u64,
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
        group: Group,
        (devices, live): (usize, u64),
        config: &PoolConfig,
    ) -> Self {
        Self {
            group,
            client,
            orphaned: false,
            deadline: now.after(request.deadline),
            shards_due: shards_due(&request, devices as u64, live, config),
            shards: Vec::new(),
            begun: 0,
            evidence: 0,
            content: None,
            denylisted: false,
            suspects: 0,
            shared: None,
            first_dispatch: None,
            accepted: now,
            item_errors: 0,
            attempts: Vec::new(),
            request,
        }
    }

    /// How many jobs it stands for.
    pub(super) fn count(&self) -> u64 {
        self.request.jobs.into()
    }

    /// Whether a shard of it runs.
    pub(super) fn runs(&self) -> bool {
        self.shards.iter().any(|shard| shard.running.is_some())
    }

    /// Whether one of its shards runs `attempt` now.
    pub(super) fn runs_attempt(&self, attempt: AttemptId) -> bool {
        let mut running = self.shards.iter().filter_map(|shard| shard.running);
        running.any(|(id, _)| id == attempt)
    }

    /// Whether no shard of it may wait.
    fn is_out(&self) -> bool {
        self.orphaned || self.denylisted
    }

    /// Waiting shards that were dispatched before.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(|shard| !self.is_out() && shard.waits())
    }

    /// Whether a shard that was never dispatched waits.
    pub(super) fn has_fresh_shard(&self) -> bool {
        !self.is_out() && self.shards.len() < self.shards_due as usize
    }

    /// Whether any shard of it waits.
    pub(super) fn waits(&self) -> bool {
        self.has_fresh_shard() || self.waiting().next().is_some()
    }

    /// The shard that `attempt` runs.
    pub(super) fn shard_of(&mut self, attempt: AttemptId) -> &mut Shard {
        let runs = |shard: &&mut Shard| shard.running.is_some_and(|(id, _)| id == attempt);
        self.shards.iter_mut().find(runs).expect("an attempt outstanding at a worker is a shard's")
    }

    /// The cost of some of its items.
    pub(super) fn cost(&self, items: ItemRange) -> u64 {
        let until = |item: u32| match item == self.request.items {
            true => self.request.cost,
            false => self.request.cost * u64::from(item) / u64::from(self.request.items),
        };
        until(items.end) - until(items.start)
    }

    /// No shard costs more.
    pub(super) fn shard_cost_max(&self) -> u64 {
        let items = self.request.items.div_ceil(self.shards_due);
        (self.request.cost * u64::from(items)).div_ceil(self.request.items.into())
    }

    /// Whether it may share a dispatch, or run beside others in a worker that runs `window` at once: not
    /// there if a worker died of it alone.
    pub(super) fn may_join(&self, is_concurrent: bool) -> bool {
        let killed_alone = is_concurrent && self.evidence > 0;
        let is_search = matches!(self.request.work, Work::Search { .. });
        self.shards_due == 1 && self.request.idempotent && !killed_alone && !is_search
    }

    /// Whether its worker died of it or of a job beside it, or was killed for a dispatch behind it.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspects != 0 || self.evidence > 0
    }

    /// Whether workers write its result to shared memory, not into their answer.
    pub(super) fn is_written_in_place(&self) -> bool {
        !self.request.answer_inline || self.shards_due > 1
    }
}

/// The number of shards of a large job: its cost over the smallest cost of a shard, at most one for each item, and at
/// most its share, by cost, of some for each device that may serve when it is accepted: `live` is the cost of the
/// live jobs of its principal, with it, times the principals that have some.
fn shards_due(request: &JobRequest, devices: u64, live: u64, config: &PoolConfig) -> u32 {
    let may = devices > 1 && request.idempotent && request.divisible;
    let of_all = devices * u64::from(config.shards_per_device) * request.cost;
    let own = of_all.div_ceil(live.max(1));
    let most = [own, request.items.into(), SHARDS_MAX];
    let due = most.into_iter().fold(request.cost / config.shard_cost_min, u64::min);
    if may { u32::try_from(due.max(1)).expect("there are few") } else { 1 }
}

impl Model {
    /// The worker has answered `attempt` with this result.
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
        let shard = job.shard_of(attempt);
        let items = shard.items;
        match result {
            Ok(report) => {
                shard.running = None;
                shard.answered = true;
                job.attempts.push((worker, AttemptOutcome::Ok, items));
                job.item_errors += report.item_errors;
                if job.runs() || job.waits() {
                    self.coverage.hit("split: a shard was answered before the others");
                } else {
                    if job.shards_due > 1 && !job.orphaned {
                        self.coverage.hit("split: all shards were answered");
                    }
                    self.end(attempt.job, Verdict::Ok);
                }
            }
            Err(AttemptError::Refused(_)) if shard.makes_room => {
                self.coverage.hit("room: an attempt stopped");
                self.attempt_preempted(attempt, worker);
            }
            Err(AttemptError::Refused(_)) => {
                self.coverage.hit("answer: refused");
                shard.running = None;
                job.attempts.push((worker, AttemptOutcome::Refused, items));
                self.fail(now, attempt.job, Verdict::Failed);
            }
            Err(AttemptError::Device(_)) => {
                self.coverage.hit("answer: device error");
                shard.device_errors += 1;
                let outcome = AttemptOutcome::DeviceError;
                let failure = Failure { outcome, no_fault: false, shared: false, given_up: false };
                self.attempt_failed(now, attempt, worker, failure);
            }
        }
    }

    pub(super) fn jobs_are_late(&mut self, now: Timestamp) {
        let late: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.deadline <= now).map(|(&id, _)| id).collect();
        for id in late {
            let job = &self.jobs[&id];
            let workers = job.shards.iter().filter_map(|shard| shard.running);
            for (attempt, worker) in workers {
                let at = self.slot_of(worker).expect("a worker that runs something has a slot");
                let slot = self.slot(at);
                let dispatches = slot.outstanding();
                let in_front = dispatches[0].attempts.iter().any(|sent| sent.attempt == attempt);
                let dies = matches!(slot.state, State::Killed { .. });
                self.coverage.hit(match (dies, in_front, dispatches[0].attempts.len()) {
                    (true, ..) => "deadline: while its worker is being killed",
                    (false, false, _) => "deadline: sent and not begun",
                    (false, true, 1) => "deadline: running",
                    (false, true, _) => "deadline: beside others in its launch",
                });
            }
            if !job.runs() {
                self.coverage.hit(match (job.accepted == now, job.denylisted) {
                    (true, _) => "deadline: at submission",
                    (false, true) => "deadline: before its content was known",
                    (false, false) => "deadline: queued",
                });
            }
            self.cut_off(now, id, AttemptOutcome::Deadline);
            self.end(id, Verdict::Deadline);
        }
    }

    pub(super) fn jobs_have_no_device(&mut self, now: Timestamp, group: Group) {
        let mut own = self.devices.iter().filter(|(at, _)| at.group == group);
        if own.any(|(at, device)| device.may_serve() && !self.is_given_away(at.device)) {
            return;
        }
        let waits = |job: &Job| job.group == group && job.waits();
        let waiting: Vec<_> =
            self.jobs.iter().filter(|(_, job)| waits(job)).map(|(&id, _)| id).collect();
        for id in waiting {
            if self.jobs[&id].runs() {
                self.coverage.hit("no device: an old process holds a shard of a job that waits");
            }
            self.has_no_device(now, id);
        }
    }

    pub(super) fn cut_off_all(&mut self, now: Timestamp, group: Group) {
        let own = self.jobs.iter().filter(|(_, job)| job.group == group).map(|(&id, _)| id);
        for id in own.collect::<Vec<_>>() {
            self.cut_off(now, id, AttemptOutcome::Cancelled);
            self.note_cut_off(id);
            self.end(id, Verdict::Cancelled);
        }
    }

    /// The job ends before its attempts do. Their workers have a grace; none if the job is late and runs
    /// alone; until the deadline if a shard of it failed.
    pub(super) fn cut_off(&mut self, now: Timestamp, id: JobId, outcome: AttemptOutcome) {
        let job = self.jobs.get_mut(&id).expect("it is live");
        let group = &self.groups[&job.group];
        let grace = now.after(group.limits.cancel_grace);
        let failed = outcome == AttemptOutcome::Preempted;
        let free_at = if failed { grace.max(job.deadline) } else { grace };
        let mut cut_off = Vec::new();
        for shard in &mut job.shards {
            let Some((attempt, worker)) = shard.running.take() else { continue };
            job.attempts.push((worker, outcome, shard.items));
            // The attempts of an orphan were withdrawn when its client went.
            cut_off.push((attempt, worker, job.orphaned || shard.makes_room));
        }
        for (attempt, worker, is_withdrawn) in cut_off {
            if !is_withdrawn {
                self.withdraws(worker, attempt);
            }
            let at = self.slot_of(worker).expect("a worker that runs something has a slot");
            self.slot_mut(at).frees(attempt, free_at, outcome);
        }
    }

    /// A worker is told that no answer is wanted.
    pub(super) fn withdraws(&mut self, worker: WorkerId, attempt: AttemptId) {
        self.due.withdrawals.insert((worker, attempt));
    }

    /// A verdict is due from now on.
    pub(super) fn end(&mut self, id: JobId, verdict: Verdict) {
        let job = self.jobs.remove(&id).expect("it is live");
        self.group_mut(job.group).fair.leaves(&job);
        let failed = matches!(verdict, Verdict::Failed | Verdict::Poison);
        let goes_apart = failed && job.request.is_bundle() && !job.orphaned;
        if goes_apart {
            self.coverage.hit(if verdict == Verdict::Poison {
                "bundle: its jobs run again after a death"
            } else {
                "bundle: its jobs run again after attempts that failed"
            });
            self.due.apart.insert(id);
        }
        let verdict = if job.orphaned || goes_apart { Verdict::Cancelled } else { verdict };
        let (counter, name) = match verdict {
            Verdict::Cancelled => (&mut self.counters.cancelled, "verdict CANCELLED"),
            Verdict::Deadline => (&mut self.counters.deadline, "verdict DEADLINE"),
            Verdict::DeviceLost => (&mut self.counters.device_lost, "verdict DEVICE_LOST"),
            Verdict::Failed => (&mut self.counters.failed, "verdict FAILED"),
            Verdict::Ok => (&mut self.counters.ok, "verdict OK"),
            Verdict::Poison => (&mut self.counters.poison, "verdict POISON"),
        };
        *counter += job.count();
        self.coverage.hit(name);
        self.due.verdicts.insert(id, (job, verdict));
    }
}
