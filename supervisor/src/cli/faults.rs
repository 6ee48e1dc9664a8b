//! Sentences about the faults of devices. Devices with the same fault share a sentence.

use std::collections::BTreeSet;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::Role;
use gridpool_protocol::status::{DeviceStatus, QuarantineStatus};

use crate::devices::device_of;

/// Says why devices are out of service, until when, and what to type. Devices that wait for an operator for
/// the same reason share a line.
pub(crate) fn out_of_service(quarantines: &[QuarantineStatus]) -> Vec<String> {
    let mut lines = Vec::new();
    for role in Role::ALL {
        let own = || quarantines.iter().filter(move |out| out.role == role.name());
        let waiting = || own().filter(|out| out.tried_in_us.is_none());
        for mut fault in alike(waiting().map(|out| (&*out.device, &*out.why))) {
            let says = impersonal(fault.names[0], &fault.says);
            let has_it = |out: &&QuarantineStatus| impersonal(&out.device, &out.why) == says;
            let groups: BTreeSet<_> = waiting().filter(has_it).map(|out| &*out.group).collect();
            fault.names.sort_unstable();
            fault.names.dedup();
            lines.push(out_for_good(&of(role, groups), &fault));
        }
        lines.extend(own().filter(|out| out.tried_in_us.is_some()).map(out_for_a_time));
    }
    lines
}

/// Devices or workers with the same fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alike<'a> {
    pub(super) names: Vec<&'a str>,
    /// The sentence; for several, without their names.
    pub(super) says: String,
}

/// Groups pairs of name and sentence by the sentence.
pub(super) fn alike<'a>(said: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Alike<'a>> {
    let mut groups: Vec<(Alike<'a>, String)> = Vec::new();
    for (name, says) in said {
        let common = impersonal(name, says);
        match groups.iter_mut().find(|(_, known)| *known == common) {
            Some((group, _)) => {
                group.names.push(name);
                group.says = common;
            }
            None => groups.push((Alike { names: vec![name], says: says.to_owned() }, common)),
        }
    }
    groups.into_iter().map(|(group, _)| group).collect()
}

/// A sentence about a device and its workers, without their names: `a worker died`.
pub(super) fn impersonal(name: &str, says: &str) -> String {
    let device = device_of(name);
    let mut text = String::new();
    let mut rest = says;
    while let Some((before, after)) = rest.split_once(device) {
        text.push_str(before);
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        rest = match after.strip_prefix('#') {
            Some(number) if digits(number) > 0 => {
                text.push_str("a worker");
                &number[digits(number)..]
            }
            // Another device, whose name starts with this name.
            Some(_) | None if digits(after) > 0 => {
                text.push_str(device);
                after
            }
            Some(_) | None => {
                text.push_str("the device");
                after
            }
        };
    }
    text + rest
}

/// What a device does not do while it is out of service for these groups.
fn of<'a>(role: Role, groups: impl IntoIterator<Item = &'a str>) -> String {
    match role {
        Role::Grid => String::new(),
        Role::Infer => {
            let names: Vec<_> = groups.into_iter().map(|name| format!("`{name}`")).collect();
            format!(" for the models of {}", names.join(", "))
        }
    }
}

fn out_for_good(of: &str, Alike { names, says }: &Alike<'_>) -> String {
    let are = if names.len() == 1 { "is" } else { "are" };
    let releases: Vec<_> = names.iter().map(|name| format!("`gridpool release {name}`")).collect();
    let (names, releases) = (names.join(", "), releases.join(", "));
    format!("{names} {are} out of service{of}: {says}; try again with {releases}")
}

fn out_for_a_time(quarantine: &QuarantineStatus) -> String {
    let QuarantineStatus { device, role, group, why, tried_in_us } = quarantine;
    let role = if role == Role::Infer.name() { Role::Infer } else { Role::Grid };
    let of = of(role, [&**group]);
    // Rounded up: at 0 s the pool tries the device.
    let seconds = tried_in_us.unwrap_or(0).div_ceil(1_000_000);
    format!(
        "{device} is out of service{of}: {why}; next try in {seconds} s, or now with `gridpool release \
         {device}`"
    )
}

/// The faults of a device that the driver and NVML report.
pub(crate) fn driver_faults(device: &DeviceStatus) -> impl Iterator<Item = String> {
    let faults = [
        device.recovery.filter(|&action| action != 0).map(FaultCode::Recovery),
        device.nvml_error.map(FaultCode::Nvml),
        device.last_xid.map(FaultCode::Xid),
    ];
    let faults = faults.into_iter().flatten();
    faults.map(|fault| format!("{fault}: {}", fault.meaning().sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_out_of_service_has_its_reason_its_time_and_what_to_type() {
        let out = |device: &str, role: &str, tried_in_us| QuarantineStatus {
            device: device.to_owned(),
            role: role.to_owned(),
            group: if role == "infer" { "mlp" } else { role }.to_owned(),
            why: format!("{device}#5 died: exit code 71"),
            tried_in_us,
        };
        let said = |tried_in_us| out_of_service(&[out("gpu0", "grid", tried_in_us)]).concat();
        assert_eq!(
            said(Some(41_000_001)),
            "gpu0 is out of service: gpu0#5 died: exit code 71; next try in 42 s, or now with \
             `gridpool release gpu0`"
        );
        assert_eq!(
            said(None),
            "gpu0 is out of service: gpu0#5 died: exit code 71; try again with `gridpool release gpu0`"
        );
        let both = [
            out("gpu1", "infer", None),
            out("gpu0", "grid", Some(1_000_000)),
            out("gpu10", "infer", None),
        ];
        assert_eq!(
            out_of_service(&both),
            [
                "gpu0 is out of service: gpu0#5 died: exit code 71; next try in 1 s, or now with \
                 `gridpool release gpu0`",
                "gpu1, gpu10 are out of service for the models of `mlp`: a worker died: exit code 71; try again \
                 with `gridpool release gpu1`, `gridpool release gpu10`",
            ]
        );
    }

    #[test]
    fn only_the_devices_own_names_are_taken_out() {
        let said = "gpu1 is out: gpu1#12 died beside gpu10#1 and gpu10; ask gpu1#";
        let want = "the device is out: a worker died beside gpu10#1 and gpu10; ask the device#";
        assert_eq!(impersonal("gpu1#3", said), want);
    }
}
