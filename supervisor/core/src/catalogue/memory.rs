//! Where a new model may be: on the devices of its group, and within the memory that is planned for models.
//!
//! The plan adds up what models may take by their own limits, which their workers keep. So it holds before anything is
//! loaded, whatever a device has free at the moment.

use gridpool_protocol::ids::{DeviceId, Group};
use gridpool_protocol::tensor::options::ModelPlan;

use super::Catalogue;
use crate::models::Models;
use crate::placing::{Candidate, is_on, place, why_apart};
use crate::pool::Pool;

impl Catalogue {
    /// Names the devices of a new model that says only how many it needs. One that joins a group gets the group's.
    pub(super) fn place(&self, plan: &mut ModelPlan, pool: &Pool) -> Result<(), String> {
        if plan.options.device_count.is_none() {
            return Ok(());
        }
        let joins = self.group_of(plan, pool).filter(|group| self.groups[group].len() > 0);
        let joins = joins.map(|group| pool.placement(group));
        let may_be_on = |device: &DeviceId| joins.flatten().is_none_or(|own| own.has(*device));
        let candidate = |device| {
            let models = || self.groups.values().flat_map(Models::plans_now);
            Candidate {
                device,
                memory: self.memory.get(&device).copied(),
                held: self.held(device, pool),
                models: models().filter(|plan| is_on(plan, device)).count(),
            }
        };
        let names_none = plan.options.devices.is_none();
        place(plan, pool.device_ids().filter(may_be_on).map(candidate).collect()).map_err(
            |why| match joins.flatten() {
                Some(_) => format!("{why}, those of the group `{}`", plan.group()),
                None => why,
            },
        )?;
        // As its group is.
        let has_all = pool.device_ids().all(|device| is_on(plan, device));
        if joins == Some(None) && names_none && has_all {
            plan.options.devices = None;
        }
        Ok(())
    }

    /// Bytes that the models of a device may take there, in all processes.
    fn held(&self, device: DeviceId, pool: &Pool) -> u64 {
        let held = self.groups.values().map(|models| models.bytes_on(device));
        held.fold(0, u64::saturating_add).saturating_mul(pool.model_processes().into())
    }

    /// Checks that a new model fits the memory that is planned for the models of each of its devices.
    pub(super) fn check_memory(&self, plan: &ModelPlan, pool: &Pool) -> Result<(), String> {
        let Some(max) = pool.model_bytes_max() else { return Ok(()) };
        let name = &plan.name;
        let Some(own) = plan.options.device_bytes else {
            return Err(format!(
                "`{name}` has no `device_bytes`: with the limit `model_bytes_max` each model says what it may take, \
                 such as device_bytes=2000000000"
            ));
        };
        for device in pool.device_ids().filter(|&device| is_on(plan, device)) {
            let held = self.held(device, pool);
            let wants = own.saturating_mul(pool.model_processes().into());
            if held.saturating_add(wants) > max {
                return Err(format!(
                    "`{name}` may take {wants} bytes of {device}, where other models may take {held}: that is more \
                     than {max}, the `model_bytes_max` of a device; unload a model, lower `device_bytes`, or name \
                     other devices"
                ));
            }
        }
        Ok(())
    }
}

/// Checks that a model which joins a group is to have the group's devices.
pub(super) fn check_devices(plan: &ModelPlan, group: Group, pool: &Pool) -> Result<(), String> {
    let (own, wanted) = (pool.placement(group), plan.options.devices.as_ref());
    if own == wanted {
        return Ok(());
    }
    Err(why_apart(plan.group(), own, plan))
}

impl Models {
    /// Bytes that its models may take of a device: their limits, or what workers have measured of those without one.
    fn bytes_on(&self, device: DeviceId) -> u64 {
        let own = self.plans_now().filter(|plan| is_on(plan, device));
        own.map(|plan| {
            plan.options.device_bytes.unwrap_or_else(|| self.measured(&plan.name, device))
        })
        .fold(0, u64::saturating_add)
    }
}
