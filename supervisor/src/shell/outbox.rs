//! The messages that a client has not read yet. If the client reads, the thread that has a message sends it at
//! once. If not, the client gets a bounded buffer and a thread of its own. When the buffer is full, its connection
//! ends.

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::Instant;

use gridpool_ipc::mutex::Mutex;
use gridpool_ipc::{clock, frame};
use gridpool_protocol::ids::ClientId;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use super::arenas::ClientArena;
use super::descriptors::Taken;

/// Bytes that may wait for one client. All verdicts of 64 jobs with inline results take about 2 MiB.
const OUTBOX_BYTES_MAX: usize = 4 << 20;

/// With more than this unread, no further request of the client is read.
const OUTBOX_BYTES_LOW: usize = 64 << 10;

/// Messages are sent together up to about so many bytes.
const HELD_BYTES_MAX: usize = 32 << 10;

/// The same for a successor: all remembered verdicts, and what happens until it has read them.
const LINK_BYTES_MAX: usize = 256 << 20;

/// A buffer of at most this size is kept for the messages that come next.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// The writing side of one connection.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: ClientId,
    socket: UnixStream,
    bytes_max: usize,
    state: Mutex<State>,
    /// The connection has ended, or more waits than may while a further request is read.
    is_full: AtomicBool,
    /// Signalled when less waits, and when the connection ends.
    drained: Condvar,
    /// The most bytes that ever waited in any outbox.
    bytes_high: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    /// Packed messages that are sent together, by [`Outbox::send_held`] or before the next message.
    held: Vec<u8>,
    waiting: VecDeque<Message>,
    bytes: usize,
    has_thread: bool,
    /// The connection ends when everything is sent.
    is_last: bool,
    closed: bool,
    /// Closed because the client does not read.
    is_unread: bool,
}

#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    sent: usize,
    arena: Option<ArenaToSend>,
}

/// An arena whose descriptor goes with a message. Kept until it has been sent.
#[derive(Debug)]
pub(super) struct ArenaToSend {
    pub(super) arena: Arc<ClientArena>,
    /// The one that is sent, beside the arena's own.
    pub(super) _descriptor: Taken,
}

impl Message {
    /// Sends more of the frame. Returns whether all of it is sent.
    fn send_some(&mut self, socket: &UnixStream) -> io::Result<bool> {
        let arena = if self.sent == 0 { self.arena.as_ref() } else { None };
        let shared = arena.map(|to_send| to_send.arena.share()).transpose();
        let shared = shared.map_err(io::Error::other)?;
        let fds: Vec<BorrowedFd<'_>> = shared.iter().map(AsFd::as_fd).collect();
        self.sent += frame::send_some(socket, &self.bytes[self.sent..], &fds)?;
        Ok(self.sent == self.bytes.len())
    }
}

impl Outbox {
    /// `bytes_high` keeps the most bytes that ever waited in any outbox.
    pub(super) fn new(client: ClientId, socket: UnixStream, bytes_high: Arc<AtomicU64>) -> Self {
        Self::bounded(client, socket, bytes_high, OUTBOX_BYTES_MAX)
    }

    /// The writing side of the link to a successor.
    pub(super) fn to_successor(socket: UnixStream) -> Self {
        Self::bounded(ClientId(0), socket, Arc::default(), LINK_BYTES_MAX)
    }

    fn bounded(
        client: ClientId,
        socket: UnixStream,
        bytes_high: Arc<AtomicU64>,
        bytes_max: usize,
    ) -> Self {
        let (state, is_full, drained) = (Mutex::default(), AtomicBool::new(false), Condvar::new());
        let shared = Shared { client, socket, bytes_max, state, is_full, drained, bytes_high };
        Self { shared: Arc::new(shared) }
    }

    /// Sends a message, as [`Self::send`] does.
    pub(super) fn tell(&self, message: &impl Serialize) {
        let mut state = self.shared.state.lock();
        self.hold_in(&mut state, message);
        self.send_held_of(&mut state);
    }

    /// Holds a message until [`Self::send_held`]. Returns whether it is the first, so that someone must call that.
    pub(super) fn hold(&self, message: &impl Serialize) -> bool {
        let mut state = self.shared.state.lock();
        let is_first = state.held.is_empty();
        self.hold_in(&mut state, message);
        if state.held.len() > HELD_BYTES_MAX {
            self.send_held_of(&mut state);
        }
        is_first
    }

    fn hold_in(&self, state: &mut State, message: &impl Serialize) {
        if let Err(error) = frame::append(message, 0, &mut state.held) {
            tracing::error!(client = %self.shared.client, %error, "a message cannot be encoded");
            self.shared.close(state);
        }
    }

    /// Sends what is held. Threads may do that in any order: messages stay in theirs.
    pub(super) fn send_held(&self) {
        self.send_held_of(&mut self.shared.state.lock());
    }

    fn send_held_of(&self, state: &mut State) {
        if state.held.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut state.held);
        if let Some(Message { mut bytes, .. }) =
            self.send_message(state, Message { bytes, sent: 0, arena: None })
            && bytes.capacity() <= KEPT_BYTES_MAX
        {
            bytes.clear();
            state.held = bytes;
        }
    }

    /// Sends a packed frame now, or when the client reads. Never blocks.
    pub(super) fn send(&self, bytes: Vec<u8>, arena: Option<ArenaToSend>) {
        let mut state = self.shared.state.lock();
        self.send_held_of(&mut state);
        self.send_message(&mut state, Message { bytes, sent: 0, arena });
    }

    /// Gives the message back once it is sent.
    fn send_message(&self, state: &mut State, mut message: Message) -> Option<Message> {
        let client = self.shared.client;
        if state.closed || state.is_last {
            return None;
        }
        if state.waiting.is_empty() {
            match message.send_some(&self.shared.socket) {
                Ok(true) => return Some(message),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(%client, %error, "client cannot be written to");
                    self.shared.close(state);
                    return None;
                }
            }
        }
        state.bytes += message.bytes.len();
        self.shared.note_room(state);
        self.shared.bytes_high.fetch_max(state.bytes as u64, Ordering::Relaxed);
        state.waiting.push_back(message);
        if state.bytes > self.shared.bytes_max {
            tracing::debug!(%client, "a client does not read its replies: connection closed");
            state.is_unread = true;
            self.shared.close(state);
            return None;
        }
        if !state.has_thread {
            state.has_thread = true;
            let shared = Arc::clone(&self.shared);
            let spawned =
                thread::Builder::new().name("outbox".into()).spawn(move || shared.drain());
            if let Err(error) = spawned {
                tracing::error!(%client, %error, "no thread for a slow client: closed");
                self.shared.close(state);
            }
        }
        None
    }

    /// Waits until the client has read most of its messages. Returns `false` if the connection has ended.
    pub(super) fn wait_for_room(&self) -> bool {
        // Each request asks, and threads that send to the client have the lock often.
        if !self.shared.is_full.load(Ordering::Relaxed) {
            return true;
        }
        let mut state = self.shared.state.lock();
        while !state.closed && state.bytes > OUTBOX_BYTES_LOW {
            state = self.shared.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.closed
    }

    /// Waits until every message is sent, the connection has ended, or the time is up.
    pub(super) fn flush(&self, until: Instant) {
        let mut state = self.shared.state.lock();
        self.send_held_of(&mut state);
        while !state.closed && !state.waiting.is_empty() && !clock::until(until).is_zero() {
            let waited = self.shared.drained.wait_timeout(state, clock::until(until));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the connection has ended because the client does not read.
    pub(super) fn is_unread(&self) -> bool {
        self.shared.state.lock().is_unread
    }

    /// Ends the connection once every message is sent. Nothing more is.
    pub(super) fn finish(&self) {
        let mut state = self.shared.state.lock();
        self.send_held_of(&mut state);
        state.is_last = true;
        if state.waiting.is_empty() && !state.closed {
            self.shared.close(&mut state);
        }
    }

    /// Ends the connection: its reader sees the end of the stream.
    pub(super) fn close(&self) {
        self.shared.close(&mut self.shared.state.lock());
    }
}

impl Shared {
    /// Call it after every change of what it looks at, before the lock is released.
    fn note_room(&self, state: &State) {
        self.is_full.store(state.closed || state.bytes > OUTBOX_BYTES_LOW, Ordering::Relaxed);
    }

    fn close(&self, state: &mut State) {
        state.closed = true;
        state.waiting.clear();
        state.bytes = 0;
        self.note_room(state);
        self.drained.notify_all();
        if let Err(error) = self.socket.shutdown(Shutdown::Both) {
            tracing::debug!(client = %self.client, %error, "the client had closed already");
        }
    }

    /// The body of the thread of a slow client: writes until nothing waits.
    fn drain(&self) {
        loop {
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => tracing::error!(client = %self.client, %errno, "poll"),
            }
            let mut state = self.state.lock();
            while let Some(message) = state.waiting.front_mut() {
                match message.send_some(&self.socket) {
                    Ok(true) => {
                        let length = message.bytes.len();
                        state.bytes -= length;
                        state.waiting.pop_front();
                        self.note_room(&state);
                        self.drained.notify_all();
                    }
                    Ok(false) => break,
                    Err(error) => {
                        tracing::debug!(client = %self.client, %error, "it cannot be written to");
                        self.close(&mut state);
                    }
                }
            }
            if state.waiting.is_empty() {
                state.has_thread = false;
                if state.is_last && !state.closed {
                    self.close(&mut state);
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::super::arenas::{Budget, OwnerLimits};
    use super::super::descriptors::Descriptors;
    use super::*;

    #[test]
    fn the_descriptor_that_is_sent_of_an_arena_counts_until_then() {
        const UNREAD: usize = 1 << 20;
        let (ours, mut client) = UnixStream::pair().unwrap();
        let outbox = Outbox::new(ClientId(1), ours, Arc::default());
        let descriptors = Descriptors::new(1);
        let budget = Budget::from_system().unwrap();
        let arena = budget.create(1, (0, 0), (None, OwnerLimits::of(8, None))).unwrap();
        let _descriptor = descriptors.take(1).unwrap();
        outbox.send(vec![0; UNREAD], None);
        outbox.send(vec![0; 1], Some(ArenaToSend { arena: Arc::new(arena), _descriptor }));
        assert!(descriptors.take(1).is_none(), "it waits for the client");
        client.read_exact(&mut vec![0; UNREAD + 1]).unwrap();
        outbox.flush(clock::now() + Duration::from_secs(60));
        assert!(descriptors.take(1).is_some());
    }
}
