//! Which pool has a device while one pool takes the place of another and their workers are replaced one by one: no
//! device ever holds workers of both.
//!
//! The old pool vacates its first device, and the successor tries that one. Once the successor serves, the old
//! pool vacates each other device as soon as no job waits for it. A device that is vacated gets no dispatch and no
//! process, and its workers end once they are idle. When nothing of them is left, it is freed: the successor may start
//! workers there.

use std::time::Duration;

use gridpool_protocol::ids::{DeviceId, Group};

use super::Pool;
use super::devices::Device;
use super::process::{Process, Stage};
use super::slots::Slot;
use crate::action::Action;
use crate::event::Timestamp;

/// A device that nothing waits for since an event is vacated so soon, if nothing else happens.
const VACATES_AFTER: Duration = Duration::from_millis(1);

/// The pool that has a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This one.
    This,
    /// The pool before this one.
    Predecessor,
    /// This one ends its workers there, for its successor.
    Vacated,
    /// The successor.
    Successor,
}

impl Device {
    /// Whether this pool may start processes there, and send work to those that run.
    pub(super) fn is_own(&self) -> bool {
        self.owner == Owner::This
    }

    /// Whether the pool before this one still has it.
    pub(super) fn is_held(&self) -> bool {
        self.owner == Owner::Predecessor
    }

    /// Whether this pool gives it to its successor, or has.
    fn is_given(&self) -> bool {
        match self.owner {
            Owner::Vacated | Owner::Successor => true,
            Owner::Predecessor | Owner::This => false,
        }
    }

    /// Why this pool does not use it, if another has it.
    pub(super) fn why_away(&self) -> Option<&'static str> {
        match self.owner {
            Owner::This => None,
            Owner::Predecessor => Some("the pool before this one still has it"),
            Owner::Vacated | Owner::Successor => {
                Some("the pool is upgraded, and the new one gets it")
            }
        }
    }
}

impl Pool {
    /// The pool before this one has every device.
    pub(crate) fn hold_devices(&mut self) {
        self.devices.iter_mut().for_each(|device| device.owner = Owner::Predecessor);
    }

    /// The pool before this one has freed a device; without one, all of them.
    pub(crate) fn on_freed(&mut self, id: Option<DeviceId>) {
        let named = |device: &&mut Device| id.is_none_or(|id| device.id == id);
        let held = self.devices.iter_mut().filter(|device| device.is_held());
        held.filter(named).for_each(|device| device.owner = Owner::This);
        self.services_changed = true;
    }

    /// Whether the pool before this one still has a device.
    pub(crate) fn is_held(&self, id: DeviceId) -> bool {
        self.devices.find(id).is_some_and(Device::is_held)
    }

    /// Why this pool does not use a device, if another has it.
    pub(crate) fn why_away(&self, id: DeviceId) -> Option<&'static str> {
        self.devices.find(id)?.why_away()
    }

    /// A successor comes up that gets the devices one by one: vacates the first that serves, or else the first.
    pub(super) fn begin_giving(&mut self, now: Timestamp) {
        self.gives_devices = true;
        let own = || self.devices.iter().filter(|device| device.is_own());
        let serves = |device: &&Device| self.slots.is_served(device.id, Group::Grid);
        let first = own().find(serves).or_else(|| own().next());
        if let Some(first) = first.map(|device| device.id) {
            self.vacate(now, first);
        }
    }

    /// The successor does not take over: its device is used here again.
    pub(super) fn take_devices_back(&mut self) {
        self.gives_devices = false;
        let given = self.devices.iter_mut().filter(|device| device.is_given());
        given.for_each(|device| device.owner = Owner::This);
    }

    fn vacate(&mut self, now: Timestamp, id: DeviceId) {
        self.devices.at_mut(id).owner = Owner::Vacated;
        for slot in self.slots.iter().filter(|slot| slot.device == id) {
            if slot.process().is_some_and(Process::is_starting) {
                self.devices.at_mut(id).service_mut(slot.group).cancel_probe(now);
            }
        }
        // The log must say that a service is out whose probe has ended.
        self.services_changed = true;
        self.touch_all();
    }

    /// Asks the workers of a group to end that are idle on a vacated device.
    pub(super) fn stop_vacated(&mut self, now: Timestamp, group: Group) {
        if !self.gives_devices {
            return;
        }
        let given = self.devices.iter().filter(|device| device.is_given());
        let given: Vec<_> = given.map(|device| device.id).collect();
        let is_busy = |process: &Process| matches!(process.stage(), Stage::Busy(_));
        self.stop_those(now, group, |slot| {
            given.contains(&slot.device) && !slot.process().is_some_and(is_busy)
        });
    }

    /// Vacates the devices that no job waits for, once the successor serves.
    pub(super) fn vacate_unwanted(&mut self, now: Timestamp) {
        self.unwanted().iter().for_each(|&id| self.vacate(now, id));
    }

    /// When devices are vacated for which no job waits since this event.
    pub(super) fn vacates_at(&self, now: Timestamp) -> Option<Timestamp> {
        (!self.unwanted().is_empty()).then(|| now.after(VACATES_AFTER))
    }

    fn unwanted(&self) -> Vec<DeviceId> {
        if !self.gives_devices || !self.is_replaced() {
            return Vec::new();
        }
        let waits = |slot: &Slot| !self.groups[slot.group].queue.is_empty();
        let is_wanted =
            |id: DeviceId| self.slots.iter().any(|slot| slot.device == id && waits(slot));
        let own = self.devices.iter().filter(|device| device.is_own());
        own.map(|device| device.id).filter(|&id| !is_wanted(id)).collect()
    }

    /// Frees the devices that are vacated once nothing of their workers is left.
    pub(super) fn free_vacated(&mut self) {
        for device in self.devices.iter_mut().filter(|device| device.owner == Owner::Vacated) {
            let holds = |slot: &Slot| slot.device == device.id && slot.holds_device();
            if !self.slots.iter().any(holds) {
                device.owner = Owner::Successor;
                self.actions.push_back(Action::Free { device: device.id });
            }
        }
    }

    /// Whether the successor, which serves, gets a device or has it.
    pub(super) fn is_given_away(&self, id: DeviceId) -> bool {
        self.is_replaced() && self.devices.at(id).is_given()
    }

    /// Whether jobs of a group that find no worker here may find one in the successor.
    pub(super) fn is_served_elsewhere(&self, group: Group) -> bool {
        self.slots.of_group(group).any(|(_, slot)| self.is_given_away(slot.device))
    }
}
