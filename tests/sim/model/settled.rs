//! What holds between events, seen from outside: all that was due is done, the status is true, and the
//! pool wakes in time.

use std::time::Duration;

use gridpool::pool::Pool;
use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::status::{QueueStatus, WorkerState};

use super::devices::Device;
use super::quarantine::Service;
use super::seats::{Seat, State};
use super::{Broken, Due, Model, Phase, holds};

/// Every so many events the rows of the status are compared; at the end always.
const STATUS_EVERY: u64 = 8;

impl Model {
    /// Checks what must hold after an event. `pool` is asked only what anybody may ask it.
    pub(crate) fn settled(&mut self, now: Timestamp, pool: &Pool) -> Result<(), Broken> {
        self.steps += 1;
        what_is_due_is_done_at_once(&self.due)?;
        self.no_device_is_idle_while_a_job_waits_that_may_go_there(now)?;
        self.a_worker_with_room_gets_more_if_only_such_wait_as_may_run_beside_others(now)?;
        self.a_worker_that_may_have_a_second_batch_gets_one_if_only_such_wait(now)?;
        self.nobody_waits_for_longer_than_feed_patience_while_a_device_idles_that_may_take_it(now)?;
        self.one_process_of_a_device_serves()?;
        self.a_job_shares_no_more_losses_than_halving_takes()?;
        let waiting = self.jobs.values().filter(|job| job.waits()).count();
        self.jobs_high = self.jobs_high.max(waiting as u64);
        self.the_pool_wakes_when_something_is_due(now, pool)?;
        self.wakes = pool.poll_deadline();
        self.the_counters_are_right(pool)?;
        self.who_rests_is_known(pool)?;
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
        let seats = self.seat_ids().into_iter().filter_map(|at| self.seat_wakes_at(at));
        let probes = self.devices.keys().filter_map(|&id| self.probe_wakes_at(id));
        let deadlines = self.jobs.values().map(|job| job.deadline);
        let drain = match self.phase {
            Phase::Draining { until } => Some(until),
            Phase::Leaving | Phase::Left | Phase::Resting | Phase::Serving => None,
        };
        let waits = self.seats().filter_map(|(_, seat)| self.patience_ends(seat));
        let due = seats.chain(probes).chain(deadlines).chain(drain).chain(waits).min();
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
            oldest_us: None,
        };
        let told = pool.queue();
        holds(rule, told == own, || format!("told {told:?}, counted {own:?}"))?;
        let draining = !matches!(self.phase, Phase::Resting | Phase::Serving);
        holds(rule, pool.is_draining() == draining, || format!("draining: {draining}"))
    }

    fn the_status_shows_what_is(&self, pool: &Pool) -> Result<(), Broken> {
        let rule = "the_status_shows_what_is";
        let due: Vec<_> = self.devices.iter().flat_map(|(&id, all)| self.rows(id, all)).collect();
        let told: Vec<_> = pool
            .workers()
            .into_iter()
            .map(|row| Row {
                name: row.name,
                generation: row.generation,
                state: row.state,
                jobs_done: row.jobs_done,
                restarts: row.restarts,
                start_us: row.start_us,
                end_us: row.end_us,
            })
            .collect();
        holds(rule, told == due, || format!("told {told:?}, {due:?} is due: {:?}", self.devices))?;
        for (&id, device) in &self.devices {
            let process = device.seats.iter().find(|seat| seat.serves());
            let process = process.or_else(|| device.seats.iter().find(|seat| seat.has_process()));
            let due = process.map(|seat| WorkerId { device: id, generation: seat.generation });
            let told = pool.worker_on(id);
            holds(rule, told == due, || format!("{told:?} serves and not {due:?}: {device:?}"))?;
        }
        let out = |device: &Device| {
            device.service != Service::Open && device.refused && !device.ever_ready
        };
        let hopeless = self.devices.values().all(out);
        let told = pool.misconfigured();
        let same = told.is_some() == pool.is_misconfigured();
        holds(rule, same && told.is_some() == hopeless, || format!("misconfigured: {told:?}"))
    }

    /// A row for every process; a device without any has one of its own.
    fn rows(&self, id: DeviceId, device: &Device) -> Vec<Row> {
        let row = |seat: &Seat, generation, state| Row {
            name: WorkerId { device: id, generation }.to_string(),
            generation,
            state,
            jobs_done: seat.jobs_done,
            restarts: seat.processes.saturating_sub(1),
            start_us: seat.took_start.map(micros),
            end_us: seat.took_end.map(micros),
        };
        let shown = |seat: &Seat| Some(row(seat, seat.generation, shown_as(seat)?));
        let rows: Vec<_> = device.seats.iter().filter_map(shown).collect();
        if !rows.is_empty() {
            return rows;
        }
        let state = match device.service {
            Service::Quarantined { .. } => WorkerState::Quarantined,
            Service::Open | Service::Probing if self.is_ending() || self.has_nothing_to_do() => {
                WorkerState::Stopped
            }
            Service::Open | Service::Probing => WorkerState::Backoff,
        };
        vec![row(&device.seats[0], device.generation, state)]
    }

    fn one_process_of_a_device_serves(&self) -> Result<(), Broken> {
        let serving = |device: &Device| device.seats.iter().filter(|seat| seat.serves()).count();
        let two = self.devices.values().find(|device| serving(device) > 1);
        holds("one_process_of_a_device_serves", two.is_none(), || format!("{two:?}"))
    }

    /// Whether every seat has its process, but of devices that wait for an operator.
    pub(crate) fn is_filled(&self) -> bool {
        let filled = |seat: &Seat| seat.serves() || seat.state == State::Standby;
        self.devices
            .values()
            .filter(|device| !device.is_halted())
            .all(|device| device.seats.iter().all(filled) && device.seats.iter().any(Seat::serves))
    }

    pub(crate) fn every_seat_is_filled_once_the_faults_stop(&mut self) -> Result<(), Broken> {
        let rule = "every_seat_is_filled_once_the_faults_stop";
        if self.devices.values().any(|device| !device.is_halted() && device.probes > 0) {
            self.coverage.hit("phase 2: a device came back by itself");
        }
        holds(rule, self.is_filled(), || format!("{:?}", self.devices))
    }

    /// Devices that nobody but an operator brings back.
    pub(crate) fn halted(&self) -> Vec<DeviceId> {
        let devices = self.devices.iter().filter(|(_, device)| device.is_halted());
        devices.map(|(&id, _)| id).collect()
    }
}

/// A line of the status, as far as it can be known from outside.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    generation: u32,
    state: WorkerState,
    jobs_done: u64,
    restarts: u32,
    start_us: Option<u64>,
    end_us: Option<u64>,
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("nothing here takes an age")
}

/// A process as the status shows it; `None` if the seat has none.
fn shown_as(seat: &Seat) -> Option<WorkerState> {
    match seat.state {
        State::Absent { .. } | State::Reclaiming { .. } => None,
        State::Busy { .. } => Some(WorkerState::Busy),
        State::Killed { .. } | State::Stopping { .. } => Some(WorkerState::Stopping),
        State::Ready => Some(WorkerState::Ready),
        State::Standby => Some(WorkerState::Standby),
        State::Starting { .. } => Some(WorkerState::Starting),
        State::Unkillable { .. } => Some(WorkerState::Unkillable),
    }
}

fn what_is_due_is_done_at_once(due: &Due) -> Result<(), Broken> {
    let done = due.reply.is_none()
        && due.discard.is_none()
        && due.verdicts.is_empty()
        && due.kills.is_empty()
        && due.spawns.is_empty()
        && due.stops.is_empty()
        && due.withdrawals.is_empty()
        && due.hashes.is_empty()
        && !due.leave;
    holds("what_is_due_is_done_at_once", done, || format!("{due:?}"))
}
