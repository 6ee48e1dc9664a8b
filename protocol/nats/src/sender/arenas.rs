//! The client's shared memory. Both ends of the socket are in one process, but the client needs not know that.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gridpool_ipc::arena::{Arena, ArenaError, ArenaMap};
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::message::{Input, Slice};

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Arenas {
    maps: BTreeMap<ArenaId, Arc<ArenaMap>>,
    made: u64,
}

impl Arenas {
    /// Makes an arena: its name, its size, and a descriptor for the client.
    pub(super) fn create(&mut self, bytes: u64) -> Result<(ArenaId, u64, OwnedFd), ArenaError> {
        let arena = Arena::create(bytes)?;
        let (map, descriptor) = (arena.map()?, arena.share()?);
        self.made += 1;
        let id = ArenaId(self.made);
        self.maps.insert(id, Arc::new(map));
        Ok((id, arena.bytes(), descriptor))
    }

    pub(super) fn remove(&mut self, arena: ArenaId) {
        self.maps.remove(&arena);
    }

    /// The arena of a slice, if the slice lies in it.
    pub(super) fn of(&self, slice: Slice) -> Option<Arc<ArenaMap>> {
        let map = self.maps.get(&slice.arena)?;
        map.all().part(slice.offset, slice.bytes)?;
        Some(Arc::clone(map))
    }

    /// A copy of an input; `None` if it lies nowhere.
    pub(super) fn read(&self, input: Input) -> Option<Vec<u8>> {
        let slice = match input {
            Input::Inline(bytes) => return Some(bytes.0),
            Input::Arena(slice) => slice,
        };
        let map = self.maps.get(&slice.arena)?;
        let memory = map.all().part(slice.offset, slice.bytes)?;
        let mut bytes = vec![0; memory.bytes()];
        memory.read(0, &mut bytes);
        Some(bytes)
    }
}
