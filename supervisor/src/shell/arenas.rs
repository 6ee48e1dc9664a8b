//! The limits of shared memory, for each client and for all.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gridpool_ipc::arena::{Arena, ArenaError};
use gridpool_ipc::memory::available_bytes;
use gridpool_protocol::message::{Limit, Refusal};

/// Arenas that one connection may have at a time; each costs a descriptor.
pub(super) const CLIENT_ARENAS_MAX: usize = 128;

/// All arenas together may take half of the memory that was available at the start. One client may take half of
/// that.
const POOL_SHARE: u64 = 2;
const CLIENT_SHARE: u64 = 2;

/// Memory of all arenas, against its limit.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    bytes: AtomicU64,
    high: AtomicU64,
    arenas: AtomicUsize,
}

/// An arena. It counts against the limit while the supervisor holds it, and not while only clients and workers
/// still map it.
#[derive(Debug)]
pub(super) struct ClientArena {
    arena: Arena,
    budget: Arc<Budget>,
}

/// Bytes that all arenas together may take on a machine that has as many available.
#[must_use]
pub fn arena_bytes_max(available: u64) -> u64 {
    available / POOL_SHARE
}

impl Budget {
    /// Half of the memory that is available now, the cgroup's limit included.
    pub(super) fn from_system() -> Self {
        Self::new(arena_bytes_max(available_bytes().unwrap_or(1 << 30)))
    }

    fn new(limit: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { limit, bytes: zero(), high: zero(), arenas: AtomicUsize::new(0) }
    }

    /// Bytes now, and the most they ever were.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.high.load(Ordering::Relaxed))
    }

    /// How many there are; each takes a descriptor.
    pub(super) fn arenas(&self) -> usize {
        self.arenas.load(Ordering::Relaxed)
    }

    /// Makes an arena for a client that has `own` bytes in `count` arenas.
    pub(super) fn create(
        self: &Arc<Self>,
        bytes: u64,
        own: u64,
        count: usize,
    ) -> Result<ClientArena, Refusal> {
        let invalid = |error: ArenaError| Refusal::Invalid(error.to_string());
        let bytes = Arena::rounded(bytes).map_err(invalid)?;
        let client_limit = self.limit / CLIENT_SHARE;
        if bytes > client_limit {
            return Err(Refusal::Invalid(format!(
                "an arena of {bytes} bytes; one client may have {client_limit} here \
                 (a quarter of the memory that was free at the start): submit smaller batches"
            )));
        }
        if own + bytes > client_limit || count >= CLIENT_ARENAS_MAX {
            return Err(Refusal::Busy(Limit::Arenas));
        }
        let after = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if after > self.limit {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refusal::Busy(Limit::Arenas));
        }
        match Arena::create(bytes) {
            Ok(arena) => {
                self.high.fetch_max(after, Ordering::Relaxed);
                self.arenas.fetch_add(1, Ordering::Relaxed);
                Ok(ClientArena { arena, budget: Arc::clone(self) })
            }
            Err(error) => {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                tracing::warn!(%error, bytes, "no memory for an arena");
                Err(Refusal::Busy(Limit::Arenas))
            }
        }
    }
}

impl ClientArena {
    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.arena.bytes()
    }
}

impl AsFd for ClientArena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arena.as_fd()
    }
}

impl Drop for ClientArena {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.arena.bytes(), Ordering::Relaxed);
        self.budget.arenas.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_a_share_and_the_pool_a_limit() {
        let budget = Arc::new(Budget::new(1 << 20));
        let half = 1 << 19;
        let busy = Refusal::Busy(Limit::Arenas);
        let one = budget.create(half, 0, 0).unwrap();
        assert_eq!(budget.create(65_536, half, 1).unwrap_err(), busy);
        assert!(matches!(budget.create(1 << 20, 0, 0), Err(Refusal::Invalid(_))));
        let _two = budget.create(half, 0, 0).unwrap();
        assert_eq!(budget.create(65_536, 0, 0).unwrap_err(), busy);
        drop(one);
        assert!(budget.create(65_536, 0, 0).is_ok());
        assert_eq!(budget.bytes(), (half, 1 << 20));
        assert_eq!(budget.create(1, 0, CLIENT_ARENAS_MAX).unwrap_err(), busy);
    }
}
