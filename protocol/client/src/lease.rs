//! Shared memory on loan from a connection. Dropping the last reference returns it.
//!
//! Batches and results use leases and know nothing of sockets. A connection lends memory and knows nothing
//! of batches. A lease may outlive its connection: the memory then stays mapped until it is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use gridpool_ipc::arena::ArenaMap;
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::shared::{SharedMemory, SharedSlice};

use super::wire::Wire;

/// A mapped arena of one connection.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) id: ArenaId,
    /// The connection that the id belongs to.
    pub(crate) epoch: u64,
    pub(crate) map: ArenaMap,
}

/// Memory on loan.
#[derive(Debug)]
pub(crate) struct Lease {
    /// `None` only in `drop`.
    memory: Option<Memory>,
    lender: Weak<Wire>,
    spoiled: AtomicBool,
}

/// Memory that results keep. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    lender: Weak<Wire>,
    epoch: u64,
    bytes: u64,
}

/// A result where a worker wrote it.
#[derive(Debug)]
pub(crate) struct ResultMemory {
    pub(crate) lease: Arc<Lease>,
    pub(crate) _counted: Counted,
}

impl Lease {
    pub(crate) fn new(memory: Memory, lender: Weak<Wire>) -> Self {
        Self { memory: Some(memory), lender, spoiled: AtomicBool::new(false) }
    }

    /// The arena and its connection.
    pub(crate) fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("only drop takes it")
    }

    /// Counts this memory as one that results keep; `None` if they keep much already.
    pub(crate) fn counted(&self) -> Option<Counted> {
        let Memory { epoch, map, .. } = self.memory();
        let (epoch, bytes) = (*epoch, map.bytes() as u64);
        let may = self.lender.upgrade().is_none_or(|lender| lender.let_out(epoch, bytes));
        may.then(|| Counted { lender: Weak::clone(&self.lender), epoch, bytes })
    }

    /// Forbids to lend the memory again, since a worker may still write to it.
    pub(crate) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }

    /// Whether it is on loan from `lender`.
    pub(crate) fn is_from(&self, lender: &Wire) -> bool {
        std::ptr::eq(self.lender.as_ptr(), lender)
    }
}

impl SharedMemory for Lease {
    fn bytes(&self) -> SharedSlice<'_> {
        self.memory().map.all()
    }
}

impl SharedMemory for ResultMemory {
    fn bytes(&self) -> SharedSlice<'_> {
        self.lease.bytes()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(lender) = self.lender.upgrade() {
            lender.let_in(self.epoch, self.bytes);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let (Some(memory), Some(lender)) = (self.memory.take(), self.lender.upgrade()) {
            lender.take_back(memory, !self.spoiled.load(Ordering::Relaxed));
        }
    }
}
