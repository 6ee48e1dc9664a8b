//! The two directions between the supervisor and one worker.
//!
//! To the worker: encoded messages in ipc-channel's packets. The worker opens a one-shot server, and the
//! supervisor connects to it and hands over the receiving end. Only ipc-channel's typed receivers can wait
//! with a timeout, so the packet type holds the encoded bytes. Only this file names ipc-channel.
//!
//! From the worker: frames on its lifeline. A crafted packet aborts a process that receives it with
//! ipc-channel, and a corrupt worker may send anything, so the supervisor receives nothing with ipc-channel.
//!
//! `send` of ipc-channel blocks if the peer does not read, so the supervisor keeps fewer messages
//! outstanding than the channel holds. `accept` has no timeout, but only a worker calls it, and a worker dies
//! with its supervisor.

mod connecting;

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridpool_protocol::codec::{self, DecodeError, EncodeError};
use gridpool_protocol::message::{FromWorker, ToWorker};
use ipc_channel::ipc::{self, IpcOneShotServer, IpcReceiver, IpcSender};
use ipc_channel::{IpcError, TryRecvError};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::frame::{self, FrameError, FrameReader};
use crate::mutex::Mutex;
use crate::spin::{Ask, SpinWait};

/// Why a channel cannot send or receive.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer is gone.
    #[error("the other end of the channel is gone")]
    Disconnected,
    /// The bytes are not a message of this protocol.
    #[error("channel")]
    Decode(#[source] DecodeError),
    /// The message is too long to send.
    #[error("channel")]
    Encode(#[source] EncodeError),
    /// The bytes are not a frame.
    #[error("lifeline")]
    Frame(#[source] FrameError),
    /// A system call failed.
    #[error("channel")]
    Io(#[source] io::Error),
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        if gone.contains(&error.kind()) { Self::Disconnected } else { Self::Io(error) }
    }
}

impl From<IpcError> for ChannelError {
    fn from(error: IpcError) -> Self {
        match error {
            IpcError::Disconnected => Self::Disconnected,
            IpcError::Io(error) => error.into(),
            IpcError::SerializationError(error) => Self::Io(io::Error::other(error)),
        }
    }
}

impl From<FrameError> for ChannelError {
    fn from(error: FrameError) -> Self {
        match error {
            // A worker that is killed may be in the middle of a frame.
            FrameError::Closed | FrameError::Truncated => Self::Disconnected,
            FrameError::Io(error) => error.into(),
            FrameError::Descriptors { .. }
            | FrameError::Magic(_)
            | FrameError::Stalled
            | FrameError::TooLong { .. } => Self::Frame(error),
        }
    }
}

/// How long a worker's listener may take for a connection. It listens before it says its name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An encoded message.
#[derive(Debug, Serialize, Deserialize)]
struct Packet(#[serde(with = "codec::bytes")] Vec<u8>);

/// The supervisor's sending end.
#[derive(Debug)]
pub struct Sender(IpcSender<Packet>);

impl Sender {
    /// Connects to the listener that a worker has named, and hands over the receiving end.
    ///
    /// # Errors
    /// [`ChannelError`] if there is no such listener, or it takes no connection in time.
    pub fn connect(name: &str) -> Result<Self, ChannelError> {
        // ipc-channel panics at a NUL.
        let is_socket =
            fs::symlink_metadata(name).map_err(ChannelError::Io)?.file_type().is_socket();
        if !is_socket {
            return Err(ChannelError::Io(io::ErrorKind::NotFound.into()));
        }
        // Before the worker sees a connection, which it takes only once.
        let (sender, receiver) = ipc::channel::<Packet>().map_err(ChannelError::Io)?;
        let name = name.to_owned();
        let connected = connecting::connect(CONNECT_TIMEOUT, move || IpcSender::connect(name));
        let to_worker = connected.map_err(ChannelError::Io)?;
        to_worker.send(receiver)?;
        Ok(Self(sender))
    }

    /// Sends one message.
    ///
    /// # Errors
    /// [`ChannelError`]. After `Disconnected` or `Io` the channel is unusable.
    pub fn send(&self, message: &impl Serialize) -> Result<(), ChannelError> {
        let bytes = codec::encode(message).map_err(ChannelError::Encode)?;
        self.0.send(Packet(bytes)).map_err(ChannelError::from)
    }
}

/// The worker's side, before the supervisor has connected.
pub struct Listener(IpcOneShotServer<IpcReceiver<Packet>>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

impl Listener {
    /// Opens a listener, and returns its name for the worker's first message. Its socket lies in `folder`; the
    /// first listener of a process decides.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(folder: &Path) -> io::Result<(Self, String)> {
        drop(tempfile::env::override_temp_dir(folder));
        // ipc-channel panics if it cannot make a folder for its socket. This returns the error instead.
        drop(tempfile::tempdir()?);
        let (server, name) = connecting::making(IpcOneShotServer::new)?;
        Ok((Self(server), name))
    }

    /// Receives the receiving end from the supervisor. Blocks until the supervisor has connected.
    ///
    /// # Errors
    /// [`ChannelError`] if it receives anything else.
    pub fn accept(self) -> Result<Receiver, ChannelError> {
        let (_, packets) = self.0.accept()?;
        Ok(Receiver { packets, wait: SpinWait::new(Duration::ZERO) })
    }
}

/// The worker's receiving end.
#[derive(Debug)]
pub struct Receiver {
    packets: IpcReceiver<Packet>,
    wait: SpinWait,
}

impl Receiver {
    /// Sets how long it may poll for a message before it sleeps: see [`crate::spin`]. The default is not to
    /// poll.
    pub fn set_spin(&mut self, spin: Duration) {
        self.wait.set_limit(spin);
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`ChannelError`]. The channel is then unusable.
    pub fn recv(&mut self) -> Result<ToWorker, ChannelError> {
        loop {
            let packets = &self.packets;
            let received = self.wait.receive(|ask| match ask {
                Ask::Now => at_once(packets),
                Ask::Sleeping => now_or_never(packets.recv().map_err(TryRecvError::IpcError)),
            });
            if let Some(message) = decoded(received)? {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message until `until`; `None` if none arrives. If `until` has passed, it takes a
    /// message only if one is there.
    ///
    /// # Errors
    /// As for [`Receiver::recv`].
    pub fn recv_until(&mut self, until: Instant) -> Result<Option<ToWorker>, ChannelError> {
        let packets = &self.packets;
        // The system rounds down to whole milliseconds.
        let timeout = || clock::until(until) + Duration::from_millis(1);
        loop {
            let is_over = clock::until(until).is_zero();
            let received = match is_over {
                true => at_once(packets),
                false => self.wait.receive(|ask| match ask {
                    Ask::Now => at_once(packets),
                    Ask::Sleeping => now_or_never(packets.try_recv_timeout(timeout())),
                }),
            };
            match decoded(received)? {
                None if !is_over => {}
                message => return Ok(message),
            }
        }
    }
}

/// `None` if there is no message yet. ipc-channel's `try_recv` changes the socket's mode for each call and back, three
/// system calls for a message or none; a wait of no time is one, and one more if there is a message.
fn at_once(packets: &IpcReceiver<Packet>) -> Result<Option<Packet>, IpcError> {
    now_or_never(packets.try_recv_timeout(Duration::ZERO))
}

/// `None` if there is no message yet, or a signal interrupted the call.
fn now_or_never(received: Result<Packet, TryRecvError>) -> Result<Option<Packet>, IpcError> {
    match received {
        Ok(packet) => Ok(Some(packet)),
        Err(TryRecvError::Empty) => Ok(None),
        Err(TryRecvError::IpcError(IpcError::Io(error)))
            if error.kind() == io::ErrorKind::Interrupted =>
        {
            Ok(None)
        }
        Err(TryRecvError::IpcError(error)) => Err(error),
    }
}

fn decoded(received: Result<Option<Packet>, IpcError>) -> Result<Option<ToWorker>, ChannelError> {
    let Some(Packet(bytes)) = received? else { return Ok(None) };
    codec::decode(&bytes).map(Some).map_err(ChannelError::Decode)
}

/// The worker's end of its lifeline, for what it says.
#[derive(Clone, Debug)]
pub struct Replies(Arc<Mutex<UnixStream>>);

impl Replies {
    /// Over this lifeline.
    #[must_use]
    pub fn new(lifeline: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(lifeline)))
    }

    /// Sends one message. Blocks while the supervisor does not read.
    ///
    /// # Errors
    /// [`ChannelError`]. After `Disconnected` or `Io` the lifeline is unusable.
    pub fn send(&self, message: &FromWorker) -> Result<(), ChannelError> {
        self.send_frames(&frame::of(message, 0).map_err(ChannelError::Encode)?)
    }

    /// Sends a frame with any bytes in it, for `gridpool chaos corrupt`.
    ///
    /// # Errors
    /// As for [`Replies::send`].
    pub fn send_raw(&self, bytes: &[u8]) -> Result<(), ChannelError> {
        self.send_frames(&frame::pack(bytes, 0))
    }

    fn send_frames(&self, frames: &[u8]) -> Result<(), ChannelError> {
        frame::send_all(&self.0.lock(), frames, &[]).map_err(ChannelError::from)
    }
}

/// The supervisor's end of a lifeline, for what the worker says.
#[derive(Debug)]
pub struct ReplyReader(FrameReader);

impl ReplyReader {
    /// Over this lifeline.
    #[must_use]
    pub fn new(lifeline: UnixStream) -> Self {
        Self(FrameReader::new(lifeline))
    }

    /// As [`Receiver::set_spin`].
    pub fn set_spin(&mut self, spin: Duration) {
        self.0.set_spin(spin);
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`ChannelError`]. The lifeline is then unusable.
    pub fn recv(&mut self) -> Result<FromWorker, ChannelError> {
        self.read(None)?.ok_or(ChannelError::Disconnected)
    }

    /// Takes the next message, if it came together with an earlier one.
    ///
    /// # Errors
    /// As for [`ReplyReader::recv`].
    pub fn take(&mut self) -> Result<Option<FromWorker>, ChannelError> {
        let message = self.0.take_frame_with(|body, _| codec::decode(body))?;
        message.transpose().map_err(ChannelError::Decode)
    }

    /// Waits for the next message until `until`; `None` if none arrives.
    ///
    /// # Errors
    /// As for [`ReplyReader::recv`].
    pub fn recv_until(&mut self, until: Instant) -> Result<Option<FromWorker>, ChannelError> {
        self.read(Some(clock::until(until)))
    }

    fn read(&mut self, timeout: Option<Duration>) -> Result<Option<FromWorker>, ChannelError> {
        let message = self.0.read_with(timeout, |body, _| codec::decode(body))?;
        message.transpose().map_err(ChannelError::Decode)
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::Write;

    use gridpool_protocol::ids::ArenaId;

    use super::*;
    use crate::spin;

    #[test]
    fn a_channel_whose_receiver_has_ended_is_gone_and_is_not_closed_as_leaked() {
        let (unread, receiver) = requests();
        drop(receiver);
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&name).unwrap());
        assert!(Sender::connect(name.to_str().unwrap()).is_err());
        assert!(matches!(unread.send(&ToWorker::Stop), Err(ChannelError::Disconnected)));
    }

    fn requests() -> (Sender, Receiver) {
        let (listener, name) = Listener::open(&env::temp_dir()).unwrap();
        let sender = Sender::connect(&name).unwrap();
        (sender, listener.accept().unwrap())
    }

    fn replies() -> (Replies, ReplyReader) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        (Replies::new(theirs), ReplyReader::new(ours))
    }

    #[test]
    fn messages_cross_and_a_closed_end_is_noticed() {
        let (to_worker, mut from_supervisor) = requests();
        to_worker.send(&ToWorker::Stop).unwrap();
        assert_eq!(from_supervisor.recv().unwrap(), ToWorker::Stop);
        drop(from_supervisor);
        assert!(to_worker.send(&ToWorker::Stop).is_err());
        let (to_supervisor, mut from_worker) = replies();
        to_supervisor.send(&FromWorker::Forgot).unwrap();
        drop(to_supervisor);
        assert_eq!(from_worker.recv().unwrap(), FromWorker::Forgot);
        assert!(matches!(from_worker.recv(), Err(ChannelError::Disconnected)));
        let (to_supervisor, from_worker) = replies();
        drop(from_worker);
        let sent = to_supervisor.send(&FromWorker::Forgot);
        assert!(matches!(sent, Err(ChannelError::Disconnected)));
    }

    #[test]
    fn a_name_of_no_listener_is_an_error_and_no_panic() {
        for name in ["", "/no/such/socket", "a\0b", &"x".repeat(1_000)] {
            assert!(matches!(Sender::connect(name), Err(ChannelError::Io(_))), "{name:?}");
        }
    }

    #[test]
    fn a_receiver_that_polls_before_it_sleeps_receives_the_same() {
        let (to_worker, mut from_supervisor) = requests();
        from_supervisor.wait = spin::tests::eager();
        // The second is longer than one packet.
        let long = ToWorker::Forget { arenas: vec![ArenaId(u64::MAX); 27_000] };
        let messages = [ToWorker::Stop, long, ToWorker::Stop];
        let sent = messages.clone();
        let sender = std::thread::spawn(move || {
            sent.iter().for_each(|message| to_worker.send(message).unwrap());
        });
        for message in messages {
            assert_eq!(from_supervisor.recv().unwrap(), message);
        }
        sender.join().unwrap();
        assert!(matches!(from_supervisor.recv(), Err(ChannelError::Disconnected)));
    }

    #[test]
    fn a_wait_with_a_deadline_returns_only_what_arrives_before_it() {
        let (to_worker, mut from_supervisor) = requests();
        let far = clock::now() + Duration::from_secs(600);
        for wait in [SpinWait::new(Duration::ZERO), spin::tests::eager()] {
            from_supervisor.wait = wait;
            let past = clock::now();
            let soon = past + Duration::from_micros(1_500);
            assert!(from_supervisor.recv_until(past).unwrap().is_none());
            assert!(from_supervisor.recv_until(soon).unwrap().is_none());
            assert!(clock::now() >= soon, "it has waited to the end");
            to_worker.send(&ToWorker::Stop).unwrap();
            assert_eq!(from_supervisor.recv_until(past).unwrap(), Some(ToWorker::Stop));
            std::thread::scope(|scope| {
                scope.spawn(|| to_worker.send(&ToWorker::Stop).unwrap());
                assert_eq!(from_supervisor.recv_until(far).unwrap(), Some(ToWorker::Stop));
            });
        }
        drop(to_worker);
        assert!(matches!(from_supervisor.recv_until(far), Err(ChannelError::Disconnected)));
    }

    #[test]
    fn bytes_that_are_not_a_message_are_an_error_of_the_reader() {
        for garbage in [vec![], vec![0xff; 64]] {
            let (to_supervisor, mut from_worker) = replies();
            to_supervisor.send_raw(&garbage).unwrap();
            assert!(matches!(from_worker.recv(), Err(ChannelError::Decode(_))));
        }
        let (mut raw, ours) = UnixStream::pair().unwrap();
        raw.write_all(&[0xff; 64]).unwrap();
        let heard = ReplyReader::new(ours).recv();
        assert!(matches!(heard, Err(ChannelError::Frame(FrameError::Magic(_)))), "{heard:?}");
    }
}
