//! What holds between events, seen from outside: all that was due is done, the status is true, and the
//! pool wakes in time.

use gridpool::pool::Pool;
use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::status::{QueueStatus, WorkerState};

use super::devices::{Device, State};
use super::{Broken, Due, Model, Phase, holds};

/// Every so many events the rows of the status are compared; at the end always.
const STATUS_EVERY: u64 = 8;

impl Model {
    /// Checks what must hold after an event. `pool` is asked only what anybody may ask it.
    pub(crate) fn settled(&mut self, now: Timestamp, pool: &Pool) -> Result<(), Broken> {
        self.steps += 1;
        what_is_due_is_done_at_once(&self.due)?;
        self.no_device_is_idle_while_a_job_waits_that_may_go_there(now)?;
        self.a_worker_that_may_have_a_second_batch_gets_one_if_only_such_wait(now)?;
        self.nobody_waits_for_longer_than_feed_patience_while_a_device_idles_that_may_take_it(now)?;
        let waiting = self.jobs.values().filter(|job| job.waits()).count();
        self.jobs_high = self.jobs_high.max(waiting as u64);
        self.the_pool_wakes_when_something_is_due(now, pool)?;
        self.wakes = pool.poll_deadline();
        self.the_counters_are_right(pool)?;
        let ending = matches!(self.phase, Phase::Leaving | Phase::Left);
        if ending || self.steps.is_multiple_of(STATUS_EVERY) {
            self.the_status_shows_what_is(pool)?;
        }
        Ok(())
    }

    fn the_pool_wakes_when_something_is_due(
        &self,
        now: Timestamp,
        pool: &Pool,
    ) -> Result<(), Broken> {
        let rule = "the_pool_wakes_when_something_is_due";
        let devices = self.devices.values().filter_map(|device| device.wakes_at(self));
        let deadlines = self.jobs.values().map(|job| job.deadline);
        let drain = match self.phase {
            Phase::Draining { until } => Some(until),
            Phase::Leaving | Phase::Left | Phase::Serving => None,
        };
        let waits = self.devices.values().filter_map(|device| self.patience_ends(device));
        let due = devices.chain(deadlines).chain(drain).chain(waits).min();
        let wakes = pool.poll_deadline();
        let in_time = match (due, wakes) {
            (Some(due), Some(wakes)) => now < wakes && wakes <= due,
            (None, Some(_)) | (Some(_), None) => false,
            (None, None) => true,
        };
        holds(rule, in_time, || format!("it wakes at {wakes:?}, due at {due:?}"))
    }

    fn the_counters_are_right(&self, pool: &Pool) -> Result<(), Broken> {
        let rule = "the_counters_are_right";
        let (told, own) = (pool.counters(), self.counters);
        holds(rule, told == own, || format!("told {told:?}, counted {own:?}"))?;
        let verdicts =
            told.ok + told.failed + told.deadline + told.poison + told.cancelled + told.device_lost;
        let live = self.jobs.len() as u64;
        holds(rule, told.accepted == verdicts + live, || format!("{told:?} and {live} live"))?;
        let own = QueueStatus {
            jobs: self.jobs.values().filter(|job| job.waits()).count() as u64,
            jobs_high: self.jobs_high,
            bytes: self.jobs.values().map(|job| job.request.inline_bytes).sum(),
            bytes_high: self.bytes_high,
        };
        let told = pool.queue();
        holds(rule, told == own, || format!("told {told:?}, counted {own:?}"))?;
        let draining = self.phase != Phase::Serving;
        holds(rule, pool.is_draining() == draining, || format!("draining: {draining}"))
    }

    fn the_status_shows_what_is(&self, pool: &Pool) -> Result<(), Broken> {
        let rule = "the_status_shows_what_is";
        for (row, (&id, device)) in pool.workers().iter().zip(&self.devices) {
            let worker = WorkerId { device: id, generation: device.generation };
            let ok = row.name == worker.to_string()
                && row.generation == device.generation
                && row.jobs_done == device.jobs_done
                && row.restarts == device.generation.saturating_sub(1)
                && row.state == self.shown_as(device)
                && pool.worker_on(id) == device.has_process().then_some(worker);
            holds(rule, ok, || format!("{row:?} shows {device:?}"))?;
        }
        let mut devices = self.devices.values();
        let hopeless = devices.all(|device| device.is_quarantined() && !device.ever_ready);
        let told = pool.misconfigured();
        let same = told.is_some() == pool.is_misconfigured();
        holds(rule, same && told.is_some() == hopeless, || format!("misconfigured: {told:?}"))
    }

    fn shown_as(&self, device: &Device) -> WorkerState {
        let ending = matches!(self.phase, Phase::Leaving | Phase::Left);
        match device.state {
            State::Absent if ending => WorkerState::Stopped,
            State::Absent => WorkerState::Backoff,
            State::Busy { .. } => WorkerState::Busy,
            State::Killed { .. } | State::Stopping { .. } => WorkerState::Stopping,
            State::Quarantined => WorkerState::Quarantined,
            State::Ready => WorkerState::Ready,
            State::Starting { .. } => WorkerState::Starting,
            State::Unkillable { .. } => WorkerState::Unkillable,
        }
    }
}

fn what_is_due_is_done_at_once(due: &Due) -> Result<(), Broken> {
    let done = due.reply.is_none()
        && due.discard.is_none()
        && due.verdicts.is_empty()
        && due.kills.is_empty()
        && due.spawns.is_empty()
        && due.stops.is_empty()
        && !due.leave;
    holds("what_is_due_is_done_at_once", done, || format!("{due:?}"))
}
