//! A batch that is loaded into shared memory before jobs use it.

use std::sync::Arc;

use gridpool_protocol::batch::BatchLayout;

use crate::lease::Lease;
use crate::packed::PackedBatch;
use crate::source::Source;

/// Largest packed batch that [`Client::load`](super::Client::load) keeps in private memory, bytes.
pub const PRIVATE_BYTES_MAX: usize = 16 * 1024;

/// A batch in shared memory, made by [`Client::load`](super::Client::load) or
/// [`Client::build`](super::Client::build). Any number of jobs of that client may use it, also at the same
/// time ([`Job::over`](super::Job::over)). Submitting such a job copies nothing, and a worker registers the
/// memory only once. Of this memory a client has few pieces, so [`Client::load`](super::Client::load) keeps
/// batches of up to [`PRIVATE_BYTES_MAX`] in private memory, and each job over one copies it.
///
/// Clones share the batch. Jobs over it keep it alive, and so do results whose decoding needs its cells.
/// After a reconnect the client packs it again.
#[derive(Clone, Debug)]
pub struct LoadedBatch {
    pub(super) source: Source,
    pub(super) layout: BatchLayout,
}

impl LoadedBatch {
    /// A batch at the start of `lease`.
    pub(super) fn packed(layout: BatchLayout, lease: Arc<Lease>) -> Self {
        Self { source: Source::Packed(Arc::new(PackedBatch::new(layout, lease))), layout }
    }

    /// The number of items: grids, or pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.items()
    }

    /// Always `false`: an empty batch cannot be loaded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of the packed batch, bytes, tables included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.layout.bytes()
    }
}
