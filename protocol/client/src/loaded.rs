//! A batch that is loaded into shared memory before jobs use it.

use std::sync::Arc;

use crate::packed::PackedBatch;

/// A batch in shared memory, made by [`Client::load`](super::Client::load) or
/// [`Client::build`](super::Client::build). Any number of jobs of that client may use it, also at the same
/// time ([`Job::over`](super::Job::over)). Submitting such a job copies nothing, and a worker registers the
/// memory only once.
///
/// Clones share the batch. Jobs over it keep it alive, and so do results whose decoding needs its cells.
/// After a reconnect the client packs it again.
#[derive(Clone, Debug)]
pub struct LoadedBatch {
    pub(super) batch: Arc<PackedBatch>,
}

impl LoadedBatch {
    /// The number of items: grids, or pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.layout().items()
    }

    /// Always `false`: an empty batch cannot be loaded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of the batch in shared memory, bytes, tables included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.batch.layout().bytes()
    }
}
