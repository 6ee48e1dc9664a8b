//! Why the settings of a pool cannot be used.

use std::path::PathBuf;

use gridpool_protocol::exit::cli as exit;

/// Why there are no settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Something is wrong in what a flag, or its environment variable, names.
    #[error("{given}: {reason}")]
    Content {
        /// The flag or the variable.
        given: String,
        /// The error, and what to write instead.
        reason: String,
    },
    /// The config file is wrong.
    #[error("{}, line {line}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error, and what to write instead.
        reason: String,
    },
    /// A flag, or its environment variable, is wrong.
    #[error("{given}: {reason}")]
    Flag {
        /// The flag or the variable.
        given: String,
        /// The error, and what to write instead.
        reason: String,
    },
    /// The config file cannot be read.
    #[error("{}: cannot read the config file: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        reason: String,
    },
}

impl ConfigError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Content { .. } | Self::File { .. } | Self::Unreadable { .. } => exit::CONFIG,
            Self::Flag { .. } => exit::USAGE,
        }
    }
}
