//! The channel between the supervisor and one worker: encoded messages in ipc-channel's packets. The
//! one file that names ipc-channel.
//!
//! Of ipc-channel's receivers only the typed ones can be waited for with a limit, so the bytes of a
//! message are its only type.
//!
//! ipc-channel is used where both ends are ours: `send` blocks when the peer does not read, so the
//! supervisor keeps fewer messages outstanding than the channel holds; `accept` has no timeout, so
//! it is called only once the worker has said, on its lifeline, that it has connected.

use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use ipc_channel::ipc::{self, IpcOneShotServer, IpcReceiver, IpcSender};
use ipc_channel::{IpcError, TryRecvError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock;

use crate::codec::{self, DecodeError, EncodeError};
use crate::message::{FromWorker, ToWorker};
use crate::spin::{Ask, Vigil};

/// Why a channel gives or takes no further message.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer is gone.
    #[error("the other end of the channel is gone")]
    Disconnected,
    /// The peer said something else than this protocol.
    #[error("channel")]
    Decode(#[source] DecodeError),
    /// The message is too long to send.
    #[error("channel")]
    Encode(#[source] EncodeError),
    /// The system says no.
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

/// What travels: an encoded message.
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

    /// Sends bytes that need not be a message: for `gridpool chaos corrupt`.
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
    /// [`ChannelError`]; after `Disconnected` or `Io` the channel is of no further use.
    pub fn send(&self, message: &T) -> Result<(), ChannelError> {
        self.send_raw(codec::encode(message).map_err(ChannelError::Encode)?)
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T> {
    packets: IpcReceiver<Packet>,
    vigil: Vigil,
    message: PhantomData<fn() -> T>,
}

impl<T> Receiver<T> {
    fn new(packets: IpcReceiver<Packet>) -> Self {
        Self { packets, vigil: Vigil::new(Duration::ZERO), message: PhantomData }
    }

    /// How long it may look for a message before it sleeps: see [`crate::spin`]. Without this it
    /// sleeps at once.
    pub fn set_spin(&mut self, spin: Duration) {
        self.vigil.set_limit(spin);
    }
}

impl<T: DeserializeOwned> Receiver<T> {
    /// Waits for the next message.
    ///
    /// # Errors
    /// [`ChannelError`]; the channel is then of no further use.
    pub fn recv(&mut self) -> Result<T, ChannelError> {
        loop {
            let packets = &self.packets;
            let received = self.vigil.wait(|ask| match ask {
                Ask::Now => now_or_never(packets.try_recv()),
                Ask::Sleeping => now_or_never(packets.recv().map_err(TryRecvError::IpcError)),
            });
            if let Some(message) = decoded(received)? {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message until `until`; if that has passed, only takes what is there. `None`
    /// if there is none.
    ///
    /// # Errors
    /// As for [`Receiver::recv`].
    pub fn recv_until(&mut self, until: Instant) -> Result<Option<T>, ChannelError> {
        let packets = &self.packets;
        // The system counts in whole milliseconds, and cuts off what is left.
        let patience = || clock::until(until) + Duration::from_millis(1);
        loop {
            let is_over = clock::until(until).is_zero();
            let received = match is_over {
                true => now_or_never(packets.try_recv()),
                false => self.vigil.wait(|ask| match ask {
                    Ask::Now => now_or_never(packets.try_recv()),
                    Ask::Sleeping => now_or_never(packets.try_recv_timeout(patience())),
                }),
            };
            match decoded(received)? {
                None if !is_over => {}
                message => return Ok(message),
            }
        }
    }
}

/// Nothing, where there is none yet, or a signal came in between.
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

/// The supervisor's ends, sent by the worker in its first message.
type Ends = (IpcSender<Packet>, IpcReceiver<Packet>);

/// The supervisor's side before the worker has connected.
pub struct Listener {
    server: IpcOneShotServer<Ends>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

impl Listener {
    /// Opens a listener; the name is for the worker's command line.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> io::Result<(Self, String)> {
        let (server, name) = IpcOneShotServer::new()?;
        Ok((Self { server }, name))
    }

    /// Takes the ends that the worker has sent. Blocks until it has: call it once the worker has
    /// said so.
    ///
    /// # Errors
    /// [`ChannelError`] if what came is not a worker's first message.
    pub fn accept(self) -> Result<(Sender<ToWorker>, Receiver<FromWorker>), ChannelError> {
        let (_, (sender, receiver)) = self.server.accept()?;
        Ok((Sender::new(sender), Receiver::new(receiver)))
    }
}

/// The worker's side: connects to the listener of that name and hands it its ends.
///
/// # Errors
/// [`ChannelError`] if nobody listens there.
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
    fn a_receiver_that_looks_before_it_sleeps_receives_the_same() {
        let (listener, name) = Listener::open().unwrap();
        let (to_supervisor, _from_supervisor) = connect(&name).unwrap();
        let (_to_worker, mut from_worker) = listener.accept().unwrap();
        from_worker.vigil = spin::tests::hopeful();
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
    fn a_wait_with_an_end_gives_what_comes_before_it_and_nothing_after() {
        let (listener, name) = Listener::open().unwrap();
        let (to_supervisor, _from_supervisor) = connect(&name).unwrap();
        let (_to_worker, mut from_worker) = listener.accept().unwrap();
        let far = clock::now() + Duration::from_secs(600);
        for vigil in [Vigil::new(Duration::ZERO), spin::tests::hopeful()] {
            from_worker.vigil = vigil;
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
    fn bytes_that_are_no_message_are_an_error_of_the_receiver() {
        let (listener, name) = Listener::open().unwrap();
        let (to_supervisor, _from_supervisor) = connect(&name).unwrap();
        let (_to_worker, mut from_worker) = listener.accept().unwrap();
        for garbage in [vec![], vec![0xff; 64]] {
            to_supervisor.send_raw(garbage).unwrap();
            assert!(matches!(from_worker.recv(), Err(ChannelError::Decode(_))));
        }
    }
}
