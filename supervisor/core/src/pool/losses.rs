//! Attempts that end without an answer: which job a death is evidence against, which attempts are retried,
//! and which jobs end. The attempts of a dying worker are handled twice: at once, where a retry can do no
//! harm, and again when the process is gone and the cause of death is known.

use std::sync::Arc;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::receipt::{AttemptOutcome, DeviceInfo, Verdict};

use super::Pool;
use super::outstanding::{Dispatch, Outstanding, Sent};
use crate::action::Action;
use crate::event::Timestamp;

/// How a worker was lost.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) device: Arc<DeviceInfo>,
    pub(super) kind: LossKind,
    /// For the receipt of each attempt.
    pub(super) detail: String,
    /// For the reason of a verdict.
    pub(super) why: String,
    /// The process still exists and may write its jobs' results to shared memory.
    pub(super) may_write: bool,
    /// The first sign of the loss.
    pub(super) since: Timestamp,
    /// A client has ordered it.
    pub(super) is_ordered: bool,
    /// The capsule of the death, once it is known to be worth one.
    pub(super) capsule: Option<Arc<str>>,
}

/// What the loss counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossKind {
    /// It ended by itself; the flag says whether that is evidence against the one job that it ran.
    Died { evidence: bool },
    /// It stopped answering; the flag says the same.
    Hung { evidence: bool },
    /// Another process killed it.
    Killed,
    /// The pool killed it to free its device.
    Freed,
    /// The same, because an attempt ran on after its job's verdict.
    RanOn,
    /// It left between two jobs: none of its outstanding attempts had begun.
    Unbegun,
}

impl LossKind {
    /// The same for a worker that was changing its models: its death may have another cause than its job.
    pub(super) fn without_evidence(self) -> Self {
        match self {
            Self::Died { .. } => Self::Died { evidence: false },
            Self::Hung { .. } => Self::Hung { evidence: false },
            Self::Freed | Self::Killed | Self::RanOn | Self::Unbegun => self,
        }
    }

    fn is_evidence(self) -> bool {
        match self {
            Self::Died { evidence } | Self::Hung { evidence } => evidence,
            Self::Freed | Self::Killed | Self::RanOn | Self::Unbegun => false,
        }
    }

    /// Whether no attempt caused it: none counts, and no job is a suspect.
    fn costs_nothing(self) -> bool {
        match self {
            Self::Freed | Self::RanOn | Self::Unbegun => true,
            Self::Died { .. } | Self::Hung { .. } | Self::Killed => false,
        }
    }

    fn outcome(self) -> AttemptOutcome {
        match self {
            Self::Died { .. } | Self::Killed => AttemptOutcome::WorkerDied,
            Self::Freed | Self::RanOn | Self::Unbegun => AttemptOutcome::Preempted,
            Self::Hung { .. } => AttemptOutcome::Hang,
        }
    }
}

impl Pool {
    /// A worker is ending but not gone. Queues again at once the attempts whose retry it cannot disturb.
    pub(super) fn requeue_at_once(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        outstanding: &mut Outstanding,
        loss: &Loss,
    ) {
        for sent in outstanding.second.iter_mut().flat_map(|dispatch| &mut dispatch.sent) {
            if self.jobs.running(sent.attempt).is_some_and(|id| self.jobs[id].may_move()) {
                sent.moved = true;
                self.preempt(now, sent.attempt, loss);
            }
        }
        self.split_suspects(outstanding, loss.kind);
        let shared = outstanding.front.sent.len() > 1;
        for sent in &mut outstanding.front.sent {
            let Some(id) = self.jobs.running(sent.attempt) else { continue };
            if !self.jobs[id].may_move() {
                continue;
            }
            if loss.kind.costs_nothing() {
                sent.moved = true;
                self.preempt(now, sent.attempt, loss);
            } else if shared || self.may_retry_unexplained(id, worker) {
                sent.moved = true;
                self.lose(now, sent.attempt, loss, shared);
                self.enqueue(id, 0);
            }
        }
    }

    /// Whether a job that ran alone may be retried before the cause of its worker's death is known: not if
    /// this death, with others whose cause is unknown, could be enough for the verdict POISON.
    fn may_retry_unexplained(&self, id: JobId, dying: WorkerId) -> bool {
        let others = self.slots.processes().filter(|process| process.worker != dying);
        let killed = others.filter(|process| process.killed().is_some());
        let moved = killed.filter_map(|process| process.outstanding()?.moved_alone());
        let pending = moved.filter(|&job| job == id).count();
        let pending = u32::try_from(pending).expect("there are few slots");
        let job = &self.jobs[id];
        let tries = job.shards[0].tries;
        tries < self.config.attempts_max && job.deaths + pending + 1 < job.deaths_max(&self.config)
    }

    /// A worker is gone, and its outstanding attempts are lost. Only the front dispatch is suspect: the
    /// second had not begun.
    pub(super) fn on_lost(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        mut outstanding: Outstanding,
        mut loss: Loss,
    ) {
        // First: what follows gives verdicts, and the shell forgets jobs that have theirs.
        loss.capsule = self.suspect_work(worker, &outstanding, &loss);
        let loss = &loss;
        for charge in outstanding.charges(now) {
            self.accounts.charge(now, &charge.principal, charge.time);
        }
        self.split_suspects(&mut outstanding, loss.kind);
        let Outstanding { front, second, .. } = outstanding;
        // The second dispatch first: a job that ends with its front shard must find its other shards in the
        // queue.
        for sent in second.into_iter().flat_map(|dispatch| dispatch.sent).filter(|sent| !sent.moved)
        {
            self.preempt(now, sent.attempt, loss);
        }
        let alone = front.sent.len() == 1;
        for Sent { attempt, moved, .. } in front.sent {
            match loss.kind {
                LossKind::Freed | LossKind::RanOn | LossKind::Unbegun if moved => {}
                LossKind::Freed | LossKind::RanOn | LossKind::Unbegun => {
                    self.preempt(now, attempt, loss)
                }
                LossKind::Died { .. } | LossKind::Hung { .. } | LossKind::Killed if moved => {
                    self.on_death_explained(now, worker, attempt.job, loss, alone);
                }
                LossKind::Died { .. } | LossKind::Hung { .. } | LossKind::Killed => {
                    self.on_attempt_lost(now, attempt, loss, alone);
                }
            }
        }
    }

    /// Bisects jobs that ran together when their worker was lost: the pool cannot know which one was the
    /// cause. None is blamed; each half runs again by itself.
    fn split_suspects(&mut self, outstanding: &mut Outstanding, kind: LossKind) {
        let front: &Dispatch = &outstanding.front;
        if kind.costs_nothing() || outstanding.is_split || front.sent.len() < 2 {
            return;
        }
        let suspects: Vec<_> =
            front.sent.iter().filter_map(|sent| self.jobs.running(sent.attempt)).collect();
        outstanding.is_split = true;
        for half in suspects.chunks(suspects.len().div_ceil(2).max(1)) {
            let suspects = Some(self.next_suspects());
            for id in half {
                self.jobs[*id].suspects = suspects;
            }
        }
    }

    /// The cause of a worker's death is known. Its job was retried meanwhile, and may have ended.
    fn on_death_explained(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        id: JobId,
        loss: &Loss,
        alone: bool,
    ) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.explain(worker, &loss.detail, loss.capsule.as_deref());
        let speaks = alone && loss.kind.is_evidence() && job.poison.is_none();
        if speaks && self.note_death(id) {
            self.poison(now, id, &loss.why);
        }
    }

    fn on_attempt_lost(&mut self, now: Timestamp, attempt: AttemptId, loss: &Loss, alone: bool) {
        // A job that was cut off has its verdict, or is about to get it.
        let Some(id) = self.jobs.running(attempt) else { return };
        let shard = self.lose(now, attempt, loss, !alone);
        if loss.kind == LossKind::Killed {
            self.jobs[id].shards[shard].avoid = None;
        }
        if alone && loss.kind.is_evidence() && self.note_death(id) {
            return self.poison(now, id, &loss.why);
        }
        let job = &self.jobs[id];
        match loss.may_write && job.writes_shared_memory() && !job.orphaned {
            true => self.give_up_job(now, id, loss),
            false => self.retry_or_fail(now, id, shard, &loss.why),
        }
    }

    /// Records an attempt that was lost, and returns its shard. An attempt that shared its dispatch does
    /// not count: the loss only makes its job a suspect.
    fn lose(&mut self, now: Timestamp, attempt: AttemptId, loss: &Loss, shared: bool) -> usize {
        let job = &mut self.jobs[attempt.job];
        let shard = job.shard_of(attempt).expect("it runs");
        job.shards[shard].lost_at.get_or_insert(loss.since);
        self.groups[job.group].meters.ended(loss.kind.outcome());
        job.failed(now, shard, loss.device.clone(), loss.kind.outcome(), loss.detail.clone());
        job.names_capsule(loss.capsule.as_deref());
        job.shards[shard].tries -= u32::from(shared);
        shard
    }

    /// An attempt ended because of another one, or of its device. It does not count; its shard waits again,
    /// if the job may run twice.
    fn preempt(&mut self, now: Timestamp, attempt: AttemptId, loss: &Loss) {
        let Some(id) = self.jobs.running(attempt) else { return };
        let job = &mut self.jobs[id];
        let shard = job.shard_of(attempt).expect("it runs");
        job.shards[shard].lost_at.get_or_insert(loss.since);
        self.groups[job.group].meters.ended(AttemptOutcome::Preempted);
        job.preempted(now, shard, loss.device.clone(), loss.detail.clone());
        if loss.kind == LossKind::Unbegun && !job.orphaned {
            // Even a job that must not run twice: this attempt never began.
            return self.enqueue(id, shard);
        }
        match loss.may_write && job.writes_shared_memory() && !job.orphaned {
            true => self.give_up_job(now, id, loss),
            false => self.retry_or_fail(now, id, shard, &loss.why),
        }
    }

    /// A process that cannot be killed may still write the result to shared memory: no other attempt may
    /// run.
    fn give_up_job(&mut self, now: Timestamp, id: JobId, loss: &Loss) {
        self.end_early(now, id, AttemptOutcome::Preempted);
        let reason = format!("{}, and may still write to the place of the result", loss.why);
        self.finish(now, id, Verdict::DeviceLost, reason);
    }

    /// Puts a shard whose attempt was lost back into the queue, or ends its job.
    pub(super) fn retry_or_fail(&mut self, now: Timestamp, id: JobId, shard: usize, why: &str) {
        /// Attempts that may end in a device error of their own before the job fails.
        const DEVICE_ERRORS_MAX: u32 = 2;
        let job = &self.jobs[id];
        let tried = &job.shards[shard];
        let tries = tried.tries;
        let reason = if job.orphaned {
            return self.finish_if_ended(now, id);
        } else if !job.request.idempotent {
            format!("{why}; it may not run twice")
        } else if tried.device_errors >= DEVICE_ERRORS_MAX {
            why.to_owned()
        } else if tries >= self.config.attempts_max {
            format!("{tries} attempts were lost; {why}")
        } else {
            return self.enqueue(id, shard);
        };
        self.end_early(now, id, AttemptOutcome::Preempted);
        self.finish(now, id, Verdict::Failed, reason);
    }

    /// Gives a job its verdict if no shard waits or runs: each was answered, or the client is gone.
    pub(super) fn finish_if_ended(&mut self, now: Timestamp, id: JobId) {
        if self.jobs[id].has_ended() {
            self.finish(now, id, Verdict::Ok, String::new());
        }
    }

    /// Cuts off the running attempts of a job, before it gets its verdict. Each has a grace to finish. If
    /// another shard of the job failed, the grace lasts until the job's deadline: healthy attempts end by
    /// themselves, and a kill would cost other jobs on their workers.
    pub(super) fn end_early(&mut self, now: Timestamp, id: JobId, outcome: AttemptOutcome) {
        let job = &mut self.jobs[id];
        let state = &mut self.groups[job.group];
        let limits = state.limits;
        let grace = match outcome == AttemptOutcome::Preempted {
            true => job.deadline.since(now).max(limits.cancel_grace),
            false => limits.cancel_grace,
        };
        // The attempts of an orphan were withdrawn when its client went.
        let orphaned = job.orphaned;
        for (shard, attempt, worker) in job.running().collect::<Vec<_>>() {
            let withdraws = !orphaned && !job.shards[shard].makes_room;
            let index = self.slots.find(worker).expect("a running attempt's worker has a slot");
            let process = self.slots.process_mut(index);
            process.cut_off(now, attempt, grace, outcome);
            state.meters.ended(outcome);
            job.failed(now, shard, process.device_info(), outcome, String::new());
            if withdraws {
                self.actions.push_back(Action::Withdraw { worker, attempt });
            }
        }
    }

    /// SIGKILL had no effect in time: the process is stuck in the kernel. The device goes out of service,
    /// whatever the policy, and is not probed before this process has ended.
    pub(super) fn give_up_process(&mut self, now: Timestamp, index: usize) {
        let process = self.slots.process_mut(index);
        let (worker, device) = (process.worker, process.device_info());
        let is_changing = process.is_changing;
        let Some((killed, outstanding)) = process.give_up() else { return };
        self.faults.note(FaultCode::Unkillable);
        let why = "its worker cannot be killed".to_owned();
        let fault = format!("{worker} does not die: SIGKILL had no effect in time");
        self.devices.service_of(worker).last_fault.clone_from(&fault);
        let kind = killed.cause.loss(&self.policy);
        let kind = if is_changing { kind.without_evidence() } else { kind };
        let since = killed.since;
        let detail = why.clone();
        let (may_write, is_ordered) = (true, false);
        let loss = Loss { device, kind, detail, why, may_write, since, is_ordered, capsule: None };
        if let Some(outstanding) = outstanding {
            self.on_lost(now, worker, outstanding, loss);
        }
        if !self.groups[worker.group].is_leaving() {
            self.give_up_device(now, worker.device, &fault);
        }
    }
}
