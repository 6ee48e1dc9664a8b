//! Which group and which devices a new model gets, and whether they have memory for it.

use std::collections::BTreeMap;

use gridpool_core::placing::DeviceMemory;
use gridpool_protocol::ids::{DeviceId, Group};
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::placement::Placement;

use super::Model;
use super::models::Models;
use crate::swarm::plan;

/// What the driver said last of the memory of each device.
pub(super) type Memories = BTreeMap<DeviceId, DeviceMemory>;

impl Model {
    /// The group that a model which is new to the pool joins: one of its name with models, else one with anything left
    /// on its own devices.
    pub(super) fn group_of_new(&self, model: &str, placed: Option<&Placement>) -> Option<Group> {
        let name = plan(model, 1).group().to_owned();
        let of_name = || {
            let all = self.models.iter().filter(|(_, own)| own.name == name);
            all.filter(|&(&group, _)| !self.is_vacant(group))
        };
        let ends_there = || of_name().find(|(_, own)| own.placement.as_ref() == placed);
        let found = of_name().find(|(_, own)| own.count() > 0).or_else(ends_there);
        found.map(|(&group, _)| group)
    }

    /// A group of models is new. It takes the number of a vacant one, first of the one of its name, then the lowest; or
    /// a new one. A device that is out of service for a fault of its own is so for all.
    pub(super) fn has_a_new_group(&mut self, model: &str, placed: Option<&Placement>) -> Group {
        let name = plan(model, 1).group().to_owned();
        let all = || self.models.iter().filter(|&(&group, _)| self.is_vacant(group));
        let named = all().find(|(_, models)| models.name == name);
        let vacant = named.or_else(|| all().next()).map(|(&group, _)| group);
        let next = u16::try_from(self.models.len()).expect("they are few");
        self.coverage.hit(match (vacant, named) {
            (Some(_), Some(_)) => "group: new, and had models of its name before",
            (Some(_), None) => "group: has the number of one that is gone",
            (None, _) => "group: new",
        });
        let group = vacant.unwrap_or(Group::Models(next));
        if self.models.iter().any(|(&at, own)| own.name == name && !self.is_vacant(at)) {
            self.coverage.hit("group: new, while workers of its name end elsewhere");
        }
        self.begins_group(group, &name, placed);
        group
    }

    /// Whether the pool has the devices of a model.
    pub(super) fn has_devices(&self, plan: &ModelPlan) -> bool {
        let mut own = plan.options.devices.iter().flat_map(Placement::devices);
        own.all(|device| self.facts.contains_key(&device))
    }

    /// The devices that a new model gets, by what is left of each; the error is that there are too few.
    pub(super) fn placed(&self, plan: &ModelPlan) -> Result<Option<Placement>, ()> {
        let named = plan.options.devices.clone();
        let Some(count) = plan.options.device_count else { return Ok(named) };
        let may_have = |device: &DeviceId| named.as_ref().is_none_or(|own| own.has(*device));
        let mut left: Vec<_> = self.facts.keys().copied().filter(may_have).collect();
        let mut chosen = Vec::new();
        for _ in 0..count {
            let most = left.iter().map(|&device| self.left_of(device)).max().ok_or(())?;
            // Less than a GiB of a known memory is nothing.
            let is_nothing = |device: DeviceId| match self.device_memory.contains_key(&device) {
                true => most - self.left_of(device) < 1 << 30,
                false => self.left_of(device) == most,
            };
            let fewest = left.iter().copied().filter(|&device| is_nothing(device));
            let fewest = fewest.min_by_key(|&device| self.models_on(device).len());
            let best = fewest.expect("one has the most");
            left.retain(|&device| device != best);
            chosen.push(best);
        }
        Ok(Placement::new(chosen))
    }

    fn models_on(&self, device: DeviceId) -> Vec<ModelPlan> {
        let is_on = |own: &&Models| own.placement.as_ref().is_none_or(|own| own.has(device));
        let names = self.models.values().filter(is_on).flat_map(Models::names);
        names.map(|name| plan(&name, 1)).collect()
    }

    /// Bytes of a device's memory that neither others use nor its models may, or those that its models may, below zero.
    fn left_of(&self, device: DeviceId) -> i64 {
        let all = self.models_on(device);
        let bytes: u64 = all.iter().filter_map(|plan| plan.options.device_bytes).sum();
        let held = bytes * u64::from(1 + self.config.standbys);
        match self.device_memory.get(&device) {
            Some(memory) => i64::try_from(memory.total.saturating_sub(held.max(memory.used)))
                .expect("it is small"),
            None => -i64::try_from(held).expect("it is small"),
        }
    }

    /// Whether the models of each device, this one included, stay within the memory that is planned for them.
    pub(super) fn has_room(
        &self,
        new: &ModelPlan,
        placed: Result<&Option<Placement>, &()>,
    ) -> bool {
        let is_on =
            |own: &Option<Placement>, device| own.as_ref().is_none_or(|own| own.has(device));
        let placed = placed.expect("it was placed");
        let max = self.config.model_bytes_max;
        let Some(wants) = new.options.device_bytes else { return max == 0 };
        let processes = u64::from(1 + self.config.standbys);
        let is_within = |&device: &DeviceId| {
            let own = self.models.values().filter(|own| is_on(&own.placement, device));
            let own = own.flat_map(Models::names).map(|name| plan(&name, 1));
            // The world's workers measure nothing.
            let held: u64 = own.filter_map(|plan| plan.options.device_bytes).sum();
            !is_on(placed, device) || (held + wants) * processes <= max
        };
        max == 0 || self.facts.keys().all(is_within)
    }
}
