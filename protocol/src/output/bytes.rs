//! The bytes of a result, in private memory or in the shared memory that a worker wrote.

use std::borrow::Cow;
use std::sync::Arc;

use crate::shared::SharedMemory;

/// The bytes of one result. Clones share them.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// In shared memory, from its start. It is not a slice, since another process may write there.
    Shared(Arc<dyn SharedMemory>),
    /// In private memory.
    Private(Arc<Vec<u8>>),
}

impl Bytes {
    /// Copies `into.len()` bytes from `at`.
    ///
    /// # Panics
    /// If there are fewer bytes. Offsets come from a checked layout.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Self::Shared(memory) => memory.bytes().read(at, into),
            Self::Private(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
        }
    }

    /// The first `bytes` bytes.
    pub(super) fn all(&self, bytes: usize) -> Cow<'_, [u8]> {
        match self {
            Self::Shared(_) => {
                let mut copy = vec![0; bytes];
                self.read(0, &mut copy);
                Cow::Owned(copy)
            }
            Self::Private(all) => Cow::Borrowed(all.as_slice()),
        }
    }
}
