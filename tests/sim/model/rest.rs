//! A group without work: it finishes its jobs, keeps no worker, and starts them all again when it has work.
//! The group for models rests without a model.

use gridpool_core::Core;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::Group;

use super::quarantine::Service;
use super::slots::{Slot, SlotId, State};
use super::{Broken, Model, Phase, holds};

impl Model {
    /// Whether a group has no work: it starts and keeps no worker.
    pub(super) fn has_nothing_to_do(&self, group: Group) -> bool {
        self.group(group).phase == Phase::Resting
    }

    pub(super) fn a_group_that_rests_has_no_job(&self) -> Result<(), Broken> {
        let rule = "a_group_that_rests_has_no_job";
        let job = self.jobs.values().find(|job| self.has_nothing_to_do(job.group));
        holds(rule, job.is_none(), || format!("{job:?}"))
    }

    /// Whether there are no models.
    pub(crate) fn is_resting(&self) -> bool {
        self.models.keys().all(|&group| self.has_nothing_to_do(group))
    }

    /// The last model of a group is gone.
    pub(super) fn group_rests(&mut self, now: Timestamp, group: Group) {
        if self.group(group).phase != Phase::Serving {
            self.coverage.hit("rest: of a group that leaves");
            return;
        }
        self.group_mut(group).phase = Phase::Resting;
        self.rests(now, group);
    }

    /// A group has models again, or will have soon.
    pub(super) fn group_wakes(&mut self, group: Group) {
        if self.group(group).phase != Phase::Resting {
            return;
        }
        let any = |is: fn(&State) -> bool| self.slots_of(group).any(|(_, slot)| is(&slot.state));
        let ends = any(|state| matches!(state, State::Stopping { .. } | State::Killed { .. }));
        let stuck = any(|state| matches!(state, State::Unkillable { .. }));
        let memory = any(|state| matches!(state, State::Reclaiming { .. }));
        self.coverage.hit(match (ends, stuck, memory) {
            (true, ..) => "wake: while processes end",
            (false, true, _) => "wake: beside an unkillable process",
            (false, false, true) => "wake: while memory is not free",
            (false, false, false) => "wake: without a process",
        });
        self.group_mut(group).phase = Phase::Serving;
    }

    /// A group without work keeps no process. The next process does not count as a restart.
    fn rests(&mut self, now: Timestamp, group: Group) {
        let by = now.after(self.config.kill_timeout);
        for at in self.slot_ids().into_iter().filter(|at| at.group() == group) {
            self.slot_mut(at).processes = 0;
            self.coverage.hit(match self.slot(at).state {
                State::Busy { .. } => "rest: ends a worker with withdrawn attempts",
                State::Ready => "rest: ends an idle worker",
                State::Standby => "rest: ends a standby",
                State::Starting { .. } => "rest: ends a starting worker",
                State::Killed { .. } => {
                    self.coverage.hit("rest: a killed process ends");
                    continue;
                }
                State::Unkillable { .. } => {
                    self.coverage.hit("rest: an unkillable process stays");
                    continue;
                }
                State::Absent { .. } | State::Reclaiming { .. } | State::Stopping { .. } => {
                    continue;
                }
            });
            self.is_asked_to_end(at, by);
            let starts = !self.slot(at).was_ready;
            let device = self.device_mut(at.station);
            if starts && device.service == Service::Probing {
                // The probe has no result.
                self.coverage.hit("rest: a probe of a device is called off");
                self.device_mut(at.station).service = Service::Quarantined { probe_at: Some(now) };
            }
        }
    }

    /// A process has ended on request, killed or not, and the pool goes on. It is no evidence against its
    /// device.
    pub(super) fn ended_on_request(&mut self, now: Timestamp, at: SlotId) {
        self.coverage.hit(match self.group(at.group()).phase {
            Phase::Resting => "rest: a process has ended",
            Phase::Serving if self.is_away(at.device()) => "vacate: a worker has ended",
            Phase::Leaving | Phase::Left | Phase::Serving => "wake: the last process has ended",
        });
        let until = now.after(self.config.reclaim_timeout);
        let slot = self.slot_mut(at);
        slot.took_end = slot.doomed.take().map(|doomed| now.since(doomed));
        let state = State::Reclaiming { until, not_before: now };
        match std::mem::replace(&mut slot.state, state) {
            State::Killed { .. } => self.coverage.hit("rest: a process had to be killed"),
            State::Unkillable { .. } => self.coverage.hit("rest: a process has died after all"),
            State::Absent { .. }
            | State::Busy { .. }
            | State::Ready
            | State::Reclaiming { .. }
            | State::Standby
            | State::Starting { .. }
            | State::Stopping { .. } => {}
        }
    }

    pub(super) fn the_core_knows_which_groups_rest(&self, core: &Core) -> Result<(), Broken> {
        let rule = "the_core_knows_which_groups_rest";
        let name = |group: &Group| match self.models.get(group) {
            None => Group::Grid.role().name().to_owned(),
            Some(models) => models.name.clone(),
        };
        let own = self
            .groups
            .iter()
            .map(|(group, state)| (*group, name(group), state.phase != Phase::Resting));
        let told = core.groups().map(|(group, name, works)| (group, name.to_owned(), works));
        let (told, own): (Vec<_>, Vec<_>) = (told.collect(), own.collect());
        holds(rule, told == own, || format!("told {told:?} and not {own:?}"))?;
        Ok(())
    }

    /// Whether only unkillable processes of a group are left.
    fn is_gone(&self, group: Group) -> bool {
        let is_gone = |slot: &Slot| !slot.has_process() || slot.is_unkillable();
        self.slots_of(group).all(|(_, slot)| is_gone(slot))
    }

    pub(crate) fn a_group_that_rests_keeps_no_process(&self) -> Result<(), Broken> {
        let rule = "a_group_that_rests_keeps_no_process";
        let is_gone = self.models.keys().all(|&group| self.is_gone(group));
        holds(rule, is_gone, || format!("{:?}", self.devices))
    }
}
