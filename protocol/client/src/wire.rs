//! The part of a connection that any thread may use: its writing side, and the arenas that it lends.
//!
//! Its lock is the last that any thread takes. A thread that holds it waits at most for the socket. So a
//! result may be dropped anywhere.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use gridpool_ipc::arena::ArenaMap;
use gridpool_ipc::frame;
use gridpool_ipc::memory::available_or_assumed_bytes;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::limits::CLIENT_ARENAS_MAX;
use gridpool_protocol::message::ClientMessage;

use super::{ClientError, link};
use crate::lease::{Lease, Memory};

/// Free arenas to keep, since workers have registered them already: an input and a result of each job that a client may
/// have under way by default.
const FREE_ARENAS_MAX: usize = CLIENT_ARENAS_MAX;
/// Any job may use a free arena of up to four times this size, bytes.
const SMALL_ARENA_BYTES: u64 = 1 << 16;

/// Arenas that results may keep at a time; the others are left for what is under way.
const RESULTS_MAX: usize = CLIENT_ARENAS_MAX / 2;
/// The part of the memory available that those may take before others are copied: half of what a pool lends a client.
const RESULTS_SHARE: u64 = 8;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Wire {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` without a connection.
    socket: Option<UnixStream>,
    /// Counts connections. An arena belongs to one connection.
    epoch: u64,
    free: VecDeque<Memory>,
    /// The number of arenas that the pool has made for this client.
    made: u64,
    /// What results keep of this connection.
    results: Results,
    /// From how many bytes of those on others are copied.
    result_bytes_max: u64,
}

/// Arenas of results.
#[derive(Clone, Copy, Debug, Default)]
struct Results {
    count: usize,
    bytes: u64,
}

impl Wire {
    pub(super) fn new(socket: UnixStream) -> Self {
        let inner = Inner {
            socket: Some(socket),
            epoch: 0,
            free: VecDeque::new(),
            made: 0,
            results: Results::default(),
            result_bytes_max: available_or_assumed_bytes() / RESULTS_SHARE,
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Whether there is a connection.
    pub(super) fn is_open(&self) -> bool {
        self.inner.lock().socket.is_some()
    }

    /// Another descriptor of the socket, if there is a connection.
    #[cfg(feature = "async")]
    pub(super) fn socket(&self) -> Result<Option<UnixStream>, ClientError> {
        let socket = self.inner.lock().socket.as_ref().map(UnixStream::try_clone);
        socket.transpose().map_err(ClientError::System)
    }

    /// The number of the current connection, or of the next if there is none.
    pub(super) fn epoch(&self) -> u64 {
        self.inner.lock().epoch
    }

    /// The number of arenas that the pool has made for this client.
    pub(super) fn made(&self) -> u64 {
        self.inner.lock().made
    }

    /// Uses a new connection.
    pub(super) fn open(&self, socket: UnixStream) {
        self.inner.lock().socket = Some(socket);
    }

    /// Drops the lost connection and its arenas.
    pub(super) fn close(&self) {
        let free = {
            let mut inner = self.inner.lock();
            if let Some(socket) = inner.socket.take() {
                // Whoever watches it learns so. An error means that the other end has hung up already.
                drop(socket.shutdown(Shutdown::Both));
            }
            inner.epoch += 1;
            inner.results = Results::default();
            std::mem::take(&mut inner.free)
        };
        // Unmap outside the lock, since that takes time.
        drop(free);
    }

    /// Ends the connection for whoever reads it, too.
    pub(super) fn hang_up(&self) {
        if let Some(socket) = &self.inner.lock().socket {
            // An error means that the other end has hung up already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Whether most of the socket's buffer is free. Without a connection nothing blocks.
    pub(super) fn has_room(&self) -> bool {
        self.inner.lock().socket.as_ref().is_none_or(frame::has_room)
    }

    /// Sends a message. Blocks while the socket is full.
    pub(super) fn send(&self, message: &ClientMessage) -> Result<(), ClientError> {
        let frame = link::encode(message)?;
        let inner = self.inner.lock();
        link::send_frame(inner.socket.as_ref().ok_or(ClientError::Lost)?, &frame)
    }

    /// Sends a message. If that fails, hangs up, so that the reading thread reconnects. Does nothing without
    /// a connection: a reconnect sends what matters.
    pub(super) fn send_or_hang_up(&self, message: &ClientMessage) {
        self.inner.lock().send_frames_or_hang_up(link::encode(message));
    }

    /// Sends messages together, as [`Self::send_or_hang_up`] sends one.
    pub(super) fn send_all_or_hang_up(&self, mut messages: impl Iterator<Item = ClientMessage>) {
        let mut frames = Vec::new();
        let encoded = messages.try_for_each(|message| link::append(&message, &mut frames));
        self.inner.lock().send_frames_or_hang_up(encoded.map(|()| frames));
    }

    /// Lends an arena that the pool has made on the connection `epoch`.
    pub(super) fn lend_new(self: &Arc<Self>, id: ArenaId, map: ArenaMap, epoch: u64) -> Arc<Lease> {
        self.inner.lock().made += 1;
        self.lend(Memory { id, epoch, map })
    }

    /// Lends the smallest free arena that is large enough, unless more than three quarters would be wasted.
    pub(super) fn lend_free(self: &Arc<Self>, bytes: u64) -> Option<Arc<Lease>> {
        let mut inner = self.inner.lock();
        let size = |memory: &Memory| memory.map.bytes() as u64;
        let fits = |memory: &Memory| {
            size(memory) >= bytes && size(memory) / 4 <= bytes.max(SMALL_ARENA_BYTES)
        };
        let best = inner.free.iter().enumerate().filter(|(_, memory)| fits(memory));
        let (index, _) = best.min_by_key(|(_, memory)| size(memory))?;
        let memory = inner.free.remove(index)?;
        drop(inner);
        Some(self.lend(memory))
    }

    fn lend(self: &Arc<Self>, memory: Memory) -> Arc<Lease> {
        Arc::new(Lease::new(memory, Arc::downgrade(self)))
    }

    /// Whether this has lent that memory.
    pub(super) fn has_lent(&self, lease: &Lease) -> bool {
        lease.is_from(self)
    }

    /// Returns all free arenas to the pool. Returns whether there were any.
    pub(super) fn give_back_free(&self) -> bool {
        let free = std::mem::take(&mut self.inner.lock().free);
        free.iter().for_each(|memory| self.drop_arena(memory));
        !free.is_empty()
    }

    /// Has the pool forget an arena, unless it has forgotten it with its connection: its number may be another's now.
    fn drop_arena(&self, memory: &Memory) {
        let frame = link::encode(&ClientMessage::DropArena { arena: memory.id });
        let inner = self.inner.lock();
        if memory.epoch == inner.epoch {
            inner.send_frames_or_hang_up(frame);
        }
    }

    /// Whether a result may keep this memory, which counts then until it is dropped. The arenas of a connection that
    /// was lost are not counted.
    pub(super) fn let_out(&self, epoch: u64, bytes: u64) -> bool {
        let mut inner = self.inner.lock();
        let is_full = |inner: &Inner| {
            inner.results.count >= RESULTS_MAX || inner.results.bytes >= inner.result_bytes_max
        };
        if epoch == inner.epoch {
            if is_full(&inner) {
                return false;
            }
            inner.results.count += 1;
            inner.results.bytes += bytes;
        }
        true
    }

    /// Results keep it no longer.
    pub(super) fn let_in(&self, epoch: u64, bytes: u64) {
        let mut inner = self.inner.lock();
        if epoch == inner.epoch {
            inner.results.count -= 1;
            inner.results.bytes -= bytes;
        }
    }

    /// Takes memory back, and lends it again if it is `reusable`. May be called from any thread.
    pub(super) fn take_back(&self, memory: Memory, reusable: bool) {
        let mut inner = self.inner.lock();
        if memory.epoch != inner.epoch {
            return;
        }
        let gone = if reusable {
            inner.free.push_back(memory);
            if inner.free.len() > FREE_ARENAS_MAX { inner.free.pop_front() } else { None }
        } else {
            Some(memory)
        };
        drop(inner);
        if let Some(memory) = gone {
            self.drop_arena(&memory);
        }
    }
}

impl Inner {
    fn send_frames_or_hang_up(&self, frames: Result<Vec<u8>, ClientError>) {
        let Some(socket) = &self.socket else { return };
        if frames.and_then(|frames| link::send_frame(socket, &frames)).is_err() {
            // An error means that the other end has hung up already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }
}
