//! Where a new model may be: on the devices of its group, and within the memory that is planned for models.
//!
//! The plan adds up what models may take by their own limits, which their workers keep. So it holds before anything is
//! loaded, whatever a device has free at the moment.

use gridpool_protocol::ids::{DeviceId, Group};
use gridpool_protocol::tensor::options::ModelPlan;

use super::Catalogue;
use crate::models::Models;
use crate::pool::Pool;

impl Catalogue {
    /// Checks that a model which joins a group is to have the group's devices.
    pub(super) fn check_devices(
        &self,
        plan: &ModelPlan,
        group: Group,
        pool: &Pool,
    ) -> Result<(), String> {
        let (own, wanted) = (pool.placement(group), plan.options.devices.as_ref());
        if own == wanted {
            return Ok(());
        }
        let [own, wanted] = [own, wanted].map(|devices| match devices {
            None => "all devices".to_owned(),
            Some(devices) => devices.to_string(),
        });
        let name = plan.group();
        Err(match self.groups[&group].len() {
            0 => format!("workers of `{name}` on {own} have not ended yet: try again later"),
            _ => format!(
                "the models of a group have the same devices: the group `{name}` has {own}, and `{}` is to \
                 have {wanted}",
                plan.name
            ),
        })
    }

    /// Checks that a new model fits the memory that is planned for the models of each of its devices.
    pub(super) fn check_memory(&self, plan: &ModelPlan, pool: &Pool) -> Result<(), String> {
        let Some((max, processes)) = pool.model_memory() else { return Ok(()) };
        let name = &plan.name;
        let Some(own) = plan.options.device_bytes else {
            return Err(format!(
                "`{name}` has no `device_bytes`: with the limit `model_bytes_max` each model says what it may take, \
                 such as device_bytes=2000000000"
            ));
        };
        let times = |bytes: u64| bytes.saturating_mul(processes.into());
        for device in pool.device_ids().filter(|&device| is_on(plan, device)) {
            let held = self.groups.values().map(|models| models.bytes_on(device));
            let held = times(held.fold(0, u64::saturating_add));
            let wants = times(own);
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

/// Whether a model is on a device.
fn is_on(plan: &ModelPlan, device: DeviceId) -> bool {
    plan.options.devices.as_ref().is_none_or(|devices| devices.has(device))
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
