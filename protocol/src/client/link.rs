//! One connection to a supervisor, before and after it is shared between threads.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::ClientError;
use crate::arena::{Arena, ArenaMap};
use crate::codec;
use crate::frame::{self, Frame, FrameError, FrameReader};
use crate::ids::ArenaId;
use crate::limits::{HANDSHAKE_TIMEOUT, PROTOCOL_VERSION};
use crate::message::{ClientMessage, ServerMessage};

/// Where the pool is.
#[derive(Debug)]
pub(super) enum Endpoint {
    /// Behind a socket: a lost connection can be made again.
    Path(PathBuf),
    /// At the other end of a socket pair: once lost, lost for good.
    Given,
}

/// One message of the supervisor and the arena beside it, mapped.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) message: ServerMessage,
    pub(super) arena: Option<ArenaMap>,
}

/// A mapped arena of this connection.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: ArenaId,
    pub(super) bytes: u64,
    pub(super) map: ArenaMap,
}

/// Opens a connection and shakes hands.
pub(super) fn open(path: &PathBuf) -> Result<FrameReader, ClientError> {
    let no_pool = |source| ClientError::NoPool { path: path.clone(), source };
    greet(UnixStream::connect(path).map_err(no_pool)?)
}

/// Shakes hands on a connection.
pub(super) fn greet(socket: UnixStream) -> Result<FrameReader, ClientError> {
    socket.set_write_timeout(Some(SEND_TIMEOUT)).map_err(FrameError::Io)?;
    let mut reader = FrameReader::with_descriptors(socket);
    let sent = send(reader.socket(), &ClientMessage::Hello { version: PROTOCOL_VERSION });
    // A pool that is full says so and hangs up, perhaps before the hello is sent.
    let read = reader.read(Some(HANDSHAKE_TIMEOUT));
    let Some(frame) = read.or_else(|error| sent.and(Err(error.into())))? else {
        return Err(ClientError::Closed("it did not answer the hello".to_owned()));
    };
    let message = decode(frame)?.message;
    match message {
        ServerMessage::Welcome { version: PROTOCOL_VERSION } => Ok(reader),
        ServerMessage::Welcome { version } => {
            Err(ClientError::Version { theirs: version, ours: PROTOCOL_VERSION })
        }
        ServerMessage::Accepted { .. }
        | ServerMessage::ArenaCreated { .. }
        | ServerMessage::Closing { .. }
        | ServerMessage::Denied { .. }
        | ServerMessage::Done { .. }
        | ServerMessage::Granted { .. }
        | ServerMessage::Refused { .. }
        | ServerMessage::Status { .. } => Err(ClientError::unexpected(&message)),
    }
}

/// How long a message may wait for room: a supervisor that lives always reads.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends one message, waiting for room.
pub(super) fn send(socket: &UnixStream, message: &ClientMessage) -> Result<(), ClientError> {
    let body = codec::encode(message)
        .map_err(|error| ClientError::Frame(FrameError::Io(io::Error::other(error))))?;
    frame::send_all(socket, &frame::pack(&body, 0), &[])
        .map_err(|error| ClientError::Frame(FrameError::Io(error)))
}

/// Decodes a frame and maps the arena beside it.
pub(super) fn decode(frame: Frame) -> Result<Received, ClientError> {
    let message = codec::decode(&frame.body)
        .map_err(|error| ClientError::Frame(FrameError::Io(io::Error::other(error))))?;
    let arena = match (&message, frame.fds.into_iter().next()) {
        (ServerMessage::ArenaCreated { bytes, .. }, Some(fd)) => {
            Some(Arena::accept(fd, *bytes)?.map()?)
        }
        _ => None,
    };
    Ok(Received { message, arena })
}

/// The next message; `None` if none has begun within `patience`.
pub(super) fn receive(
    reader: &mut FrameReader,
    patience: Option<Duration>,
) -> Result<Option<Received>, ClientError> {
    reader.read(patience)?.map(decode).transpose()
}

impl Received {
    /// The arena that was asked for.
    pub(super) fn into_lease(self) -> Result<Lease, ClientError> {
        match (&self.message, self.arena) {
            (&ServerMessage::ArenaCreated { arena, bytes, .. }, Some(map)) => {
                Ok(Lease { id: arena, bytes, map })
            }
            (message, _) => Err(ClientError::unexpected(message)),
        }
    }
}

/// Free arenas of one connection, kept for the next job: a worker has registered them already.
#[derive(Debug, Default)]
pub(super) struct ArenaCache {
    free: VecDeque<Lease>,
}

/// Free arenas kept.
const FREE_ARENAS_MAX: usize = 8;

impl ArenaCache {
    /// The smallest free arena with room, unless it would waste more than it holds.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Lease> {
        let fits = |lease: &Lease| lease.bytes >= bytes && lease.bytes / 4 <= bytes.max(1 << 16);
        let best = self.free.iter().enumerate().filter(|(_, lease)| fits(lease));
        let (index, _) = best.min_by_key(|(_, lease)| lease.bytes)?;
        self.free.remove(index)
    }

    /// Keeps an arena for later; gives back the one that must go for it, if any.
    pub(super) fn keep(&mut self, lease: Lease) -> Option<Lease> {
        self.free.push_back(lease);
        if self.free.len() > FREE_ARENAS_MAX { self.free.pop_front() } else { None }
    }

    /// Gives back everything.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Lease> {
        self.free.drain(..)
    }
}
