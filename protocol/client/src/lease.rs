//! Shared memory on loan from a connection. Dropping the last reference returns it.
//!
//! Batches and results use leases and know nothing of sockets. A connection lends memory and knows nothing
//! of batches. A lease may outlive its connection: the memory then stays mapped until it is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use gridpool_ipc::arena::ArenaMap;
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::output::Bytes;
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
    /// Whether the caller holds it, with a result.
    is_result: AtomicBool,
}

impl Lease {
    pub(crate) fn new(memory: Memory, lender: Weak<Wire>) -> Self {
        Self { memory: Some(memory), lender, spoiled: false.into(), is_result: false.into() }
    }

    /// The arena and its connection.
    pub(crate) fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("only drop takes it")
    }

    /// The first `bytes` bytes, which are a result: where they lie, or copied if the caller holds many others.
    pub(crate) fn into_result(self: Arc<Self>, bytes: u64) -> Bytes {
        match self.let_out() {
            true => Bytes::Shared(self),
            false => Bytes::Private(Arc::new(self.copied(bytes))),
        }
    }

    /// Whether the caller may keep what lies here with a result.
    pub(crate) fn let_out(&self) -> bool {
        let may = |lender: Arc<Wire>| lender.let_out(self.memory());
        if !self.is_result.swap(true, Ordering::Relaxed) && !self.lender.upgrade().is_none_or(may) {
            self.is_result.store(false, Ordering::Relaxed);
        }
        self.is_result.load(Ordering::Relaxed)
    }

    /// A copy of the first `bytes` bytes.
    pub(crate) fn copied(&self, bytes: u64) -> Vec<u8> {
        let bytes = usize::try_from(bytes).expect("it is mapped");
        let mut copy = vec![0; bytes];
        self.bytes().read(0, &mut copy);
        copy
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

impl Drop for Lease {
    fn drop(&mut self) {
        if let (Some(memory), Some(lender)) = (self.memory.take(), self.lender.upgrade()) {
            let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            lender.take_back(memory, !is(&self.spoiled), is(&self.is_result));
        }
    }
}
