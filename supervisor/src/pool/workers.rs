//! What workers do: get ready, answer, die. And what becomes of a job whose attempt was lost.

use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::{AttemptOutcome, DeviceInfo, RunReport, Verdict};

use super::event::{Exit, Timestamp};
use super::slot::{Blame, KillCause, Slot, SlotState};
use super::{Phase, Pool};

impl Pool {
    /// The slot that `worker` serves now, marked as heard; `None` (and counted) if the message comes
    /// from a process that is gone.
    pub(super) fn current_slot(&mut self, now: Timestamp, worker: WorkerId) -> Option<usize> {
        let serves = |slot: &Slot| slot.worker() == worker && slot.has_process();
        let index = self.slots.iter().position(serves);
        match index {
            Some(index) => self.slots[index].last_heard = now,
            None => self.counters.stale += 1,
        }
        index
    }

    pub(super) fn on_ready(&mut self, now: Timestamp, worker: WorkerId, device: DeviceInfo) {
        let Some(index) = self.current_slot(now, worker) else { return };
        let slot = &mut self.slots[index];
        if matches!(slot.state, SlotState::Starting { .. }) {
            slot.ready(now, device);
        }
    }

    pub(super) fn on_answered(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
        result: Result<RunReport, AttemptError>,
    ) {
        let Some(index) = self.current_slot(now, worker) else { return };
        let slot = &mut self.slots[index];
        let device = slot.device_info();
        match &mut slot.state {
            SlotState::Busy { attempt: running, .. } if *running == attempt => {
                slot.state = SlotState::Ready { since: now };
            }
            // It answered while it was being killed: the answer counts, the process ends.
            SlotState::Killed { attempt: running, .. } if *running == Some(attempt) => {
                *running = None;
            }
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => {
                self.counters.stale += 1;
                return;
            }
        }
        slot.answered();
        // A job that was cancelled meanwhile has its verdict: the answer goes nowhere.
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        match result {
            Ok(report) => {
                job.answered(device, report);
                self.finish(now, attempt.job, Verdict::Ok, String::new());
            }
            Err(AttemptError::Refused(why)) => {
                job.failed(device, AttemptOutcome::Refused, why.clone());
                self.finish(now, attempt.job, Verdict::Failed, why);
            }
            Err(AttemptError::Device(why)) => {
                job.failed(device, AttemptOutcome::DeviceError, why.clone());
                job.device_errors += 1;
                self.retry_or_fail(now, attempt.job, &why);
            }
        }
    }

    pub(super) fn on_spawn_failed(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        detail: &str,
        is_final: bool,
    ) {
        let Some(index) = self.current_slot(now, worker) else { return };
        let slot = &mut self.slots[index];
        slot.last_fault = format!("{worker}: could not be started: {detail}");
        if matches!(self.phase, Phase::Leaving | Phase::Left) {
            slot.state = SlotState::Stopped;
        } else {
            // The system had no process or descriptor to give: not the device's fault.
            slot.died(now, Blame::Outside, is_final, &self.config);
        }
    }

    pub(super) fn on_exited(&mut self, now: Timestamp, worker: WorkerId, exit: &Exit) {
        let leaving = matches!(self.phase, Phase::Leaving | Phase::Left);
        let Some(index) = self.current_slot(now, worker) else { return };
        let slot = &mut self.slots[index];
        let device = slot.device_info();
        let (running, cause) = match slot.state {
            SlotState::Busy { attempt, .. } => (Some(attempt), None),
            SlotState::Killed { attempt, cause, .. } => (attempt, Some(cause)),
            SlotState::Unkillable { cause } => (None, Some(cause)),
            SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Waiting { .. } => (None, None),
        };
        let stopping = matches!(slot.state, SlotState::Stopping { .. });
        if leaving || stopping {
            slot.state = SlotState::Stopped;
        } else {
            let outcome = if cause == Some(KillCause::Hang) { "stopped answering" } else { "died" };
            slot.last_fault = format!("{worker} {outcome}: {exit}");
            let blame = match cause {
                None if exit.is_bare_kill() => Blame::Outside,
                None | Some(KillCause::Hang) => Blame::Device,
                Some(KillCause::FreeDevice | KillCause::Leaving) => Blame::Pool,
            };
            slot.died(now, blame, exit.is_final(), &self.config);
        }
        let Some(attempt) = running else { return };
        let hang = cause == Some(KillCause::Hang);
        let outcome = if hang { AttemptOutcome::Hang } else { AttemptOutcome::WorkerDied };
        self.on_attempt_lost(now, attempt, device, outcome, hang || exit.is_evidence(), exit);
    }

    pub(super) fn on_attempt_lost(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        device: DeviceInfo,
        outcome: AttemptOutcome,
        evidence: bool,
        exit: &Exit,
    ) {
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        job.failed(device, outcome, exit.to_string());
        if outcome == AttemptOutcome::WorkerDied && exit.is_bare_kill() {
            job.avoid = None;
        }
        job.deaths += u32::from(evidence);
        let why = format!("its worker ended with {exit}");
        self.retry_or_fail(now, attempt.job, &why);
    }

    /// Puts a job whose attempt was lost back into the queue, or ends it.
    pub(super) fn retry_or_fail(&mut self, now: Timestamp, id: JobId, why: &str) {
        /// Attempts that may end in a device error of their own before the job fails.
        const DEVICE_ERRORS_MAX: u32 = 2;
        let job = &self.jobs[&id];
        let begun = job.begun;
        let (verdict, reason) = if job.orphaned {
            (Verdict::Cancelled, "its client is gone".to_owned())
        } else if job.deaths >= self.config.poison_deaths {
            (Verdict::Poison, format!("{} workers died of it alone; {why}", job.deaths))
        } else if !job.request.idempotent {
            (Verdict::Failed, format!("{why}; it may not run twice"))
        } else if job.device_errors >= DEVICE_ERRORS_MAX {
            (Verdict::Failed, why.to_owned())
        } else if begun >= self.config.attempts_max {
            (Verdict::Failed, format!("{begun} attempts were lost; {why}"))
        } else {
            self.enqueue(id);
            return;
        };
        self.finish(now, id, verdict, reason);
    }
}
