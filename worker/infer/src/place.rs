//! Where a request's tensors lie, in and out: inline, or in an arena that stays mapped meanwhile.

use std::ops::Range;
use std::sync::Arc;

use gridpool_device::cuda::LockedArena;
use gridpool_ipc::arena::ArenaMap;
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::{Packed, TensorError, TensorLayout};

/// A packed set of input tensors. A client may change its arena at any time, so the set is copied once, by the host or
/// by the device, and only the copy is read.
#[derive(Clone, Debug)]
pub enum Source {
    /// In a message.
    Inline(Arc<[u8]>),
    /// In a part of an arena.
    Arena(ArenaPart),
}

/// A range of an arena.
#[derive(Clone, Debug)]
pub struct ArenaPart {
    map: Arc<ArenaMap>,
    locked: Option<Arc<LockedArena>>,
    offset: u64,
    bytes: u64,
}

/// A range of an arena whose pages are locked. It lies within the arena.
#[derive(Clone, Debug)]
pub(crate) struct LockedRange {
    arena: Arc<LockedArena>,
    offset: u64,
    bytes: usize,
}

impl LockedRange {
    /// A run has the device copy it.
    pub(crate) fn note_loan(&self) {
        self.arena.note_loan();
    }

    pub(crate) fn slice(&self) -> SharedSlice<'_> {
        let part = self.arena.map().all().part(self.offset, self.bytes as u64);
        part.expect("it lies within the arena")
    }
}

impl ArenaPart {
    /// The range of `bytes` bytes from `offset`; `None` if it is not within the arena.
    #[must_use]
    pub fn new(map: Arc<ArenaMap>, offset: u64, bytes: u64) -> Option<Self> {
        map.all().part(offset, bytes)?;
        Some(Self { map, locked: None, offset, bytes })
    }

    /// The same range, which the device may copy by itself if the pages of its arena are locked.
    #[must_use]
    pub fn with_lock(self, locked: Option<Arc<LockedArena>>) -> Self {
        let is_same = |locked: &Arc<LockedArena>| std::ptr::eq(locked.map(), &*self.map);
        Self { locked: locked.filter(is_same), ..self }
    }

    /// Its arena.
    #[must_use]
    pub fn map(&self) -> &Arc<ArenaMap> {
        &self.map
    }

    fn slice(&self) -> SharedSlice<'_> {
        self.map.all().part(self.offset, self.bytes).expect("checked when it was made")
    }
}

impl Source {
    pub(super) fn layout(&self) -> Result<TensorLayout, TensorError> {
        match self {
            Self::Inline(bytes) => Packed::read(bytes).map(Packed::into_layout),
            Self::Arena(part) => TensorLayout::read(&part.slice()),
        }
    }

    /// A range of it that the device may copy by itself. The caller has checked the range against the layout.
    pub(super) fn locked(&self, range: &Range<usize>) -> Option<LockedRange> {
        let Self::Arena(part) = self else { return None };
        let arena = Arc::clone(part.locked.as_ref()?);
        Some(LockedRange { arena, offset: part.offset + range.start as u64, bytes: range.len() })
    }

    /// Copies `into.len()` bytes from `offset`. The caller has checked the range against the layout.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        match self {
            Self::Inline(bytes) => into.copy_from_slice(&bytes[offset..offset + into.len()]),
            Self::Arena(part) => part.slice().read(offset, into),
        }
    }
}

/// Where the outputs of a request go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Into memory that comes with the answer.
    Answer,
    /// Into a range of an arena.
    Arena(ArenaPart),
}

/// Outputs that are being collected.
#[derive(Debug)]
pub(super) enum Writing {
    Answer(Vec<u8>),
    Arena(ArenaPart),
}

/// Where the outputs of a request are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// In this memory.
    Inline(Vec<u8>),
    /// At the start of the request's range of the arena; the length in bytes.
    InArena(usize),
}

impl Destination {
    /// Allocates the memory of a set of tensors and writes its header.
    pub(super) fn begin(&self, layout: &TensorLayout) -> Result<Writing, TensorError> {
        match self {
            Self::Answer => {
                let mut bytes = vec![0; layout.bytes()];
                layout.write_header(&SharedSlice::private(&mut bytes))?;
                Ok(Writing::Answer(bytes))
            }
            Self::Arena(part) => {
                layout.write_header(&part.slice())?;
                Ok(Writing::Arena(part.clone()))
            }
        }
    }
}

impl Writing {
    /// Copies `from` to `offset`, which must lie within the layout.
    pub(super) fn write(&mut self, offset: usize, from: &[u8]) {
        match self {
            Self::Answer(bytes) => bytes[offset..offset + from.len()].copy_from_slice(from),
            Self::Arena(part) => part.slice().write(offset, from),
        }
    }

    pub(super) fn end(self, layout: &TensorLayout) -> Placed {
        match self {
            Self::Answer(bytes) => Placed::Inline(bytes),
            Self::Arena(_) => Placed::InArena(layout.bytes()),
        }
    }
}
