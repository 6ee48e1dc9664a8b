//! A relay between one client and the pool that tampers with what the pool says. It exists to show that
//! the checker sees each thing that a pool must never do.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use gridpool_ipc::frame::{self, Frame, FrameReader};
use gridpool_protocol::codec;
use gridpool_protocol::message::ServerMessage;
use tempfile::TempDir;

/// What a relay does to every third reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    /// Nothing: all goes through as it is.
    Nothing,
    /// It is not passed on.
    Drop,
    /// It is passed on twice.
    Double,
    /// It comes with the verdict and result of the one after it, and the other way round.
    Swap,
    /// One byte of its result is another: the first cell, which lies here.
    WrongByte {
        /// Where in the result.
        at: usize,
    },
    /// Its result is that of the reply before it.
    ReuseBuffer,
}

/// A relay for one connection.
#[derive(Debug)]
pub struct Proxy {
    folder: TempDir,
    relay: Option<JoinHandle<io::Result<()>>>,
}

impl Proxy {
    /// Listens. The first client to connect talks to the pool at `pool`.
    ///
    /// # Errors
    /// The system's.
    pub fn open(pool: &Path, tamper: Tamper) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("proxy.sock"))?;
        let pool = pool.to_owned();
        let relay = thread::spawn(move || relay(&listener, &pool, tamper));
        Ok(Self { folder, relay: Some(relay) })
    }

    /// Where its client connects.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("proxy.sock")
    }

    /// Waits for the end of its client.
    ///
    /// # Errors
    /// What the relay says.
    ///
    /// # Panics
    /// If the relay did.
    pub fn close(mut self) -> io::Result<()> {
        let relay = self.relay.take().expect("it is closed once");
        relay.join().expect("the relay does not panic")
    }
}

fn relay(listener: &UnixListener, pool: &Path, tamper: Tamper) -> io::Result<()> {
    let (client, _) = listener.accept()?;
    let pool = UnixStream::connect(pool)?;
    let (from_client, to_pool) = (client.try_clone()?, pool.try_clone()?);
    let up = thread::spawn(move || {
        let mut reader = FrameReader::with_descriptors(from_client);
        while let Ok(Some(frame)) = reader.read(None) {
            if send(&to_pool, &frame).is_err() {
                break;
            }
        }
        // Its client has left: so does it.
        drop(to_pool.shutdown(Shutdown::Both));
    });
    let mut reader = FrameReader::with_descriptors(pool);
    let mut hand = Hand { tamper, seen: 0, held: None, before: None };
    while let Ok(Some(frame)) = reader.read(None) {
        let sent = hand.touch(frame).iter().try_for_each(|frame| send(&client, frame));
        if sent.is_err() {
            break;
        }
    }
    drop(client.shutdown(Shutdown::Both));
    up.join().map_err(|_| io::Error::other("the way up panicked"))
}

fn send(socket: &UnixStream, frame: &Frame) -> io::Result<()> {
    let fds: Vec<_> = frame.fds.iter().map(AsFd::as_fd).collect();
    frame::send_all(socket, &frame::pack(&frame.body, fds.len()), &fds)
}

/// What the relay remembers to do its deeds.
struct Hand {
    tamper: Tamper,
    /// Verdicts so far.
    seen: usize,
    held: Option<ServerMessage>,
    before: Option<ServerMessage>,
}

impl Hand {
    /// The frames that are passed on for one.
    fn touch(&mut self, frame: Frame) -> Vec<Frame> {
        let Ok(message) = codec::decode::<ServerMessage>(&frame.body) else { return vec![frame] };
        if !matches!(message, ServerMessage::Done { .. }) {
            return vec![frame];
        }
        self.seen += 1;
        let is_chosen = self.seen.is_multiple_of(3);
        let before = self.before.replace(message.clone());
        let messages = match (self.tamper, self.held.take()) {
            (Tamper::Swap, Some(held)) => swapped(held, message),
            (_, _) if !is_chosen => vec![message],
            (Tamper::Swap, None) => {
                self.held = Some(message);
                Vec::new()
            }
            (Tamper::Nothing, _) => vec![message],
            (Tamper::Drop, _) => Vec::new(),
            (Tamper::Double, _) => vec![message.clone(), message],
            (Tamper::WrongByte { at }, _) => vec![with_byte(message, at)],
            (Tamper::ReuseBuffer, _) => vec![with_result_of(message, before)],
        };
        let frame = |message| Frame {
            body: codec::encode(&message).expect("it came in a frame"),
            fds: Vec::new(),
        };
        messages.into_iter().map(frame).collect()
    }
}

/// Two replies under each other's keys.
fn swapped(mut one: ServerMessage, mut two: ServerMessage) -> Vec<ServerMessage> {
    if let (ServerMessage::Done { key: first, .. }, ServerMessage::Done { key: second, .. }) =
        (&mut one, &mut two)
    {
        std::mem::swap(first, second);
    }
    vec![one, two]
}

fn with_byte(mut message: ServerMessage, at: usize) -> ServerMessage {
    if let ServerMessage::Done { output: Some(output), .. } = &mut message {
        output.0[at] = (output.0[at] + 1) % 10;
    }
    message
}

fn with_result_of(mut message: ServerMessage, other: Option<ServerMessage>) -> ServerMessage {
    if let ServerMessage::Done { output: Some(output), .. } = &mut message
        && let Some(ServerMessage::Done { output: Some(before), .. }) = other
    {
        *output = before;
    }
    message
}
