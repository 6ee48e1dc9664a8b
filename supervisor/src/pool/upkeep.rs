//! What is always true between events: nothing late is waiting, every slot that is due has a process,
//! every idle device has a job if one may go there, and a pool that drains ends.

use std::time::Duration;

use gridpool_protocol::ids::{AttemptId, DeviceId, JobId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::event::{Action, Timestamp};
use super::job::{Job, JobState};
use super::slot::{KillCause, Slot, SlotState};
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
        self.end_drain(now);
        self.dispatch(now);
    }

    fn expire_jobs(&mut self, now: Timestamp) {
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > now {
                return;
            }
            self.end_attempt_early(id, now, AttemptOutcome::Deadline);
            self.finish(now, id, Verdict::Deadline, "its deadline passed".to_owned());
        }
    }

    /// Notes that the running attempt of `id`, if any, will be cut off, and when its worker dies if
    /// it has not answered by then.
    pub(super) fn end_attempt_early(
        &mut self,
        id: JobId,
        free_at: Timestamp,
        outcome: AttemptOutcome,
    ) {
        let job = self.jobs.get_mut(&id).expect("the job is live");
        let JobState::Running(worker) = job.state else { return };
        let slot = self.slots.iter_mut().find(|slot| slot.worker() == worker);
        let slot = slot.expect("a running job's worker has a slot");
        let device = slot.device_info();
        job.failed(device, outcome, String::new());
        match &mut slot.state {
            SlotState::Busy { free_at: at, .. } => *at = Some(free_at),
            SlotState::Killed { attempt, .. } => *attempt = None,
            SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => unreachable!("{worker} runs {id} and is not busy"),
        }
    }

    fn expire_slots(&mut self, now: Timestamp) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.wakes_at(&self.config).is_none_or(|at| at > now) {
                continue;
            }
            match slot.state {
                SlotState::Waiting { .. } => self.spawn(now, index),
                SlotState::Starting { .. } => self.kill(now, index, None, KillCause::Hang),
                SlotState::Ready { .. } => self.kill(now, index, None, KillCause::Hang),
                SlotState::Busy { free_at: Some(at), .. } if at <= now => {
                    self.kill(now, index, None, KillCause::FreeDevice);
                }
                SlotState::Busy { attempt, .. } => {
                    self.kill(now, index, Some(attempt), KillCause::Hang);
                }
                SlotState::Stopping { .. } => self.kill(now, index, None, KillCause::Leaving),
                SlotState::Killed { attempt, cause, .. } => {
                    self.give_up_slot(now, index, attempt, cause);
                }
                SlotState::Quarantined | SlotState::Stopped | SlotState::Unkillable { .. } => {}
            }
        }
    }

    fn spawn(&mut self, now: Timestamp, index: usize) {
        let slot = &mut self.slots[index];
        if !matches!(self.phase, Phase::Serving | Phase::Draining { .. }) {
            slot.state = SlotState::Stopped;
            return;
        }
        slot.start(now, &self.config);
        self.counters.restarts += u64::from(slot.generation > 1);
        self.actions.push_back(Action::Spawn { worker: slot.worker() });
    }

    fn kill(&mut self, now: Timestamp, index: usize, attempt: Option<AttemptId>, cause: KillCause) {
        let give_up_at = now.after(self.config.kill_timeout);
        let slot = &mut self.slots[index];
        slot.state = SlotState::Killed { give_up_at, attempt, cause };
        self.actions.push_back(Action::Kill { worker: slot.worker() });
    }

    /// SIGKILL had no effect in time: the device is out of service, the job goes elsewhere.
    fn give_up_slot(
        &mut self,
        now: Timestamp,
        index: usize,
        attempt: Option<AttemptId>,
        cause: KillCause,
    ) {
        let slot = &mut self.slots[index];
        let worker = slot.worker();
        slot.state = SlotState::Unkillable { cause };
        slot.last_fault = format!("{worker} does not die: SIGKILL had no effect in time");
        let device = slot.device_info();
        let Some(attempt) = attempt else { return };
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        job.failed(device, AttemptOutcome::Hang, "its worker cannot be killed".to_owned());
        job.deaths += 1;
        self.retry_or_fail(now, attempt.job, "its worker cannot be killed");
    }

    fn end_drain(&mut self, now: Timestamp) {
        if let Phase::Draining { until } = self.phase {
            if self.jobs.is_empty() {
                self.phase = Phase::Leaving;
                self.stop_workers(now);
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
    fn stop_workers(&mut self, now: Timestamp) {
        let kill_at = now.after(self.config.kill_timeout);
        for slot in &mut self.slots {
            match slot.state {
                SlotState::Busy { .. } | SlotState::Ready { .. } | SlotState::Starting { .. } => {
                    slot.state = SlotState::Stopping { kill_at };
                    self.actions.push_back(Action::Stop { worker: slot.worker() });
                }
                SlotState::Waiting { .. } => slot.state = SlotState::Stopped,
                SlotState::Killed { .. }
                | SlotState::Quarantined
                | SlotState::Stopped
                | SlotState::Stopping { .. }
                | SlotState::Unkillable { .. } => {}
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
            self.end_attempt_early(id, now, AttemptOutcome::Cancelled);
            let reason = "the pool stopped before it was finished".to_owned();
            self.finish(now, id, Verdict::Cancelled, reason);
        }
        for index in 0..self.slots.len() {
            match self.slots[index].state {
                SlotState::Busy { .. }
                | SlotState::Ready { .. }
                | SlotState::Starting { .. }
                | SlotState::Stopping { .. } => self.kill(now, index, None, KillCause::Leaving),
                SlotState::Waiting { .. } => self.slots[index].state = SlotState::Stopped,
                SlotState::Killed { .. }
                | SlotState::Quarantined
                | SlotState::Stopped
                | SlotState::Unkillable { .. } => {}
            }
        }
    }

    fn give_up_if_no_device(&mut self, now: Timestamp) {
        if self.slots.iter().any(Slot::may_serve) {
            return;
        }
        let faults: Vec<_> = self.slots.iter().map(|slot| slot.last_fault.as_str()).collect();
        let reason = format!("no device is left: {}", faults.join("; "));
        for id in self.queue.jobs().collect::<Vec<_>>() {
            self.finish(now, id, Verdict::DeviceLost, reason.clone());
        }
    }

    fn dispatch(&mut self, now: Timestamp) {
        loop {
            let slots = &self.slots;
            let jobs = &self.jobs;
            let config = &self.config;
            let idle = || {
                slots.iter().filter_map(|slot| Some((slot.idle_since(now, config)?, slot.device)))
            };
            if idle().next().is_none() {
                return;
            }
            let chosen = |id: JobId| place_for(&jobs[&id], slots, idle());
            let Some(id) = self.queue.take(|id| chosen(id).is_some()) else { return };
            let device = place_for(&jobs[&id], slots, idle()).expect("the job was just placed");
            let slot = self.slots.iter_mut().find(|slot| slot.device == device);
            let slot = slot.expect("the device was just listed");
            let worker = slot.worker();
            let job = self.jobs.get_mut(&id).expect("queued jobs are live");
            let attempt = job.begin(now, worker);
            slot.state = SlotState::Busy { attempt, free_at: None };
            self.counters.attempts += 1;
            self.actions.push_back(Action::Dispatch { worker, attempt });
        }
    }
}

/// The device for a job among the idle ones: the longest idle, but not the one its last attempt
/// failed on while another is about to be free.
fn place_for(
    job: &Job,
    slots: &[Slot],
    idle: impl Iterator<Item = (Timestamp, DeviceId)>,
) -> Option<DeviceId> {
    let choice = idle.min_by_key(|&(since, device)| (job.avoid == Some(device), since, device));
    let (_, device) = choice?;
    let elsewhere = || slots.iter().any(|s| Some(s.device) != job.avoid && s.is_near_service());
    (job.avoid != Some(device) || !elsewhere()).then_some(device)
}
