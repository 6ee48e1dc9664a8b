//! What the pool does with processes: start, stop, kill.

use gridpool_core::action::KillReason;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, Group, WorkerId};
use gridpool_protocol::receipt::AttemptOutcome;
use gridpool_protocol::tensor::options::ModelPlan;

use super::devices::Device;
use super::quarantine::Service;
use super::slots::{Freed, Slot, SlotId, State, Station, Why};
use super::{Broken, Model, holds};

impl Model {
    pub(super) fn spawned(&mut self, worker: WorkerId, models: &[ModelPlan]) -> Result<(), Broken> {
        self.coverage.hit("spawn");
        if self.due.spawns.remove(&worker) {
            return self.starts_with(worker, models);
        }
        self.no_process_starts_on_a_device_of_another_pool(worker)?;
        let device = &self.devices[&Station::of(worker)];
        a_slot_has_one_process_at_a_time(worker, device)?;
        a_quarantined_device_stays_empty(worker, device)?;
        no_process_starts_beside_one_that_cannot_be_killed(worker, device)?;
        no_process_starts_while_a_device_holds_the_memory_of_another(worker, device)?;
        let rule = "a_process_starts_after_its_backoff_and_not_before";
        let phase = self.group(worker.group).phase;
        holds(rule, false, || format!("{worker} is not due: {device:?}, {phase:?}"))
    }

    pub(super) fn killed(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        reason: KillReason,
    ) -> Result<(), Broken> {
        // The model knows only now which devices are idle.
        self.kill_if_others_waited_too_long(now, worker);
        let due = self.due.kills.remove(&worker);
        let rule = "a_worker_is_killed_if_and_only_if_a_rule_requires_it";
        let device = || format!("{worker}: {:?}", self.devices[&Station::of(worker)]);
        holds(rule, due, device)?;
        let at = self.slot_of(worker).expect("it is due");
        let rule = "a_kill_gives_the_true_reason";
        let State::Killed { why, .. } = self.slot(at).state else {
            return holds(rule, false, device);
        };
        holds(rule, self.is_reason(at.group(), self.slot(at), why, reason), || {
            format!("{worker}: {reason:?} for {why:?}: {:?}", self.slot(at))
        })?;
        self.slot_mut(at).reason = Some(reason);
        Ok(())
    }

    fn is_reason(&self, group: Group, slot: &Slot, why: Why, told: KillReason) -> bool {
        match why {
            Why::Beacon => told == KillReason::BeaconLost,
            Why::Channel => told == KillReason::ClosedChannel,
            Why::Command { after: None } => matches!(told, KillReason::UnknownCommand { .. }),
            Why::Command { after: Some(after) } => told == KillReason::LateWithCommand { after },
            Why::Driver { .. } => matches!(told, KillReason::DeviceFault(_)),
            Why::FreeDevice(Freed::DeviceOut) => told == KillReason::DeviceOut,
            Why::FreeDevice(Freed::Ended) => {
                let front = slot.outstanding()[0].attempts.iter().filter_map(|sent| sent.free_at);
                let first = front.clone().map(|(at, _)| at).min();
                let mut first = front.filter(|&(at, _)| Some(at) == first);
                first.any(|(_, outcome)| told == reason_of(outcome))
            }
            Why::FreeDevice(Freed::OthersWait) => told == KillReason::OthersWait,
            Why::Hang if slot.was_ready => {
                told == KillReason::Silent { after: self.config.heartbeat_kill }
            }
            Why::Hang => {
                let after = self.group(group).limits.ready_timeout;
                told == KillReason::NotReady { after }
            }
            Why::Leaving => told == KillReason::Leaving,
            Why::Mute => told == KillReason::Silent { after: self.config.heartbeat_start },
        }
    }

    pub(super) fn stopped(&mut self, worker: WorkerId) -> Result<(), Broken> {
        self.coverage.hit("stop");
        let due = self.due.stops.remove(&worker);
        let rule = "a_worker_is_stopped_when_the_drain_has_no_jobs_left";
        holds(rule, due, || format!("{worker}: {:?}", self.devices[&Station::of(worker)]))
    }

    pub(super) fn withdrawn(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
    ) -> Result<(), Broken> {
        self.coverage.hit("withdraw");
        let due = self.due.withdrawals.remove(&(worker, attempt))
            || self.makes_room(now, worker, attempt);
        let rule = "an_attempt_is_withdrawn_once_when_its_answer_is_not_wanted";
        holds(rule, due, || format!("{worker}: {attempt}"))
    }
}

impl Model {
    pub(super) fn stop_all(&mut self, now: Timestamp, group: Group) {
        let by = now.after(self.config.kill_timeout);
        for at in self.slot_ids().into_iter().filter(|at| at.group() == group) {
            match self.slot(at).state {
                State::Busy { .. } | State::Ready | State::Standby | State::Starting { .. } => {
                    self.is_asked_to_end(at, by);
                }
                State::Reclaiming { not_before, .. } => {
                    self.slot_mut(at).state = State::Absent { not_before };
                }
                State::Absent { .. }
                | State::Killed { .. }
                | State::Stopping { .. }
                | State::Unkillable { .. } => {}
            }
        }
    }

    /// It must end by `by`.
    pub(super) fn is_asked_to_end(&mut self, at: SlotId, by: Timestamp) {
        let worker = self.worker(at);
        self.slot_mut(at).state = State::Stopping { by };
        self.due.stops.insert(worker);
        self.worker_ends(worker);
    }

    pub(super) fn kill_all(&mut self, now: Timestamp, group: Group) {
        for at in self.slot_ids().into_iter().filter(|at| at.group() == group) {
            match self.slot(at).state {
                State::Busy { .. }
                | State::Ready
                | State::Standby
                | State::Starting { .. }
                | State::Stopping { .. } => {
                    self.coverage.hit("kill: leaving");
                    self.kill(now, at, Why::Leaving);
                }
                State::Reclaiming { not_before, .. } => {
                    self.coverage.hit("leaving: memory is not free yet");
                    self.slot_mut(at).state = State::Absent { not_before };
                }
                State::Absent { .. } | State::Killed { .. } | State::Unkillable { .. } => {}
            }
        }
    }
}

/// Why a worker is killed for an attempt whose job has its verdict.
fn reason_of(outcome: AttemptOutcome) -> KillReason {
    match outcome {
        AttemptOutcome::Cancelled => KillReason::Cancelled,
        AttemptOutcome::Deadline => KillReason::Late,
        AttemptOutcome::DeviceError
        | AttemptOutcome::Hang
        | AttemptOutcome::Ok
        | AttemptOutcome::Preempted
        | AttemptOutcome::Refused
        | AttemptOutcome::WorkerDied => KillReason::Unwound,
    }
}

fn a_slot_has_one_process_at_a_time(worker: WorkerId, device: &Device) -> Result<(), Broken> {
    let empty = device.slots.iter().any(|slot| matches!(slot.state, State::Absent { .. }));
    holds("a_slot_has_one_process_at_a_time", empty, || format!("{worker} beside {device:?}"))
}

fn a_quarantined_device_stays_empty(worker: WorkerId, device: &Device) -> Result<(), Broken> {
    let rule = "a_quarantined_device_stays_empty";
    let out = matches!(device.service, Service::Probing | Service::Quarantined { .. });
    holds(rule, !out, || format!("{worker}: {device:?}"))
}

fn no_process_starts_beside_one_that_cannot_be_killed(
    worker: WorkerId,
    device: &Device,
) -> Result<(), Broken> {
    let rule = "no_process_starts_beside_one_that_cannot_be_killed";
    holds(rule, !device.is_unkillable(), || format!("{worker} beside {device:?}"))
}

/// A process that will serve first needs the memory of the last one.
fn no_process_starts_while_a_device_holds_the_memory_of_another(
    worker: WorkerId,
    device: &Device,
) -> Result<(), Broken> {
    let rule = "no_process_starts_while_a_device_holds_the_memory_of_another";
    let ok = device.slots.iter().any(Slot::serves) || device.is_empty();
    holds(rule, ok, || format!("{worker} beside {device:?}"))
}
