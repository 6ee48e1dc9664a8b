//! What the client is told, in order. A thread writes it, so that a client that does not read holds up nothing else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};
use std::thread;

use gridpool_ipc::frame;
use gridpool_protocol::message::ServerMessage;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Outbox {
    frames: Sender<(Vec<u8>, Option<OwnedFd>)>,
}

impl Outbox {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        let (frames, waiting) = mpsc::channel::<(Vec<u8>, Option<OwnedFd>)>();
        thread::Builder::new().name("gridpool-answers".into()).spawn(move || {
            for (frame, descriptor) in waiting {
                let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
                // The client is gone; the reading thread learns of it, too.
                if frame::send_all(&socket, &frame, &descriptors).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { frames })
    }

    pub(super) fn say(&self, message: &ServerMessage) {
        self.push(message, None);
    }

    pub(super) fn say_with(&self, message: &ServerMessage, descriptor: OwnedFd) {
        self.push(message, Some(descriptor));
    }

    fn push(&self, message: &ServerMessage, descriptor: Option<OwnedFd>) {
        match frame::of(message, usize::from(descriptor.is_some())) {
            // The thread has ended with the client.
            Ok(frame) => drop(self.frames.send((frame, descriptor))),
            Err(error) => tracing::error!(%error, "an answer is too large"),
        }
    }
}
