//! Why a capsule cannot be read or run.

use std::fmt::Display;
use std::io;

use super::{READ_BYTES_MAX, VERSION};

/// Why a capsule cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CapsuleError {
    /// The system refused.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// It is longer than any capsule.
    #[error("it has more than {} MiB, and no capsule is so large", READ_BYTES_MAX >> 20)]
    TooLarge,
    /// It is not JSON, or not of the shape of a capsule.
    #[error("it is not a capsule")]
    NotJson(#[source] serde_json::Error),
    /// It is some other JSON.
    #[error(
        "it is JSON but not a capsule, which a pool writes when a worker dies at its work: it has no \
         `gridpool_capsule`; `gridpool run` and `gridpool infer` take inputs"
    )]
    NoCapsule,
    /// Another version of gridpool has written it.
    #[error(
        "it is a capsule of version {version}; this gridpool reads version {VERSION}: use the gridpool that has \
         written it"
    )]
    Version {
        /// Its version.
        version: u32,
    },
    /// Something in it is impossible.
    #[error("it is no capsule that gridpool has written: {0}")]
    Wrong(String),
}

impl CapsuleError {
    pub(super) fn wrong(why: impl Display) -> Self {
        Self::Wrong(why.to_string())
    }
}
