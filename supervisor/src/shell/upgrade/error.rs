//! Why a pool cannot be upgraded.

use std::io;
use std::path::PathBuf;

use gridpool_protocol::limits::PROTOCOL_VERSION;

/// Why a pool was not replaced. It goes on.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The pool drains or ends.
    #[error("the pool is about to end: start the next one when it has ended")]
    Ending,
    /// It has begun to drain or end since the successor was started.
    #[error(
        "the pool has begun to end since {} was started, which does not take over: start the next one when it has \
         ended",
        program.display()
    )]
    Ended {
        /// The program.
        program: PathBuf,
    },
    /// It is the first process of its container.
    #[error(
        "this pool is process 1 of its container, which ends with it: start a container of the new version instead, or \
         run the pool below an init (docker run --init)"
    )]
    Init,
    /// There is one already.
    #[error(
        "an upgrade is under way already: wait for its end, which the log tells. If its successor does not come up, \
         `gridpool upgrade` starts another in its place from {replaceable_s} s after its start"
    )]
    InProgress {
        /// From when on another order takes its place.
        replaceable_s: f64,
    },
    /// The pool that this one has replaced has not ended.
    #[error(
        "the pool before this one (pid {pid}) still finishes its jobs; it ends within {within_s} s of its upgrade, and \
         is killed if it does not: type `gridpool upgrade` again then"
    )]
    Predecessor {
        /// Its process.
        pid: u32,
        /// How long it may take.
        within_s: u64,
    },
    /// The pool has no socket of its own.
    #[error(
        "this pool serves one command alone: only `gridpool serve` starts one that can be upgraded"
    )]
    Private,
    /// There is no program, no descriptor or no thread.
    #[error("{} cannot be started, and the pool goes on", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It speaks another protocol.
    #[error(
        "{} speaks protocol {theirs} and this pool {PROTOCOL_VERSION}, so the clients of this pool could not go over, \
         and the pool goes on: to use it all the same, type `gridpool drain`, and start it", program.display()
    )]
    Version {
        /// The program.
        program: PathBuf,
        /// Its version.
        theirs: u32,
    },
    /// It did not take over.
    #[error("{} does not take over, and the pool goes on: {why}", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// Why.
        why: String,
    },
}

impl UpgradeError {
    /// Whether the upgrade had begun: then it has failed, and was not refused.
    pub(in crate::shell) fn has_begun(&self) -> bool {
        match self {
            Self::Ended { .. }
            | Self::Failed { .. }
            | Self::Start { .. }
            | Self::Version { .. } => true,
            Self::Ending
            | Self::InProgress { .. }
            | Self::Init
            | Self::Predecessor { .. }
            | Self::Private => false,
        }
    }
}
