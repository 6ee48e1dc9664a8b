//! Slots: places for one process each, one or more for every device and group, with what outlives the
//! process. `process` knows what a process is doing; `starts` decides which one serves and when the next
//! starts.
//!
//! ```text
//!             due            READY               dispatch
//!  Waiting ─────────► Starting ─┬─────────► Ready ─────────► Busy
//!     ▲                  │      │ another     ▲ ▲               │
//!     │                  │      ▼ serves      │ └─── answer ────┤
//!     │                  │   Standby ─────────┘                 │
//!     │                  │      │     the active worker is lost │
//!     │                  ├──────┴─────────────┬─────────────────┤
//!     │                  │ the process ends   │ not READY in time, silent, its beacon lost,
//!     │                  ▼                    ▼ its job late or cancelled: SIGKILL
//!     └──────────── Reclaiming ◄─────────── Killed ─── no end in 5 s ───► Unkillable
//!        backoff    its memory                        (ends later: Reclaiming)
//!                   comes back          drain: any of the first row ─ stop ─► Stopping ─► Stopped
//! ```
//! When a group has no work, its processes are stopped as by a drain, and their slots reclaim.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut, Range};
use std::time::Duration;

use gridpool_protocol::ids::{DeviceId, Group, WorkerId};
use gridpool_protocol::metrics::RestartReason;
use gridpool_protocol::status::WorkerState;
use gridpool_protocol::tensor::placement::Placement;

use super::devices::Devices;
use super::meters::End;
use super::per_group::PerGroup;
use super::process::Process;
use crate::config::PoolConfig;
use crate::event::Timestamp;

/// Whose fault a death is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The device or its worker: it ended by itself, or hung.
    Device,
    /// Another process sent SIGKILL. The device is not blamed, but the backoff grows.
    Outside,
    /// The pool killed it to free the device, or its jobs were suspects already: the death does not count.
    Pool,
}

/// Device memory of a process that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reclaiming {
    pub(super) worker: WorkerId,
    /// The next process starts no later, whether or not the memory is free.
    pub(super) until: Timestamp,
}

/// What a slot holds.
#[derive(Clone, Debug)]
enum SlotState {
    /// No process starts here any more.
    Closed,
    /// It has a process, perhaps one that is still starting.
    Occupied(Box<Process>),
    /// The next process is due.
    Vacant {
        due: Timestamp,
        /// The last process has left memory on the device.
        reclaiming: Option<Reclaiming>,
    },
}

/// A place for one process.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) device: DeviceId,
    pub(super) group: Group,
    state: SlotState,
    /// Processes that it has had since its group last had no work.
    starts: u32,
    /// Those of them that replaced another, by what ended that one.
    pub(super) restart_reasons: BTreeMap<RestartReason, u64>,
    pub(super) jobs_done: u64,
    /// Items that its processes gave a result for.
    pub(super) items_done: u64,
    /// Runs of models that were replays of CUDA graphs: each request has its share.
    pub(super) graph_replays: f64,
    pub(super) end: End,
    /// From the spawn of its latest process to READY.
    pub(super) took_start: Option<Duration>,
    /// How long its last process took to end, from the first sign of that.
    took_end: Option<Duration>,
    /// Restarts since it last did work: exponent of the backoff.
    backoff_steps: u32,
}

impl Slot {
    fn new(device: DeviceId, group: Group) -> Self {
        Self {
            device,
            group,
            state: SlotState::Vacant { due: Timestamp::default(), reclaiming: None },
            starts: 0,
            restart_reasons: BTreeMap::new(),
            jobs_done: 0,
            items_done: 0,
            graph_replays: 0.0,
            end: End::default(),
            took_start: None,
            took_end: None,
            backoff_steps: 0,
        }
    }

    /// Its process, if it has one, perhaps one that is still starting.
    pub(super) fn process(&self) -> Option<&Process> {
        if let SlotState::Occupied(process) = &self.state { Some(process) } else { None }
    }

    pub(super) fn process_mut(&mut self) -> Option<&mut Process> {
        if let SlotState::Occupied(process) = &mut self.state { Some(process) } else { None }
    }

    pub(super) fn has_process(&self) -> bool {
        self.process().is_some()
    }

    /// Whether its process is the active worker of its device and group.
    pub(super) fn serves(&self) -> bool {
        self.process().is_some_and(Process::serves)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, SlotState::Closed)
    }

    /// Whether a process of it holds memory of the device, or may.
    pub(super) fn holds_device(&self) -> bool {
        self.has_process() || self.reclaiming().is_some()
    }

    /// Whether it may run a job again.
    pub(super) fn may_serve(&self) -> bool {
        !self.is_closed() && !self.process().is_some_and(Process::is_unkillable)
    }

    /// When the next process is due, if the slot is vacant and waits for no memory.
    pub(super) fn due(&self) -> Option<Timestamp> {
        if let SlotState::Vacant { due, reclaiming: None } = self.state { Some(due) } else { None }
    }

    /// The memory that the slot waits for.
    pub(super) fn reclaiming(&self) -> Option<Reclaiming> {
        if let SlotState::Vacant { reclaiming, .. } = self.state { reclaiming } else { None }
    }

    /// When the next process is due, memory or not.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        if let SlotState::Vacant { due, .. } = self.state { Some(due) } else { None }
    }

    /// The memory is free, or the slot waits no longer.
    pub(super) fn reclaimed(&mut self) {
        if let SlotState::Vacant { reclaiming, .. } = &mut self.state {
            *reclaiming = None;
        }
    }

    pub(super) fn restarts(&self) -> u32 {
        self.starts.saturating_sub(1)
    }

    pub(super) fn took_end(&self) -> Option<Duration> {
        self.took_end
    }

    /// A new process is starting.
    pub(super) fn occupy(&mut self, process: Process) {
        assert!(!self.has_process(), "{} starts in a slot that is taken", process.worker);
        self.starts += 1;
        self.took_start = None;
        self.state = SlotState::Occupied(Box::new(process));
    }

    /// Its process is gone: returns its record. The slot is closed until `open` says when the next one is
    /// due.
    pub(super) fn vacate(&mut self, now: Timestamp) -> Option<Process> {
        let state = std::mem::replace(&mut self.state, SlotState::Closed);
        let SlotState::Occupied(process) = state else {
            self.state = state;
            return None;
        };
        self.took_end = process.killed().map(|killed| now.since(killed.since));
        Some(*process)
    }

    /// The next process is due at `due`.
    pub(super) fn open(&mut self, due: Timestamp, reclaiming: Option<Reclaiming>) {
        self.state = SlotState::Vacant { due, reclaiming };
    }

    /// No process starts here any more.
    pub(super) fn close(&mut self) {
        if !self.has_process() {
            self.state = SlotState::Closed;
        }
    }

    /// Its group has no work: the next process will not count as a restart.
    pub(super) fn rest(&mut self) {
        self.starts = 0;
        self.restart_reasons.clear();
        self.end = End::default();
    }

    /// Its process has answered: the next restart has no backoff.
    pub(super) fn worked(&mut self) {
        self.jobs_done += 1;
        self.backoff_steps = 0;
    }

    /// When time alone changes something here; `starts` knows when a next process may start.
    pub(super) fn wakes_at(&self, config: &PoolConfig) -> Option<Timestamp> {
        match &self.state {
            SlotState::Closed => None,
            SlotState::Occupied(process) => process.wakes_at(config),
            SlotState::Vacant { reclaiming, .. } => reclaiming.map(|memory| memory.until),
        }
    }

    /// The supervisor was not running for about `gap`: extends its timeouts.
    pub(super) fn excuse(&mut self, now: Timestamp, gap: Duration) {
        match &mut self.state {
            SlotState::Closed => {}
            SlotState::Occupied(process) => process.excuse(now, gap),
            SlotState::Vacant { reclaiming, .. } => {
                if let Some(memory) = reclaiming {
                    memory.until = memory.until.after(gap);
                }
            }
        }
    }

    /// How long the next process waits after a death: each time longer, until one has answered.
    pub(super) fn back_off(&mut self, blame: Blame, config: &PoolConfig) -> Duration {
        if blame == Blame::Pool {
            return Duration::ZERO;
        }
        let wait = match self.backoff_steps.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => config
                .backoff_min
                .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(config.backoff_max),
        };
        self.backoff_steps += 1;
        wait
    }

    /// Its state, as `status` shows it.
    pub(super) fn shown_state(&self) -> WorkerState {
        match &self.state {
            SlotState::Closed => WorkerState::Stopped,
            SlotState::Occupied(process) => process.shown_state(),
            SlotState::Vacant { .. } => WorkerState::Backoff,
        }
    }
}

/// All slots: group by group, and within a group device by device.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    all: Vec<Slot>,
    /// Which are a group's.
    ranges: PerGroup<Range<usize>>,
}

impl Slots {
    /// The vacant slots of the workers for programs.
    pub(super) fn new(devices: &Devices, standbys: u32) -> Self {
        let all: Vec<_> = vacant(Group::Grid, devices, standbys).collect();
        Self { ranges: PerGroup::new(0..all.len()), all }
    }

    /// Adds a new group, without slots yet.
    pub(super) fn add(&mut self, group: Group) {
        let end = self.all.len();
        assert_eq!(self.ranges.push(end..end), group, "groups get their slots in order");
    }

    /// Gives a group vacant slots on these devices, in the place of those that it had.
    pub(super) fn place(
        &mut self,
        group: Group,
        devices: &Devices,
        placement: Option<&Placement>,
        standbys: u32,
    ) {
        let old = self.ranges[group].clone();
        let new: Vec<_> = vacant(group, devices, standbys)
            .filter(|slot| placement.is_none_or(|placement| placement.has(slot.device)))
            .collect();
        let end = old.start + new.len();
        for (_, range) in self.ranges.iter_mut().filter(|(_, range)| range.start >= old.end) {
            // Of two ends at one place, the empty range is before or is this group's own.
            *range = range.start - old.len() + new.len()..range.end - old.len() + new.len();
        }
        self.ranges[group] = old.start..end;
        self.all.splice(old, new);
    }

    /// Whether a group may have workers on a device.
    pub(super) fn are_on(&self, device: DeviceId, group: Group) -> bool {
        self.of(device, group).next().is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.all.iter_mut()
    }

    /// The indexes of those of a group.
    pub(super) fn indexes(&self, group: Group) -> Range<usize> {
        self.ranges[group].clone()
    }

    /// Those of a group, with their indexes.
    pub(super) fn of_group(&self, group: Group) -> impl Iterator<Item = (usize, &Slot)> {
        let range = self.indexes(group);
        range.clone().zip(&self.all[range])
    }

    pub(super) fn of_group_mut(&mut self, group: Group) -> impl Iterator<Item = &mut Slot> {
        let range = self.indexes(group);
        self.all[range].iter_mut()
    }

    /// Those of a group on a device.
    pub(super) fn of(&self, device: DeviceId, group: Group) -> impl Iterator<Item = &Slot> {
        self.of_group(group).map(|(_, slot)| slot).filter(move |slot| slot.device == device)
    }

    /// All processes, those that are still starting included.
    pub(super) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.iter().filter_map(Slot::process)
    }

    /// The index of a process's slot.
    pub(super) fn find(&self, worker: WorkerId) -> Option<usize> {
        let is_its = |slot: &Slot| slot.process().is_some_and(|own| own.worker == worker);
        self.of_group(worker.group).find(|(_, slot)| is_its(slot)).map(|(index, _)| index)
    }

    /// The process in a slot that is known to have one.
    pub(super) fn process(&self, index: usize) -> &Process {
        self[index].process().expect("the slot has a process")
    }

    pub(super) fn process_mut(&mut self, index: usize) -> &mut Process {
        self[index].process_mut().expect("the slot has a process")
    }

    /// Whether a worker serves this group on a device.
    pub(super) fn is_served(&self, device: DeviceId, group: Group) -> bool {
        self.of(device, group).any(Slot::serves)
    }

    /// Whether a job that failed on another device should wait for the process of this slot.
    pub(super) fn is_near_service(&self, slot: &Slot) -> bool {
        slot.process().is_some_and(|process| {
            process.is_ready_and_idle()
                || (process.is_starting() && !self.is_served(slot.device, slot.group))
        })
    }
}

impl Index<usize> for Slots {
    type Output = Slot;

    fn index(&self, index: usize) -> &Slot {
        &self.all[index]
    }
}

impl IndexMut<usize> for Slots {
    fn index_mut(&mut self, index: usize) -> &mut Slot {
        &mut self.all[index]
    }
}

/// The slots of a group: for each device one for the worker that serves and one for each standby.
fn vacant(group: Group, devices: &Devices, standbys: u32) -> impl Iterator<Item = Slot> {
    let of_device = move |device| (0..=standbys).map(move |_| Slot::new(device, group));
    devices.iter().flat_map(move |device| of_device(device.id))
}
