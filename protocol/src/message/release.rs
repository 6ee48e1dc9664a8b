//! Which decision of the pool an operator takes back.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{ContentHash, DeviceId};

/// What a release is written as that is about every denylisted job.
const ALL_JOBS: &str = "jobs";

/// A decision of the pool that an operator may take back. Reads and prints as `gpu0`, as 64 hexadecimal
/// digits, or as `jobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Release {
    /// The pool accepts jobs of this content again.
    Content(ContentHash),
    /// The pool accepts jobs of every content again.
    Contents,
    /// The pool probes this device now, which is out of service.
    Device(DeviceId),
}

impl From<DeviceId> for Release {
    fn from(device: DeviceId) -> Self {
        Self::Device(device)
    }
}

impl From<ContentHash> for Release {
    fn from(content: ContentHash) -> Self {
        Self::Content(content)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(content) => content.fmt(f),
            Self::Contents => f.write_str(ALL_JOBS),
            Self::Device(device) => device.fmt(f),
        }
    }
}

/// A text that names nothing that can be released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` cannot be released: write a device (`gpu0`), the 64 hexadecimal digits that the verdict \
     POISON names, or `{ALL_JOBS}` for all jobs"
)]
pub struct ParseReleaseError {
    text: String,
}

impl FromStr for Release {
    type Err = ParseReleaseError;

    fn from_str(text: &str) -> Result<Self, ParseReleaseError> {
        if text == ALL_JOBS {
            return Ok(Self::Contents);
        }
        let device = text.parse().map(Self::Device).ok();
        let release = device.or_else(|| text.parse().map(Self::Content).ok());
        release.ok_or_else(|| ParseReleaseError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_read_back_as_they_print() {
        for text in ["jobs", "gpu0", &"ab".repeat(32)] {
            assert_eq!(text.parse::<Release>().unwrap().to_string(), text);
        }
        for text in ["", "job", "gpu0#1", "zebra", &"ab".repeat(31)] {
            let error = text.parse::<Release>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` cannot be released: write a")), "{error}");
        }
    }
}
