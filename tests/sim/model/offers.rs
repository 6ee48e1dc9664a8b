//! Which worker has which model, and which jobs wait in vain for one.

use std::collections::BTreeSet;
use std::sync::Arc;

use gridpool_core::event::{JobRequest, Timestamp};
use gridpool_protocol::ids::{AttemptId, JobId, Role, WorkerId};
use gridpool_protocol::receipt::Verdict;

use super::devices::Device;
use super::jobs::Job;
use super::quarantine::Service;
use super::slots::{Slot, SlotId, State};
use super::{Broken, Model, holds};

/// What may be hoped for of the devices in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hope {
    Nothing,
    /// A process that has not said yet what it has, or is still to come.
    Later,
    Now,
}

impl Slot {
    /// Whether its process has said that it has what the request asks for.
    pub(super) fn has_for(&self, request: &JobRequest) -> bool {
        request.work.model().is_none_or(|model| self.offers.contains(model))
    }

    /// Whether a process may come to serve here that has not said yet what it has.
    fn may_get_one(&self) -> bool {
        !matches!(self.state, State::Unkillable { .. })
    }
}

impl Device {
    /// Only the process that serves counts: a standby helps no request as long as another serves.
    fn hope(&self, request: &JobRequest) -> Hope {
        match self.slots.iter().find(|slot| slot.serves()) {
            Some(slot) if slot.has_for(request) => Hope::Now,
            Some(_) => Hope::Nothing,
            None if self.slots.iter().any(Slot::may_get_one) => Hope::Later,
            None => Hope::Nothing,
        }
    }
}

impl Model {
    /// The worker has these models from now on, and no others.
    pub(super) fn models_offered(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        models: &BTreeSet<Arc<str>>,
    ) {
        let Some(at) = self.is_current(now, worker) else { return };
        self.coverage.hit(match self.slot(at).state {
            State::Busy { .. } => "offer: of a busy worker",
            State::Ready => "offer: of an idle worker",
            State::Standby => "offer: of a standby",
            State::Starting { .. } => "offer: before READY",
            State::Absent { .. }
            | State::Killed { .. }
            | State::Reclaiming { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => "offer: of an ending worker",
        });
        self.slot_mut(at).offers.clone_from(models);
    }

    /// A job that waits for a model which no device in service has, or may yet turn out to have, is told so
    /// at once.
    pub(super) fn jobs_have_no_model(&mut self, now: Timestamp, role: Role) {
        let asks = |job: &Job| job.role() == role && job.request.work.model().is_some();
        let waiting: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, job)| asks(job) && job.waits())
            .map(|(&id, _)| id)
            .collect();
        for id in waiting {
            match self.hope(id) {
                Hope::Now => {}
                Hope::Later => self.coverage.hit("model: may yet come"),
                Hope::Nothing => {
                    let job = &self.jobs[&id];
                    self.coverage.hit(match (job.accepted == now, job.begun) {
                        (true, _) => "model: no worker has it",
                        (false, 0) => "model: gone while a request waited",
                        (false, _) => "model: gone while a request ran",
                    });
                    self.fail(now, id, Verdict::DeviceLost);
                }
            }
        }
    }

    fn hope(&self, id: JobId) -> Hope {
        let job = &self.jobs[&id];
        let request = &job.request;
        let devices = self.open_devices(job.role());
        devices.map(|device| device.hope(request)).max().unwrap_or(Hope::Nothing)
    }

    /// Devices that are in service for a role.
    fn open_devices(&self, role: Role) -> impl Iterator<Item = &Device> {
        let own = self.devices.iter().filter(move |(at, _)| at.role == role);
        own.map(|(_, device)| device).filter(|device| device.service == Service::Open)
    }

    /// Whether a process is to serve a role that has not said yet what it has, or probes its device.
    pub(super) fn awaits_workers(&self, role: Role) -> bool {
        let comes = |device: &Device| {
            let slots = &device.slots;
            !slots.iter().any(Slot::serves) && slots.iter().any(Slot::may_get_one)
        };
        let some_comes = self.open_devices(role).any(comes);
        let mut own = self.devices.iter().filter(|(at, _)| at.role == role);
        let probes = own.any(|(_, device)| device.service == Service::Probing);
        self.starts_workers(role) && (probes || some_comes)
    }

    pub(super) fn a_request_goes_to_a_worker_that_has_its_model(
        &self,
        at: SlotId,
        attempt: AttemptId,
    ) -> Result<(), Broken> {
        let rule = "a_request_goes_to_a_worker_that_has_its_model";
        let request = &self.jobs[&attempt.job].request;
        let offers = &self.slot(at).offers;
        holds(rule, self.slot(at).has_for(request), || {
            format!(
                "{attempt} asks {:?} of {}, which has {offers:?}",
                request.work,
                self.worker(at)
            )
        })
    }

    /// Notes which workers were passed over for want of the model that the lead of a launch asks for.
    pub(super) fn note_workers_without_the_model(
        &mut self,
        now: Timestamp,
        lead: AttemptId,
        second: bool,
    ) {
        let request = &self.jobs[&lead.job].request;
        let others = || {
            let own = self.slots_of(request.work.role());
            own.filter(|(_, slot)| !slot.has_for(request))
        };
        let idles = others().any(|(_, slot)| self.is_idle(now, slot));
        let has_room = others().any(|(at, _)| self.has_room(now, at));
        if idles && second {
            self.coverage.hit("dispatch: beside other attempts, for idle workers lack the model");
        } else if idles {
            self.coverage.hit("dispatch: not to an idle worker that lacks the model");
        } else if has_room {
            self.coverage.hit("dispatch: not to a worker with capacity that lacks the model");
        }
    }
}
