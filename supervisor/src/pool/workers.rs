//! What workers do: get ready, answer, die. What becomes of an attempt that is lost is in `losses`.

use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::{AttemptOutcome, DeviceInfo, RunReport, Verdict};

use super::event::{Exit, Timestamp};
use super::losses::{Loss, LossKind};
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
        if !slot.answered(now, attempt, &self.config) {
            self.counters.stale += 1;
            return;
        }
        // A job that was cut off meanwhile has its verdict: the answer goes nowhere.
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        let device = slot.device_info();
        let part = job.part_of(attempt).expect("a live job's attempt is its part's");
        match result {
            Ok(report) => {
                job.answered(part, device, report);
                self.finish_if_ended(now, attempt.job);
            }
            Err(AttemptError::Refused(why)) => {
                job.failed(part, device, AttemptOutcome::Refused, why.clone());
                self.end_early(now, attempt.job, AttemptOutcome::Preempted);
                self.finish(now, attempt.job, Verdict::Failed, why);
            }
            Err(AttemptError::Device(why)) => {
                job.failed(part, device, AttemptOutcome::DeviceError, why.clone());
                job.parts[part].device_errors += 1;
                self.retry_or_fail(now, attempt.job, part, &why);
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
        let cause = match slot.state {
            SlotState::Killed { cause, .. } | SlotState::Unkillable { cause } => Some(cause),
            SlotState::Busy { .. }
            | SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Waiting { .. } => None,
        };
        let stopping = matches!(slot.state, SlotState::Stopping { .. });
        let outstanding = slot.take_outstanding();
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
        let Some(outstanding) = outstanding else { return };
        let kind = match cause {
            Some(cause) => cause.loss(),
            None if exit.is_bare_kill() => LossKind::Killed,
            None => LossKind::Died { evidence: exit.is_evidence() },
        };
        let why = format!("its worker ended with {exit}");
        self.on_lost(now, outstanding, &Loss { device, kind, detail: exit.to_string(), why });
    }
}
