//! Which worker has which model, and which jobs wait for a model that no worker has.

use std::collections::BTreeSet;
use std::sync::Arc;

use gridpool_core::event::{JobRequest, Timestamp};
use gridpool_protocol::ids::{AttemptId, Group, JobId, WorkerId};

use super::devices::Device;
use super::jobs::Job;
use super::quarantine::Service;
use super::slots::{Slot, SlotId, State};
use super::{Broken, Model, holds};

/// The models that devices in service have or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Availability {
    Nothing,
    /// A process that has not reported yet, or has not started.
    Later,
    Now,
}

impl Slot {
    /// Whether its process has reported the request's model.
    pub(super) fn has_for(&self, request: &JobRequest) -> bool {
        request.work.model().is_none_or(|model| self.offers.contains(model))
    }

    /// Whether a process that has not reported yet may come to serve here.
    fn may_get_one(&self) -> bool {
        !matches!(self.state, State::Unkillable { .. })
    }
}

impl Device {
    /// Only the active worker counts: a standby helps no request while another serves.
    fn availability(&self, request: &JobRequest) -> Availability {
        match self.slots.iter().find(|slot| slot.serves()) {
            Some(slot) if slot.has_for(request) => Availability::Now,
            Some(_) => Availability::Nothing,
            None if self.slots.iter().any(Slot::may_get_one) => Availability::Later,
            None => Availability::Nothing,
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

    /// A job whose model no device in service has or may have ends at once.
    pub(super) fn jobs_have_no_model(&mut self, now: Timestamp, group: Group) {
        let asks = |job: &Job| job.group == group && job.request.work.model().is_some();
        let waiting: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, job)| asks(job) && job.waits())
            .map(|(&id, _)| id)
            .collect();
        for id in waiting {
            match self.availability(id) {
                Availability::Now => {}
                Availability::Later => self.coverage.hit("model: may yet come"),
                Availability::Nothing => {
                    let job = &self.jobs[&id];
                    self.coverage.hit(match (job.accepted == now, job.begun) {
                        (true, _) => "model: no worker has it",
                        (false, 0) => "model: gone while a request waited",
                        (false, _) => "model: gone while a request ran",
                    });
                    self.has_no_device(now, id);
                }
            }
        }
    }

    fn availability(&self, id: JobId) -> Availability {
        let job = &self.jobs[&id];
        let request = &job.request;
        let devices = self.open_devices(job.group);
        devices.map(|device| device.availability(request)).max().unwrap_or(Availability::Nothing)
    }

    /// Devices that are in service for a group.
    fn open_devices(&self, group: Group) -> impl Iterator<Item = &Device> {
        let own = self.devices.iter().filter(move |(at, _)| at.group == group);
        let here = own.filter(|(at, _)| !self.is_given_away(at.device));
        here.map(|(_, device)| device).filter(|device| device.service == Service::Open)
    }

    /// Whether a process that will serve a group has not reported yet, or probes its device.
    pub(super) fn awaits_workers(&self, group: Group) -> bool {
        let comes = |device: &Device| {
            let slots = &device.slots;
            !slots.iter().any(Slot::serves) && slots.iter().any(Slot::may_get_one)
        };
        let some_comes = self.open_devices(group).any(comes);
        let mut own = self.devices.iter().filter(|(at, _)| at.group == group);
        let probes = own.any(|(_, device)| device.service == Service::Probing);
        self.starts_workers(group) && (probes || some_comes)
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

    /// Notes which workers were skipped because they lack the model of the first attempt.
    pub(super) fn note_workers_without_the_model(
        &mut self,
        now: Timestamp,
        lead: AttemptId,
        second: bool,
    ) {
        let request = &self.jobs[&lead.job].request;
        let others = || {
            let own = self.slots_of(self.jobs[&lead.job].group);
            own.filter(|(_, slot)| !slot.has_for(request))
        };
        let idles = others().any(|(_, slot)| self.is_idle(now, slot));
        let has_capacity = others().any(|(at, _)| self.has_capacity(now, at));
        if idles && second {
            self.coverage.hit("dispatch: beside other attempts, for idle workers lack the model");
        } else if idles {
            self.coverage.hit("dispatch: not to an idle worker that lacks the model");
        } else if has_capacity {
            self.coverage.hit("dispatch: not to a worker with capacity that lacks the model");
        }
    }
}
