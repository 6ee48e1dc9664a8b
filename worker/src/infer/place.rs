//! Where the tensors of a request lie, in and out: inline, or in an arena that stays mapped meanwhile.

use std::sync::Arc;

use gridpool_protocol::arena::ArenaMap;
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::{Packed, TensorError, TensorLayout};

/// A packed set of tensors to be read. In an arena its client may change it at any time: it is copied
/// once, and only the copy is looked at.
#[derive(Clone, Debug)]
pub enum Source {
    /// In a message.
    Inline(Arc<[u8]>),
    /// In a part of an arena.
    Arena(ArenaPart),
}

/// A part of an arena.
#[derive(Clone, Debug)]
pub struct ArenaPart {
    map: Arc<ArenaMap>,
    offset: u64,
    bytes: u64,
}

impl ArenaPart {
    /// The part from `offset`, `bytes` long; `None` if the arena has no such part.
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
            Self::Inline(bytes) => Packed::read(bytes).map(|packed| packed.layout().clone()),
            Self::Arena(part) => TensorLayout::read(&part.slice()),
        }
    }

    /// Copies `into.len()` bytes from `offset`, which a checked layout of it says are there.
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
    /// Into memory of their own, which the answer brings.
    Answer,
    /// Into a part of an arena.
    Arena(ArenaPart),
}

/// Outputs that are being put together.
#[derive(Debug)]
pub(super) enum Writing {
    Answer(Vec<u8>),
    Arena(ArenaPart),
}

/// Where the outputs of a request are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Here.
    Inline(Vec<u8>),
    /// At the start of the part of the arena that the request named: so many bytes.
    InArena(usize),
}

impl Destination {
    /// Room for a set of tensors, its header written.
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
    /// Copies `from` to `offset`, which the layout that it was begun with has.
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
