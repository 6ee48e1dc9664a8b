//! Which process of a device serves a group, which are standbys, and when the next one may start.
//!
//! One slot of a device and group serves. When its process is lost, a standby takes over at once, and the
//! slot gets a new process in the background. While none serves, one process starts at a time, and not
//! before the old one's memory is free.

use gridpool_protocol::ids::{DeviceId, Group, WorkerId};
use gridpool_protocol::receipt::DeviceInfo;

use super::Pool;
use super::kill::{Freed, KillCause};
use super::process::Process;
use super::service::{Death, Rule, ServiceState};
use super::slots::{Blame, Reclaiming, Slot};
use crate::event::Timestamp;

/// How a slot lost its process, or why a start failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacated {
    pub(super) worker: WorkerId,
    pub(super) blame: Blame,
    /// The next process would end the same way.
    pub(super) is_final: bool,
    /// The process may have left memory on the device.
    pub(super) reclaims: bool,
    pub(super) was_ready: bool,
    pub(super) served: bool,
    pub(super) worked: bool,
}

impl Pool {
    /// How many devices may run a job of a group now or later, without a probe or an operator.
    pub(super) fn devices_that_may_serve(&self, group: Group) -> usize {
        let may = |id: DeviceId| self.slots.of(id, group).any(Slot::may_serve);
        let open = self.devices.iter().filter(|device| device.service(group).is_open());
        open.filter(|device| may(device.id) && !self.is_given_away(device.id)).count()
    }

    /// A process is READY: it serves, or stands by if another does.
    pub(super) fn on_ready(&mut self, now: Timestamp, worker: WorkerId, info: DeviceInfo) {
        let Some(index) = self.hear(now, worker) else { return };
        if !self.slots.process(index).is_starting() {
            return;
        }
        let is_served = self.slots.is_served(worker.device, worker.group);
        let device = self.devices.at_mut(worker.device);
        device.info = Some(info.clone());
        device.service_mut(worker.group).ready();
        self.services_changed = true;
        let process = self.slots.process_mut(index);
        process.ready(now, info);
        if !is_served {
            process.serve(now);
        }
        let took = process.took_start();
        self.slots[index].took_start = took;
        self.groups[worker.group].meters.ready(now, took, &mut self.slots[index].end);
    }

    /// Lets the oldest standby of a device take over, if no process serves the group there.
    pub(super) fn promote(&mut self, now: Timestamp, id: DeviceId, group: Group) {
        if self.groups[group].is_leaving() || self.slots.is_served(id, group) {
            return;
        }
        let own = self.slots.of_group_mut(group).filter(|slot| slot.device == id);
        let standbys = own.filter_map(Slot::process_mut).filter(|process| process.stands_by());
        if let Some(oldest) = standbys.min_by_key(|process| process.worker.generation) {
            oldest.serve(now);
        }
    }

    /// When a slot may get its next process.
    pub(super) fn may_start_at(&self, index: usize) -> Option<Timestamp> {
        let slot = &self.slots[index];
        let due = slot.due()?;
        if self.groups[slot.group].has_nothing_to_do() {
            return None;
        }
        if !self.devices.at(slot.device).is_own() {
            return None;
        }
        let is_held = || self.slots.of(slot.device, slot.group).any(Slot::holds_device);
        match self.devices.at(slot.device).service(slot.group).state() {
            ServiceState::Open => {
                let is_served = self.slots.is_served(slot.device, slot.group);
                (is_served || !is_held()).then_some(due)
            }
            ServiceState::Probing => None,
            ServiceState::Quarantined { probe_at } => {
                let mut own = self.slots.of_group(slot.group);
                let is_vacant = |other: &Slot| other.device == slot.device && other.due().is_some();
                let first = own.find(|(_, other)| is_vacant(other)).map(|(at, _)| at);
                (first == Some(index) && !is_held()).then_some(probe_at).flatten()
            }
        }
    }

    /// Starts every process of a group that is due.
    pub(super) fn start_workers(&mut self, now: Timestamp, group: Group) {
        for index in self.slots.indexes(group) {
            if self.may_start_at(index).is_some_and(|at| at <= now) {
                self.spawn(now, index);
            }
        }
    }

    fn spawn(&mut self, now: Timestamp, index: usize) {
        let slot = &mut self.slots[index];
        let device = self.devices.at_mut(slot.device);
        device.service_mut(slot.group).begin_start();
        let worker = device.next_worker(slot.group);
        let state = &mut self.groups[slot.group];
        slot.occupy(Process::new(now, worker, state.limits.ready_timeout));
        let is_restart = slot.restarts() > 0;
        state.counters.restarts += u64::from(is_restart);
        if let Some(reason) = state.meters.spawned(is_restart, &mut slot.end) {
            *slot.restart_reasons.entry(reason).or_default() += 1;
        }
        self.started.push(worker);
    }

    /// A slot has lost its process, or a start failed: decides when the next one is due, and whether the
    /// service goes out. The slot is closed.
    pub(super) fn on_vacated(&mut self, now: Timestamp, index: usize, vacated: Vacated) {
        let Vacated { worker, blame, is_final, .. } = vacated;
        let is_served = self.slots.is_served(worker.device, worker.group);
        // The death of a standby is no evidence against a device that another serves.
        let counts = vacated.served || (!vacated.was_ready && !is_served);
        let slot = &mut self.slots[index];
        let backoff = slot.back_off(blame, &self.config);
        let wait = if is_final && !counts { self.config.backoff_max } else { backoff };
        let until = now.after(self.config.reclaim_timeout);
        let reclaiming = vacated.reclaims.then_some(Reclaiming { worker, until });
        slot.open(now.after(wait), reclaiming);
        let device = self.devices.at_mut(worker.device);
        device.loses(now, worker);
        let service = device.service_mut(worker.group);
        match service.state() {
            ServiceState::Open => {}
            // The probe failed, whatever ended it.
            ServiceState::Probing => {
                self.services_changed = true;
                return match blame {
                    Blame::Pool => service.quarantine(now, Rule::Probe, is_final, &self.config),
                    Blame::Device | Blame::Outside => {
                        service.refuse(now, Rule::Probe, is_final, &self.config);
                    }
                };
            }
            // An old process: the device was judged before.
            ServiceState::Quarantined { .. } => return,
        }
        let is_devices = blame == Blame::Device;
        let death = Death {
            at_start: !vacated.was_ready && is_devices,
            idle: !vacated.worked && is_devices,
            is_final,
        };
        if counts
            && let Some(rule) = service.note(now, death, &self.config)
            && !is_served
        {
            service.refuse(now, rule, is_final, &self.config);
            self.services_changed = true;
            self.clear(now, worker.device, worker.group);
        }
    }

    /// The process of a slot was asked to end because there was no work. There may be some now.
    pub(super) fn on_ended_as_asked(&mut self, now: Timestamp, index: usize, worker: WorkerId) {
        let until = now.after(self.config.reclaim_timeout);
        self.slots[index].open(now, Some(Reclaiming { worker, until }));
    }

    /// The service is out: kills the processes that are starting there.
    fn clear(&mut self, now: Timestamp, id: DeviceId, group: Group) {
        for index in self.slots.indexes(group) {
            let slot = &self.slots[index];
            if slot.device == id && slot.process().is_some_and(Process::is_starting) {
                self.kill(now, index, KillCause::FreeDevice(Freed::DeviceOut));
            }
        }
    }

    /// The memory that a process held is free: the next one may start.
    pub(super) fn on_reclaimed(&mut self, worker: WorkerId) {
        let waits =
            |slot: &&mut Slot| slot.reclaiming().is_some_and(|memory| memory.worker == worker);
        if let Some(slot) = self.slots.of_group_mut(worker.group).find(waits) {
            slot.reclaimed();
        }
    }
}
