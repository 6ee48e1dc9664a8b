//! Which worker has which model, who waits for a model that nobody has, and workers of a role that has
//! nothing to do.

use std::collections::BTreeSet;
use std::sync::Arc;

use gridpool_protocol::ids::{JobId, WorkerId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::event::Timestamp;
use super::job::Job;
use super::meters::End;
use super::seats::find;
use super::slot::{Slot, SlotState};
use super::{Phase, Pool};

/// What may be hoped for of one seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prospect {
    /// A process that has these models.
    Models(WorkerId, BTreeSet<Arc<str>>),
    /// Nothing.
    None,
    /// A process that has not said yet what it has.
    Unknown,
}

impl Slot {
    /// Whether its process has what the job asks for.
    pub(super) fn has_for(&self, job: &Job) -> bool {
        job.request.model.as_ref().is_none_or(|model| self.offers.contains(model))
    }

    /// The same of a process that may not have said so yet.
    pub(super) fn may_have_for(&self, job: &Job) -> bool {
        !self.was_ready || self.has_for(job)
    }
}

impl Pool {
    pub(super) fn on_offered(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        models: BTreeSet<Arc<str>>,
    ) {
        if let Some(index) = self.current_slot(now, worker) {
            self.slots[index].offers = models;
        }
    }

    /// A worker begins to change its models, or has done so.
    pub(super) fn on_ordered(&mut self, now: Timestamp, worker: WorkerId, is_changing: bool) {
        if let Some(index) = self.current_slot(now, worker) {
            self.slots[index].is_changing = is_changing;
        }
    }

    /// Ends the jobs that wait for a model which no worker has or may yet turn out to have.
    pub(super) fn give_up_if_nobody_offers(&mut self, now: Timestamp) {
        let newcomers = std::mem::take(&mut self.newcomers);
        if self.window == 1 {
            return;
        }
        let outlook: Vec<_> = self.slots.iter().map(|slot| self.prospect(slot)).collect();
        // Of those who have waited it was seen before that they may hope.
        let in_doubt = match outlook == self.outlook {
            true => newcomers,
            false => self.queue.all_jobs().into_iter().collect(),
        };
        self.outlook = outlook;
        for id in in_doubt {
            self.give_up_unless_offered(now, id);
        }
    }

    /// The same of one job.
    fn give_up_unless_offered(&mut self, now: Timestamp, id: JobId) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.waits()) else { return };
        let Some(model) = job.request.model.clone() else { return };
        let has = |prospect: &Prospect| match prospect {
            Prospect::Models(_, models) => models.contains(&model),
            Prospect::None => false,
            Prospect::Unknown => true,
        };
        if self.slots.iter().any(|slot| has(&self.prospect(slot))) {
            return;
        }
        self.end_early(now, id, AttemptOutcome::Preempted);
        let reason =
            format!("no device in service has the model `{model}`; `gridpool models` says why");
        self.finish(now, id, Verdict::DeviceLost, reason);
    }

    pub(super) fn prospect(&self, slot: &Slot) -> Prospect {
        if self.has_nothing_to_do() || !self.device(slot.device).is_open() {
            return Prospect::None;
        }
        match slot.state {
            SlotState::Busy { .. } | SlotState::Ready { .. } | SlotState::Standby => {
                Prospect::Models(slot.worker(), slot.offers.clone())
            }
            SlotState::Killed { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopping { .. }
            | SlotState::Waiting { .. } => Prospect::Unknown,
            SlotState::Stopped | SlotState::Unkillable { .. } => Prospect::None,
        }
    }

    /// Whether there is nothing that a worker could do, so that none is started.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        match self.phase {
            Phase::Draining { .. } | Phase::Serving => false,
            Phase::Leaving | Phase::Left => true,
            Phase::Resting => self.jobs.is_empty(),
        }
    }

    /// Workers are needed again: whoever was asked to end is replaced when it has.
    pub(super) fn wake(&mut self) {
        if self.phase == Phase::Resting {
            self.phase = Phase::Serving;
        }
    }

    /// Keeps no worker while there is nothing to do.
    pub(super) fn rest(&mut self, now: Timestamp) {
        if self.phase != Phase::Resting || !self.jobs.is_empty() {
            return;
        }
        for slot in &mut self.slots {
            // Whoever comes next takes nobody's place.
            slot.starts = 0;
            slot.end = End::default();
            if matches!(slot.state, SlotState::Starting { .. }) {
                find(&mut self.devices, slot.device).call_off(now);
            }
        }
        self.stop_workers(now);
    }
}
