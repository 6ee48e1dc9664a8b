//! What is lost with a worker: which job its death is evidence against, and which jobs run again.

use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::Model;
use super::outstanding::{Dispatch, Outstanding};
use super::slots::{Freed, Why};

/// Device errors that one shard of a job may meet before the job fails.
const DEVICE_ERRORS_MAX: u32 = 2;

/// How a worker was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// By itself, or by another process's SIGKILL.
    Died { evidence: bool, from_outside: bool },
    /// It was killed to free its device; the flag says whether an attempt of its own ran on for too long.
    Freed { ran_on: bool },
    /// It stopped answering.
    Hung { evidence: bool },
}

impl Loss {
    /// That of a worker that was killed to free its device.
    pub(super) fn of_freed(why: Why) -> Self {
        Self::Freed { ran_on: why == Why::FreeDevice(Freed::Ended) }
    }

    /// The same for a worker that was changing its models.
    pub(super) fn without_evidence(self) -> Self {
        match self {
            Self::Died { from_outside, .. } => Self::Died { evidence: false, from_outside },
            Self::Freed { ran_on } => Self::Freed { ran_on },
            Self::Hung { .. } => Self::Hung { evidence: false },
        }
    }
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) outcome: AttemptOutcome,
    /// For a reason outside the job and the device.
    pub(super) no_fault: bool,
    /// Together with others: it does not count.
    pub(super) shared: bool,
    /// Its process may still be alive.
    pub(super) given_up: bool,
}

impl Model {
    /// The process is gone, or `given_up`: its outstanding attempts are lost.
    pub(super) fn outstanding_lost(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        mut outstanding: Outstanding,
        loss: Loss,
        given_up: bool,
    ) {
        for sent in outstanding.lost(now) {
            self.attempt_is_charged(now, &sent);
        }
        let Some((front, rest)) = outstanding.0.split_first() else { return };
        self.death_is_suspicious(worker, front, loss);
        for sent in rest.iter().flat_map(|dispatch| &dispatch.attempts) {
            if self.runs(sent.attempt) {
                self.coverage.hit("preempted: it had not begun");
                self.attempt_cut_short(now, sent.attempt, worker, given_up);
            }
        }
        if matches!(loss, Loss::Freed { .. }) {
            self.front_freed(now, worker, front, given_up);
        } else {
            self.front_lost(now, worker, front, loss, given_up);
        }
    }

    fn front_freed(&mut self, now: Timestamp, worker: WorkerId, front: &Dispatch, given_up: bool) {
        let cut_off = front.attempts.iter().any(|sent| sent.free_at.is_some());
        for sent in &front.attempts {
            if self.runs(sent.attempt) {
                self.coverage.hit(if cut_off {
                    "preempted: beside a job that was cut off"
                } else {
                    "preempted: others waited behind it"
                });
                self.attempt_cut_short(now, sent.attempt, worker, given_up);
            }
        }
    }

    fn front_lost(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        front: &Dispatch,
        loss: Loss,
        given_up: bool,
    ) {
        let (outcome, evidence, from_outside) = match loss {
            Loss::Died { evidence, from_outside } => {
                (AttemptOutcome::WorkerDied, evidence, from_outside)
            }
            Loss::Hung { evidence } => (AttemptOutcome::Hang, evidence, false),
            Loss::Freed { .. } => return,
        };
        let alone = front.attempts.len() == 1;
        if evidence {
            self.coverage.hit(match (alone, front.sent) {
                (true, 1) => "death: with evidence",
                (true, _) => "death: the last attempt of a dispatch is the only suspect",
                (false, _) => "death: several suspects",
            });
        }
        if !alone && !front.split {
            self.is_split(front);
        }
        for sent in &front.attempts {
            if evidence && alone {
                self.death_speaks_against(now, sent.attempt, sent.moved);
            }
            if self.runs(sent.attempt) {
                let no_fault = from_outside;
                let failure = Failure { outcome, no_fault, shared: !alone, given_up };
                self.attempt_failed(now, sent.attempt, worker, failure);
            }
        }
    }

    /// A job that was moved is still a suspect. One that was cut off is not.
    fn death_speaks_against(&mut self, now: Timestamp, attempt: AttemptId, moved: bool) {
        let Some(job) = self.jobs.get(&attempt.job) else { return };
        if job.denylisted || !(moved || job.runs_attempt(attempt)) {
            return;
        }
        let elsewhere = job.runs();
        self.worker_died_of(attempt.job);
        if moved {
            self.coverage.hit("death: evidence against a job that was moved");
            if self.is_guilty(&self.jobs[&attempt.job]) {
                self.coverage.hit(if elsewhere {
                    "denylisted: while it runs elsewhere"
                } else {
                    "denylisted: while it waits"
                });
                self.is_denylisted(now, attempt.job);
            }
        }
    }

    /// Whether the attempt's job is live and still runs it.
    pub(super) fn runs(&self, attempt: AttemptId) -> bool {
        self.jobs.get(&attempt.job).is_some_and(|job| job.runs_attempt(attempt))
    }

    /// It is preempted, with its process or before.
    fn attempt_cut_short(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        worker: WorkerId,
        given_up: bool,
    ) {
        let job = &self.jobs[&attempt.job];
        let (orphaned, idempotent) = (job.orphaned, job.request.idempotent);
        let may_write = given_up && job.is_written_in_place();
        if orphaned || (idempotent && !may_write) {
            self.attempt_preempted(attempt, worker);
            return;
        }
        self.attempt_is_over(attempt, worker, AttemptOutcome::Preempted);
        if may_write {
            self.place_is_lost(now, attempt.job);
        } else {
            self.coverage.hit("preempted: must not run twice");
            self.fail(now, attempt.job, Verdict::Failed);
        }
    }

    /// It was preempted: it does not count.
    pub(super) fn attempt_preempted(&mut self, attempt: AttemptId, worker: WorkerId) {
        let job = self.jobs.get_mut(&attempt.job).expect("it is live");
        job.shard_of(attempt).tries -= 1;
        self.attempt_is_over(attempt, worker, AttemptOutcome::Preempted);
        self.goes_back(attempt.job);
    }

    fn attempt_is_over(&mut self, attempt: AttemptId, worker: WorkerId, outcome: AttemptOutcome) {
        let job = self.jobs.get_mut(&attempt.job).expect("it is live");
        let shard = job.shard_of(attempt);
        shard.running = None;
        let items = shard.items;
        job.attempts.push((worker, outcome, items));
    }

    /// An unkillable process may write the result at any time.
    fn place_is_lost(&mut self, now: Timestamp, id: JobId) {
        self.coverage.hit("unkillable: it may write a result");
        self.fail(now, id, Verdict::DeviceLost);
    }

    /// The attempt gave no result: its shard runs again or its job ends.
    pub(super) fn attempt_failed(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        worker: WorkerId,
        failure: Failure,
    ) {
        let id = attempt.job;
        let job = self.jobs.get_mut(&id).expect("it is live");
        let shard = job.shard_of(attempt);
        shard.failed_on = (!failure.no_fault).then_some(worker.device);
        shard.tries -= u32::from(failure.shared);
        let (tries, errors) = (shard.tries, shard.device_errors);
        self.attempt_is_over(attempt, worker, failure.outcome);
        let job = &self.jobs[&id];
        if self.is_guilty(job) {
            self.coverage.hit("denylisted: by its latest attempt");
            self.is_denylisted(now, id);
        } else if job.orphaned {
            self.coverage.hit("retry: job of a client that is gone");
            self.goes_back(id);
        } else if failure.given_up && job.is_written_in_place() {
            self.place_is_lost(now, id);
        } else if !job.request.idempotent {
            self.coverage.hit("retry: must not run twice");
            self.fail(now, id, Verdict::Failed);
        } else if errors >= DEVICE_ERRORS_MAX {
            self.fail(now, id, Verdict::Failed);
        } else if tries >= self.config.attempts_max {
            self.coverage.hit("retry: last attempt");
            self.fail(now, id, Verdict::Failed);
        } else {
            self.group_mut(worker.group).retries += 1;
            self.goes_back(id);
        }
    }

    /// A shard of the job waits again, unless its client is gone.
    pub(super) fn goes_back(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        if !job.orphaned {
            let fair = &mut self.groups.get_mut(&job.group).expect("groups stay").fair;
            fair.waits(job);
            if fair.waiting() > self.config.queue_jobs_max {
                self.coverage.hit("retry: queue above its limit");
            }
        } else if !job.runs() {
            self.end(id, Verdict::Cancelled);
        }
    }

    /// The job ends while shards of it may be running.
    pub(super) fn fail(&mut self, now: Timestamp, id: JobId, verdict: Verdict) {
        if self.jobs[&id].runs() {
            self.coverage.hit("split: a shard ended the job while others ran");
        }
        self.cut_off(now, id, AttemptOutcome::Preempted);
        self.end(id, verdict);
    }
}
