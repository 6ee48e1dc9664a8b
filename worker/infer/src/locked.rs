//! The arenas from which the GPU copies inputs by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_device::cuda::LockedArena;
use gridpool_ipc::arena::ArenaMap;
use gridpool_protocol::ids::ArenaId;

use super::seam::changing;

/// Inputs of fewer bytes are copied to page-locked memory first: that takes the processor a few microseconds.
const BYTES_MIN: u64 = 64 << 10;

/// The arenas of a process, by name. One thread owns this and frees what it has locked, outside of all runs.
#[derive(Debug, Default)]
pub struct LockedArenas {
    arenas: BTreeMap<ArenaId, Known>,
    /// Forgotten, but requests may still have them.
    ended: Vec<Arc<LockedArena>>,
}

#[derive(Debug)]
enum Known {
    /// One input came in it. Locking takes longer than a copy, so it waits for a second one.
    Once,
    Locked(Arc<LockedArena>),
    /// Its pages cannot be locked.
    Plain,
}

impl LockedArenas {
    /// The arena of an input of so many bytes, if its pages are locked.
    pub fn of_input(
        &mut self,
        id: ArenaId,
        map: &Arc<ArenaMap>,
        bytes: u64,
    ) -> Option<Arc<LockedArena>> {
        if bytes < BYTES_MIN {
            return None;
        }
        match self.arenas.get(&id) {
            None => {
                self.arenas.insert(id, Known::Once);
                None
            }
            Some(Known::Once) => {
                let locked = {
                    let _changing = changing();
                    LockedArena::lock(map)
                };
                let known = match locked {
                    Ok(locked) => Known::Locked(Arc::new(locked)),
                    Err(fault) => {
                        tracing::warn!(%fault, "inputs of an arena are copied by the processor");
                        Known::Plain
                    }
                };
                self.arenas.insert(id, known);
                self.of_input(id, map, bytes)
            }
            Some(Known::Locked(locked)) => Some(Arc::clone(locked)),
            Some(Known::Plain) => None,
        }
    }

    /// Forgets an arena. Its pages are unlocked when no request has it any more.
    pub fn forget(&mut self, id: ArenaId) {
        if let Some(Known::Locked(locked)) = self.arenas.remove(&id) {
            self.ended.push(locked);
        }
        if self.ended.iter().any(|ended| Arc::strong_count(ended) == 1) {
            let _changing = changing();
            self.ended.retain(|ended| Arc::strong_count(ended) > 1);
        }
    }
}
