//! The origin of each setting: a flag, the environment, a line of the config file, or the default.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::ConfigError;

/// The origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Origin {
    /// The setting has its default.
    Default,
    /// A variable of the environment.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The config file.
    File {
        /// The file, as typed.
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

impl Origin {
    /// The error of what the config file sets, on its line. `None` if something else set it.
    pub(super) fn wrong_in_file(&self, reason: &str) -> Option<ConfigError> {
        match self {
            Self::File { file, line } => {
                let (file, line, reason) = (file.clone(), *line, reason.to_owned());
                Some(ConfigError::File { file, line, reason })
            }
            Self::Default | Self::Environment { .. } | Self::Flag { .. } => None,
        }
    }
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

/// The origins of all settings. A setting has its name in the config file: `devices`, `limits.attempts_max` (a
/// time without its unit), `policy.cuda 2`, `model.resnet.contexts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    settings: BTreeMap<String, Origin>,
    /// By the names of a pipeline and of its step.
    steps: BTreeMap<(String, String), Origin>,
}

impl Origins {
    /// The origin of a setting.
    #[must_use]
    pub fn of(&self, setting: &str) -> &Origin {
        self.settings.get(setting).unwrap_or(&Origin::Default)
    }

    /// The number of settings that do not have their default.
    #[must_use]
    pub fn set_count(&self) -> usize {
        self.settings.len()
    }

    pub(super) fn set(&mut self, setting: impl Into<String>, origin: Origin) {
        self.settings.insert(setting.into(), origin);
    }

    /// The origin of a step of a pipeline.
    pub(super) fn of_step(&self, pipeline: &str, step: &str) -> &Origin {
        let own = self.steps.get(&(pipeline.to_owned(), step.to_owned()));
        own.unwrap_or_else(|| self.of(&format!("model.{pipeline}.steps")))
    }

    pub(super) fn set_step(&mut self, pipeline: &str, step: &str, origin: Origin) {
        self.steps.insert((pipeline.to_owned(), step.to_owned()), origin);
    }
}
