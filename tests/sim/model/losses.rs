//! What a worker takes with it: whom its death speaks against, and what runs again.

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::Model;
use super::hands::Hands;

/// Device errors that one part of a job may meet before the job fails.
const DEVICE_ERRORS_MAX: u32 = 2;

/// How a worker was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// By itself, or by somebody outside.
    Died { evidence: bool, from_outside: bool },
    /// It was killed for what it ran beside these.
    Freed,
    /// It stopped answering.
    Hung,
}

impl Model {
    /// The process is gone, or given up, and all that it had in hand is lost.
    pub(super) fn hands_lost(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        hands: Hands,
        loss: Loss,
    ) {
        let Some((front, rest)) = hands.0.split_first() else { return };
        for &(attempt, _) in rest.iter().flat_map(|batch| &batch.attempts) {
            self.coverage.hit("preempted: it had not begun");
            self.attempt_preempted(attempt, worker);
        }
        let (outcome, evidence, from_outside) = match loss {
            Loss::Died { evidence, from_outside } => {
                (AttemptOutcome::WorkerDied, evidence, from_outside)
            }
            Loss::Hung => (AttemptOutcome::Hang, true, false),
            Loss::Freed => {
                let cut_off = front.attempts.iter().any(|(_, free_at)| free_at.is_some());
                for &(attempt, _) in &front.attempts {
                    if self.jobs.contains_key(&attempt.job) {
                        self.coverage.hit(if cut_off {
                            "preempted: beside a job that was cut off"
                        } else {
                            "preempted: others waited behind it"
                        });
                    }
                    self.attempt_preempted(attempt, worker);
                }
                return;
            }
        };
        let alone = front.attempts.len() == 1;
        if evidence {
            self.coverage.hit(match (alone, front.sent) {
                (true, 1) => "death: with evidence",
                (true, _) => "death: the last of a launch is suspect alone",
                (false, _) => "death: several suspects",
            });
        }
        for &(attempt, _) in &front.attempts {
            let Some(job) = self.jobs.get_mut(&attempt.job) else { continue };
            job.alone |= !alone;
            job.evidence += u32::from(evidence && alone);
            self.attempt_failed(now, attempt, worker, outcome, from_outside);
        }
    }

    /// It ended for another's sake: it counts for nothing.
    fn attempt_preempted(&mut self, attempt: AttemptId, worker: WorkerId) {
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        let part = job.part_of(attempt);
        part.running = None;
        part.tries -= 1;
        let items = part.items;
        job.attempts.push((worker, AttemptOutcome::Preempted, items));
        self.goes_back(attempt.job);
    }

    /// The attempt gave nothing: its part runs again or its job ends.
    pub(super) fn attempt_failed(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        worker: WorkerId,
        outcome: AttemptOutcome,
        nobodys_fault: bool,
    ) {
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        let part = job.part_of(attempt);
        part.running = None;
        part.failed_on = (!nobodys_fault).then_some(worker.device);
        let (items, tries, errors) = (part.items, part.tries, part.device_errors);
        job.attempts.push((worker, outcome, items));
        let verdict = if job.orphaned {
            self.coverage.hit("retry: job of a client that is gone");
            None
        } else if job.evidence >= self.config.poison_deaths {
            Some(Verdict::Poison)
        } else if !job.request.idempotent {
            self.coverage.hit("retry: may not run twice");
            Some(Verdict::Failed)
        } else if errors >= DEVICE_ERRORS_MAX {
            Some(Verdict::Failed)
        } else if tries >= self.config.attempts_max {
            self.coverage.hit("retry: last attempt");
            Some(Verdict::Failed)
        } else {
            None
        };
        match verdict {
            Some(verdict) => self.fail(now, attempt.job, verdict),
            None => {
                self.retries += 1;
                self.goes_back(attempt.job);
            }
        }
    }

    /// A part of the job waits again; if its client is gone, nothing does.
    fn goes_back(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        if !job.orphaned {
            self.fair.waits(job.client, &job.request, job.part_cost_max());
            if self.fair.waiting() > self.config.queue_jobs_max {
                self.coverage.hit("retry: queue above its limit");
            }
        } else if !job.runs() {
            self.end(id, Verdict::Cancelled);
        }
    }

    /// The job ends although parts of it may be running.
    pub(super) fn fail(&mut self, now: Timestamp, id: JobId, verdict: Verdict) {
        if self.jobs[&id].runs() {
            self.coverage.hit("split: a part ended the job while others ran");
        }
        self.cut_off(now, id, AttemptOutcome::Preempted);
        self.end(id, verdict);
    }
}
