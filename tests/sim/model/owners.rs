//! Which pool has a device while one pool takes the place of another and gets the devices one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gridpool_core::Core;
use gridpool_core::event::{Predecessor, Timestamp};
use gridpool_protocol::ids::{DeviceId, Group, WorkerId};

use super::quarantine::Service;
use super::slots::{Slot, State, Station};
use super::{Broken, Model, holds};

/// A device that nothing waits for since an event is vacated so soon.
const VACATES_AFTER: Duration = Duration::from_millis(1);

/// Another pool that has a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The one before this one.
    Predecessor,
    /// This one leaves it to its successor.
    Vacated,
    /// The successor.
    Successor,
}

/// What the model knows of it.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Devices that this pool does not use.
    away: BTreeMap<DeviceId, Owner>,
    /// A successor gets the devices one by one.
    pub(super) gives: bool,
    /// Devices that are free for the successor with this event.
    pub(super) due: BTreeSet<DeviceId>,
}

impl Model {
    /// Whether another pool has a device, or gets it.
    pub(super) fn is_away(&self, id: DeviceId) -> bool {
        self.owners.away.contains_key(&id)
    }

    /// Whether the pool before this one has a device.
    pub(super) fn is_held_before(&self, id: DeviceId) -> bool {
        self.owners.away.get(&id) == Some(&Owner::Predecessor)
    }

    fn is_given(&self, id: DeviceId) -> bool {
        matches!(self.owners.away.get(&id), Some(Owner::Vacated | Owner::Successor))
    }

    /// Whether jobs may find a device in the successor, and not here.
    pub(super) fn is_given_away(&self, id: DeviceId) -> bool {
        self.is_replaced() && self.is_given(id)
    }

    /// Whether a successor comes up that gets the devices one by one.
    pub(crate) fn gives_devices(&self) -> bool {
        self.owners.gives
    }

    /// The pool before this one has all devices.
    pub(crate) fn holds_all_devices(&mut self) {
        let all = self.facts.keys().map(|&id| (id, Owner::Predecessor));
        self.owners.away = all.collect();
    }

    /// Whether the pool before this one has a device.
    pub(crate) fn has_held_devices(&self) -> bool {
        self.facts.keys().any(|&id| self.is_held_before(id))
    }

    pub(super) fn predecessor_says(&mut self, said: &Predecessor) {
        match *said {
            Predecessor::Freed(device) => self.device_is_freed(device),
            Predecessor::Gone => self.predecessor_is_gone(),
            Predecessor::Told(_) => unreachable!("the pool before the simulated one has no jobs"),
        }
    }

    /// The pool before this one has freed a device.
    fn device_is_freed(&mut self, id: DeviceId) {
        if self.is_held_before(id) {
            self.coverage.hit("held: a device is freed");
            self.owners.away.remove(&id);
        } else {
            self.coverage.hit("held: a device that is not held is freed");
        }
    }

    /// Nothing of the pool before this one is left.
    fn predecessor_is_gone(&mut self) {
        if self.has_held_devices() {
            self.coverage.hit("held: all devices are free at the end of the pool before");
        }
        self.owners.away.retain(|_, owner| *owner != Owner::Predecessor);
    }

    /// A successor comes up: the first device that serves is vacated, or else the first.
    pub(super) fn begins_to_give(&mut self, now: Timestamp) {
        self.owners.gives = true;
        let own: Vec<_> = self.facts.keys().copied().filter(|&id| !self.is_away(id)).collect();
        let serves = |&&device: &&DeviceId| {
            let grid = Station { group: Group::Grid, device };
            self.devices[&grid].slots.iter().any(Slot::serves)
        };
        let first = own.iter().find(serves).copied();
        match first.or_else(|| own.first().copied()) {
            Some(id) => self.vacates(now, id),
            None => self.coverage.hit("vacate: no device is there"),
        }
        if first.is_none() {
            self.coverage.hit("vacate: no device serves");
        }
        if own.len() == 1 {
            self.coverage.hit("vacate: the only device");
        }
    }

    /// The successor fails: its device serves here again.
    pub(super) fn takes_back(&mut self) {
        if self.facts.keys().any(|&id| self.owners.away.get(&id) == Some(&Owner::Successor)) {
            self.coverage.hit("vacate: a device that was free is taken back");
        }
        if self.facts.keys().any(|&id| self.owners.away.get(&id) == Some(&Owner::Vacated)) {
            self.coverage.hit("vacate: a device is taken back");
        }
        self.owners.gives = false;
        self.owners.away.retain(|_, owner| *owner == Owner::Predecessor);
    }

    fn vacates(&mut self, now: Timestamp, id: DeviceId) {
        self.owners.away.insert(id, Owner::Vacated);
        for at in self.slot_ids().into_iter().filter(|at| at.device() == id) {
            let starts = matches!(self.slot(at).state, State::Starting { .. });
            if starts && self.devices[&at.station].service == Service::Probing {
                self.coverage.hit("vacate: a probe is called off");
                self.device_mut(at.station).service = Service::Quarantined { probe_at: Some(now) };
            }
        }
    }

    /// The devices of this pool for which no job waits, once its successor serves.
    fn unwanted(&self) -> Vec<DeviceId> {
        if !self.owners.gives || !self.is_replaced() {
            return Vec::new();
        }
        let is_wanted = |id: DeviceId| {
            let here = |(at, device): (&Station, &super::devices::Device)| {
                at.device == id
                    && !device.slots.is_empty()
                    && self.jobs_of(at.group).any(|job| job.waits())
            };
            self.devices.iter().any(here)
        };
        let own = self.facts.keys().copied().filter(|&id| !self.is_away(id));
        own.filter(|&id| !is_wanted(id)).collect()
    }

    pub(super) fn unwanted_devices_are_vacated(&mut self, now: Timestamp) {
        for id in self.unwanted() {
            self.coverage.hit("vacate: nothing waits for a device");
            self.vacates(now, id);
        }
    }

    /// When the devices that nothing waits for since this event are vacated.
    pub(super) fn vacates_at(&self, now: Timestamp) -> Option<Timestamp> {
        (!self.unwanted().is_empty()).then(|| now.after(VACATES_AFTER))
    }

    /// Workers of vacated devices end once they are idle.
    pub(super) fn vacated_workers_end(&mut self, now: Timestamp) {
        let by = now.after(self.config.kill_timeout);
        for at in self.slot_ids() {
            if !self.is_given(at.device()) {
                continue;
            }
            self.coverage.hit(match self.slot(at).state {
                State::Ready if self.slot(at).worked => "vacate: a worker ends after its last job",
                State::Ready => "vacate: an idle worker ends",
                State::Standby => "vacate: a standby ends",
                State::Starting { .. } => "vacate: a starting worker ends",
                State::Busy { .. } => {
                    self.coverage.hit("vacate: a busy worker goes on");
                    continue;
                }
                State::Absent { .. }
                | State::Killed { .. }
                | State::Reclaiming { .. }
                | State::Stopping { .. }
                | State::Unkillable { .. } => continue,
            });
            self.is_asked_to_end(at, by);
        }
    }

    /// Vacated devices without a process and its memory are free for the successor.
    pub(super) fn vacated_devices_are_free(&mut self) {
        let holds = |id: DeviceId| {
            let mut own = self.devices.iter().filter(|(at, _)| at.device == id);
            own.any(|(_, device)| !device.is_empty())
        };
        let vacated = self.owners.away.iter().filter(|(_, owner)| **owner == Owner::Vacated);
        let free: Vec<_> = vacated.map(|(&id, _)| id).filter(|&id| !holds(id)).collect();
        for id in free {
            self.owners.away.insert(id, Owner::Successor);
            self.owners.due.insert(id);
        }
    }

    pub(super) fn freed(&mut self, id: DeviceId) -> Result<(), Broken> {
        self.coverage.hit(match self.is_replaced() {
            true => "vacate: a device is free after the successor serves",
            false => "vacate: a device is free before the successor serves",
        });
        let held = || self.devices.iter().filter(|(at, _)| at.device == id);
        let is_empty = held().all(|(_, device)| device.is_empty());
        holds("a_device_that_is_freed_holds_nothing", is_empty, || {
            format!("{id}: {:?}", held().collect::<Vec<_>>())
        })?;
        let rule = "a_device_is_freed_once_and_only_if_it_was_vacated";
        let is_due = self.owners.due.remove(&id);
        holds(rule, is_due, || format!("{id}: {:?}", self.owners))
    }

    pub(super) fn every_device_that_may_be_freed_is(&self) -> Result<(), Broken> {
        let rule = "every_device_that_may_be_freed_is";
        holds(rule, self.owners.due.is_empty(), || format!("{:?}", self.owners))
    }

    pub(super) fn no_process_starts_on_a_device_of_another_pool(
        &self,
        worker: WorkerId,
    ) -> Result<(), Broken> {
        let rule = "no_process_starts_on_a_device_of_another_pool";
        holds(rule, !self.is_away(worker.device), || format!("{worker}: {:?}", self.owners))
    }

    pub(super) fn a_vacated_device_gets_no_dispatch(&self, worker: WorkerId) -> Result<(), Broken> {
        let rule = "a_vacated_device_gets_no_dispatch";
        holds(rule, !self.is_away(worker.device), || format!("{worker}: {:?}", self.owners))
    }

    pub(super) fn the_core_knows_who_has_each_device(&self, core: &Core) -> Result<(), Broken> {
        let rule = "the_core_knows_who_has_each_device";
        let ids = || self.facts.keys().copied();
        let wrong = ids().find(|&id| {
            core.is_held(id) != self.is_held_before(id)
                || core.why_away(id).is_some() != self.is_away(id)
        });
        holds(rule, wrong.is_none(), || format!("{wrong:?}: {:?}", self.owners))?;
        let rows = core.workers();
        let silent = rows.iter().find(|(_, row)| {
            let id = DeviceId { kind: row.device.kind, index: row.device.index };
            core.why_away(id).is_some_and(|why| row.last_fault != why)
        });
        holds(rule, silent.is_none(), || format!("{silent:?}"))
    }
}
