//! A slot of a device and group: its one process, and what time alone does to that process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gridpool_core::action::KillReason;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, DeviceId, Group, WorkerId};
use gridpool_protocol::receipt::AttemptOutcome;

use super::devices::Device;
use super::losses::Loss;
use super::outstanding::{Dispatch, Outstanding};
use super::{Model, Phase};

/// Why the pool killed a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is ending by itself.
    Beacon,
    /// It closed its channel and did not end.
    Channel,
    /// It failed a command, or was late with one, after so long.
    Command { after: Option<Duration> },
    /// The driver reported a fault of its device; `true` if its job may be the cause.
    Driver { evidence: bool },
    /// To free its device.
    FreeDevice(Freed),
    /// It was silent, or not READY in time.
    Hang,
    /// It was silent before it was READY.
    Mute,
    /// The pool ends.
    Leaving,
}

/// Why a device is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// It went out of service for a fault of another process.
    DeviceOut,
    /// A job that it ran had its verdict already.
    Ended,
    /// Others waited too long behind its dispatch.
    OthersWait,
}

/// A device and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Station {
    pub(super) group: Group,
    pub(super) device: DeviceId,
}

impl Station {
    pub(super) fn of(worker: WorkerId) -> Self {
        Self { group: worker.group, device: worker.device }
    }
}

/// One slot of a device and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotId {
    pub(super) station: Station,
    pub(super) number: usize,
}

impl SlotId {
    pub(super) fn device(self) -> DeviceId {
        self.station.device
    }

    pub(super) fn group(self) -> Group {
        self.station.group
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No process; the next may start from this time on, if the device's other processes allow it.
    Absent {
        not_before: Timestamp,
    },
    Busy {
        outstanding: Outstanding,
    },
    Killed {
        give_up_at: Timestamp,
        /// What it may still answer.
        outstanding: Outstanding,
        why: Why,
    },
    Ready,
    /// The process is gone, but its device memory is not free yet.
    Reclaiming {
        until: Timestamp,
        not_before: Timestamp,
    },
    Standby,
    Starting {
        by: Timestamp,
    },
    Stopping {
        by: Timestamp,
    },
    Unkillable {
        why: Why,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Absent { not_before: Timestamp::default() }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    pub(super) state: State,
    /// The generation of its latest process.
    pub(super) generation: u32,
    /// How many processes it has had.
    pub(super) processes: u32,
    pub(super) heard: Timestamp,
    /// When it must have ended, since it has closed its channel.
    pub(super) end_by: Option<Timestamp>,
    /// The models that its process reported last.
    pub(super) offers: BTreeSet<Arc<str>>,
    /// Its process is changing its models.
    pub(super) is_changing: bool,
    pub(super) jobs_done: u64,
    pub(super) was_suspect: bool,
    /// Whether its process was ever READY, ever served, ever answered.
    pub(super) was_ready: bool,
    pub(super) served: bool,
    pub(super) worked: bool,
    /// How many attempts it answered.
    pub(super) answered: u64,
    /// Why it was killed, as the core reported.
    pub(super) reason: Option<KillReason>,
    /// Restarts that count, since the last answer.
    pub(super) restarts: u32,
    /// When its process was started and killed, how long it took to start, and how long the last one took
    /// to end.
    pub(super) started: Timestamp,
    pub(super) doomed: Option<Timestamp>,
    pub(super) took_start: Option<Duration>,
    pub(super) took_end: Option<Duration>,
}

impl Slot {
    pub(super) fn has_process(&self) -> bool {
        self.next_start().is_none()
    }

    /// The earliest start of the next process, if it has none.
    pub(super) fn next_start(&self) -> Option<Timestamp> {
        match self.state {
            State::Absent { not_before } | State::Reclaiming { not_before, .. } => Some(not_before),
            State::Busy { .. }
            | State::Killed { .. }
            | State::Ready
            | State::Standby
            | State::Starting { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => None,
        }
    }

    /// Whether its process is the active worker.
    pub(super) fn serves(&self) -> bool {
        matches!(self.state, State::Busy { .. } | State::Ready)
    }

    pub(super) fn is_unkillable(&self) -> bool {
        matches!(self.state, State::Unkillable { .. })
    }

    /// Its outstanding attempts.
    pub(super) fn outstanding(&self) -> &[Dispatch] {
        match &self.state {
            State::Busy { outstanding } | State::Killed { outstanding, .. } => &outstanding.0,
            State::Absent { .. }
            | State::Ready
            | State::Reclaiming { .. }
            | State::Standby
            | State::Starting { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => &[],
        }
    }

    /// The job of an outstanding attempt has its verdict.
    pub(super) fn frees(&mut self, attempt: AttemptId, at: Timestamp, outcome: AttemptOutcome) {
        if let State::Busy { outstanding } = &mut self.state {
            let own = outstanding.all().filter(|sent| sent.attempt == attempt);
            own.for_each(|sent| sent.free_at = Some((at, outcome)));
        }
    }

    /// The supervisor did not run for `gap`: extends its timeouts.
    pub(super) fn excuse(&mut self, now: Timestamp, gap: Duration) {
        self.heard = now;
        self.end_by = self.end_by.map(|at| at.after(gap));
        match &mut self.state {
            State::Killed { give_up_at: at, .. }
            | State::Reclaiming { until: at, .. }
            | State::Starting { by: at }
            | State::Stopping { by: at } => *at = at.after(gap),
            State::Busy { outstanding } => outstanding.excuse(gap),
            State::Absent { .. } | State::Ready | State::Standby | State::Unkillable { .. } => {}
        }
    }
}

impl Model {
    pub(super) fn slot(&self, at: SlotId) -> &Slot {
        &self.devices[&at.station].slots[at.number]
    }

    pub(super) fn slot_mut(&mut self, at: SlotId) -> &mut Slot {
        &mut self.device_mut(at.station).slots[at.number]
    }

    pub(super) fn device_mut(&mut self, at: Station) -> &mut Device {
        self.devices.get_mut(&at).expect("devices stay")
    }

    /// Every slot, in the order in which the core handles them.
    pub(super) fn slots(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        let of = |(&station, all): (&Station, _)| {
            let all: &Vec<Slot> = all;
            let named = all.iter().enumerate();
            named.map(move |(number, slot)| (SlotId { station, number }, slot))
        };
        self.devices.iter().map(|(id, device)| (id, &device.slots)).flat_map(of)
    }

    /// The slots of a group.
    pub(super) fn slots_of(&self, group: Group) -> impl Iterator<Item = (SlotId, &Slot)> {
        self.slots().filter(move |(at, _)| at.group() == group)
    }

    pub(super) fn slot_ids(&self) -> Vec<SlotId> {
        self.slots().map(|(at, _)| at).collect()
    }

    /// The latest process of a slot.
    pub(super) fn worker(&self, at: SlotId) -> WorkerId {
        WorkerId { device: at.device(), group: at.group(), generation: self.slot(at).generation }
    }

    /// The slot of a process, until the next one takes it.
    pub(super) fn slot_of(&self, worker: WorkerId) -> Option<SlotId> {
        let mut slots = self.slots();
        let (at, _) = slots.find(|(at, slot)| {
            at.station == Station::of(worker) && slot.generation == worker.generation
        })?;
        Some(at)
    }

    /// Whether the pool replaces processes of a group.
    pub(super) fn is_working(&self, group: Group) -> bool {
        matches!(self.group(group).phase, Phase::Resting | Phase::Serving)
    }

    /// Whether the pool starts processes of a group.
    pub(super) fn starts_workers(&self, group: Group) -> bool {
        self.is_working(group) && !self.has_nothing_to_do(group)
    }

    /// Timeouts: kills, unkillable processes, and memory that is not freed. Starts come after all of these.
    pub(super) fn slot_is_due(&mut self, now: Timestamp, at: SlotId) {
        if self.slot_wakes_at(at).is_none_or(|due| due > now) {
            return;
        }
        let lives_on = self.slot(at).end_by.is_some_and(|end_by| end_by <= now);
        match self.slot(at).state.clone() {
            State::Busy { .. } | State::Ready | State::Standby | State::Starting { .. }
                if lives_on =>
            {
                self.coverage.hit("kill: closed its channel and did not end");
                self.kill(now, at, Why::Channel);
            }
            State::Busy { outstanding } if outstanding.free_at().is_some_and(|due| due <= now) => {
                let front = outstanding.front();
                let is_late = self.due.verdicts.keys().any(|&job| front.has(job));
                self.coverage.hit(if is_late { "kill: late job" } else { "kill: grace over" });
                self.kills_are_charged(now, at.group(), front);
                self.kill(now, at, Why::FreeDevice(Freed::Ended));
            }
            State::Busy { .. } | State::Ready => {
                self.coverage.hit("kill: hang");
                self.kill(now, at, Why::Hang);
            }
            State::Killed { outstanding, why, .. } => self.give_up(now, at, outstanding, why),
            State::Reclaiming { not_before, .. } => {
                self.coverage.hit("reclaim: not in time");
                self.slot_mut(at).state = State::Absent { not_before };
            }
            State::Standby => {
                self.coverage.hit("kill: silent standby");
                self.kill(now, at, Why::Hang);
            }
            State::Starting { by } if by > now => {
                self.coverage.hit("kill: silent while it started");
                self.kill(now, at, Why::Mute);
            }
            State::Starting { .. } => {
                self.coverage.hit("kill: not READY in time");
                self.kill(now, at, Why::Hang);
            }
            State::Stopping { .. } => {
                self.coverage.hit("kill: stop ignored");
                self.kill(now, at, Why::Leaving);
            }
            State::Absent { .. } | State::Unkillable { .. } => {}
        }
    }

    /// Fills every slot that is due, one after the other, if its siblings allow it; probes devices that are
    /// due.
    pub(super) fn processes_start(&mut self, now: Timestamp) {
        for at in self.slot_ids() {
            if !self.starts_workers(at.group()) {
                continue;
            }
            if self.is_away(at.device()) {
                self.coverage.hit("spawn: another pool has the device");
                continue;
            }
            if at.number == 0 {
                self.is_tried(now, at);
            }
            let State::Absent { not_before } = self.slot(at).state else { continue };
            if not_before > now {
                continue;
            }
            let device = &self.devices[&at.station];
            match device.held_back(at.number) {
                Some(why) => self.coverage.hit(why),
                None => {
                    if device.sibling_serves(at.number) {
                        self.coverage.hit("spawn: beside the active worker");
                    }
                    self.spawn(now, at);
                }
            }
        }
    }

    pub(super) fn spawn(&mut self, now: Timestamp, at: SlotId) {
        let by = now.after(self.group(at.group()).limits.ready_timeout);
        let facts = self.facts.get_mut(&at.device()).expect("devices stay");
        facts.generation += 1;
        let generation = facts.generation;
        let device = self.devices.get_mut(&at.station).expect("devices stay");
        device.generation = generation;
        let slot = &mut device.slots[at.number];
        if slot.restarts > 1 {
            self.coverage.hit("spawn: after a backoff");
        }
        *slot = Slot {
            state: State::Starting { by },
            generation,
            processes: slot.processes + 1,
            heard: now,
            jobs_done: slot.jobs_done,
            restarts: slot.restarts,
            started: now,
            took_end: slot.took_end,
            ..Slot::default()
        };
        self.counters.restarts += u64::from(slot.processes > 1);
        let worker = WorkerId { device: at.device(), group: at.group(), generation };
        self.due.spawns.insert(worker);
    }

    /// SIGKILL. Attempts that may move are queued at once, and a standby takes over.
    pub(super) fn kill(&mut self, now: Timestamp, at: SlotId, why: Why) {
        let give_up_at = now.after(self.config.kill_timeout);
        let worker = self.worker(at);
        let slot = self.slot_mut(at);
        let outstanding = Outstanding(slot.outstanding().to_vec());
        slot.state = State::Killed { give_up_at, outstanding, why };
        slot.doomed = Some(now);
        self.due.kills.insert(worker);
        self.loses(now, worker);
        self.worker_ends(worker);
        if matches!(
            why,
            Why::Beacon
                | Why::Channel
                | Why::Command { .. }
                | Why::Driver { .. }
                | Why::Hang
                | Why::Mute
        ) {
            self.front_is_split(at);
        }
        if why != Why::Leaving {
            self.attempts_move(at, why);
        }
        self.a_standby_takes_over(at.station);
    }

    /// If no process serves the group on the device, the oldest standby takes over.
    pub(super) fn a_standby_takes_over(&mut self, id: Station) {
        if !self.is_working(id.group) {
            return;
        }
        let device = self.devices.get_mut(&id).expect("devices stay");
        if device.slots.iter().any(Slot::serves) {
            return;
        }
        let standbys = device.slots.iter_mut().filter(|slot| slot.state == State::Standby);
        if let Some(first) = standbys.min_by_key(|slot| slot.generation) {
            self.coverage.hit("standby: takes over");
            first.state = State::Ready;
            first.served = true;
        }
    }

    fn give_up(&mut self, now: Timestamp, at: SlotId, outstanding: Outstanding, why: Why) {
        self.coverage.hit("worker: unkillable");
        let worker = self.worker(at);
        self.slot_mut(at).state = State::Unkillable { why };
        let loss = match why {
            Why::Beacon => {
                self.coverage.hit("worker: unkillable after its beacon");
                Loss::Died { evidence: false, from_outside: false }
            }
            Why::Channel | Why::Command { .. } => {
                Loss::Died { evidence: false, from_outside: false }
            }
            Why::Driver { evidence } => Loss::Died { evidence, from_outside: false },
            Why::FreeDevice(_) | Why::Leaving => Loss::of_freed(why),
            Why::Hang | Why::Mute => Loss::Hung { evidence: true },
        };
        let changes = self.slot(at).is_changing;
        let loss = if changes { loss.without_evidence() } else { loss };
        self.outstanding_lost(now, worker, outstanding, loss, true);
        if self.is_working(at.group()) {
            self.is_stuck(now, at.device());
        }
    }
}
