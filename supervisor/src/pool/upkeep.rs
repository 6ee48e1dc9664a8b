//! What is always true between events: nothing late is waiting, every slot that is due has a process,
//! every idle device has a job if one may go there, and a pool that drains ends.

use std::time::Duration;

use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::event::{Action, Timestamp};
use super::kill::{Freed, KillCause};
use super::losses::{Loss, LossKind};
use super::slot::{Slot, SlotState};
use super::{Phase, Pool};

/// A call that comes so much later than it was asked for means that this process was stopped, or
/// starved: what workers have said meanwhile has not been read.
const PAUSE_MIN: Duration = Duration::from_millis(100);

impl Pool {
    /// Gives workers the time back in which nobody listened to them.
    pub(super) fn excuse_pause(&mut self, now: Timestamp) {
        let gap = self.poll_deadline().map_or(Duration::ZERO, |due| now.since(due));
        if gap >= PAUSE_MIN {
            // And a little more, in which to read what they have said.
            self.slots.iter_mut().for_each(|slot| slot.excuse(now, gap + PAUSE_MIN));
        }
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        self.expire_jobs(now);
        self.expire_slots(now);
        self.give_up_if_no_device(now);
        self.give_up_if_nobody_offers(now);
        self.end_drain(now);
        self.rest(now);
        self.start_workers(now);
        self.dispatch(now);
        // Who takes over from a worker that is killed may have work at once.
        while self.free_those_who_wait(now) {
            self.dispatch(now);
        }
        self.jobs_high = self.jobs_high.max(self.queue.jobs());
    }

    fn expire_jobs(&mut self, now: Timestamp) {
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > now {
                return;
            }
            self.end_early(now, id, AttemptOutcome::Deadline);
            self.finish(now, id, Verdict::Deadline, "its deadline passed".to_owned());
        }
    }

    fn expire_slots(&mut self, now: Timestamp) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.wakes_at(&self.config).is_none_or(|at| at > now) {
                continue;
            }
            match &slot.state {
                SlotState::Starting { .. } | SlotState::Ready { .. } | SlotState::Standby => {
                    self.kill(now, index, KillCause::Hang);
                }
                SlotState::Reclaiming { .. } => self.on_reclaimed(slot.worker()),
                SlotState::Busy { outstanding } => {
                    let cause = match outstanding.free_at() {
                        Some((at, why)) if at <= now => KillCause::FreeDevice(Freed::Ended(why)),
                        Some(_) | None => KillCause::Hang,
                    };
                    self.kill(now, index, cause);
                }
                SlotState::Stopping { .. } => self.kill(now, index, KillCause::Leaving),
                SlotState::Killed { .. } => self.give_up_slot(now, index),
                SlotState::Stopped | SlotState::Unkillable { .. } | SlotState::Waiting { .. } => {}
            }
        }
    }

    /// Sends SIGKILL. What another attempt cannot disturb goes elsewhere at once, and who stands by
    /// takes over.
    pub(super) fn kill(&mut self, now: Timestamp, index: usize, cause: KillCause) {
        let why = self.why_killed(cause, self.slots[index].was_ready);
        self.kill_because(now, index, cause, why);
    }

    /// The same, where more is known about `why`.
    pub(super) fn kill_because(
        &mut self,
        now: Timestamp,
        index: usize,
        cause: KillCause,
        why: String,
    ) {
        let give_up_at = now.after(self.config.kill_timeout);
        let slot = &mut self.slots[index];
        let (worker, device) = (slot.worker(), slot.device_info());
        let is_changing = slot.is_changing;
        let mut outstanding = slot.take_outstanding();
        if let Some(outstanding) = &mut outstanding
            && cause != KillCause::Leaving
        {
            let kind = LossKind::of(cause, &self.policy);
            let kind = if is_changing { kind.without_evidence() } else { kind };
            let detail = why.clone();
            let loss = Loss { device, kind, detail, why, may_write: false, since: now };
            self.move_what_may(now, worker, outstanding, &loss);
        }
        let reason = cause.reason(self.slots[index].was_ready, &self.config);
        self.slots[index].killed = Some(reason);
        self.slots[index].doomed = Some(now);
        self.slots[index].state = SlotState::Killed { give_up_at, outstanding, cause };
        self.device_mut(worker.device).lost = Some((now, worker));
        self.promote(now, worker.device);
        self.actions.push_back(Action::Kill { worker });
    }

    /// What is said of a worker that was killed, in receipts and reasons.
    pub(super) fn why_killed(&self, cause: KillCause, was_ready: bool) -> String {
        match cause {
            KillCause::Beacon => "its worker ended".to_owned(),
            KillCause::DeviceFault(fault) => {
                let (name, sentence) = (fault.meaning().name, fault.meaning().sentence);
                format!("its worker was killed over {fault} ({name}): {sentence}")
            }
            KillCause::FreeDevice(_) | KillCause::Leaving => {
                "its worker was killed for another".to_owned()
            }
            KillCause::Hang if was_ready => {
                let silent = self.config.heartbeat_kill.as_secs_f64();
                format!("its worker said nothing for {silent} s and was killed")
            }
            KillCause::Hang => {
                let wait = self.config.ready_timeout.as_secs_f64();
                format!("its worker was not READY in {wait} s and was killed")
            }
        }
    }

    fn end_drain(&mut self, now: Timestamp) {
        if let Phase::Draining { until } = self.phase {
            if self.jobs.is_empty() {
                self.phase = Phase::Leaving;
                self.stop_workers(now);
                self.slots.iter_mut().for_each(Slot::close);
            } else if now >= until {
                self.leave(now);
            }
        }
        let gone =
            |slot: &Slot| !slot.has_process() || matches!(slot.state, SlotState::Unkillable { .. });
        if self.phase == Phase::Leaving && self.slots.iter().all(gone) {
            self.phase = Phase::Left;
            self.actions.push_back(Action::Leave);
        }
    }

    /// Asks every worker to end: none has a job.
    pub(super) fn stop_workers(&mut self, now: Timestamp) {
        let kill_at = now.after(self.config.kill_timeout);
        for slot in &mut self.slots {
            match slot.state {
                SlotState::Busy { .. }
                | SlotState::Ready { .. }
                | SlotState::Standby
                | SlotState::Starting { .. } => {
                    slot.state = SlotState::Stopping { kill_at };
                    self.actions.push_back(Action::Stop { worker: slot.worker() });
                }
                SlotState::Killed { .. }
                | SlotState::Reclaiming { .. }
                | SlotState::Stopped
                | SlotState::Stopping { .. }
                | SlotState::Unkillable { .. }
                | SlotState::Waiting { .. } => {}
            }
        }
    }

    /// Ends now: every job gets its verdict, every worker is killed.
    pub(super) fn leave(&mut self, now: Timestamp) {
        if self.phase == Phase::Left {
            return;
        }
        self.phase = Phase::Leaving;
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.end_early(now, id, AttemptOutcome::Cancelled);
            let reason = "the pool stopped before it was finished".to_owned();
            self.finish(now, id, Verdict::Cancelled, reason);
        }
        for index in 0..self.slots.len() {
            match self.slots[index].state {
                SlotState::Busy { .. }
                | SlotState::Ready { .. }
                | SlotState::Standby
                | SlotState::Starting { .. }
                | SlotState::Stopping { .. } => self.kill(now, index, KillCause::Leaving),
                SlotState::Killed { .. }
                | SlotState::Reclaiming { .. }
                | SlotState::Stopped
                | SlotState::Unkillable { .. }
                | SlotState::Waiting { .. } => {}
            }
        }
        self.slots.iter_mut().for_each(Slot::close);
    }

    fn give_up_if_no_device(&mut self, now: Timestamp) {
        if self.devices_that_may_serve() > 0 {
            return;
        }
        let devices: Vec<_> = self.devices.iter().map(|device| device.why_out(now)).collect();
        let reason = format!("no device is left: {}", devices.join("; "));
        for id in self.queue.all_jobs() {
            self.end_early(now, id, AttemptOutcome::Preempted);
            self.finish(now, id, Verdict::DeviceLost, reason.clone());
        }
    }
}
