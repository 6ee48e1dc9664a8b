//! The capsules of a pool: what is kept of each death that a job may have caused.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// What a capsule keeps.
    #[derive(Default)]
    pub enum CapsuleMode {
        /// The work and its inputs.
        #[default]
        On = "on",
        /// The work and the shapes of its inputs: no cell and no element.
        Shapes = "shapes",
        /// No capsule is written.
        Off = "off",
    }
}

/// A text that does not name a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a mode of capsules: write on, shapes or off")]
pub struct ParseCapsuleModeError {
    text: String,
}

impl FromStr for CapsuleMode {
    type Err = ParseCapsuleModeError;

    fn from_str(text: &str) -> Result<Self, ParseCapsuleModeError> {
        Self::from_name(text).ok_or_else(|| ParseCapsuleModeError { text: text.to_owned() })
    }
}

/// The capsules of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapsulesStatus {
    /// What they keep.
    pub mode: CapsuleMode,
    /// The folder; empty if you are no operator.
    pub folder: String,
    /// Capsules written since the pool started.
    pub written: u64,
    /// Deaths without a capsule, because too many came at once or the file could not be written; the log says why.
    pub lost: u64,
    /// The latest, the newest last. A limit may have removed some. Empty if you are no operator.
    pub latest: Vec<CapsuleStatus>,
}

impl CapsulesStatus {
    /// The same without the folder and the names, which are for operators.
    #[must_use]
    pub fn counts(self) -> Self {
        Self { folder: String::new(), latest: Vec::new(), ..self }
    }
}

/// One capsule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapsuleStatus {
    /// Its name: `gridpool replay NAME`.
    pub name: String,
    /// The worker that died.
    pub worker: String,
    /// How it ended, in words.
    pub ended: String,
    /// Its size, bytes.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_as_it_is_printed_and_others_are_refused_with_what_to_write() {
        for mode in CapsuleMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "yes".parse::<CapsuleMode>().unwrap_err();
        assert_eq!(error.to_string(), "`yes` is not a mode of capsules: write on, shapes or off");
    }
}
