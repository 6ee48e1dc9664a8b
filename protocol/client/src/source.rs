//! The batch of a job: in private memory until the job is submitted, or in shared memory.

use std::sync::Arc;

use gridpool_protocol::batch::{BatchError, BatchLayout, BatchSource, GridBatch};
use gridpool_protocol::shared::SharedSlice;

use crate::packed::PackedBatch;

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Loaded into shared memory.
    Packed(Arc<PackedBatch>),
    /// In private memory.
    Private(Arc<GridBatch>),
}

impl Source {
    pub(crate) fn layout(&self) -> Result<BatchLayout, BatchError> {
        match self {
            Self::Packed(batch) => Ok(batch.layout()),
            Self::Private(batch) => batch.layout(),
        }
    }

    /// The batch, if it is loaded.
    pub(crate) fn packed(&self) -> Option<&Arc<PackedBatch>> {
        match self {
            Self::Packed(batch) => Some(batch),
            Self::Private(_) => None,
        }
    }

    /// Copies the packed batch to the start of `memory`.
    pub(crate) fn write_to(&self, layout: BatchLayout, memory: &SharedSlice<'_>) {
        match self {
            Self::Packed(batch) => batch.write_to(memory),
            Self::Private(batch) => batch.write_to(layout, memory),
        }
    }

    /// The batch, for decoding results.
    pub(crate) fn shared(&self) -> Arc<dyn BatchSource> {
        match self {
            Self::Packed(batch) => batch.for_results(),
            Self::Private(batch) => Arc::<GridBatch>::clone(batch),
        }
    }
}
