//! What holds between events, seen from outside: every due action came, the status is true, and the core
//! wakes in time.

use std::time::Duration;

use gridpool_core::Core;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::status::{QueueStatus, WorkerState};

use super::devices::Device;
use super::jobs::Job;
use super::quarantine::Service;
use super::slots::{Slot, SlotId, State, Station};
use super::versions::parts;
use super::{Broken, Due, Model, Phase, holds};

/// Events between two checks of the status rows; they are also checked at the end.
const STATUS_EVERY: u64 = 8;

impl Model {
    /// After a pause, extends the timeouts of workers and helpers by its length and a little more.
    pub(super) fn excuses_pause(&mut self, now: Timestamp) {
        const PAUSE_MIN: Duration = Duration::from_millis(100);
        let gap = self.wakes.map_or(Duration::ZERO, |wakes| now.since(wakes));
        self.late = !gap.is_zero();
        if gap >= PAUSE_MIN {
            self.coverage.hit("pause: excused");
            let slots = self.devices.values_mut().flat_map(|device| &mut device.slots);
            slots.for_each(|slot| slot.excuse(now, gap + PAUSE_MIN));
            self.models.values_mut().for_each(|models| models.excuse(gap + PAUSE_MIN));
            self.helpers.excuse(gap + PAUSE_MIN);
        } else if self.late {
            self.coverage.hit("pause: short");
        }
    }

    /// When something must happen to a slot without any event.
    pub(super) fn slot_wakes_at(&self, at: SlotId) -> Option<Timestamp> {
        let (device, slot) = (&self.devices[&at.station], self.slot(at));
        let silent = slot.heard.after(self.config.heartbeat_kill);
        let soon = |at: Timestamp| Some(slot.end_by.unwrap_or(at).min(at));
        match slot.state {
            State::Absent { not_before } => {
                let may = self.starts_workers(at.group())
                    && device.held_back(at.number).is_none()
                    && !self.is_away(at.device());
                may.then_some(not_before)
            }
            State::Busy { ref outstanding } => {
                soon(outstanding.free_at().unwrap_or(silent).min(silent))
            }
            State::Killed { give_up_at, .. } => Some(give_up_at),
            State::Ready | State::Standby => soon(silent),
            State::Reclaiming { until, .. } => Some(until),
            State::Starting { by } => soon(by.min(slot.heard.after(self.config.heartbeat_start))),
            State::Stopping { by } => soon(by),
            State::Unkillable { .. } => None,
        }
    }

    /// Checks what must hold after an event. Uses only the public views of `core`.
    pub(crate) fn settled(&mut self, now: Timestamp, core: &mut Core) -> Result<(), Broken> {
        self.steps += 1;
        each_due_action_comes_at_once(&self.due)?;
        self.every_device_that_may_be_freed_is()?;
        self.the_successor_knows_what_lives()?;
        self.each_end_of_a_process_is_reported_once()?;
        self.every_command_is_given()?;
        self.every_missing_model_is_reported()?;
        self.every_change_is_logged()?;
        self.helpers_are_settled(core)?;
        self.no_device_is_idle_while_a_job_that_may_go_there_waits(now)?;
        self.a_worker_with_capacity_gets_more_if_any_waiting_job_may_run_beside_others(now)?;
        self.a_worker_gets_a_second_dispatch_if_any_waiting_job_may_be_it(now)?;
        self.a_second_dispatch_waits_at_most_feed_timeout_while_an_idle_device_may_take_it(now)?;
        self.one_process_of_a_device_serves()?;
        self.a_job_shares_no_more_losses_than_bisection_takes()?;
        for group in self.all_groups() {
            let waiting = self.jobs_of(group).filter(|job| job.waits()).map(Job::count).sum();
            let state = self.group_mut(group);
            state.jobs_high = state.jobs_high.max(waiting);
        }
        self.wakes = core.poll_deadline();
        self.the_core_wakes_when_something_is_due(now)?;
        self.the_counters_are_right(core)?;
        self.the_core_knows_which_groups_rest(core)?;
        self.the_core_knows_the_version_of_each_job(core)?;
        self.a_group_that_rests_has_no_job()?;
        let ending = self.all_groups().into_iter().any(|group| self.is_ending(group));
        if ending || self.steps.is_multiple_of(STATUS_EVERY) {
            self.the_status_shows_the_true_state(core)?;
            self.the_core_knows_who_has_each_device(core)?;
            self.the_status_shows_what_each_principal_has(now, core)?;
        }
        Ok(())
    }

    fn the_core_wakes_when_something_is_due(&self, now: Timestamp) -> Result<(), Broken> {
        let rule = "the_core_wakes_when_something_is_due";
        let slots = self.slot_ids().into_iter().filter_map(|at| self.slot_wakes_at(at));
        let probes = self.devices.keys().filter_map(|&id| self.probe_wakes_at(id));
        let deadlines = self.jobs.values().map(|job| job.deadline);
        let drains = self.all_groups().into_iter().any(|group| !self.is_ending(group));
        let drain = self.drain_until().filter(|_| drains);
        let waits = self.slot_ids().into_iter().filter_map(|at| self.feed_timeout_of(at));
        let loads = self.loads_wake_at();
        let others =
            [drain, self.commands_wake_at(), loads, self.helpers.wake_at(), self.held_until(now)];
        let others = others.into_iter().chain([self.vacates_at(now)]);
        let due = slots.chain(probes).chain(deadlines).chain(waits).chain(others.flatten());
        let (due, wakes) = (due.min(), self.wakes);
        let in_time = match (due, wakes) {
            (Some(due), Some(wakes)) => now < wakes && wakes <= due,
            (None, Some(_)) | (Some(_), None) => false,
            (None, None) => true,
        };
        holds(rule, in_time, || format!("it wakes at {wakes:?}, due at {due:?}"))
    }

    fn the_counters_are_right(&self, core: &Core) -> Result<(), Broken> {
        let rule = "the_counters_are_right";
        let (told, own) = (core.counters(), self.counters);
        holds(rule, told == own, || format!("told {told:?}, counted {own:?}"))?;
        let verdicts =
            told.ok + told.failed + told.deadline + told.poison + told.cancelled + told.device_lost;
        let live: u64 = self.jobs.values().map(Job::count).sum();
        holds(rule, told.accepted == verdicts + live, || format!("{told:?} and {live} live"))?;
        let sum = |of: fn(&super::GroupModel) -> u64| self.groups.values().map(of).sum();
        let own = QueueStatus {
            jobs: self.jobs.values().filter(|job| job.waits()).map(Job::count).sum(),
            jobs_high: sum(|group| group.jobs_high),
            bytes: self.jobs.values().map(|job| job.request.inline_bytes).sum(),
            bytes_high: sum(|group| group.bytes_high),
            oldest_us: None,
        };
        let told = core.queue();
        holds(rule, told == own, || format!("told {told:?}, counted {own:?}"))?;
        let waiting = self.jobs.values().filter(|job| job.waits());
        let oldest = waiting.map(|job| job.accepted).min();
        let told = core.waits_since();
        holds(rule, told == oldest, || format!("waits since {told:?} and not {oldest:?}"))?;
        let draining = self.is_draining();
        holds(rule, core.is_draining() == draining, || format!("draining: {draining}"))
    }

    fn the_status_shows_the_true_state(&self, core: &Core) -> Result<(), Broken> {
        let rule = "the_status_shows_the_true_state";
        let places = self.facts.keys().flat_map(|&device| {
            let of = move |group| Station { group, device };
            self.all_groups().into_iter().map(of)
        });
        let shown = places.filter(|at| self.is_busy(at.group));
        let due: Vec<_> = shown.flat_map(|at| self.rows(at)).collect();
        let told: Vec<_> = core
            .workers()
            .into_iter()
            .map(|(worker, row)| Row {
                worker,
                name: row.name,
                role: row.role,
                generation: row.generation,
                state: row.state,
                jobs_done: row.jobs_done,
                restarts: row.restarts,
                start_us: row.start_us,
                end_us: row.end_us,
            })
            .collect();
        holds(rule, told == due, || format!("told {told:?}, {due:?} is due: {:?}", self.devices))?;
        for &device in self.facts.keys() {
            let of = |group| Station { group, device };
            let due = self.all_groups().into_iter().find_map(|group| self.shown_on(of(group)));
            let told = core.worker_on(device, None);
            holds(rule, told == due, || format!("{told:?} serves and not {due:?}"))?;
        }
        let out = self.devices.iter().filter_map(|(at, device)| match device.service {
            Service::Quarantined { probe_at } => Some((*at, probe_at)),
            Service::Open | Service::Probing => None,
        });
        let mut out: Vec<_> = out.filter(|(at, _)| self.is_busy(at.group)).collect();
        out.sort_by_key(|(at, _)| (at.device, at.group));
        let told = core.quarantines();
        let told = told.map(|out| (Station { group: out.group, device: out.device }, out.probe_at));
        let told: Vec<_> = told.collect();
        holds(rule, told == out, || format!("out of service: {told:?} and not {out:?}"))?;
        let own = self.models_shown();
        let told = core.models();
        let row = |row: &DeviceModel| {
            (row.worker.clone(), row.model.name.clone(), row.model.contexts, row.serves)
        };
        let told: Vec<_> = told.iter().map(row).collect();
        let serves = |full: &str| {
            let serving = self.version_for(&parts(full).0);
            serving.is_some_and(|(_, serving)| serving == *full)
        };
        let own: Vec<_> = own
            .into_iter()
            .map(|(at, name, contexts)| {
                let serves = serves(&name);
                (at, name, contexts, serves)
            })
            .collect();
        holds(rule, told == own, || format!("models: {told:?} and not {own:?}"))
    }

    /// The models of workers, and why devices lack wanted ones.
    fn models_shown(&self) -> Vec<(String, String, u32)> {
        let mut rows = Vec::new();
        for (&group, models) in &self.models {
            rows.extend(models.holders.iter().flat_map(|(worker, holder)| {
                let row = |name: &String, contexts| (worker.to_string(), name.clone(), contexts);
                holder.rows().map(move |(name, says)| row(name, says.contexts))
            }));
            for &device in self.facts.keys() {
                let service = self.devices[&Station { group, device }].service;
                if matches!(service, Service::Quarantined { .. }) && self.is_busy(group) {
                    let names = models.wanted.keys();
                    rows.extend(names.map(|name| (device.to_string(), name.clone(), 0)));
                }
            }
        }
        rows
    }

    /// The process of a device and group that is shown first.
    fn shown_on(&self, at: Station) -> Option<WorkerId> {
        let slots = &self.devices[&at].slots;
        let process = slots.iter().find(|slot| slot.serves());
        let process = process.or_else(|| slots.iter().find(|slot| slot.has_process()));
        process.map(|slot| worker(at, slot.generation))
    }

    /// A row for every process, and one for a device without any.
    fn rows(&self, at: Station) -> Vec<Row> {
        let device = &self.devices[&at];
        let row = |slot: &Slot, generation, state| Row {
            worker: slot.has_process().then(|| worker(at, generation)),
            name: worker(at, generation).to_string(),
            role: at.group.role().name().to_owned(),
            generation,
            state,
            jobs_done: slot.jobs_done,
            restarts: slot.processes.saturating_sub(1),
            start_us: slot.took_start.map(micros),
            end_us: slot.took_end.map(micros),
        };
        let shown = |slot: &Slot| Some(row(slot, slot.generation, shown_as(slot)?));
        let rows: Vec<_> = device.slots.iter().filter_map(shown).collect();
        if !rows.is_empty() {
            return rows;
        }
        let has_nothing_to_do = self.is_ending(at.group) || self.has_nothing_to_do(at.group);
        let state = match device.service {
            Service::Quarantined { .. } => WorkerState::Quarantined,
            Service::Open | Service::Probing if has_nothing_to_do => WorkerState::Stopped,
            Service::Open | Service::Probing => WorkerState::Backoff,
        };
        // None on a device that the group has no workers on.
        device.slots.first().map(|slot| row(slot, device.generation, state)).into_iter().collect()
    }

    fn one_process_of_a_device_serves(&self) -> Result<(), Broken> {
        let serving = |device: &Device| device.slots.iter().filter(|slot| slot.serves()).count();
        let two = self.devices.values().find(|device| serving(device) > 1);
        holds("one_process_of_a_device_serves", two.is_none(), || format!("{two:?}"))
    }

    /// Devices of groups with work, without those that wait for an operator.
    fn due_devices(&self) -> impl Iterator<Item = &Device> {
        let due = self.devices.iter().filter(|(at, device)| {
            self.group(at.group).phase == Phase::Serving
                && !device.is_halted()
                && !self.is_away(at.device)
        });
        due.map(|(_, device)| device)
    }

    /// Whether every slot has its process, except on devices that wait for an operator.
    pub(crate) fn is_filled(&self) -> bool {
        let filled = |slot: &Slot| slot.serves() || slot.state == State::Standby;
        let is_filled = |device: &Device| {
            let serves = device.slots.is_empty() || device.slots.iter().any(Slot::serves);
            serves && device.slots.iter().all(filled)
        };
        self.due_devices().all(is_filled)
    }

    pub(crate) fn every_slot_is_filled_once_the_faults_stop(&mut self) -> Result<(), Broken> {
        let rule = "every_slot_is_filled_once_the_faults_stop";
        if self.due_devices().any(|device| device.probes > 0) {
            self.coverage.hit("phase 2: a device came back by itself");
        }
        holds(rule, self.is_filled(), || format!("{:?}", self.devices))
    }

    /// Devices that only an operator brings back.
    pub(crate) fn halted(&self) -> Vec<DeviceId> {
        let is_halted = |id: &DeviceId| {
            let own = self.devices.iter().filter(|(at, _)| at.device == *id);
            { own }.any(|(at, device)| self.is_busy(at.group) && device.is_halted())
        };
        self.facts.keys().copied().filter(is_halted).collect()
    }
}

/// A row of the status, as far as the model can know it.
#[derive(Debug, PartialEq)]
struct Row {
    worker: Option<WorkerId>,
    name: String,
    role: String,
    generation: u32,
    state: WorkerState,
    jobs_done: u64,
    restarts: u32,
    start_us: Option<u64>,
    end_us: Option<u64>,
}

fn worker(at: Station, generation: u32) -> WorkerId {
    WorkerId { device: at.device, group: at.group, generation }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("nothing here takes an age")
}

/// A process as the status shows it; `None` if the slot has none.
fn shown_as(slot: &Slot) -> Option<WorkerState> {
    match slot.state {
        State::Absent { .. } | State::Reclaiming { .. } => None,
        State::Busy { .. } => Some(WorkerState::Busy),
        State::Killed { .. } | State::Stopping { .. } => Some(WorkerState::Stopping),
        State::Ready => Some(WorkerState::Ready),
        State::Standby => Some(WorkerState::Standby),
        State::Starting { .. } => Some(WorkerState::Starting),
        State::Unkillable { .. } => Some(WorkerState::Unkillable),
    }
}

fn each_due_action_comes_at_once(due: &Due) -> Result<(), Broken> {
    let done = due.replies.is_empty()
        && due.discards.is_empty()
        && due.verdicts.is_empty()
        && due.apart.is_empty()
        && due.kills.is_empty()
        && due.spawns.is_empty()
        && due.stops.is_empty()
        && due.withdrawals.is_empty()
        && due.hashes.is_empty()
        && due.capsules.is_empty()
        && due.told.is_empty()
        && !due.leave;
    holds("each_due_action_comes_at_once", done, || format!("{due:?}"))
}
