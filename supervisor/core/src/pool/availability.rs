//! Which worker has which model, and which jobs wait for a model that no worker has.

use gridpool_protocol::ids::{Group, JobId, WorkerId};
use gridpool_protocol::receipt::AttemptOutcome;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};

use super::Pool;
use super::job::Job;
use super::process::Process;
use super::service::ServiceState;
use super::slots::Slot;
use crate::event::Timestamp;

/// The models that a slot has now or may have soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// Those that its process has reported, as of this report.
    Models(WorkerId, u32),
    /// Nothing.
    None,
    /// Not known: the process that will serve has not reported yet.
    Unknown,
}

impl Slot {
    /// Whether its process has the model that the job needs.
    pub(super) fn has_for(&self, job: &Job) -> bool {
        let Some(model) = job.request.work.model() else { return true };
        self.process().is_some_and(|process| process.models.contains(model))
    }

    /// The same, or the process has not reported yet.
    pub(super) fn may_have_for(&self, job: &Job) -> bool {
        !self.process().is_some_and(Process::was_ready) || self.has_for(job)
    }
}

impl Pool {
    pub(super) fn on_models(&mut self, now: Timestamp, worker: WorkerId, models: &[ModelInfo]) {
        let Some(index) = self.hear(now, worker) else { return };
        let ready = models.iter().filter(|model| model.state == ModelState::Ready);
        let process = self.slots.process_mut(index);
        process.models = ready.map(|model| model.name.as_str().into()).collect();
        process.model_reports += 1;
    }

    /// Ends the jobs whose model no slot has or may soon have.
    pub(super) fn give_up_if_unavailable(&mut self, now: Timestamp, group: Group) {
        let newcomers = std::mem::take(&mut self.groups[group].newcomers);
        if self.groups[group].queue.is_empty() {
            return;
        }
        // If no slot changed, older jobs still have a worker.
        let in_doubt = match self.availability_changes(group) {
            false => newcomers,
            true => self.groups[group].queue.all_jobs().into_iter().collect(),
        };
        for id in in_doubt {
            self.give_up_unless_available(now, id);
        }
    }

    /// Updates the availability of a group's slots; returns whether it changed.
    fn availability_changes(&mut self, group: Group) -> bool {
        let mut before = std::mem::take(&mut self.groups[group].availability);
        let now = || self.slots.of_group(group).map(|(_, slot)| self.availability(slot));
        let is_news = !now().eq(before.iter().copied());
        if is_news {
            before.clear();
            before.extend(now());
        }
        self.groups[group].availability = before;
        is_news
    }

    /// Ends one job whose model no slot has or may soon have.
    fn give_up_unless_available(&mut self, now: Timestamp, id: JobId) {
        let Some(job) = self.jobs.get(id).filter(|job| job.waits()) else { return };
        let Some(model) = job.request.work.model().cloned() else { return };
        let may_have = |slot: &Slot| match self.availability(slot) {
            Availability::Models(..) => slot.has_for(job),
            Availability::None => false,
            Availability::Unknown => true,
        };
        if self.slots.of_group(job.group).any(|(_, slot)| may_have(slot)) {
            return;
        }
        self.end_early(now, id, AttemptOutcome::Preempted);
        let reason =
            format!("no device in service has the model `{model}`; `gridpool models` says why");
        self.finish_without_device(now, id, reason);
    }

    fn availability(&self, slot: &Slot) -> Availability {
        let is_open = self.devices.at(slot.device).service(slot.group).is_open()
            && !self.is_given_away(slot.device);
        if self.groups[slot.group].has_nothing_to_do() || !is_open || !slot.may_serve() {
            return Availability::None;
        }
        match slot.process() {
            Some(process) if process.serves() => {
                Availability::Models(process.worker, process.model_reports)
            }
            // Only the models of the active worker count.
            _ if self.slots.is_served(slot.device, slot.group) => Availability::None,
            Some(_) | None => Availability::Unknown,
        }
    }

    /// Whether a device will soon get an active worker, or is being probed.
    pub(crate) fn awaits_workers(&self, group: Group) -> bool {
        let is_probed = |slot: &Slot| {
            self.devices.at(slot.device).service(group).state() == ServiceState::Probing
        };
        let is_unknown = |slot: &Slot| self.availability(slot) == Availability::Unknown;
        let starts = !self.groups[group].has_nothing_to_do();
        starts && self.slots.of_group(group).any(|(_, slot)| is_unknown(slot) || is_probed(slot))
    }
}
