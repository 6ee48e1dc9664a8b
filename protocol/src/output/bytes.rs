//! Where the bytes of a result lie: in private memory, or where a worker has put them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::lease::Lease;

/// The bytes of one result, shared by the clones of whoever reads it.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// In shared memory, from its start. It is never a slice: whoever shares it may write there.
    Leased(Arc<Lease>),
    /// In private memory.
    Private(Arc<Vec<u8>>),
}

impl Bytes {
    /// Copies `into.len()` bytes from `at`; offsets come from a checked layout.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Self::Leased(lease) => lease.bytes().read(at, into),
            Self::Private(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
        }
    }

    /// The first `bytes` bytes.
    pub(super) fn all(&self, bytes: usize) -> Cow<'_, [u8]> {
        match self {
            Self::Leased(_) => {
                let mut copy = vec![0; bytes];
                self.read(0, &mut copy);
                Cow::Owned(copy)
            }
            Self::Private(all) => Cow::Borrowed(all.as_slice()),
        }
    }
}
