//! What workers do: get ready, answer, die. What becomes of an attempt that is lost is in `losses`.

use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::metrics::RestartReason;
use gridpool_protocol::receipt::{AttemptOutcome, RunReport, Verdict};

use super::event::{Exit, Timestamp};
use super::kill::KillCause;
use super::losses::{Loss, LossKind};
use super::meters::End;
use super::outstanding::Answered;
use super::seats::find;
use super::slot::{Blame, Slot, SlotState};
use super::{Phase, Pool, meters};

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

    /// The process is ending: whatever it was is known when it is gone. Who stands by takes over now.
    pub(super) fn on_beacon_lost(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        last_words: Option<String>,
    ) {
        let Some(index) = self.current_slot(now, worker) else { return };
        match self.slots[index].state {
            SlotState::Busy { .. }
            | SlotState::Ready { .. }
            | SlotState::Standby
            | SlotState::Starting { .. } => {
                let mut why = self.why_killed(KillCause::Beacon, true);
                if let Some(words) = last_words {
                    why = format!("{why}: {words}");
                }
                self.kill_because(now, index, KillCause::Beacon, why);
            }
            SlotState::Killed { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => {}
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
        let answered = self.slots[index].answered(now, attempt, &self.config);
        let Answered::Known { moved, .. } = answered else {
            self.counters.stale += 1;
            return;
        };
        let device = self.device_mut(worker.device);
        device.worked();
        meters::note(&mut device.work, &result);
        if moved {
            self.counters.stale += 1;
            return;
        }
        // A job that was cut off meanwhile has its verdict, or waits for it: the answer goes nowhere.
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        let Some(part) = job.part_of(attempt) else { return };
        let device = self.slots[index].device_info();
        match result {
            Ok(report) => {
                let items = u64::from(job.parts[part].items.len());
                self.slots[index].items_done += items;
                find(&mut self.devices, worker.device).work.items += items;
                self.meters.answered(now, &job.parts[part], &report);
                job.answered(part, device, report);
                self.finish_if_ended(now, attempt.job);
            }
            Err(AttemptError::Refused(why)) => {
                self.meters.ended(AttemptOutcome::Refused);
                job.failed(part, device, AttemptOutcome::Refused, why.clone());
                self.end_early(now, attempt.job, AttemptOutcome::Preempted);
                self.finish(now, attempt.job, Verdict::Failed, why);
            }
            Err(AttemptError::Device(why)) => {
                self.meters.ended(AttemptOutcome::DeviceError);
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
        let fault = format!("{worker}: could not be started: {detail}");
        self.device_mut(worker.device).last_fault = fault;
        self.slots[index].end.by(now, RestartReason::SpawnFailed);
        if matches!(self.phase, Phase::Leaving | Phase::Left) {
            self.slots[index].state = SlotState::Stopped;
        } else {
            let code = if is_final { FaultCode::NoBinary } else { FaultCode::SpawnFailed };
            self.meters.fault(code);
            let response = self.policy.response(code);
            let blame = match response == Response::Restart {
                true => Blame::Device,
                // The system had no process or descriptor to give: not the device's fault.
                false => Blame::Outside,
            };
            self.seat_died(now, index, blame, response == Response::Halt, false);
            if response == Response::Quarantine {
                self.give_up_device(now, worker.device);
            }
        }
    }

    pub(super) fn on_exited(&mut self, now: Timestamp, worker: WorkerId, exit: &Exit) {
        let leaving = matches!(self.phase, Phase::Leaving | Phase::Left);
        let Some(index) = self.current_slot(now, worker) else { return };
        let slot = &mut self.slots[index];
        let device = slot.device_info();
        // Why the pool ended it; nothing if it was ending by itself.
        let cause = match slot.state {
            SlotState::Killed { cause: KillCause::Beacon, .. }
            | SlotState::Unkillable { cause: KillCause::Beacon } => None,
            SlotState::Killed { cause, .. } | SlotState::Unkillable { cause } => Some(cause),
            SlotState::Busy { .. }
            | SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Waiting { .. } => None,
        };
        // Asked to end, and killed where that was not enough: that says nothing about the device.
        let stopping =
            matches!(slot.state, SlotState::Stopping { .. }) || cause == Some(KillCause::Leaving);
        let (was_ready, is_changing) = (slot.was_ready, slot.is_changing);
        let hang = if was_ready { FaultCode::Hang } else { FaultCode::NotReady };
        let since = slot.doomed.unwrap_or(now);
        match meters::reason(slot.killed, exit).filter(|_| !stopping) {
            Some(reason) => slot.end.by(since, reason),
            None => slot.end = End::default(),
        }
        let outstanding = slot.take_outstanding();
        let of_exit = self.policy.response_to_exit(exit.code(), exit.fault);
        let response = match cause {
            Some(KillCause::Hang) => self.policy.response(hang),
            None
            | Some(
                KillCause::Beacon
                | KillCause::DeviceFault(_)
                | KillCause::FreeDevice(_)
                | KillCause::Leaving,
            ) => of_exit,
        };
        if !leaving && !stopping {
            let fault = match cause {
                None | Some(KillCause::Beacon) => Some(format!("{worker} died: {exit}")),
                Some(cause @ KillCause::Hang) => {
                    let why = self.why_killed(cause, was_ready);
                    Some(why.replacen("its worker", &worker.to_string(), 1))
                }
                // What the pool ends for the sake of its device has died of nothing, or of what has
                // been noted already.
                Some(KillCause::DeviceFault(_) | KillCause::FreeDevice(_) | KillCause::Leaving) => {
                    None
                }
            };
            let by_itself = fault.is_some();
            if by_itself {
                let met = exit.fault.unwrap_or_else(|| exit.code());
                self.meters.fault(if cause == Some(KillCause::Hang) { hang } else { met });
            }
            if let Some(fault) = fault {
                self.device_mut(worker.device).last_fault = fault;
            }
            let on_trial = outstanding.as_ref().is_some_and(|all| all.front.is_trial);
            let blame = match cause {
                None | Some(KillCause::Hang) if response == Response::Retry => Blame::Outside,
                None | Some(KillCause::Beacon | KillCause::DeviceFault(_) | KillCause::Hang) => {
                    if on_trial {
                        Blame::Pool
                    } else {
                        Blame::Device
                    }
                }
                Some(KillCause::FreeDevice(_) | KillCause::Leaving) => Blame::Pool,
            };
            self.promote(now, worker.device);
            let is_final = [response, of_exit].contains(&Response::Halt);
            self.seat_died(now, index, blame, is_final, true);
            if response == Response::Quarantine && by_itself {
                self.give_up_device(now, worker.device);
            }
        }
        if stopping && !leaving {
            self.seat_ended_as_asked(now, index);
        }
        let Some(outstanding) = outstanding else { return };
        let kind = match cause {
            Some(cause) => LossKind::of(cause, &self.policy),
            None if exit.code() == FaultCode::Exit(exit_code::WORN) => LossKind::Unbegun,
            None if response == Response::Retry => LossKind::Killed,
            None => LossKind::Died { evidence: response == Response::Suspect },
        };
        let (why, detail) = match cause {
            None => (format!("its worker ended with {exit}"), exit.to_string()),
            Some(cause) => {
                let why = self.why_killed(cause, was_ready);
                (why.clone(), why)
            }
        };
        let kind = if is_changing { kind.without_evidence() } else { kind };
        let loss = Loss { device, kind, detail, why, may_write: false, since };
        self.on_lost(now, worker, outstanding, &loss);
    }
}
