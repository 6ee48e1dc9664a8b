//! How parts of any buffer follow each other.

use std::ops::Range;

use gridpool_protocol::batch::PART_ALIGN;

/// Parts that lie behind each other in a buffer.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Bytes of all parts so far.
    pub(super) bytes: usize,
}

impl Parts {
    /// Adds a part of so many bytes. Returns its place.
    pub(super) fn add(&mut self, bytes: usize) -> Range<usize> {
        let start = self.bytes;
        self.bytes = (start + bytes).next_multiple_of(PART_ALIGN);
        start..start + bytes
    }
}
