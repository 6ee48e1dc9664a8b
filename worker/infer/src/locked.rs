//! The arenas from which the GPU copies inputs by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_device::cuda::LockedArena;
use gridpool_device::gauges::Gauges;
use gridpool_ipc::arena::ArenaMap;
use gridpool_protocol::ids::ArenaId;

use super::seam::changing_now;

/// Inputs of fewer bytes are copied to page-locked memory first: that takes the processor a few microseconds.
const BYTES_MIN: u64 = 64 << 10;

/// Pages of larger arenas are not locked: that takes 9 ms for as many bytes, and requests wait for it.
const ARENA_BYTES_MAX: usize = 256 << 20;

/// The arenas of a process, by name. One thread owns this and frees what it has locked, outside of all runs.
#[derive(Debug, Default)]
pub struct LockedArenas {
    gauges: Arc<Gauges>,
    arenas: BTreeMap<ArenaId, Known>,
    /// Forgotten, but requests may still have them.
    ended: Vec<Arc<LockedArena>>,
}

#[derive(Debug)]
enum Known {
    /// One input came in it. Locking takes longer than a copy, so it waits for a second one.
    Seen,
    Locked(Arc<LockedArena>),
    /// Its pages cannot be locked.
    Plain,
}

impl LockedArenas {
    /// None yet. What is locked is among the registered bytes of `gauges`.
    #[must_use]
    pub fn counted_in(gauges: Arc<Gauges>) -> Self {
        Self { gauges, ..Self::default() }
    }

    /// The arena of an input of so many bytes, if its pages are locked.
    pub fn of_input(
        &mut self,
        id: ArenaId,
        map: &Arc<ArenaMap>,
        bytes: u64,
    ) -> Option<Arc<LockedArena>> {
        if bytes < BYTES_MIN || map.bytes() > ARENA_BYTES_MAX {
            return None;
        }
        match self.arenas.get(&id) {
            None => {
                self.arenas.insert(id, Known::Seen);
                None
            }
            Some(Known::Seen) => {
                let changing = changing_now()?;
                let known = match LockedArena::lock(map, &self.gauges) {
                    Ok(locked) => Known::Locked(Arc::new(locked)),
                    Err(fault) => {
                        tracing::warn!(%fault, "inputs of an arena are copied by the processor");
                        Known::Plain
                    }
                };
                drop(changing);
                self.arenas.insert(id, known);
                self.of_input(id, map, bytes)
            }
            Some(Known::Locked(locked)) => Some(Arc::clone(locked)),
            Some(Known::Plain) => None,
        }
    }

    /// Forgets an arena. Its pages stay locked until [`LockedArenas::sweep`].
    pub fn forget(&mut self, id: ArenaId) {
        if let Some(Known::Locked(locked)) = self.arenas.remove(&id) {
            self.ended.push(locked);
        }
    }

    /// Unlocks and unmaps what is forgotten and no request has any more. Returns whether something is left for later:
    /// a request still has it, or a run is being captured.
    pub fn sweep(&mut self) -> bool {
        let is_free = |ended: &Arc<LockedArena>| Arc::strong_count(ended) == 1;
        if self.ended.iter().any(is_free)
            && let Some(_changing) = changing_now()
        {
            self.ended.retain(|ended| !is_free(ended));
        }
        !self.ended.is_empty()
    }
}
