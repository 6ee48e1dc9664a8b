//! Why a socket yields no further frame.

use std::io;

use gridpool_protocol::limits::{FRAME_BYTES_MAX, FRAME_TIMEOUT};
use nix::errno::Errno;

/// Why a socket yields no further frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer closed the connection between two frames.
    #[error("the connection was closed")]
    Closed,
    /// The peer closed the connection inside a frame.
    #[error("the connection was closed inside a frame")]
    Truncated,
    /// The bytes are not of this protocol.
    #[error("not a gridpool frame: it starts with {0:02x?}")]
    Magic([u8; 4]),
    /// The frame announces more than a frame may hold.
    #[error("a frame of {bytes} bytes; at most {FRAME_BYTES_MAX} are allowed")]
    TooLong {
        /// The announced length.
        bytes: usize,
    },
    /// The descriptors are not those announced.
    #[error("a frame with {got} descriptors where {want} were announced or allowed")]
    Descriptors {
        /// Received.
        got: usize,
        /// Announced, or the most allowed.
        want: usize,
    },
    /// The rest of a frame did not arrive.
    #[error("a frame was not completed within {FRAME_TIMEOUT:?}")]
    Stalled,
    /// A system call failed.
    #[error("socket")]
    Io(#[source] io::Error),
}

impl From<Errno> for FrameError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}
