//! What is always true between events: no timeout is overdue, every slot that is due has a process, every
//! idle worker has a job if one may go there, no job of a principal without a budget of kills begins, and a
//! pool that drains ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::ids::Group;
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};
use gridpool_protocol::status::Counters;

use super::Pool;
use super::groups::Phase;
use super::kill::{Breach, Freed, KillCause};
use super::process::{Process, Stage};
use super::service::ServiceChange;
use super::slots::Slot;
use crate::action::{Action, Note};
use crate::config::PoolConfig;
use crate::event::Timestamp;

/// A second request to end within this time of the first is the first, sent again.
const END_AGAIN_MIN: Duration = Duration::from_secs(1);

impl Pool {
    /// Extends the timeouts of workers by the time that the supervisor was not running.
    pub(crate) fn excuse(&mut self, now: Timestamp, gap: Duration) {
        self.touch_all();
        self.slots.iter_mut().for_each(|slot| slot.excuse(now, gap));
    }

    /// When time alone changes something.
    pub(crate) fn deadline(&mut self) -> Option<Timestamp> {
        let job = self.jobs.next_deadline().map(|(at, _)| at);
        let vacates = [self.vacates_at];
        [self.next_of_groups(), job].into_iter().chain(vacates).flatten().min()
    }

    /// When time alone changes something in a group, if its jobs have no deadlines.
    pub(super) fn deadline_of(&self, group: Group) -> Option<Timestamp> {
        let own = || self.slots.of_group(group);
        let slots = own().filter_map(|(_, slot)| slot.wakes_at(&self.config));
        let feeds = own().filter_map(|(_, slot)| self.feed_timeout_of(slot));
        let starts = own().filter_map(|(index, _)| self.may_start_at(index));
        let drain = self.drain_until().filter(|_| !self.groups[group].is_leaving());
        let (state, kills_max) = (&self.groups[group], self.config.kills_max);
        let back = |own| state.kills.back_at(Timestamp::default(), own, kills_max);
        let back = state.queue.held().filter_map(back);
        slots.chain(feeds).chain(starts).chain(drain).chain(back).min()
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.expire_jobs(now);
        self.touch_due(now);
        self.for_each_group(|pool, group| {
            if pool.is_touched(group) {
                pool.expire_slots(now, group);
            }
        });
        self.vacate_unwanted(now);
        while let Some(group) = self.take_touched() {
            self.advance_group(now, group);
        }
        self.free_vacated();
        self.vacates_at = self.vacates_at(now);
    }

    fn advance_group(&mut self, now: Timestamp, group: Group) {
        self.give_up_if_no_device(now, group);
        self.give_up_if_unavailable(now, group);
        self.end_drain(now, group);
        // Those that the drain has not ended.
        self.stop_vacated(now, group);
        self.start_workers(now, group);
        let state = &mut self.groups[group];
        state.queue.hold(&state.kills.all_spent(now, self.config.kills_max));
        self.dispatch(now, group);
        // If it kills one, the group is looked at again: a standby may have taken over.
        if !self.expire_feeds(now, group) {
            self.make_room(now, group);
            self.groups[group].note_waiting();
        }
    }

    /// Reports the results of an event that was handled completely.
    pub(crate) fn report(&mut self, now: Timestamp) {
        self.complete_death_report(now);
        if std::mem::take(&mut self.services_changed) {
            self.note_services(now);
        }
    }

    fn expire_jobs(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.jobs.next_deadline() {
            if at > now {
                return;
            }
            self.end_early(now, id, AttemptOutcome::Deadline);
            self.finish(now, id, Verdict::Deadline, "its deadline passed".to_owned());
        }
    }

    fn expire_slots(&mut self, now: Timestamp, group: Group) {
        for index in self.slots.indexes(group) {
            let slot = &mut self.slots[index];
            if slot.wakes_at(&self.config).is_none_or(|at| at > now) {
                continue;
            }
            let Some(process) = slot.process() else {
                slot.reclaimed();
                continue;
            };
            let cause = match process.stage() {
                Stage::Busy(_) | Stage::Ready { .. } | Stage::Standby | Stage::Starting { .. }
                    if process.lives_on(now) =>
                {
                    KillCause::Breach(Breach::ClosedChannel)
                }
                Stage::Starting { .. } if !process.is_late(now) => KillCause::Mute,
                Stage::Ready { .. } | Stage::Standby | Stage::Starting { .. } => KillCause::Hang,
                Stage::Busy(outstanding) => match outstanding.free_at() {
                    Some((at, why)) if at <= now => {
                        let PoolConfig { kills_max, kill_refill, .. } = self.config;
                        for principal in outstanding.overdue(now) {
                            let kills = &mut self.groups[group].kills;
                            kills.spend(now, principal, kills_max, kill_refill);
                        }
                        KillCause::FreeDevice(Freed::Ended(why))
                    }
                    Some(_) | None => KillCause::Hang,
                },
                Stage::Stopping { .. } => KillCause::Leaving,
                Stage::Killed(_) => {
                    self.give_up_process(now, index);
                    continue;
                }
            };
            self.kill(now, index, cause);
        }
    }

    fn give_up_if_no_device(&mut self, now: Timestamp, group: Group) {
        if self.groups[group].queue.is_empty() || self.devices_that_may_serve(group) > 0 {
            return;
        }
        let reason = format!("no device is left: {}", self.why_no_device(now, group));
        for id in self.groups[group].queue.all_jobs() {
            self.end_early(now, id, AttemptOutcome::Preempted);
            self.finish_without_device(now, id, reason.clone());
        }
    }

    /// Why no device serves a group: the state of each. A fault that several devices have appears once.
    pub(crate) fn why_no_device(&self, now: Timestamp, group: Group) -> String {
        let mut seen = BTreeSet::new();
        let mut why = Vec::new();
        for device in self.devices.iter().filter(|device| self.slots.are_on(device.id, group)) {
            let service = device.service(group);
            let is_repeated = !seen.insert(service.unnamed_fault(device.id));
            why.push(service.why_out(now, (device.id, group.role()), is_repeated));
        }
        why.join("; ")
    }

    /// Finishes the accepted jobs, then stops.
    pub(crate) fn drain(&mut self, now: Timestamp) {
        self.count_before_end();
        self.draining_since.get_or_insert(now);
    }

    /// An end is asked for by a signal: a drain, and later a stop. What sends a signal may send it twice. A replaced
    /// pool drains already, and has not been asked.
    pub(crate) fn end(&mut self, now: Timestamp) {
        let drains = self.draining_since.filter(|_| !self.is_replaced());
        match self.end_asked.or(drains) {
            Some(since) if now.since(since) < END_AGAIN_MIN => {}
            None if self.is_replaced() || !self.is_draining() => {
                self.end_asked = Some(now);
                self.drain(now);
            }
            Some(_) | None => {
                self.end_asked_again = true;
                self.stop(now);
            }
        }
    }

    fn drain_until(&self) -> Option<Timestamp> {
        self.draining_since.map(|since| since.after(self.config.drain_timeout))
    }

    fn count_before_end(&mut self) {
        if self.before_end.is_none() {
            self.before_end = Some(self.counters());
        }
    }

    /// The workers of a group leave when it has no jobs, or when the drain has taken too long.
    fn end_drain(&mut self, now: Timestamp, group: Group) {
        let Some(until) = self.drain_until().filter(|_| !self.groups[group].is_leaving()) else {
            return self.leave_if_gone(group);
        };
        if !self.groups[group].has_jobs() && !self.awaits_submissions() {
            self.groups[group].phase = Phase::Leaving;
            self.stop_workers(now, group);
            self.close_slots(group);
        } else if now >= until {
            self.end_group(now, group);
        }
        self.leave_if_gone(group);
    }

    fn leave_if_gone(&mut self, group: Group) {
        let is_gone = |slot: &Slot| slot.process().is_none_or(Process::is_unkillable);
        if self.groups[group].phase != Phase::Leaving
            || !self.slots.of_group(group).all(|(_, slot)| is_gone(slot))
        {
            return;
        }
        self.groups[group].phase = Phase::Left;
        if self.groups.iter().all(|(_, state)| state.phase == Phase::Left) {
            let (before, now) = (self.before_end.unwrap_or_default(), self.counters());
            let verdicts = now.verdicts().into_iter().zip(before.verdicts());
            let given = verdicts.map(|((verdict, now), (_, before))| (verdict, now - before));
            let verdicts = given.filter(|&(_, count)| count > 0).collect();
            self.act(Action::Leave { verdicts });
        }
    }

    /// Ends now: every job gets its verdict, every worker is killed.
    pub(crate) fn stop(&mut self, now: Timestamp) {
        self.count_before_end();
        self.for_each_group(|pool, group| pool.end_group(now, group));
    }

    fn end_group(&mut self, now: Timestamp, group: Group) {
        if self.groups[group].phase == Phase::Left {
            return;
        }
        self.groups[group].phase = Phase::Leaving;
        for id in self.jobs.ids() {
            if self.jobs[id].group == group {
                self.end_early(now, id, AttemptOutcome::Cancelled);
                let reason = "the pool stopped before it was finished".to_owned();
                match self.is_replaced() && self.jobs[id].request.idempotent {
                    true => self.give_back(now, id, reason),
                    false => self.finish(now, id, Verdict::Cancelled, reason),
                }
            }
        }
        for index in self.slots.indexes(group) {
            let slot = &self.slots[index];
            let is_killed = |process: &Process| process.killed().is_some();
            if slot.process().is_some_and(|process| !is_killed(process)) {
                self.kill(now, index, KillCause::Leaving);
            }
        }
        self.close_slots(group);
    }

    fn close_slots(&mut self, group: Group) {
        self.slots.of_group_mut(group).for_each(Slot::close);
    }

    /// Asks every worker of a group to end: none has a job.
    pub(super) fn stop_workers(&mut self, now: Timestamp, group: Group) {
        self.stop_those(now, group, |_| true);
    }

    /// The same in some slots.
    pub(super) fn stop_those(
        &mut self,
        now: Timestamp,
        group: Group,
        which: impl Fn(&Slot) -> bool,
    ) {
        let kill_at = now.after(self.config.kill_timeout);
        for slot in self.slots.of_group_mut(group).filter(|slot| which(slot)) {
            if let Some(process) = slot.process_mut().filter(|process| !process.is_ending()) {
                process.stop(kill_at);
                self.ended.push(process.worker);
                self.actions.push_back(Action::Stop { worker: process.worker });
            }
        }
    }

    /// Logs which services have gone out and which are back, those of a resting group when it wakes; reports
    /// a pool in which no worker can start.
    fn note_services(&mut self, now: Timestamp) {
        let groups = &self.groups;
        for device in self.devices.iter_mut() {
            let id = device.id;
            let serves = |&(group, _): &(Group, _)| groups[group].phase == Phase::Serving;
            for (group, service) in device.services_mut().filter(serves) {
                let note = match service.take_change() {
                    Some(ServiceChange::Back) => {
                        Note::DeviceBack { device: id, group: Arc::clone(&groups[group].name) }
                    }
                    Some(ServiceChange::Out { probe_at }) => Note::DeviceOut {
                        device: id,
                        group: Arc::clone(&groups[group].name),
                        why: service.last_fault.clone(),
                        rule: service.rule(),
                        probed_in: probe_at.map(|at| at.since(now)),
                    },
                    None => continue,
                };
                self.actions.push_back(Action::Note(note));
            }
        }
        let was_misconfigured = self.is_misconfigured;
        let tried = || self.devices.iter().filter(|device| !device.is_held());
        self.is_misconfigured =
            tried().next().is_some() && tried().all(|d| d.service(Group::Grid).is_misconfigured());
        if self.is_misconfigured && !was_misconfigured {
            let faults = tried().map(|d| d.service(Group::Grid).last_fault.clone());
            let faults = faults.collect();
            self.act(Action::Misconfigured { faults });
        }
    }

    /// Sums since the start, over all groups.
    pub(crate) fn counters(&self) -> Counters {
        let all = self.groups.iter().map(|(group, _)| self.counters_of(group));
        all.fold(Counters::default(), Counters::plus)
    }

    /// The same for one group.
    pub(super) fn counters_of(&self, group: Group) -> Counters {
        let quarantines =
            self.devices.iter().map(|device| device.service(group).quarantines()).sum();
        Counters { quarantines, ..self.groups[group].counters }
    }
}
