//! Where the batch of a job lies: in private memory until it is submitted, or in shared memory.

use std::ops::Range;
use std::sync::Arc;

use super::{BatchError, BatchLayout, GridBatch, PackedBatch, Tables};
use crate::shared::SharedSlice;

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

    /// Shapes and offsets.
    pub(crate) fn tables(&self) -> Result<&Tables, BatchError> {
        match self {
            Self::Packed(batch) => batch.tables(),
            Self::Private(batch) => Ok(batch.tables()),
        }
    }

    /// Copies the packed batch to the start of `memory`.
    pub(crate) fn write_to(&self, layout: BatchLayout, memory: &SharedSlice<'_>) {
        match self {
            Self::Packed(batch) => batch.write_to(memory),
            Self::Private(batch) => batch.write_to(layout, memory),
        }
    }

    /// Copies cells; `None` if there are not so many.
    pub(crate) fn cells(&self, cells: Range<usize>) -> Option<Vec<u8>> {
        match self {
            Self::Packed(batch) if cells.end <= batch.layout().cell_count() => {
                let mut copy = vec![0; cells.len()];
                batch.read_cells(cells, &mut copy);
                Some(copy)
            }
            Self::Packed(_) => None,
            Self::Private(batch) => batch.cells().get(cells).map(<[u8]>::to_vec),
        }
    }
}
