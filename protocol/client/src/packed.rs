//! A packed batch in shared memory of this client.
//!
//! Owns the lease and a private copy of the tables. It trusts no byte in shared memory, since other threads
//! of the process may write there.

use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::batch::{BatchError, BatchLayout, BatchSource, GridBatch, Tables};
use gridpool_protocol::shared::{SharedMemory, SharedSlice};

use crate::lease::{Counted, Lease};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct PackedBatch {
    layout: BatchLayout,
    /// Its memory on the current connection, or on the last.
    lease: Mutex<Arc<Lease>>,
    /// Copied and checked once, when decoding a result needs them.
    tables: OnceLock<Result<Tables, BatchError>>,
    /// What results have that still live, and of which connection it is.
    for_results: Mutex<Option<(u64, Weak<dyn BatchSource>)>>,
}

/// A batch whose memory results keep.
#[derive(Debug)]
struct KeptBatch {
    batch: Arc<PackedBatch>,
    _counted: Counted,
}

impl PackedBatch {
    /// A batch at the start of `lease`.
    pub(crate) fn new(layout: BatchLayout, lease: Arc<Lease>) -> Self {
        let (lease, for_results) = (Mutex::new(lease), Mutex::new(None));
        Self { layout, lease, tables: OnceLock::new(), for_results }
    }

    pub(crate) fn layout(&self) -> BatchLayout {
        self.layout
    }

    /// Its memory.
    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease.lock())
    }

    /// Moves it to memory of another connection.
    pub(crate) fn move_to(&self, lease: Arc<Lease>) {
        self.write_to(&lease.bytes());
        *self.lease.lock() = lease;
    }

    /// The batch, for decoding results: where it lies, or a copy if results keep much already. All results that live
    /// have the same.
    pub(crate) fn for_results(self: &Arc<Self>) -> Arc<dyn BatchSource> {
        let lease = self.lease();
        let epoch = lease.memory().epoch;
        let mut known = self.for_results.lock();
        let of_connection = known.as_ref().filter(|(of, _)| *of == epoch);
        if let Some(source) = of_connection.and_then(|(_, source)| source.upgrade()) {
            return source;
        }
        let source: Arc<dyn BatchSource> = if let Some(_counted) = lease.counted() {
            Arc::new(KeptBatch { batch: Arc::clone(self), _counted })
        } else if let Some(copy) = self.copied() {
            Arc::new(copy)
        } else {
            Arc::<Self>::clone(self)
        };
        *known = Some((epoch, Arc::downgrade(&source)));
        source
    }

    /// A copy in private memory; `None` if its tables were changed.
    fn copied(&self) -> Option<GridBatch> {
        let tables = self.tables().ok()?;
        let end = *tables.offsets().last()?;
        let grids = u32::try_from(self.layout.grids_per_item()).expect("1 or 2");
        Some(GridBatch::from_parts(grids, tables.clone(), self.cells(0..end as usize)?))
    }

    /// Copies it to the start of `memory`.
    pub(crate) fn write_to(&self, memory: &SharedSlice<'_>) {
        let lease = self.lease();
        let batch = lease.bytes().part(0, self.layout.bytes() as u64);
        memory.copy_from(&batch.expect("the lease has the whole batch"));
    }
}

impl BatchSource for KeptBatch {
    fn tables(&self) -> Result<&Tables, BatchError> {
        self.batch.tables()
    }

    fn cells(&self, cells: Range<usize>) -> Option<Vec<u8>> {
        self.batch.cells(cells)
    }
}

impl BatchSource for PackedBatch {
    fn tables(&self) -> Result<&Tables, BatchError> {
        let tables = self.tables.get_or_init(|| Tables::read(self.layout, &self.lease().bytes()));
        tables.as_ref().map_err(Clone::clone)
    }

    fn cells(&self, cells: Range<usize>) -> Option<Vec<u8>> {
        if cells.end > self.layout.cell_count() {
            return None;
        }
        let mut copy = vec![0; cells.len()];
        self.lease().bytes().read(self.layout.cells().start + cells.start, &mut copy);
        Some(copy)
    }
}
