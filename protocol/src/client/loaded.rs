//! A batch that lies in shared memory before any job is submitted over it.

use std::sync::Arc;

use crate::batch::PackedBatch;

/// A batch in shared memory: made by [`Client::load`](super::Client::load) or
/// [`Client::build`](super::Client::build), for any number of jobs of that client, one after the other
/// or at a time ([`Job::over`](super::Job::over)). Submitting one copies nothing, and a worker
/// registers the memory once. Clones are the same batch. It lives as long as a clone, a job over it,
/// or results whose decoding needs its cells; on a connection that was made again it is packed again
/// from here.
#[derive(Clone, Debug)]
pub struct LoadedBatch {
    pub(super) batch: Arc<PackedBatch>,
}

impl LoadedBatch {
    /// Items: grids, or pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.layout().items()
    }

    /// Never: a batch without items is not loaded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of shared memory that the batch takes, tables included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.batch.layout().bytes()
    }
}
