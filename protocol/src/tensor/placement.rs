//! Which devices of a pool have a model.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{DeviceId, DeviceKind};

/// Some devices, at least one: `0` and `gpu0` are the first GPU, `cpu1` is the second CPU device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement(BTreeSet<DeviceId>);

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no device: write 0 or gpu0 for the first GPU, cpu0 for the first CPU device")]
pub struct ParseDeviceError {
    text: String,
}

/// Reads `0`, `gpu0` or `cpu0`.
fn parse_device(text: &str) -> Result<DeviceId, ParseDeviceError> {
    let wrong = || ParseDeviceError { text: text.to_owned() };
    let at = text.find(|letter: char| letter.is_ascii_digit()).ok_or_else(wrong)?;
    let (kind, index) = text.split_at(at);
    let kind = match kind {
        "" | "gpu" => DeviceKind::Gpu,
        "cpu" => DeviceKind::Cpu,
        _ => return Err(wrong()),
    };
    let is_plain = index.bytes().all(|digit| digit.is_ascii_digit());
    let index = index.parse().ok().filter(|_| is_plain).ok_or_else(wrong)?;
    Ok(DeviceId { kind, index })
}

impl Placement {
    /// These devices; `None` without any.
    #[must_use]
    pub fn new(devices: impl IntoIterator<Item = DeviceId>) -> Option<Self> {
        let devices: BTreeSet<_> = devices.into_iter().collect();
        (!devices.is_empty()).then_some(Self(devices))
    }

    /// Whether a device is one of them.
    #[must_use]
    pub fn has(&self, device: DeviceId) -> bool {
        self.0.contains(&device)
    }

    /// The devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.0.iter().copied()
    }
}

/// Reads devices that commas separate.
impl FromStr for Placement {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, ParseDeviceError> {
        let devices = text.split(',').map(|one| parse_device(one.trim()));
        devices.collect::<Result<BTreeSet<_>, _>>().map(Self)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(DeviceId::to_string).collect();
        f.write_str(&names.join(", "))
    }
}

impl Serialize for Placement {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => to.collect_seq(self.0.iter().map(DeviceId::to_string)),
            false => self.0.serialize(to),
        }
    }
}

/// A device as a config file writes it: a number or a name.
struct Written(DeviceId);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a device, such as 0, \"gpu0\" or \"cpu0\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Written, E> {
                parse_device(text).map(Written).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, index: u64) -> Result<Written, E> {
                self.visit_str(&index.to_string())
            }

            fn visit_i64<E: Error>(self, index: i64) -> Result<Written, E> {
                self.visit_str(&index.to_string())
            }
        }

        from.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let devices = match from.is_human_readable() {
            true => {
                let written = Vec::<Written>::deserialize(from)?;
                written.into_iter().map(|Written(device)| device).collect()
            }
            false => BTreeSet::deserialize(from)?,
        };
        Self::new(devices).ok_or_else(|| D::Error::custom("a list of devices that has none"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn devices_are_read_by_number_and_by_name_and_written_by_name() {
        let read: Placement = serde_json::from_str(r#"[2, "gpu0", "cpu1", "0"]"#).unwrap();
        assert_eq!(read, "2,gpu0, cpu1".parse().unwrap());
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"["cpu1","gpu0","gpu2"]"#);
        assert_eq!(read.to_string(), "cpu1, gpu0, gpu2");
        let bytes = codec::encode(&read).unwrap();
        assert_eq!(codec::decode::<Placement>(&bytes).unwrap(), read);
        let gpu = |index| DeviceId { kind: DeviceKind::Gpu, index };
        assert!(read.has(gpu(2)) && !read.has(gpu(1)));
    }

    #[test]
    fn what_names_no_device_is_refused_with_what_to_write() {
        for text in ["", "gpu", "tpu0", "cpu:2", "-1", "0x1", "all", "gpu0 1"] {
            let error = text.parse::<Placement>().unwrap_err().to_string();
            assert!(error.contains("is no device: write 0 or gpu0"), "{error}");
        }
        for json in ["[]", "[-1]", "[1.5]", "\"gpu0\"", "[\"gpu\"]"] {
            assert!(serde_json::from_str::<Placement>(json).is_err(), "{json}");
        }
    }
}
