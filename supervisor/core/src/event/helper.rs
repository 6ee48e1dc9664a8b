//! Helper processes, and what the shell reports of them.

use std::fmt;
use std::time::Duration;

/// A helper process: it serves the pool and runs no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Helper {
    /// Takes jobs of a cluster.
    Bridge,
    /// Serves HTTP.
    Gateway,
    /// Watches the GPUs.
    Monitor,
    /// Sends traces to their collector.
    Tracer,
}

impl Helper {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bridge, Self::Gateway, Self::Monitor, Self::Tracer];
}

impl fmt::Display for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bridge => "the bridge",
            Self::Gateway => "the gateway",
            Self::Monitor => "the monitor",
            Self::Tracer => "the tracer",
        })
    }
}

/// What a helper process does, and whether it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelperEvent {
    /// Its process is gone.
    Exited,
    /// It gave a sign of life.
    Heard,
    /// Its process is of no use: it has closed its link, or broken the protocol.
    Lost {
        /// In words.
        why: String,
    },
    /// Its process could not be started.
    SpawnFailed,
    /// It is no longer wanted, and has this long for its open requests.
    Leaves {
        /// Then it is killed.
        within: Duration,
    },
    /// It is no longer wanted.
    Unwanted,
    /// It is wanted from now on.
    Wanted,
}
