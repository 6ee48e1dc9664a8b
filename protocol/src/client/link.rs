//! One connection to a supervisor, before and after it is shared between threads.

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

/// Opens a connection and shakes hands.
pub(super) fn open(path: &PathBuf) -> Result<FrameReader, ClientError> {
    let no_pool = |source| ClientError::NoPool { path: path.clone(), source };
    greet(UnixStream::connect(path).map_err(no_pool)?)
}

/// Shakes hands on a connection.
pub(super) fn greet(socket: UnixStream) -> Result<FrameReader, ClientError> {
    socket.set_write_timeout(Some(SEND_TIMEOUT)).map_err(FrameError::Io)?;
    let mut reader = FrameReader::with_descriptors(socket);
    let hello = encode(&ClientMessage::Hello { version: PROTOCOL_VERSION });
    let sent = hello.and_then(|hello| send_frame(reader.socket(), &hello));
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
        | ServerMessage::Drained { .. }
        | ServerMessage::Granted { .. }
        | ServerMessage::Metrics { .. }
        | ServerMessage::Models { .. }
        | ServerMessage::Refused { .. }
        | ServerMessage::Policy { .. }
        | ServerMessage::Status { .. } => Err(ClientError::unexpected(&message)),
    }
}

/// How long a message may wait for room: a supervisor that lives always reads.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// One message as bytes for the socket.
pub(super) fn encode(message: &ClientMessage) -> Result<Vec<u8>, ClientError> {
    let body = codec::encode(message)
        .map_err(|error| ClientError::Frame(FrameError::Io(io::Error::other(error))))?;
    Ok(frame::pack(&body, 0))
}

/// Sends an encoded message, waiting for room.
pub(super) fn send_frame(socket: &UnixStream, frame: &[u8]) -> Result<(), ClientError> {
    frame::send_all(socket, frame, &[]).map_err(|error| ClientError::Frame(FrameError::Io(error)))
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
    pub(super) fn into_arena(self) -> Result<(ArenaId, ArenaMap), ClientError> {
        match (&self.message, self.arena) {
            (&ServerMessage::ArenaCreated { arena, .. }, Some(map)) => Ok((arena, map)),
            (message, _) => Err(ClientError::unexpected(message)),
        }
    }
}
