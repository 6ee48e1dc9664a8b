//! What can go wrong between a client and its pool.

use std::io;
use std::path::PathBuf;

use crate::batch::BatchError;
use crate::frame::FrameError;
use crate::message::{Refusal, ServerMessage};
use crate::output::MalformedOutput;
use crate::tensor::TensorError;

/// Why a call of the client library gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No pool answers at the socket.
    #[error(
        "no pool is running at {}: start one with `gridpool serve`, or name its socket with \
         --socket", path.display()
    )]
    NoPool {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The connection was lost and could not be made again in time.
    #[error("the connection to the pool was lost; what became of this request is not known")]
    Lost,
    /// The pool did not answer in time, although the connection stands.
    #[error("the pool does not answer: it may be stopped or overloaded")]
    Silent,
    /// The supervisor closed the connection and said why.
    #[error("the pool closed the connection: {0}")]
    Closed(String),
    /// The supervisor speaks another version.
    #[error("the supervisor speaks protocol {theirs}, this client {ours}")]
    Version {
        /// The supervisor's.
        theirs: u32,
        /// The client's.
        ours: u32,
    },
    /// The pool refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The batch is out of bounds.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The result bytes are not what the program gives.
    #[error(transparent)]
    Malformed(#[from] MalformedOutput),
    /// The pool's frames are not of this protocol, or the socket fails.
    #[error("connection to the pool")]
    Frame(#[from] FrameError),
    /// The pool answered something else than was asked.
    #[error("the pool answered something unexpected: {0}")]
    Unexpected(String),
    /// What a model is said to have given are no tensors.
    #[error("the outputs cannot be read")]
    Tensors(#[from] TensorError),
    /// Shared memory could not be mapped.
    #[error("shared memory")]
    Arena(#[from] crate::arena::ArenaError),
}

impl ClientError {
    /// The error for a message in place of the one that was awaited.
    pub(super) fn unexpected(message: &ServerMessage) -> Self {
        if let ServerMessage::Denied { refusal, .. } = message {
            return refusal.clone().into();
        }
        if let ServerMessage::Closing { reason } = message {
            return Self::Closed(reason.clone());
        }
        Self::Unexpected(format!("{message:?}"))
    }
}
