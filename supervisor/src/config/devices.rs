//! `--devices`: its grammar, `device { "," device }`. May not check that a device exists.

use std::fmt;

/// Most workers that one `cpu:N` may ask for.
pub const CPU_WORKERS_MAX: u32 = 64;
/// Length of a UUID in the NVIDIA driver's format, with `GPU-`.
const UUID_BYTES: usize = 40;

/// One device, or kind of device, of `--devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSelection {
    /// `all`: every GPU of the host.
    AllGpus,
    /// `cpu:N`: N workers that run the reference implementation.
    Cpu(u32),
    /// `0`: a GPU by its index in PCI bus order, as in `nvidia-smi`.
    GpuIndex(u32),
    /// `GPU-…`: a GPU by its UUID, in lower case after `GPU-`.
    GpuUuid(String),
}

impl fmt::Display for DeviceSelection {
    /// As written after `--devices`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllGpus => f.write_str("all"),
            Self::Cpu(workers) => write!(f, "cpu:{workers}"),
            Self::GpuIndex(index) => write!(f, "{index}"),
            Self::GpuUuid(uuid) => f.write_str(uuid),
        }
    }
}

/// The error of a value of `--devices`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{element}`: {reason}")]
pub struct DeviceError {
    element: String,
    reason: String,
}

/// Reads `all`, `0,1`, `GPU-<uuid>`, `cpu:2`, or a list of them with commas.
///
/// # Errors
/// [`DeviceError`] for the first element that is wrong or names a device again.
pub fn parse_devices(text: &str) -> Result<Vec<DeviceSelection>, DeviceError> {
    let mut devices = Vec::new();
    for element in text.split(',').map(str::trim) {
        let error = |reason: String| DeviceError { element: element.to_owned(), reason };
        let device = parse_one(element).map_err(error)?;
        if let Some(reason) = repeats(&devices, &device) {
            return Err(error(reason));
        }
        devices.push(device);
    }
    Ok(devices)
}

fn parse_one(element: &str) -> Result<DeviceSelection, String> {
    if element == "all" {
        return Ok(DeviceSelection::AllGpus);
    }
    if let Some(count) = element.strip_prefix("cpu:") {
        return match count.parse() {
            Ok(workers @ 1..=CPU_WORKERS_MAX) => Ok(DeviceSelection::Cpu(workers)),
            _ => Err(format!("cpu:N needs N from 1 to {CPU_WORKERS_MAX}")),
        };
    }
    if let Some(digits) = element.strip_prefix("GPU-") {
        let whole = element.len() == UUID_BYTES;
        return if whole && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            Ok(DeviceSelection::GpuUuid(format!("GPU-{}", digits.to_ascii_lowercase())))
        } else {
            Err("not a whole UUID: `nvidia-smi -L` prints it, GPU-xxxxxxxx-xxxx-xxxx-xxxx-\
                 xxxxxxxxxxxx"
                .to_owned())
        };
    }
    if element.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(index) = element.parse()
    {
        return Ok(DeviceSelection::GpuIndex(index));
    }
    Err(match element.strip_prefix("gpu") {
        _ if element == "cpu" => "say how many workers: cpu:2".to_owned(),
        _ if element.starts_with("MIG-") => {
            "gridpool does not serve MIG instances: name their GPU".to_owned()
        }
        Some(index) if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("a GPU is named by its index alone: {index}")
        }
        _ => "not a device: write all, an index (0), a UUID (GPU-…) or cpu:N, with commas between"
            .to_owned(),
    })
}

/// Why `device` may not follow the devices before it.
fn repeats(before: &[DeviceSelection], device: &DeviceSelection) -> Option<String> {
    use DeviceSelection::{AllGpus, Cpu, GpuIndex, GpuUuid};
    before.iter().find_map(|earlier| match (earlier, device) {
        (Cpu(first), Cpu(second)) => {
            let sum = first.saturating_add(*second).min(CPU_WORKERS_MAX);
            Some(format!("cpu:N is named twice: write cpu:{sum}"))
        }
        (Cpu(_), AllGpus | GpuIndex(_) | GpuUuid(_))
        | (AllGpus | GpuIndex(_) | GpuUuid(_), Cpu(_)) => None,
        (AllGpus, _) | (_, AllGpus) => {
            Some("`all` names every GPU already: write it without other GPUs".to_owned())
        }
        (earlier, device) => (earlier == device).then(|| "this GPU is named twice".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::DeviceSelection::{AllGpus, Cpu, GpuIndex, GpuUuid};
    use super::*;

    #[test]
    fn every_form_is_read_alone_and_in_a_list() {
        let uuid = "GPU-0A1b2c3d-0000-1111-2222-333344445555";
        assert_eq!(parse_devices("all").unwrap(), [AllGpus]);
        assert_eq!(parse_devices("0,1").unwrap(), [GpuIndex(0), GpuIndex(1)]);
        assert_eq!(parse_devices("cpu:64").unwrap(), [Cpu(64)]);
        assert_eq!(parse_devices(" all , cpu:1").unwrap(), [AllGpus, Cpu(1)]);
        let lower = "GPU-0a1b2c3d-0000-1111-2222-333344445555".to_owned();
        assert_eq!(parse_devices(uuid).unwrap(), [GpuUuid(lower)]);
    }

    #[test]
    fn errors_quote_the_element_and_say_what_to_write() {
        let cases = [
            ("cpu:0", "`cpu:0`: cpu:N needs N from 1 to 64"),
            ("0,cpu:65", "`cpu:65`: cpu:N needs N from 1 to 64"),
            ("cpu:-1", "`cpu:-1`: cpu:N needs N from 1 to 64"),
            ("cpu:two", "`cpu:two`: cpu:N needs N from 1 to 64"),
            ("cpu", "`cpu`: say how many workers: cpu:2"),
            ("gpu1", "`gpu1`: a GPU is named by its index alone: 1"),
            ("", "``: not a device: write all"),
            ("0,,1", "``: not a device: write all"),
            ("-1", "`-1`: not a device: write all"),
            ("99999999999", "`99999999999`: not a device: write all"),
            ("+1", "`+1`: not a device: write all"),
            ("GPU-0a1b", "`GPU-0a1b`: not a whole UUID"),
            ("MIG-0a1b", "`MIG-0a1b`: gridpool does not serve MIG instances"),
            ("0,1,0", "`0`: this GPU is named twice"),
            ("0,00", "`00`: this GPU is named twice"),
            ("all,0", "`0`: `all` names every GPU already"),
            ("0,all", "`all`: `all` names every GPU already"),
            ("cpu:1,cpu:2", "`cpu:2`: cpu:N is named twice: write cpu:3"),
        ];
        for (text, want) in cases {
            let error = parse_devices(text).expect_err(text).to_string();
            assert!(error.starts_with(want), "{text}: {error}");
        }
    }
}
