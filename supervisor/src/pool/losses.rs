//! What becomes of attempts that end without an answer: whom a death speaks against, who runs again,
//! and which jobs end.

use gridpool_protocol::ids::{AttemptId, JobId};
use gridpool_protocol::receipt::{AttemptOutcome, DeviceInfo, Verdict};

use super::Pool;
use super::event::Timestamp;
use super::outstanding::Outstanding;
use super::slot::SlotState;

/// How a worker was lost.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) device: DeviceInfo,
    pub(super) kind: LossKind,
    /// What is said of it in a receipt.
    pub(super) detail: String,
    /// The same as the reason of a verdict.
    pub(super) why: String,
}

/// Whom it speaks against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossKind {
    /// It ended by itself; the flag says whether that is evidence against the one job that it ran.
    Died { evidence: bool },
    /// It stopped answering.
    Hung,
    /// Somebody outside killed it.
    Killed,
    /// The pool killed it for the sake of its device.
    Freed,
}

impl Pool {
    /// A worker is gone, and with it what it had not answered. Only what it was running is suspect: the
    /// second batch had not begun. If several jobs were in one launch nobody knows which it was: none
    /// is convicted, and each runs alone from then on.
    pub(super) fn on_lost(&mut self, now: Timestamp, outstanding: Outstanding, loss: &Loss) {
        let Outstanding { front, second } = outstanding;
        // First, so that a job that ends with its front part finds the others back in the queue.
        for sent in second.into_iter().flat_map(|batch| batch.sent) {
            self.preempt(now, sent.attempt, loss);
        }
        let alone = front.sent.len() == 1;
        for sent in front.sent {
            match loss.kind {
                LossKind::Freed => self.preempt(now, sent.attempt, loss),
                LossKind::Died { .. } | LossKind::Hung | LossKind::Killed => {
                    self.on_attempt_lost(now, sent.attempt, loss, alone);
                }
            }
        }
    }

    fn on_attempt_lost(&mut self, now: Timestamp, attempt: AttemptId, loss: &Loss, alone: bool) {
        // A job that was cut off has its verdict.
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        let part = job.part_of(attempt).expect("a live job's attempt is its part's");
        let (outcome, evidence) = match loss.kind {
            LossKind::Died { evidence } => (AttemptOutcome::WorkerDied, evidence),
            LossKind::Hung => (AttemptOutcome::Hang, true),
            LossKind::Freed | LossKind::Killed => (AttemptOutcome::WorkerDied, false),
        };
        job.failed(part, loss.device.clone(), outcome, loss.detail.clone());
        if loss.kind == LossKind::Killed {
            job.parts[part].avoid = None;
        }
        if alone {
            job.deaths += u32::from(evidence);
        } else {
            job.alone = true;
        }
        self.retry_or_fail(now, attempt.job, part, &loss.why);
    }

    /// An attempt ended because of another one. It counts for nothing; its part waits again. Not before
    /// its worker is gone, though: until then that may still write to the place of the result.
    fn preempt(&mut self, now: Timestamp, attempt: AttemptId, loss: &Loss) {
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        let part = job.part_of(attempt).expect("a live job's attempt is its part's");
        job.preempted(part, loss.device.clone(), loss.detail.clone());
        if job.orphaned {
            self.finish_if_ended(now, attempt.job);
        } else {
            self.enqueue(attempt.job, part);
        }
    }

    /// Puts a part whose attempt was lost back into the queue, or ends its job.
    pub(super) fn retry_or_fail(&mut self, now: Timestamp, id: JobId, part: usize, why: &str) {
        /// Attempts that may end in a device error of their own before the job fails.
        const DEVICE_ERRORS_MAX: u32 = 2;
        let job = &self.jobs[&id];
        let tried = &job.parts[part];
        let tries = tried.tries;
        let (verdict, reason) = if job.orphaned {
            return self.finish_if_ended(now, id);
        } else if job.deaths >= self.config.poison_deaths {
            (Verdict::Poison, format!("{} workers died of it alone; {why}", job.deaths))
        } else if !job.request.idempotent {
            (Verdict::Failed, format!("{why}; it may not run twice"))
        } else if tried.device_errors >= DEVICE_ERRORS_MAX {
            (Verdict::Failed, why.to_owned())
        } else if tries >= self.config.attempts_max {
            (Verdict::Failed, format!("{tries} attempts were lost; {why}"))
        } else {
            return self.enqueue(id, part);
        };
        self.end_early(now, id, AttemptOutcome::Preempted);
        self.finish(now, id, verdict, reason);
    }

    /// Gives the verdict of a job of which no part waits or runs: each was answered, or its client is
    /// gone and nobody is told.
    pub(super) fn finish_if_ended(&mut self, now: Timestamp, id: JobId) {
        if self.jobs[&id].has_ended() {
            self.finish(now, id, Verdict::Ok, String::new());
        }
    }

    /// Cuts off whatever attempts of a job are running, before it gets its verdict. They have a grace;
    /// if one of its parts failed, the others have all the time that the job had. They come to their end
    /// as any part does, and nobody else's work on their workers is to be lost for that one.
    pub(super) fn end_early(&mut self, now: Timestamp, id: JobId, outcome: AttemptOutcome) {
        let job = self.jobs.get_mut(&id).expect("the job is live");
        let grace = match outcome == AttemptOutcome::Preempted {
            true => job.deadline.since(now).max(self.config.cancel_grace),
            false => self.config.cancel_grace,
        };
        for (part, attempt, worker) in job.running().collect::<Vec<_>>() {
            let slot = self.slots.iter_mut().find(|slot| slot.worker() == worker);
            let slot = slot.expect("a running attempt's worker has a slot");
            let is_late = outcome == AttemptOutcome::Deadline;
            slot.cut_off(now, attempt, grace, is_late);
            job.failed(part, slot.device_info(), outcome, String::new());
        }
    }

    /// SIGKILL had no effect in time: the device is out of service, what it ran goes elsewhere.
    pub(super) fn give_up_slot(&mut self, now: Timestamp, index: usize) {
        let slot = &mut self.slots[index];
        let SlotState::Killed { cause, .. } = slot.state else {
            unreachable!("{} was not killed", slot.worker())
        };
        let worker = slot.worker();
        let outstanding = slot.take_outstanding();
        slot.state = SlotState::Unkillable { cause };
        slot.last_fault = format!("{worker} does not die: SIGKILL had no effect in time");
        let why = "its worker cannot be killed".to_owned();
        let device = slot.device_info();
        let loss = Loss { device, kind: cause.loss(), detail: why.clone(), why };
        if let Some(outstanding) = outstanding {
            self.on_lost(now, outstanding, &loss);
        }
    }
}
