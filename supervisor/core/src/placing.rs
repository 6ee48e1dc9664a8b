//! Which devices get a model that says only how many it needs: those with the most memory left.
//!
//! What is left of a device is its memory without what is used, or without what its models may take by their limits if
//! that is more: a model that is still being loaded has not taken its memory yet. Devices that have less than a GiB
//! less than the one with the most get models in turn. So do those whose memory is not known, such as CPU devices, but
//! first the one whose models may take the least.

use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::placement::Placement;

/// GPUs whose memory differs by less are alike: contexts of the driver differ so.
const ALIKE_BYTES: u64 = 1 << 30;

/// The memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// What is used of it, by whomever.
    pub used: u64,
    /// All of it.
    pub total: u64,
}

/// A device that a model may be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) device: DeviceId,
    /// What its memory was last, if that is known.
    pub(crate) memory: Option<DeviceMemory>,
    /// Bytes that its models may take, in all their processes.
    pub(crate) held: u64,
    /// How many models it has.
    pub(crate) models: usize,
}

impl Candidate {
    /// Bytes that are left; below zero if only the models' own limits are known.
    fn left(&self) -> i128 {
        match self.memory {
            Some(DeviceMemory { used, total }) => {
                i128::from(total.saturating_sub(used.max(self.held)))
            }
            None => -i128::from(self.held),
        }
    }

    /// Whether it has as much left as the one with the most.
    fn is_like(&self, most: i128) -> bool {
        let alike = if self.memory.is_some() { i128::from(ALIKE_BYTES) } else { 1 };
        most - self.left() < alike
    }
}

/// Names the devices of a model that has a `device_count`: those of the candidates with the most left.
pub(crate) fn place(plan: &mut ModelPlan, mut candidates: Vec<Candidate>) -> Result<(), String> {
    let Some(count) = plan.options.device_count else { return Ok(()) };
    candidates.retain(|own| is_on(plan, own.device));
    let (wanted, all) = (count as usize, Placement::new(candidates.iter().map(|own| own.device)));
    if candidates.len() < wanted {
        let names = all.map_or_else(|| "none".to_owned(), |all| all.to_string());
        return Err(format!(
            "the model `{}` cannot be placed: its `device_count` is {count}, and these are the devices that it may \
             have: {names}",
            plan.name
        ));
    }
    let mut chosen = Vec::new();
    for _ in 0..wanted {
        let most = candidates.iter().map(Candidate::left).max().unwrap_or_default();
        let alike = candidates.iter().filter(|own| own.is_like(most));
        let Some(best) = alike.min_by_key(|own| (own.models, own.device)).copied() else { break };
        candidates.retain(|own| own.device != best.device);
        chosen.push(best.device);
    }
    plan.options.devices = Placement::new(chosen);
    Ok(())
}

/// Names the devices of those models of a new pool that have a `device_count`, in their order, after all others.
/// Models of one group get the same. `processes` of a group hold its models on each device.
///
/// # Errors
/// A sentence about the first model that has too few devices to choose from, or others than its group.
pub fn place_all(
    plans: &mut [ModelPlan],
    devices: &[(DeviceId, Option<DeviceMemory>)],
    processes: u32,
) -> Result<(), String> {
    let is_counted = |plan: &ModelPlan| plan.options.device_count.is_some();
    for at in 0..plans.len() {
        let mut plan = plans[at].clone();
        let others = || {
            let fixed = plans[at + 1..].iter().filter(|plan| !is_counted(plan));
            plans[..at].iter().chain(fixed)
        };
        let candidate = |&(device, memory): &(DeviceId, Option<DeviceMemory>)| {
            let own = others().filter(|plan| is_on(plan, device));
            let held = own.clone().filter_map(|plan| plan.options.device_bytes);
            let held = held.fold(0, u64::saturating_add).saturating_mul(processes.into());
            Candidate { device, memory, held, models: own.count() }
        };
        let mut candidates: Vec<_> = devices.iter().map(candidate).collect();
        let mate = others().find(|other| other.group() == plan.group()).cloned();
        if let Some(mate) = &mate {
            candidates.retain(|own| is_on(mate, own.device));
        }
        place(&mut plan, candidates)?;
        if let Some(mate) = mate.filter(|mate| mate.options.devices != plan.options.devices) {
            return Err(why_apart(plan.group(), mate.options.devices.as_ref(), &plan));
        }
        plans[at] = plan;
    }
    Ok(())
}

/// That a model is to have other devices than its group.
pub(crate) fn why_apart(group: &str, own: Option<&Placement>, plan: &ModelPlan) -> String {
    let [own, wanted] = [own, plan.options.devices.as_ref()].map(|devices| match devices {
        None => "all devices".to_owned(),
        Some(devices) => devices.to_string(),
    });
    let name = &plan.name;
    format!(
        "the models of a group have the same devices: the group `{group}` has {own}, and `{name}` is to have {wanted}"
    )
}

/// Whether a model is on a device.
pub(crate) fn is_on(plan: &ModelPlan, device: DeviceId) -> bool {
    plan.options.devices.as_ref().is_none_or(|devices| devices.has(device))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::ids::DeviceKind;
    use gridpool_protocol::tensor::options::ModelOptions;

    use super::*;

    fn gpu(index: u32) -> DeviceId {
        DeviceId { kind: DeviceKind::Gpu, index }
    }

    fn model(name: &str, count: u32, device_bytes: Option<u64>) -> ModelPlan {
        let options =
            ModelOptions { device_count: Some(count), device_bytes, ..ModelOptions::default() };
        ModelPlan { name: name.to_owned(), path: "/m.onnx".into(), options }
    }

    fn placed(plans: &[ModelPlan]) -> Vec<String> {
        let devices = |plan: &ModelPlan| match &plan.options.devices {
            None => "all".to_owned(),
            Some(devices) => devices.to_string(),
        };
        plans.iter().map(devices).collect()
    }

    #[test]
    fn models_go_where_the_most_memory_is_left() {
        let memory = |used: u64| Some(DeviceMemory { used: used << 30, total: 80 << 30 });
        let devices = [(gpu(0), memory(60)), (gpu(1), memory(5)), (gpu(2), memory(10))];
        let mut plans = [
            model("a", 1, Some(30 << 30)),
            model("b", 1, Some(1 << 30)),
            model("c", 2, None),
            model("d", 3, None),
        ];
        place_all(&mut plans, &devices, 1).unwrap();
        assert_eq!(placed(&plans), ["gpu1", "gpu2", "gpu1, gpu2", "gpu0, gpu1, gpu2"]);
        let again = plans.clone();
        place_all(&mut plans, &devices, 1).unwrap();
        assert_eq!(plans, again, "a successor keeps them where they are");
        // Each has a second process for a standby.
        let mut plans = [model("a", 1, Some(30 << 30)), model("b", 1, None)];
        place_all(&mut plans, &[(gpu(0), memory(5)), (gpu(1), memory(40))], 2).unwrap();
        assert_eq!(placed(&plans), ["gpu0", "gpu1"]);
    }

    #[test]
    fn devices_with_as_much_left_get_models_in_turn() {
        let memory = |used: u64| Some(DeviceMemory { used, total: 80 << 30 });
        let over = |bytes: u64| memory((20 << 30) - bytes);
        for memories in [
            [None; 2],
            [memory(600 << 20), memory(500 << 20)],
            // A little more, and a little less, than whole GiB.
            [over(10 << 20), memory((20 << 30) + (10 << 20))],
        ] {
            let mut plans: Vec<_> = ["a", "b", "c"].map(|name| model(name, 1, None)).into();
            place_all(&mut plans, &[(gpu(0), memories[0]), (gpu(1), memories[1])], 1).unwrap();
            assert_eq!(placed(&plans), ["gpu0", "gpu1", "gpu0"]);
        }
        let unknown = [(gpu(0), None), (gpu(1), None)];
        let mut plans = [
            model("a", 1, Some(9)),
            model("b", 1, Some(4)),
            model("c", 1, Some(4)),
            model("d", 1, None),
        ];
        place_all(&mut plans, &unknown, 1).unwrap();
        assert_eq!(placed(&plans), ["gpu0", "gpu1", "gpu1", "gpu1"], "where the limits are lowest");
        // One that names its devices counts first, wherever it stands.
        let mut fixed = model("z", 1, None);
        (fixed.options.device_count, fixed.options.devices) = (None, Placement::new([gpu(0)]));
        let mut plans = [model("a", 1, None), fixed];
        place_all(&mut plans, &unknown, 1).unwrap();
        assert_eq!(placed(&plans), ["gpu1", "gpu0"]);
    }

    #[test]
    fn a_group_is_in_one_place_and_too_few_devices_are_an_error() {
        let unknown = [(gpu(0), None), (gpu(1), None), (gpu(2), None)];
        let shared = |name: &str| {
            let mut plan = model(name, 2, None);
            plan.options.group = Some("g".to_owned());
            plan
        };
        let mut plans = [model("a", 1, None), shared("b"), model("c", 1, None), shared("d")];
        place_all(&mut plans, &unknown, 1).unwrap();
        assert_eq!(placed(&plans), ["gpu0", "gpu1, gpu2", "gpu0", "gpu1, gpu2"]);
        // Wherever the one with devices of its own stands.
        let mut fixed = shared("z");
        (fixed.options.device_count, fixed.options.devices) = (None, Placement::new([gpu(2)]));
        let mut one = shared("a");
        one.options.device_count = Some(1);
        let mut plans = [one, fixed.clone()];
        place_all(&mut plans, &unknown, 1).unwrap();
        assert_eq!(placed(&plans), ["gpu2", "gpu2"]);
        let mut other = fixed.clone();
        other.options.devices = Placement::new([gpu(0)]);
        let why = place_all(&mut [fixed, other], &unknown, 1).unwrap_err();
        let want = "the models of a group have the same devices: the group `g` has gpu0, and `z` is to have gpu2";
        assert_eq!(why, want);
        let mut narrow = model("a", 2, None);
        narrow.options.devices = Placement::new([gpu(1)]);
        let why = place_all(&mut [narrow], &unknown, 1).unwrap_err();
        let want = "the model `a` cannot be placed: its `device_count` is 2, and these are the devices that it may \
                    have: gpu1";
        assert_eq!(why, want);
    }
}
