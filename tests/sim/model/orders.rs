//! What the pool orders of processes: start, stop, kill.

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, WorkerId};

use super::devices::Device;
use super::quarantine::Service;
use super::seats::{Seat, State};
use super::{Broken, Model, holds};

impl Model {
    pub(super) fn spawned(&mut self, worker: WorkerId) -> Result<(), Broken> {
        self.coverage.hit("spawn");
        if self.due.spawns.remove(&worker) {
            return Ok(());
        }
        let device = &self.devices[&worker.device];
        a_seat_has_one_process_at_a_time(worker, device)?;
        a_quarantined_device_stays_empty(worker, device)?;
        nobody_starts_beside_what_cannot_be_killed(worker, device)?;
        nobody_starts_cold_beside_what_is_left_of_another(worker, device)?;
        self.a_process_starts_after_its_backoff_and_not_before(worker)
    }

    fn a_process_starts_after_its_backoff_and_not_before(
        &self,
        worker: WorkerId,
    ) -> Result<(), Broken> {
        let device = &self.devices[&worker.device];
        let rule = "a_process_starts_after_its_backoff_and_not_before";
        holds(rule, false, || format!("{worker} is not due: {device:?}, {:?}", self.phase))
    }

    pub(super) fn killed(&mut self, now: Timestamp, worker: WorkerId) -> Result<(), Broken> {
        // Only now is it known which devices idle.
        self.waits_no_longer(now, worker);
        let due = self.due.kills.remove(&worker);
        let rule = "a_worker_is_killed_if_it_must_be_and_not_otherwise";
        holds(rule, due, || format!("{worker}: {:?}", self.devices[&worker.device]))
    }

    pub(super) fn stopped(&mut self, worker: WorkerId) -> Result<(), Broken> {
        self.coverage.hit("stop");
        let due = self.due.stops.remove(&worker);
        let rule = "a_worker_is_stopped_when_the_drain_has_no_job_left";
        holds(rule, due, || format!("{worker}: {:?}", self.devices[&worker.device]))
    }

    pub(super) fn withdrawn(&mut self, worker: WorkerId, attempt: AttemptId) -> Result<(), Broken> {
        self.coverage.hit("withdraw");
        let due = self.due.withdrawals.remove(&(worker, attempt));
        let rule = "an_attempt_is_withdrawn_once_when_nobody_wants_its_answer";
        holds(rule, due, || format!("{worker}: {attempt}"))
    }
}

fn a_seat_has_one_process_at_a_time(worker: WorkerId, device: &Device) -> Result<(), Broken> {
    let empty = device.seats.iter().any(|seat| matches!(seat.state, State::Absent { .. }));
    holds("a_seat_has_one_process_at_a_time", empty, || format!("{worker} beside {device:?}"))
}

fn a_quarantined_device_stays_empty(worker: WorkerId, device: &Device) -> Result<(), Broken> {
    let rule = "a_quarantined_device_stays_empty";
    let out = matches!(device.service, Service::Probing | Service::Quarantined { .. });
    holds(rule, !out, || format!("{worker}: {device:?}"))
}

fn nobody_starts_beside_what_cannot_be_killed(
    worker: WorkerId,
    device: &Device,
) -> Result<(), Broken> {
    let rule = "nobody_starts_beside_what_cannot_be_killed";
    holds(rule, !device.is_unkillable(), || format!("{worker} beside {device:?}"))
}

/// A process that would be the first to serve again needs the memory of the one before.
fn nobody_starts_cold_beside_what_is_left_of_another(
    worker: WorkerId,
    device: &Device,
) -> Result<(), Broken> {
    let rule = "nobody_starts_cold_beside_what_is_left_of_another";
    let ok = device.seats.iter().any(Seat::serves) || device.is_empty();
    holds(rule, ok, || format!("{worker} beside {device:?}"))
}
