//! Which process of a device serves, which stand by, and when the next one may start.
//!
//! One seat of a device serves. As soon as that is lost, a standby takes over; a seat whose process is
//! gone gets the next one in the background. A device that nobody serves gets one new process at a
//! time, and none beside an old one: that may still hold its memory.

use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::receipt::DeviceInfo;

use super::device::{Death, Device, Rule, Service};
use super::event::{Action, Timestamp};
use super::kill::{Freed, KillCause};
use super::slot::{Blame, Slot, SlotState};
use super::{Phase, Pool};

/// A device that is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantine<'a> {
    /// The fault that it was last put out for.
    pub why: &'a str,
    /// When a process is started to see whether it works; if there is no such time, somebody has to
    /// release it first.
    pub tried_at: Option<Timestamp>,
    /// The rule that put it out.
    pub rule: Option<Rule>,
}

impl Pool {
    pub(super) fn device(&self, id: DeviceId) -> &Device {
        self.devices.iter().find(|device| device.id == id).expect("devices stay")
    }

    /// Somebody says that a device out of service is worth a try.
    pub(super) fn on_release(&mut self, now: Timestamp, id: DeviceId) {
        if let Some(device) = self.devices.iter_mut().find(|device| device.id == id) {
            device.release(now);
        }
    }

    pub(super) fn device_mut(&mut self, id: DeviceId) -> &mut Device {
        find(&mut self.devices, id)
    }

    /// All seats of a device.
    pub(super) fn seats(&self, id: DeviceId) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.device == id)
    }

    fn is_served(&self, id: DeviceId) -> bool {
        is_served(&self.slots, id)
    }

    /// Devices that may ever run a job again as things stand.
    pub(super) fn devices_that_may_serve(&self) -> usize {
        self.devices.iter().filter(|device| self.may_serve(device)).count()
    }

    fn may_serve(&self, device: &Device) -> bool {
        let may = |slot: &Slot| match slot.state {
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopping { .. }
            | SlotState::Waiting { .. } => true,
            SlotState::Stopped | SlotState::Unkillable { .. } => false,
        };
        device.is_open() && self.seats(device.id).any(may)
    }

    /// The process of a seat is READY: it serves, or stands by if another does.
    pub(super) fn on_ready(&mut self, now: Timestamp, worker: WorkerId, info: DeviceInfo) {
        let Some(index) = self.current_slot(now, worker) else { return };
        if !matches!(self.slots[index].state, SlotState::Starting { .. }) {
            return;
        }
        let is_served = self.is_served(worker.device);
        self.device_mut(worker.device).ready();
        let slot = &mut self.slots[index];
        slot.ready(now, info);
        self.meters.ready(now, slot);
        if !is_served {
            slot.serve(now);
        }
    }

    /// Lets the oldest standby of a device take over, if nobody serves there any more.
    pub(super) fn promote(&mut self, now: Timestamp, id: DeviceId) {
        if matches!(self.phase, Phase::Leaving | Phase::Left) || self.is_served(id) {
            return;
        }
        let stands_by =
            |slot: &&mut Slot| slot.device == id && matches!(slot.state, SlotState::Standby);
        let oldest = self.slots.iter_mut().filter(stands_by).min_by_key(|slot| slot.generation);
        if let Some(slot) = oldest {
            slot.serve(now);
        }
    }

    /// When a seat may get its next process, as things stand.
    pub(super) fn may_start_at(&self, index: usize) -> Option<Timestamp> {
        if self.has_nothing_to_do() {
            return None;
        }
        let slot = &self.slots[index];
        let SlotState::Waiting { until } = slot.state else { return None };
        let seats = || self.seats(slot.device);
        match self.device(slot.device).service {
            Service::Open => {
                (self.is_served(slot.device) || !seats().any(holds_device)).then_some(until)
            }
            Service::Probing => None,
            Service::Quarantined { probe_at } => {
                let is_first = |at| {
                    let seat: &Slot = &self.slots[at];
                    seat.device == slot.device && matches!(seat.state, SlotState::Waiting { .. })
                };
                let first = (0..self.slots.len()).find(|&at| is_first(at));
                (first == Some(index) && !seats().any(holds_device)).then_some(probe_at).flatten()
            }
        }
    }

    /// Starts every process that is due.
    pub(super) fn start_workers(&mut self, now: Timestamp) {
        for index in 0..self.slots.len() {
            if self.may_start_at(index).is_some_and(|at| at <= now) {
                self.spawn(now, index);
            }
        }
    }

    fn spawn(&mut self, now: Timestamp, index: usize) {
        let device = self.device_mut(self.slots[index].device);
        if !device.is_open() {
            device.service = Service::Probing;
        }
        let generation = device.next_generation();
        let slot = &mut self.slots[index];
        slot.start(now, generation, &self.config);
        self.counters.restarts += u64::from(slot.starts > 1);
        self.meters.spawned(slot);
        self.actions.push_back(Action::Spawn { worker: slot.worker() });
    }

    /// The process of a seat has died, or could not be started: when the next one is due, and whether
    /// the device goes out of service. `reclaims` says whether it may hold memory of the device.
    pub(super) fn seat_died(
        &mut self,
        now: Timestamp,
        index: usize,
        blame: Blame,
        is_final: bool,
        reclaims: bool,
    ) {
        let (config, slot) = (&self.config, &mut self.slots[index]);
        let (id, worker) = (slot.device, slot.worker());
        let backoff = slot.back_off(blame, config);
        slot.took_end = slot.doomed.take().map(|doomed| now.since(doomed));
        let (served, at_start) = (slot.served, !slot.was_ready);
        let idle = blame == Blame::Device && !slot.worked;
        let is_served = self.is_served(id);
        // The death of a standby says nothing about a device that another serves.
        let counts = served || (at_start && !is_served);
        let wait = if is_final && !counts { self.config.backoff_max } else { backoff };
        self.slots[index].state = match reclaims {
            true => {
                let until = now.after(self.config.reclaim_timeout);
                SlotState::Reclaiming { until, restart_at: now.after(wait) }
            }
            false => SlotState::Waiting { until: now.after(wait) },
        };
        let device = find(&mut self.devices, id);
        device.lost = Some((now, worker));
        match device.service {
            Service::Open => {}
            // Whatever ended the process that was to show that the device works.
            Service::Probing => {
                let (rule, config) = (Rule::Trial, &self.config);
                return match blame {
                    Blame::Pool => device.quarantine(now, rule, is_final, config),
                    Blame::Device | Blame::Outside => device.refuse(now, rule, is_final, config),
                };
            }
            // An old process: what is to be said of the device has been said.
            Service::Quarantined { .. } => return,
        }
        let death = Death { at_start: at_start && blame == Blame::Device, idle, is_final };
        if counts
            && let Some(rule) = device.note(now, death, &self.config)
            && !is_served
        {
            device.refuse(now, rule, is_final, &self.config);
            self.clear(now, id);
        }
    }

    /// The process of a seat was asked to end while there was nothing to do, as there may be now.
    pub(super) fn seat_ended_as_asked(&mut self, now: Timestamp, index: usize) {
        let (config, slot) = (&self.config, &mut self.slots[index]);
        slot.took_end = slot.doomed.take().map(|doomed| now.since(doomed));
        let until = now.after(config.reclaim_timeout);
        slot.state = SlotState::Reclaiming { until, restart_at: now };
    }

    /// The device is out of service: whatever was about to serve there ends.
    fn clear(&mut self, now: Timestamp, id: DeviceId) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.device == id && matches!(slot.state, SlotState::Starting { .. }) {
                self.kill(now, index, KillCause::FreeDevice(Freed::DeviceOut));
            }
        }
    }

    /// The memory that a process held is free: the next one may start.
    pub(super) fn on_reclaimed(&mut self, worker: WorkerId) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.worker() == worker)
            && let SlotState::Reclaiming { restart_at, .. } = slot.state
        {
            slot.state = SlotState::Waiting { until: restart_at };
        }
    }

    /// Times that a device was put out of service.
    #[must_use]
    pub fn quarantine_count(&self) -> u64 {
        self.devices.iter().map(|device| device.quarantines).sum()
    }

    /// All devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.iter().map(|device| device.id)
    }

    /// Why a device is out of service and when it is tried again, if it is.
    #[must_use]
    pub fn quarantine(&self, id: DeviceId) -> Option<Quarantine<'_>> {
        let device = self.devices.iter().find(|device| device.id == id)?;
        let tried_at = match device.service {
            Service::Open | Service::Probing => return None,
            Service::Quarantined { probe_at } => probe_at,
        };
        Some(Quarantine { why: &device.last_fault, tried_at, rule: device.rule })
    }

    /// Whether a device is out of service; `None` if there is no such device.
    #[must_use]
    pub fn is_quarantined(&self, id: DeviceId) -> Option<bool> {
        let device = self.devices.iter().find(|device| device.id == id)?;
        Some(!device.is_open())
    }
}

/// Whether some seat of the device serves.
fn is_served(slots: &[Slot], id: DeviceId) -> bool {
    slots.iter().any(|slot| slot.device == id && slot.serves())
}

/// Whether a process is worth waiting for, to a job that has just failed on another device.
pub(super) fn is_near_service(slots: &[Slot], slot: &Slot) -> bool {
    match slot.state {
        SlotState::Ready { .. } => true,
        SlotState::Starting { .. } => !is_served(slots, slot.device),
        SlotState::Busy { .. }
        | SlotState::Killed { .. }
        | SlotState::Reclaiming { .. }
        | SlotState::Standby
        | SlotState::Stopped
        | SlotState::Stopping { .. }
        | SlotState::Unkillable { .. }
        | SlotState::Waiting { .. } => false,
    }
}

pub(super) fn find(devices: &mut [Device], id: DeviceId) -> &mut Device {
    devices.iter_mut().find(|device| device.id == id).expect("devices stay")
}

/// Whether a process of the seat may hold memory of the device, or soon will.
fn holds_device(slot: &Slot) -> bool {
    match slot.state {
        SlotState::Busy { .. }
        | SlotState::Killed { .. }
        | SlotState::Ready { .. }
        | SlotState::Reclaiming { .. }
        | SlotState::Standby
        | SlotState::Starting { .. }
        | SlotState::Stopping { .. }
        | SlotState::Unkillable { .. } => true,
        SlotState::Stopped | SlotState::Waiting { .. } => false,
    }
}
