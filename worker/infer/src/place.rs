//! Where a request's tensors lie, in and out: inline, or in an arena that stays mapped meanwhile.

use std::sync::Arc;

use gridpool_ipc::arena::ArenaMap;
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::{Packed, TensorError, TensorLayout};

/// A packed set of input tensors. A client may change its arena at any time, so the set is copied once and
/// only the copy is read.
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
    offset: u64,
    bytes: u64,
}

impl ArenaPart {
    /// The range of `bytes` bytes from `offset`; `None` if it is not within the arena.
    #[must_use]
    pub fn new(map: Arc<ArenaMap>, offset: u64, bytes: u64) -> Option<Self> {
        map.all().part(offset, bytes)?;
        Some(Self { map, offset, bytes })
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
