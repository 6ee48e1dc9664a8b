//! Why a capsule cannot be run, and the exit code.

use std::fmt;
use std::io;
use std::path::PathBuf;

use gridpool_protocol::exit::cli as exit;

use crate::capsule::CapsuleError;

/// The capsules of a state folder, for who has named none of them.
#[derive(Debug)]
pub(in crate::cli) struct Kept {
    /// Where they lie; `None` if no state folder is known.
    pub(super) folder: Option<PathBuf>,
    /// The names of the latest, or why they are not known.
    pub(super) latest: io::Result<Vec<String>>,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(folder) = &self.folder else { return f.write_str("the pool's state folder") };
        write!(f, "{}", folder.display())?;
        match &self.latest {
            Ok(names) if names.is_empty() => f.write_str(" (which has none)"),
            Ok(names) => write!(f, " (its latest: {})", names.join(", ")),
            Err(error) => write!(f, " ({error})"),
        }
    }
}

/// Why a capsule cannot be run.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ReplayError {
    /// There is no file of that name, here or among the pool's capsules.
    #[error(
        "there is no file {0}: name the file of a capsule, or a capsule in {kept}; `--state-dir` names another pool's \
         state folder", typed.display()
    )]
    Missing { typed: PathBuf, kept: Kept },
    /// It cannot be read.
    #[error("{}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is another user's.
    #[error("{}: only the pool's user and root can read a capsule", path.display())]
    NotAllowed { path: PathBuf },
    /// It is no capsule.
    #[error("{}", path.display())]
    Capsule {
        path: PathBuf,
        #[source]
        error: CapsuleError,
    },
    /// It has nothing that could be run.
    #[error("the capsule cannot be run: {0}")]
    Lacks(String),
    /// The file of a model is another than when the worker died.
    #[error(
        "the model `{name}` cannot be run as it was: {} {why}", path.display()
    )]
    Model { name: String, path: PathBuf, why: String },
    /// No worker came up.
    #[error("no worker serves on {devices}: {why}")]
    NoWorker { devices: String, why: String },
    /// A worker has not ended in time after it lost its job.
    #[error("{worker} has lost its job and has not ended in time: how it ends is not known")]
    Unsettled { worker: String },
    /// A worker has died of something that has no capsule.
    #[error("{worker} died in the replay, but not by its work, or its death could not be written")]
    Unexplained { worker: String },
    /// The tool is not there.
    #[error(
        "compute-sanitizer is not in PATH: install the CUDA toolkit (Debian: cuda-sanitizer), or add its folder \
         to PATH, such as /usr/local/cuda/bin"
    )]
    NoSanitizer,
}

impl ReplayError {
    pub(in crate::cli) fn exit_code(&self) -> u8 {
        match self {
            Self::Capsule { .. }
            | Self::Lacks(_)
            | Self::Missing { .. }
            | Self::Model { .. }
            | Self::Open { .. } => exit::DATA,
            Self::NotAllowed { .. } => exit::NOT_ALLOWED,
            Self::NoSanitizer
            | Self::NoWorker { .. }
            | Self::Unexplained { .. }
            | Self::Unsettled { .. } => exit::UNAVAILABLE,
        }
    }
}
