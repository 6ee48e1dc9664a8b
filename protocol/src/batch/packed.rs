//! A batch that lies packed in shared memory of this client.
//!
//! Owns where it lies and the private copy of its tables. May not trust a byte of it: the client's own
//! threads may write there.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{BatchError, BatchLayout, Tables};
use crate::lease::Lease;
use crate::shared::SharedSlice;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct PackedBatch {
    layout: BatchLayout,
    /// Where it lies on the present connection, or did on the last.
    lease: Mutex<Arc<Lease>>,
    /// Copied out and checked once, when a result is decoded that needs them.
    tables: OnceLock<Result<Tables, BatchError>>,
}

impl PackedBatch {
    /// A batch that lies at the start of `lease`.
    pub(crate) fn new(layout: BatchLayout, lease: Arc<Lease>) -> Self {
        Self { layout, lease: Mutex::new(lease), tables: OnceLock::new() }
    }

    pub(crate) fn layout(&self) -> BatchLayout {
        self.layout
    }

    /// Where it lies.
    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Copies it to memory of another connection, where it lies from now on.
    pub(crate) fn move_to(&self, lease: Arc<Lease>) {
        self.write_to(&lease.bytes());
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
    }

    /// Copies all of it to the start of `memory`.
    pub(crate) fn write_to(&self, memory: &SharedSlice<'_>) {
        let lease = self.lease();
        let batch = lease.bytes().part(0, self.layout.bytes() as u64);
        memory.copy_from(&batch.expect("it lies there whole"));
    }

    /// Its shapes and offsets.
    pub(crate) fn tables(&self) -> Result<&Tables, BatchError> {
        let tables = self.tables.get_or_init(|| Tables::read(self.layout, &self.lease().bytes()));
        tables.as_ref().map_err(Clone::clone)
    }

    /// Copies cells, all of them within the batch.
    pub(crate) fn read_cells(&self, cells: Range<usize>, into: &mut [u8]) {
        self.lease().bytes().read(self.layout.cells().start + cells.start, into);
    }
}
