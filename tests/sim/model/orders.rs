//! What the pool orders of processes: start, stop, kill.

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::WorkerId;

use super::{Broken, Model, holds};

impl Model {
    pub(super) fn spawned(&mut self, worker: WorkerId) -> Result<(), Broken> {
        self.coverage.hit("spawn");
        if self.due.spawns.remove(&worker) {
            return Ok(());
        }
        self.a_device_has_one_process_at_a_time(worker)?;
        self.a_quarantined_device_stays_empty(worker)?;
        self.a_process_starts_after_its_backoff_and_not_before(worker)
    }

    fn a_device_has_one_process_at_a_time(&self, worker: WorkerId) -> Result<(), Broken> {
        let device = &self.devices[&worker.device];
        holds("a_device_has_one_process_at_a_time", !device.has_process(), || {
            format!("{worker} was ordered beside generation {}", device.generation)
        })
    }

    fn a_quarantined_device_stays_empty(&self, worker: WorkerId) -> Result<(), Broken> {
        let device = &self.devices[&worker.device];
        let rule = "a_quarantined_device_stays_empty";
        holds(rule, !device.is_quarantined(), || format!("{worker}: {device:?}"))
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
}
