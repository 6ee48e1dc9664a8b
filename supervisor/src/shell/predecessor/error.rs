//! Why a pool does not take the place of another.

use std::io;
use std::path::PathBuf;

use gridpool_core::config::MODELS_MAX;

use super::super::claim::ListenError;
use super::super::gateway::HttpError;

/// Why this process does not take over. The predecessor goes on.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// No pool has started this process for that.
    #[error("a pool starts its successor by itself: type `gridpool upgrade`")]
    Orphan,
    /// The predecessor has another socket.
    #[error(
        "the pool that runs serves {}, and the settings name {}: to change the socket, type `gridpool drain`, and \
         start the pool again", theirs.display(), ours.display()
    )]
    Socket {
        /// The predecessor's.
        theirs: PathBuf,
        /// Ours.
        ours: PathBuf,
    },
    /// Its models and those of the settings are too many.
    #[error(
        "the settings and the models that were loaded since make {0} models, and a pool has at most {MODELS_MAX}: \
         unload some first"
    )]
    Models(usize),
    /// A model that the predecessor runs does not load here.
    #[error(
        "the model `{name}` serves in the pool that runs, and could not be loaded again: {why}"
    )]
    Model {
        /// Its name.
        name: String,
        /// What the first worker says.
        why: String,
    },
    /// The predecessor has given up, or sends something else than it should.
    #[error("the pool that runs has given up: {0}")]
    GivenUp(String),
    /// The socket cannot be served.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// HTTP cannot be served.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The system refused.
    #[error("the link to the pool that runs")]
    Link(#[source] io::Error),
}
