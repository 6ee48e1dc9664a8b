//! How the pool ends: it drains or is stopped, its groups leave one by one, and it counts the verdicts of
//! its last jobs.

use std::time::Duration;

use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::Group;
use gridpool_protocol::receipt::Verdict;

use super::{Broken, GroupModel, Model, Phase, holds};

impl Model {
    pub(super) fn drain_requested(&mut self, now: Timestamp) {
        self.before_end.get_or_insert(self.counters);
        if self.is_draining() {
            return;
        }
        if self.groups.values().any(|state| state.phase == Phase::Resting) {
            self.coverage.hit("drain: of a group that rests");
        }
        self.draining_since = Some(now);
    }

    pub(super) fn drain_until(&self) -> Option<Timestamp> {
        Some(self.draining_since?.after(self.config.drain_timeout))
    }

    pub(super) fn end_requested(&mut self, now: Timestamp) {
        let second = Duration::from_secs(1);
        // A replaced pool drains without having been asked.
        let is_first = self.end_asked.is_none() && self.is_replaced();
        let since = self.end_asked.or(self.draining_since);
        if is_first || !self.is_draining() {
            if is_first {
                self.coverage.hit("end: a replaced pool is asked for the first time");
            }
            self.end_asked = Some(now);
            self.drain_requested(now);
        } else if since.is_some_and(|since| now < since.after(second)) {
            self.coverage.hit("end: asked twice in a second");
        } else {
            self.coverage.hit("end: asked again");
            self.leave(now);
        }
    }

    pub(super) fn stop_requested(&mut self, now: Timestamp) {
        for (group, state) in &self.groups {
            self.coverage.hit(match (state.phase, self.draining_since) {
                (Phase::Leaving, _) => "leaving: told to stop now",
                (Phase::Left, _) => "left: told to stop now",
                (_, Some(_)) => "drain: cut off by a stop",
                (Phase::Resting, _) => "resting: told to stop now",
                (Phase::Serving, _) if *group != Group::Grid => "models: told to stop now",
                (Phase::Serving, _) => "serving: told to stop now",
            });
        }
        self.leave(now);
    }

    pub(super) fn drain_ends(&mut self, now: Timestamp, group: Group) {
        let is_leaving = matches!(self.group(group).phase, Phase::Leaving | Phase::Left);
        if let Some(until) = self.drain_until().filter(|_| !is_leaving) {
            let has_jobs = self.jobs.values().any(|job| job.group == group);
            if !has_jobs && !self.awaits_submissions() {
                self.coverage.hit("drain: finished");
                self.group_mut(group).phase = Phase::Leaving;
                self.stop_all(now, group);
            } else if now >= until {
                self.coverage.hit("drain: cut off by its timeout");
                self.group_leaves(now, group);
            }
        }
        let own = || self.devices.iter().filter(|(at, _)| at.group == group);
        if self.group(group).phase == Phase::Leaving && own().all(|(_, device)| device.is_gone()) {
            if own().any(|(_, device)| device.is_unkillable()) {
                self.coverage.hit("leave: an unkillable worker is left behind");
            }
            self.group_mut(group).phase = Phase::Left;
            self.due.leave = self.has_left();
        }
    }

    /// Everything ends now.
    pub(super) fn leave(&mut self, now: Timestamp) {
        self.before_end.get_or_insert(self.counters);
        self.all_groups().into_iter().for_each(|group| self.group_leaves(now, group));
    }

    pub(super) fn group_leaves(&mut self, now: Timestamp, group: Group) {
        if self.group(group).phase == Phase::Left {
            return;
        }
        self.group_mut(group).phase = Phase::Leaving;
        self.cut_off_all(now, group);
        self.kill_all(now, group);
    }

    pub(super) fn left(&mut self, told: &[(Verdict, u64)]) -> Result<(), Broken> {
        self.coverage.hit("leave");
        self.the_pool_leaves_when_every_process_is_gone_and_not_before()?;
        self.due.leave = false;
        let before = self.before_end.unwrap_or_default().verdicts();
        let now = self.counters.verdicts();
        let given = now.into_iter().zip(before).map(|((v, now), (_, before))| (v, now - before));
        let given: Vec<_> = given.filter(|&(_, count)| count > 0).collect();
        let rule = "a_pool_that_leaves_counts_the_verdicts_of_its_last_jobs";
        holds(rule, told == given, || format!("told {told:?}, given {given:?}"))
    }

    pub(super) fn the_pool_leaves_when_every_process_is_gone_and_not_before(
        &self,
    ) -> Result<(), Broken> {
        let rule = "the_pool_leaves_when_every_process_is_gone_and_not_before";
        holds(rule, self.due.leave, || format!("{:?}", self.devices))
    }

    /// Whether the pool accepts jobs.
    pub(crate) fn is_serving(&self) -> bool {
        !self.is_draining()
    }

    /// Whether it has been told to end.
    pub(super) fn is_draining(&self) -> bool {
        let leaves = |state: &GroupModel| matches!(state.phase, Phase::Leaving | Phase::Left);
        self.draining_since.is_some() || self.groups.values().any(leaves)
    }

    /// Whether the pool has left.
    pub(crate) fn has_left(&self) -> bool {
        self.groups.values().all(|state| state.phase == Phase::Left)
    }
}
