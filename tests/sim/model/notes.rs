//! The log lines about devices, models and helpers: each change once, when it happens.

use std::collections::BTreeSet;
use std::time::Duration;

use gridpool_core::action::{Note, Novelty};
use gridpool_core::event::{Helper, Timestamp};
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{DeviceId, Group, WorkerId};

use super::quarantine::Service;
use super::slots::{Slot, Station};
use super::{Broken, Model, Phase, holds};

/// A note, as far as the model can know it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Logged {
    Changed(bool),
    CommandFailed(WorkerId),
    /// Of a device, with the name of the group: for a while two groups may have one name.
    DeviceBack(DeviceId, String),
    DeviceOut(DeviceId, String, Option<Duration>),
    Driver {
        device: DeviceId,
        fault: FaultCode,
        novelty: Novelty,
        lost: Option<WorkerId>,
        is_about_lost: bool,
    },
    HelperGone(Helper),
    HelperStuck(Helper),
    HelperWaits(Helper, Duration),
    Model(WorkerId, String, bool),
    Released,
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) due: Vec<Logged>,
    /// What the log says is out of service.
    out: BTreeSet<Station>,
    was_hopeless: bool,
    misconfigured_due: bool,
}

impl Notes {
    /// A group has other models than before: the log has said nothing of its devices yet.
    pub(super) fn forget(&mut self, at: Station) {
        self.out.remove(&at);
    }
}

impl Model {
    /// The name of a station's group.
    fn group_name(&self, at: Station) -> String {
        self.models.get(&at.group).map_or_else(|| "grid".to_owned(), |models| models.name.clone())
    }

    /// Whether a group has work, or still a process.
    pub(super) fn is_busy(&self, group: Group) -> bool {
        let mut own = self.slots_of(group);
        self.group(group).phase != Phase::Resting || own.any(|(_, slot)| slot.has_process())
    }

    /// The process that a device lost recently.
    pub(super) fn lost_lately(&self, now: Timestamp, id: DeviceId) -> Option<WorkerId> {
        let (at, worker) = self.facts.get(&id)?.lost?;
        (now.since(at) <= self.config.incident_window).then_some(worker)
    }

    /// A driver report is logged once, with the process that it is about.
    pub(super) fn driver_is_heard(&mut self, now: Timestamp, id: DeviceId, fault: FaultCode) {
        let lost = self.lost_lately(now, id);
        let lives = |(at, slot): (super::slots::SlotId, &Slot)| {
            (at.device() == id && slot.has_process()).then(|| self.worker(at))
        };
        let has_others = self.slots().filter_map(lives).any(|worker| Some(worker) != lost);
        let is_about_lost = lost.is_some() && !has_others;
        let told = lost.map(|worker| (worker, fault));
        let before = self.facts.get(&id).and_then(|facts| facts.reported_loss);
        let novelty = match self.follows_a_loss(now, id, fault) {
            false => Novelty::New,
            true if before == told => Novelty::Repeated,
            true => Novelty::Expected,
        };
        self.coverage.hit(match (novelty, is_about_lost) {
            (Novelty::New, false) => "driver: a new fault",
            (Novelty::New, true) => "driver: a new fault of a process that is gone",
            (Novelty::Expected, _) => "driver: expected",
            (Novelty::Repeated, _) => "driver: repeated",
        });
        if let Some(facts) = self.facts.get_mut(&id) {
            facts.reported_loss = told;
            facts.driver_report = Some((now, fault));
        }
        self.notes.due.push(Logged::Driver { device: id, fault, novelty, lost, is_about_lost });
    }

    /// The changes of services by the end of an event.
    pub(super) fn services_are_reported(&mut self, now: Timestamp) {
        for at in self.devices.keys().copied().collect::<Vec<_>>() {
            if self.group(at.group).phase != Phase::Serving {
                continue;
            }
            match (self.devices[&at].service, self.notes.out.contains(&at)) {
                (Service::Quarantined { probe_at }, false) => {
                    self.notes.out.insert(at);
                    let probed_in = probe_at.map(|at| at.since(now));
                    let name = self.group_name(at);
                    self.notes.due.push(Logged::DeviceOut(at.device, name, probed_in));
                    self.coverage.hit("note: a device is out of service");
                }
                (Service::Open, true) => {
                    self.notes.out.remove(&at);
                    self.notes.due.push(Logged::DeviceBack(at.device, self.group_name(at)));
                    self.coverage.hit("note: a device is back");
                }
                (Service::Open, false)
                | (Service::Probing, _)
                | (Service::Quarantined { .. }, true) => {}
            }
        }
        let is_misconfigured = self.is_misconfigured();
        self.notes.misconfigured_due = is_misconfigured && !self.notes.was_hopeless;
        self.notes.was_hopeless = is_misconfigured;
    }

    /// Whether no device has ever served programs, or may.
    fn is_misconfigured(&self) -> bool {
        let grid = || {
            let own = self.devices.iter().filter(|(at, _)| at.group == Group::Grid);
            own.filter(|(at, _)| !self.is_held_before(at.device))
        };
        let is_tried = grid().next().is_some();
        is_tried
            && grid().all(|(_, device)| {
                device.service != Service::Open && device.refused && !device.ever_ready
            })
    }

    pub(super) fn reported_misconfigured(&mut self) -> Result<(), Broken> {
        self.coverage.hit("note: misconfigured");
        let due = std::mem::take(&mut self.notes.misconfigured_due);
        let rule = "a_misconfigured_pool_is_reported_once";
        holds(rule, due, || format!("{:?}", self.devices))
    }

    pub(super) fn noted(&mut self, _now: Timestamp, note: &Note) -> Result<(), Broken> {
        let told = match note {
            Note::CommandFailed { worker, .. } => Logged::CommandFailed(*worker),
            Note::DeviceBack { device, group } => Logged::DeviceBack(*device, group.to_string()),
            Note::DeviceOut { device, group, probed_in, .. } => {
                Logged::DeviceOut(*device, group.to_string(), *probed_in)
            }
            &Note::DriverReport { device, fault, novelty, lost, is_about_lost, .. } => {
                Logged::Driver { device, fault, novelty, lost, is_about_lost }
            }
            &Note::HelperGone { helper } => Logged::HelperGone(helper),
            &Note::HelperStuck { helper } => Logged::HelperStuck(helper),
            &Note::HelperWaits { helper, wait } => Logged::HelperWaits(helper, wait),
            Note::ModelReady { worker, name } => Logged::Model(*worker, name.clone(), true),
            Note::ModelUnavailable { worker, name, .. } => {
                Logged::Model(*worker, name.clone(), false)
            }
            Note::ModelsChanged { result } => Logged::Changed(result.is_ok()),
            Note::Released { .. } => Logged::Released,
        };
        let at = self.notes.due.iter().position(|due| *due == told);
        let rule = "each_change_is_logged_once";
        holds(rule, at.is_some(), || format!("{told:?}, due {:?}", self.notes.due))?;
        self.notes.due.remove(at.expect("the rule holds"));
        Ok(())
    }

    pub(super) fn every_change_is_logged(&self) -> Result<(), Broken> {
        let rule = "each_change_is_logged_once";
        let Notes { due, misconfigured_due, .. } = &self.notes;
        holds(rule, due.is_empty() && !misconfigured_due, || format!("{:?}", self.notes))
    }
}
