//! Messages over one connection to a supervisor: handshake, sending, receiving.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use gridpool_ipc::account::Account;
use gridpool_ipc::arena::{Arena, ArenaMap};
use gridpool_ipc::clock;
use gridpool_ipc::frame::{self, FrameError, FrameReader};
use gridpool_ipc::{socket, trust};
use gridpool_protocol::codec;
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::limits::{HANDSHAKE_TIMEOUT, PROTOCOL_VERSION};
use gridpool_protocol::message::{ClientMessage, NOT_SHARED, ServerMessage};

use super::ClientError;
use super::busy::RETRY_EVERY;

/// How to reach the pool.
#[derive(Debug)]
pub(super) enum Endpoint {
    /// A socket's path, and the user of the pool that was there first. The client can reconnect.
    Path(PathBuf, Account),
    /// The other end of a socket pair. The client cannot reconnect.
    Given(#[expect(dead_code, reason = "it is kept, not used")] Kept),
}

/// What has to live as long as a connection: what answers at its other end, if that is in this process.
pub(super) type Kept = Option<Box<dyn Debug + Send + Sync>>;

/// A socket that was made by another part of this process.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) socket: UnixStream,
    pub(super) kept: Kept,
}

/// One message of the supervisor, and the arena that came with it, mapped.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) message: ServerMessage,
    pub(super) arena: Option<ArenaMap>,
}

/// Opens a connection as [`open`] does, and waits for a pool that is not there yet.
pub(super) fn open_within(path: &PathBuf, timeout: Duration) -> Result<FrameReader, ClientError> {
    let give_up = clock::now() + timeout;
    loop {
        match open(path) {
            Err(ClientError::NoPool { .. }) if !clock::until(give_up).is_zero() => {
                thread::park_timeout(RETRY_EVERY.min(clock::until(give_up)));
            }
            opened => return opened,
        }
    }
}

/// Opens a connection and shakes hands. Another user's process may have taken the socket's name, so nothing is
/// sent to one, unless the caller has named the socket and only the pool's user and root could put it there.
/// Root's may be the service manager, which opens the socket before it starts the pool.
pub(super) fn open(path: &PathBuf) -> Result<FrameReader, ClientError> {
    let connected = UnixStream::connect(path);
    let connected = connected.map_err(|source| ClientError::connecting(path, source))?;
    let (owner, me) =
        (Account::of_peer(&connected).map_err(ClientError::Connection)?, Account::mine());
    let other = || ClientError::OtherUser { path: path.clone(), owner, me };
    if owner != me && owner != Account::new(0) {
        if *path == socket::default_path().0 {
            return Err(other());
        }
        let barrier = trust::barrier(path, owner);
        let barrier = barrier.map_err(|source| ClientError::connecting(path, source))?;
        if let Some(barrier) = barrier {
            return Err(ClientError::Replaceable { path: path.clone(), owner, me, barrier });
        }
    }
    match greet(connected) {
        Err(ClientError::Closed(reason)) if reason.starts_with(NOT_SHARED) => Err(other()),
        // It has ended before it had greeted.
        Err(ClientError::Connection(source)) if has_ended(&source) => {
            Err(ClientError::connecting(path, source))
        }
        greeted => greeted,
    }
}

/// Whether the other end of a socket has gone.
fn has_ended(error: &io::Error) -> bool {
    let error = match error.get_ref().and_then(|source| source.downcast_ref::<FrameError>()) {
        Some(FrameError::Closed) => return true,
        Some(FrameError::Io(error)) => error,
        Some(_) | None => error,
    };
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The user of the pool at the other end.
pub(super) fn owner(reader: &FrameReader) -> Result<Account, ClientError> {
    Account::of_peer(reader.socket()).map_err(ClientError::Connection)
}

/// Opens a connection as [`open`] does, to a pool of the same user as before, of root or of our own. What the client
/// has to send again is for no other's, who may have taken the socket's name.
pub(super) fn open_again(path: &PathBuf, before: Account) -> Result<FrameReader, ClientError> {
    let reader = open(path)?;
    let owner = owner(&reader)?;
    if [before, Account::mine(), Account::new(0)].contains(&owner) {
        return Ok(reader);
    }
    let path = path.display();
    let why = format!("the pool at {path} belonged to {before}, and now one of {owner} is there");
    Err(ClientError::Closed(why))
}

/// Shakes hands on a connection.
pub(super) fn greet(socket: UnixStream) -> Result<FrameReader, ClientError> {
    socket.set_write_timeout(Some(SEND_TIMEOUT)).map_err(ClientError::Connection)?;
    let mut reader = FrameReader::with_descriptors(socket);
    let hello = encode(&ClientMessage::Hello { version: PROTOCOL_VERSION });
    let sent = hello.and_then(|hello| send_frame(reader.socket(), &hello));
    // A full pool sends its reason and closes the connection, perhaps before this sends the hello.
    let read = reader.read(Some(HANDSHAKE_TIMEOUT));
    let Some(frame) = read.or_else(|error| sent.and(Err(error.into())))? else {
        return Err(ClientError::Silent);
    };
    let message = decode(&frame.body, frame.fds)?.message;
    let ServerMessage::Welcome { version: theirs } = message else {
        return Err(ClientError::unexpected(&message));
    };
    match theirs {
        PROTOCOL_VERSION => Ok(reader),
        theirs => Err(ClientError::Version { theirs, ours: PROTOCOL_VERSION }),
    }
}

/// How long sending may block. A living supervisor always reads.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Encodes one message as a frame.
pub(super) fn encode(message: &ClientMessage) -> Result<Vec<u8>, ClientError> {
    let mut frame = Vec::new();
    append(message, &mut frame).map(|()| frame)
}

/// Appends the frame of a message.
pub(super) fn append(message: &ClientMessage, frames: &mut Vec<u8>) -> Result<(), ClientError> {
    let appended = frame::append(message, 0, frames);
    appended.map_err(|error| ClientError::Connection(io::Error::other(error)))
}

/// Sends a frame. Blocks while the socket is full.
pub(super) fn send_frame(socket: &UnixStream, frame: &[u8]) -> Result<(), ClientError> {
    frame::send_all(socket, frame, &[]).map_err(ClientError::Connection)
}

/// Decodes a frame's body, and maps the arena that came with it.
pub(super) fn decode(body: &[u8], fds: Vec<OwnedFd>) -> Result<Received, ClientError> {
    let message = codec::decode(body);
    let message = message.map_err(|error| ClientError::Connection(io::Error::other(error)))?;
    let arena = match (&message, fds.into_iter().next()) {
        (ServerMessage::ArenaCreated { bytes, .. }, Some(fd)) => {
            Some(Arena::accept(fd, *bytes)?.map()?)
        }
        _ => None,
    };
    Ok(Received { message, arena })
}

/// Receives the next message; `None` if none arrives within `timeout`.
pub(super) fn receive(
    reader: &mut FrameReader,
    timeout: Option<Duration>,
) -> Result<Option<Received>, ClientError> {
    reader.read_with(timeout, decode)?.transpose()
}

/// Receives the next message, if all of it has arrived.
#[cfg(feature = "async")]
pub(super) fn receive_arrived(reader: &mut FrameReader) -> Result<Option<Received>, ClientError> {
    reader.read_arrived_with(decode)?.transpose()
}

/// Takes the next message, if it came together with an earlier one.
pub(super) fn take(reader: &mut FrameReader) -> Result<Option<Received>, ClientError> {
    reader.take_frame_with(decode)?.transpose()
}

impl Received {
    /// The requested arena.
    pub(super) fn into_arena(self) -> Result<(ArenaId, ArenaMap), ClientError> {
        match (&self.message, self.arena) {
            (&ServerMessage::ArenaCreated { arena, .. }, Some(map)) => Ok((arena, map)),
            (message, _) => Err(ClientError::unexpected(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_pool_that_ends_before_it_greets_is_waited_for() {
        let path = std::env::temp_dir().join(format!("gridpool-client-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let pool = thread::spawn(move || {
            // A pool that ends closes connections that it has not read.
            drop(listener.accept().unwrap());
            let mut reader = FrameReader::new(listener.accept().unwrap().0);
            reader.read(Some(HANDSHAKE_TIMEOUT)).unwrap();
            let welcome = frame::of(&ServerMessage::Welcome { version: PROTOCOL_VERSION }, 0);
            frame::send_all(reader.socket(), &welcome.unwrap(), &[]).unwrap();
        });
        let opened = open_within(&path, HANDSHAKE_TIMEOUT);
        std::fs::remove_file(&path).unwrap();
        assert!(opened.is_ok(), "{opened:?}");
        pool.join().unwrap();
    }
}
