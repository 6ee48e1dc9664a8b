//! Shared memory on loan from a connection: whoever lets go of it last gives it back.
//!
//! Batches and results lie in it and know nothing of sockets; a connection lends it and knows nothing
//! of batches. A loan may outlive its connection: the memory stays mapped, and is then simply dropped.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arena::ArenaMap;
use crate::ids::ArenaId;
use crate::shared::SharedSlice;

/// A mapped arena of one connection.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) id: ArenaId,
    /// Which of its client's connections it belongs to: on another, the id means nothing.
    pub(crate) epoch: u64,
    pub(crate) map: ArenaMap,
}

/// Who lends memory.
pub(crate) trait Lender: std::fmt::Debug + Send + Sync {
    /// Takes memory back, for the next borrower if it is `reusable`. Called from any thread.
    fn take_back(&self, memory: Memory, reusable: bool);
}

/// Memory on loan.
#[derive(Debug)]
pub(crate) struct Lease {
    /// `None` only while it is being dropped.
    memory: Option<Memory>,
    lender: Weak<dyn Lender>,
    spoiled: AtomicBool,
}

impl Lease {
    pub(crate) fn new(memory: Memory, lender: Weak<dyn Lender>) -> Self {
        Self { memory: Some(memory), lender, spoiled: AtomicBool::new(false) }
    }

    /// The arena and its connection.
    pub(crate) fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("only drop takes it")
    }

    /// All of its bytes.
    pub(crate) fn bytes(&self) -> SharedSlice<'_> {
        self.memory().map.all()
    }

    /// Somebody may still write there when it is given back: nobody shall borrow it again.
    pub(crate) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }

    /// Whether it is on loan from `lender`.
    pub(crate) fn is_from(&self, lender: *const ()) -> bool {
        std::ptr::addr_eq(self.lender.as_ptr(), lender)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let (Some(memory), Some(lender)) = (self.memory.take(), self.lender.upgrade()) {
            lender.take_back(memory, !self.spoiled.load(Ordering::Relaxed));
        }
    }
}
