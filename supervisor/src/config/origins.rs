//! Where each setting comes from: a flag, the environment, a line of the config file, or nobody, so that
//! the default stands.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A variable of the environment.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The config file.
    File {
        /// The file, as it was named.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A flag.
    Flag {
        /// With its dashes.
        flag: &'static str,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment { variable } => write!(f, "environment {variable}"),
            Self::File { file, line } => write!(f, "{}:{line}", file.display()),
            Self::Flag { flag } => write!(f, "flag {flag}"),
        }
    }
}

/// The origins of all settings. A setting is named as in the config file: `devices`,
/// `limits.attempts_max` (a time without its unit), `policy.cuda 2`, `model.resnet.contexts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Where a setting comes from.
    #[must_use]
    pub fn of(&self, setting: &str) -> &Origin {
        self.0.get(setting).unwrap_or(&Origin::Default)
    }

    /// How many settings somebody has set.
    #[must_use]
    pub fn set_count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn set(&mut self, setting: impl Into<String>, origin: Origin) {
        self.0.insert(setting.into(), origin);
    }
}
