//! The channel between the supervisor and one worker: encoded messages in ipc-channel's packets. Only this
//! file names ipc-channel.
//!
//! Only ipc-channel's typed receivers can wait with a timeout, so the packet type holds the encoded bytes.
//!
//! Both ends are ours, which makes two limits of ipc-channel harmless. `send` blocks if the peer does not
//! read, so the supervisor keeps fewer messages outstanding than the channel holds. `accept` has no
//! timeout, so the supervisor calls it only after the worker has reported on its lifeline that it has
//! connected.

use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use gridpool_protocol::codec::{self, DecodeError, EncodeError};
use gridpool_protocol::message::{FromWorker, ToWorker};
use ipc_channel::ipc::{self, IpcOneShotServer, IpcReceiver, IpcSender};
use ipc_channel::{IpcError, TryRecvError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock;
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
    /// A system call failed.
    #[error("channel")]
    Io(#[source] io::Error),
}

impl From<IpcError> for ChannelError {
    fn from(error: IpcError) -> Self {
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        match error {
            IpcError::Disconnected => Self::Disconnected,
            IpcError::Io(error) if gone.contains(&error.kind()) => Self::Disconnected,
            IpcError::Io(error) => Self::Io(error),
            IpcError::SerializationError(error) => Self::Io(io::Error::other(error)),
        }
    }
}

/// An encoded message.
#[derive(Debug, Serialize, Deserialize)]
struct Packet(#[serde(with = "codec::bytes")] Vec<u8>);

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    packets: IpcSender<Packet>,
    message: PhantomData<fn(T)>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { packets: self.packets.clone(), message: PhantomData }
    }
}

impl<T> Sender<T> {
    fn new(packets: IpcSender<Packet>) -> Self {
        Self { packets, message: PhantomData }
    }

    /// Sends any bytes, for `gridpool chaos corrupt`.
    ///
    /// # Errors
    /// As for [`Sender::send`].
    pub fn send_raw(&self, bytes: Vec<u8>) -> Result<(), ChannelError> {
        self.packets.send(Packet(bytes)).map_err(ChannelError::from)
    }
}

impl<T: Serialize> Sender<T> {
    /// Sends one message.
    ///
    /// # Errors
    /// [`ChannelError`]. After `Disconnected` or `Io` the channel is unusable.
    pub fn send(&self, message: &T) -> Result<(), ChannelError> {
        self.send_raw(codec::encode(message).map_err(ChannelError::Encode)?)
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T> {
    packets: IpcReceiver<Packet>,
    wait: SpinWait,
    message: PhantomData<fn() -> T>,
}

impl<T> Receiver<T> {
    fn new(packets: IpcReceiver<Packet>) -> Self {
        Self { packets, wait: SpinWait::new(Duration::ZERO), message: PhantomData }
    }

    /// Sets how long it may poll for a message before it sleeps: see [`crate::spin`]. The default is not to
    /// poll.
    pub fn set_spin(&mut self, spin: Duration) {
        self.wait.set_limit(spin);
    }
}

impl<T: DeserializeOwned> Receiver<T> {
    /// Waits for the next message.
    ///
    /// # Errors
    /// [`ChannelError`]. The channel is then unusable.
    pub fn recv(&mut self) -> Result<T, ChannelError> {
        loop {
            let packets = &self.packets;
            let received = self.wait.receive(|ask| match ask {
                Ask::Now => now_or_never(packets.try_recv()),
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
    pub fn recv_until(&mut self, until: Instant) -> Result<Option<T>, ChannelError> {
        let packets = &self.packets;
        // The system rounds down to whole milliseconds.
        let timeout = || clock::until(until) + Duration::from_millis(1);
        loop {
            let is_over = clock::until(until).is_zero();
            let received = match is_over {
                true => now_or_never(packets.try_recv()),
                false => self.wait.receive(|ask| match ask {
                    Ask::Now => now_or_never(packets.try_recv()),
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

fn decoded<T: DeserializeOwned>(
    received: Result<Option<Packet>, IpcError>,
) -> Result<Option<T>, ChannelError> {
    let Some(Packet(bytes)) = received? else { return Ok(None) };
    codec::decode(&bytes).map(Some).map_err(ChannelError::Decode)
}

/// The supervisor's ends. The worker sends them in its first message.
type Ends = (IpcSender<Packet>, IpcReceiver<Packet>);

/// The supervisor's side, before the worker has connected.
pub struct Listener {
    server: IpcOneShotServer<Ends>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

impl Listener {
    /// Opens a listener and returns its name for the worker's command line.
    ///
    /// # Errors
    /// The system's error.
    pub fn open() -> io::Result<(Self, String)> {
        let (server, name) = IpcOneShotServer::new()?;
        Ok((Self { server }, name))
    }

    /// Receives the ends from the worker. It blocks, so call it after the worker has reported that it has
    /// connected.
    ///
    /// # Errors
    /// [`ChannelError`] if it receives anything but a worker's first message.
    pub fn accept(self) -> Result<(Sender<ToWorker>, Receiver<FromWorker>), ChannelError> {
        let (_, (sender, receiver)) = self.server.accept()?;
        Ok((Sender::new(sender), Receiver::new(receiver)))
    }
}

/// The worker's side: connects to the listener of that name and sends the supervisor's ends.
///
/// # Errors
/// [`ChannelError`] if there is no such listener.
pub fn connect(name: &str) -> Result<(Sender<FromWorker>, Receiver<ToWorker>), ChannelError> {
    let bootstrap = IpcSender::<Ends>::connect(name.to_owned()).map_err(ChannelError::Io)?;
    let (to_worker, from_supervisor) = ipc::channel().map_err(ChannelError::Io)?;
    let (to_supervisor, from_worker) = ipc::channel().map_err(ChannelError::Io)?;
    bootstrap.send((to_worker, from_worker))?;
    Ok((Sender::new(to_supervisor), Receiver::new(from_supervisor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spin;

    #[test]
    fn messages_cross_and_a_closed_end_is_noticed() {
        let (listener, name) = Listener::open().unwrap();
        let (to_supervisor, mut from_supervisor) = connect(&name).unwrap();
        let (to_worker, mut from_worker) = listener.accept().unwrap();
        to_worker.send(&ToWorker::Stop).unwrap();
        assert_eq!(from_supervisor.recv().unwrap(), ToWorker::Stop);
        to_supervisor.send(&FromWorker::Forgot).unwrap();
        drop(to_supervisor);
        assert_eq!(from_worker.recv().unwrap(), FromWorker::Forgot);
        assert!(matches!(from_worker.recv(), Err(ChannelError::Disconnected)));
        drop(from_supervisor);
        assert!(to_worker.send(&ToWorker::Stop).is_err());
    }

    #[test]
    fn a_receiver_that_polls_before_it_sleeps_receives_the_same() {
        let (listener, name) = Listener::open().unwrap();
        let (to_supervisor, _from_supervisor) = connect(&name).unwrap();
        let (_to_worker, mut from_worker) = listener.accept().unwrap();
        from_worker.wait = spin::tests::eager();
        // The second is longer than one packet.
        let long = "x".repeat(250_000);
        let dying = |message| FromWorker::Dying { code: 1, fault: None, message, attempt: None };
        let messages = [FromWorker::Forgot, dying(long), FromWorker::Forgot];
        let sent = messages.clone();
        let sender = std::thread::spawn(move || {
            sent.iter().for_each(|message| to_supervisor.send(message).unwrap());
        });
        for message in messages {
            assert_eq!(from_worker.recv().unwrap(), message);
        }
        sender.join().unwrap();
        assert!(matches!(from_worker.recv(), Err(ChannelError::Disconnected)));
    }

    #[test]
    fn a_wait_with_a_deadline_returns_only_what_arrives_before_it() {
        let (listener, name) = Listener::open().unwrap();
        let (to_supervisor, _from_supervisor) = connect(&name).unwrap();
        let (_to_worker, mut from_worker) = listener.accept().unwrap();
        let far = clock::now() + Duration::from_secs(600);
        for wait in [SpinWait::new(Duration::ZERO), spin::tests::eager()] {
            from_worker.wait = wait;
            let past = clock::now();
            let soon = past + Duration::from_micros(1_500);
            assert!(from_worker.recv_until(past).unwrap().is_none());
            assert!(from_worker.recv_until(soon).unwrap().is_none());
            assert!(clock::now() >= soon, "it has waited to the end");
            to_supervisor.send(&FromWorker::Forgot).unwrap();
            assert_eq!(from_worker.recv_until(past).unwrap(), Some(FromWorker::Forgot));
            let sender = to_supervisor.clone();
            let sent = std::thread::spawn(move || sender.send(&FromWorker::Forgot).unwrap());
            assert_eq!(from_worker.recv_until(far).unwrap(), Some(FromWorker::Forgot));
            sent.join().unwrap();
        }
        drop(to_supervisor);
        assert!(matches!(from_worker.recv_until(far), Err(ChannelError::Disconnected)));
    }

    #[test]
    fn bytes_that_are_not_a_message_are_an_error_of_the_receiver() {
        let (listener, name) = Listener::open().unwrap();
        let (to_supervisor, _from_supervisor) = connect(&name).unwrap();
        let (_to_worker, mut from_worker) = listener.accept().unwrap();
        for garbage in [vec![], vec![0xff; 64]] {
            to_supervisor.send_raw(garbage).unwrap();
            assert!(matches!(from_worker.recv(), Err(ChannelError::Decode(_))));
        }
    }
}
