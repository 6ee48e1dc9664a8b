//! What belongs to a group: how its workers take work, their queue, and the counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_protocol::ids::{DeviceId, Group, JobId, Role};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{Counters, QueueStatus};
use gridpool_protocol::tensor::placement::Placement;

use super::Pool;
use super::attention::Attention;
use super::availability::Availability;
use super::budget::KillBudget;
use super::devices::Device;
use super::meters::Meters;
use super::queue::Queue;
use crate::config::RoleLimits;
use crate::event::JobRequest;

/// What the workers of a group do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// They run jobs.
    Serving,
    /// The group has no work: it has no jobs, accepts none, and keeps no workers.
    Resting,
    /// No job is left, and none will come; workers are ending.
    Leaving,
    /// All have ended.
    Left,
}

/// One group.
#[derive(Debug)]
pub(super) struct GroupState {
    /// `grid`, or the name of a group of models.
    pub(super) name: Arc<str>,
    /// The devices that it has workers on; all without it.
    placement: Option<Placement>,
    pub(super) limits: RoleLimits,
    pub(super) phase: Phase,
    pub(super) queue: Queue,
    pub(super) counters: Counters,
    pub(super) meters: Meters,
    pub(super) kills: KillBudget,
    /// Jobs without a verdict.
    jobs: usize,
    inline_bytes: u64,
    /// The jobs of each principal that has any.
    live: BTreeMap<Principal, Live>,
    /// The highest value of `inline_bytes`.
    bytes_high: u64,
    /// The most jobs that waited between two events.
    jobs_high: usize,
    /// Jobs queued since the pool last compared the queue with the models of workers.
    pub(super) newcomers: Vec<JobId>,
    /// The models of each slot at that time.
    pub(super) availability: Vec<Availability>,
}

impl Pool {
    /// Adds a group of models with this name, which has workers on these devices, or gives name and devices to a vacant
    /// one. It has work from now on.
    pub(crate) fn add_group(&mut self, name: &str, placement: Option<&Placement>) -> Group {
        let vacant = self.vacant_group(name);
        let group = vacant.unwrap_or_else(|| {
            let group = self.groups.push(GroupState::new(name, self.config.of(Role::Infer)));
            self.attention.push(Attention::default());
            self.devices.iter_mut().for_each(Device::add_service);
            self.slots.add(group);
            group
        });
        let state = &mut self.groups[group];
        (state.name, state.kills) = (name.into(), KillBudget::default());
        state.placement = placement.cloned();
        self.slots.place(group, &self.devices, placement, self.config.standbys);
        for device in self.devices.iter_mut() {
            let is_used = placement.is_none_or(|placement| placement.has(device.id));
            device.renew_service(group, is_used);
        }
        self.wake(group);
        self.services_changed = true;
        group
    }

    /// The devices that a group has workers on; all without it.
    pub(crate) fn placement(&self, group: Group) -> Option<&Placement> {
        self.groups[group].placement.as_ref()
    }

    /// The device memory that the models of a device may be given, if there is a plan.
    pub(crate) fn model_bytes_max(&self) -> Option<u64> {
        let max = self.config.model_bytes_max;
        (max > 0).then_some(max)
    }

    /// How many processes of a group hold its models on a device.
    pub(crate) fn model_processes(&self) -> u32 {
        1 + self.config.standbys
    }

    /// All devices.
    pub(crate) fn device_ids(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.iter().map(|device| device.id)
    }

    /// The devices of these that the pool does not have, and those that it has, in words; `None` if it has all.
    pub(crate) fn why_not_placed(&self, placement: &Placement) -> Option<String> {
        let other = placement.devices().find(|&id| self.devices.find(id).is_none())?;
        let names: Vec<_> = self.devices.iter().map(|device| device.id.to_string()).collect();
        Some(format!("the pool has no device {other}; it has {}", names.join(", ")))
    }

    /// A vacant group of models: the one of this name, or another.
    pub(crate) fn vacant_group(&self, name: &str) -> Option<Group> {
        let own = self.groups.iter().filter(|&(group, _)| self.is_vacant(group));
        let (group, _) = own.min_by_key(|(_, state)| *state.name != *name)?;
        Some(group)
    }

    /// Whether a group of models has no work, no worker and no job left: its next models owe nothing to those that it
    /// had.
    pub(crate) fn is_vacant(&self, group: Group) -> bool {
        let state = &self.groups[group];
        group.role() == Role::Infer
            && state.phase == Phase::Resting
            && !state.has_jobs()
            && self.slots.of_group(group).all(|(_, slot)| !slot.holds_device())
    }

    /// How many groups of models there are, those without work included.
    pub(crate) fn model_groups(&self) -> usize {
        self.groups_of(Role::Infer).count()
    }

    /// Every group, its name, and whether it has work.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Group, &str, bool)> {
        self.groups
            .iter()
            .map(|(group, state)| (group, &*state.name, state.phase != Phase::Resting))
    }

    /// The name of a group.
    pub(crate) fn group_name(&self, group: Group) -> &Arc<str> {
        &self.groups[group].name
    }

    /// Bytes of inline payload of all jobs of a role: they are the supervisor's memory, whatever the group.
    pub(super) fn inline_bytes(&self, role: Role) -> u64 {
        self.groups_of(role).map(|state| state.inline_bytes).sum()
    }

    /// The same of one principal.
    pub(super) fn inline_bytes_of(&self, role: Role, principal: &Principal) -> u64 {
        self.groups_of(role).filter_map(|state| Some(state.live.get(principal)?.inline_bytes)).sum()
    }

    pub(super) fn groups_of(&self, role: Role) -> impl Iterator<Item = &GroupState> {
        self.groups.iter().filter(move |(group, _)| group.role() == role).map(|(_, state)| state)
    }
}

/// Jobs of one principal without a verdict.
#[derive(Debug, Default)]
struct Live {
    jobs: usize,
    cost: u128,
    inline_bytes: u64,
}

impl GroupState {
    pub(super) fn new(name: &str, limits: RoleLimits) -> Self {
        Self {
            name: name.into(),
            placement: None,
            limits,
            phase: Phase::Serving,
            queue: Queue::default(),
            counters: Counters::default(),
            meters: Meters::default(),
            kills: KillBudget::default(),
            jobs: 0,
            inline_bytes: 0,
            live: BTreeMap::new(),
            bytes_high: 0,
            jobs_high: 0,
            newcomers: Vec::new(),
            availability: Vec::new(),
        }
    }

    /// What as many principals as have live jobs would cost together, if each had as much as this one.
    pub(super) fn live_cost(&self, principal: &Principal) -> u128 {
        let own = self.live.get(principal).map_or(0, |live| live.cost);
        own.saturating_mul(self.live.len() as u128)
    }

    /// A job is accepted.
    pub(super) fn accept(&mut self, request: &JobRequest) {
        self.counters.accepted += u64::from(request.jobs);
        self.jobs += 1;
        self.inline_bytes += request.inline_bytes;
        let own = self.live.entry(request.principal.clone()).or_default();
        own.jobs += 1;
        own.cost += u128::from(request.cost);
        own.inline_bytes += request.inline_bytes;
        self.bytes_high = self.bytes_high.max(self.inline_bytes);
    }

    /// A job has its verdict.
    pub(super) fn finish(&mut self, request: &JobRequest, verdict: Verdict) {
        self.jobs -= 1;
        self.inline_bytes -= request.inline_bytes;
        if let Some(own) = self.live.get_mut(&request.principal) {
            own.jobs -= 1;
            own.cost -= u128::from(request.cost);
            own.inline_bytes -= request.inline_bytes;
            if own.jobs == 0 {
                self.live.remove(&request.principal);
            }
        }
        let counters = &mut self.counters;
        *match verdict {
            Verdict::Cancelled => &mut counters.cancelled,
            Verdict::Deadline => &mut counters.deadline,
            Verdict::DeviceLost => &mut counters.device_lost,
            Verdict::Failed => &mut counters.failed,
            Verdict::Ok => &mut counters.ok,
            Verdict::Poison => &mut counters.poison,
        } += u64::from(request.jobs);
    }

    pub(super) fn has_jobs(&self) -> bool {
        self.jobs > 0
    }

    /// Whether its workers are ending for good.
    pub(super) fn is_leaving(&self) -> bool {
        match self.phase {
            Phase::Leaving | Phase::Left => true,
            Phase::Resting | Phase::Serving => false,
        }
    }

    /// Whether the group has no work, so that no worker starts.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.phase != Phase::Serving
    }

    /// The pool has handled an event: notes how many jobs wait until the next one.
    pub(super) fn note_waiting(&mut self) {
        self.jobs_high = self.jobs_high.max(self.queue.jobs());
    }

    /// The queue. The shell, which has the clock, adds how long its oldest job has waited.
    pub(super) fn queue_status(&self) -> QueueStatus {
        QueueStatus {
            jobs: self.queue.jobs() as u64,
            jobs_high: self.jobs_high as u64,
            bytes: self.inline_bytes,
            bytes_high: self.bytes_high,
            oldest_us: None,
        }
    }
}
