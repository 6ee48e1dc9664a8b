//! The channel between the supervisor and one worker: bincode messages in ipc-channel's byte
//! channels. The one file that names ipc-channel.
//!
//! ipc-channel is used where both ends are ours: `send` blocks when the peer does not read, so the
//! supervisor keeps fewer messages outstanding than the channel holds; `accept` has no timeout, so
//! it is called only once the worker has said, on its lifeline, that it has connected.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use ipc_channel::ipc::{
    IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcSender, bytes_channel,
};
use ipc_channel::{IpcError, TryRecvError};
use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    bytes: IpcBytesSender,
    message: PhantomData<fn(T)>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), message: PhantomData }
    }
}

impl<T: Serialize> Sender<T> {
    /// Sends one message.
    ///
    /// # Errors
    /// [`ChannelError`]; after `Disconnected` or `Io` the channel is of no further use.
    pub fn send(&self, message: &T) -> Result<(), ChannelError> {
        let bytes = codec::encode(message).map_err(ChannelError::Encode)?;
        self.bytes.send(&bytes).map_err(|error| {
            let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            if gone.contains(&error.kind()) {
                ChannelError::Disconnected
            } else {
                ChannelError::Io(error)
            }
        })
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T> {
    bytes: IpcBytesReceiver,
    vigil: Vigil,
    message: PhantomData<fn() -> T>,
}

impl<T> Receiver<T> {
    fn new(bytes: IpcBytesReceiver) -> Self {
        Self { bytes, vigil: Vigil::new(Duration::ZERO), message: PhantomData }
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
        let bytes = &self.bytes;
        loop {
            let received = self.vigil.wait(|ask| match ask {
                Ask::Now => match bytes.try_recv() {
                    Ok(message) => Ok(Some(message)),
                    Err(TryRecvError::Empty) => Ok(None),
                    Err(TryRecvError::IpcError(error)) => Err(error),
                },
                Ask::Sleeping => bytes.recv().map(Some),
            });
            match received {
                Ok(Some(message)) => return codec::decode(&message).map_err(ChannelError::Decode),
                Ok(None) => {}
                Err(IpcError::Disconnected) => return Err(ChannelError::Disconnected),
                Err(IpcError::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(IpcError::Io(error)) => return Err(ChannelError::Io(error)),
                Err(IpcError::SerializationError(error)) => {
                    return Err(ChannelError::Io(io::Error::other(error)));
                }
            }
        }
    }
}

/// The supervisor's ends, sent by the worker in its first message.
type Ends = (IpcBytesSender, IpcBytesReceiver);

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
        let (_, (sender, receiver)) = self.server.accept().map_err(|error| match error {
            IpcError::Disconnected => ChannelError::Disconnected,
            IpcError::Io(error) => ChannelError::Io(error),
            IpcError::SerializationError(error) => ChannelError::Io(io::Error::other(error)),
        })?;
        Ok((Sender { bytes: sender, message: PhantomData }, Receiver::new(receiver)))
    }
}

/// The worker's side: connects to the listener of that name and hands it its ends.
///
/// # Errors
/// [`ChannelError`] if nobody listens there.
pub fn connect(name: &str) -> Result<(Sender<FromWorker>, Receiver<ToWorker>), ChannelError> {
    let bootstrap = IpcSender::<Ends>::connect(name.to_owned()).map_err(ChannelError::Io)?;
    let (to_worker, from_supervisor) = bytes_channel().map_err(ChannelError::Io)?;
    let (to_supervisor, from_worker) = bytes_channel().map_err(ChannelError::Io)?;
    bootstrap.send((to_worker, from_worker)).map_err(|error| match error {
        IpcError::Disconnected => ChannelError::Disconnected,
        IpcError::Io(error) => ChannelError::Io(error),
        IpcError::SerializationError(error) => ChannelError::Io(io::Error::other(error)),
    })?;
    Ok((Sender { bytes: to_supervisor, message: PhantomData }, Receiver::new(from_supervisor)))
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
}
