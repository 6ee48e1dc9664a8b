//! An arena whose pages are locked, so that copies to the device need no staging.

#![expect(unsafe_code, reason = "registers an arena with the driver")]

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gridpool_ipc::arena::ArenaMap;
use gridpool_kernels::module::CUDA_VERSION_MIN;

use super::driver::{ContextHandle, Driver};
use crate::fault::Fault;
use crate::gauges::Gauges;

/// See the module's text. It keeps the arena mapped.
#[derive(Debug)]
pub struct LockedArena {
    driver: Driver,
    context: ContextHandle,
    map: Arc<ArenaMap>,
    gauges: Arc<Gauges>,
    loans: AtomicU64,
}

// SAFETY: the driver's handles belong to a process, not to a thread.
unsafe impl Send for LockedArena {}

// SAFETY: as above, and they are only read.
unsafe impl Sync for LockedArena {}

impl LockedArena {
    /// Locks the pages of an arena for the one device that this process sees. Its bytes are among the registered ones
    /// of `gauges` while they are.
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub fn lock(map: &Arc<ArenaMap>, gauges: &Arc<Gauges>) -> Result<Self, Fault> {
        Self::over(Driver::open(CUDA_VERSION_MIN)?, map, gauges)
    }

    fn over(driver: Driver, map: &Arc<ArenaMap>, gauges: &Arc<Gauges>) -> Result<Self, Fault> {
        let context = driver.enter_context(driver.only_device()?)?;
        let all = map.all();
        // SAFETY: the arena stays mapped until the drop has undone this.
        unsafe { driver.register(all.as_ptr(), all.bytes())? };
        gauges.registered.add(map.bytes());
        let (map, gauges) = (Arc::clone(map), Arc::clone(gauges));
        Ok(Self { driver, context, map, gauges, loans: AtomicU64::new(0) })
    }

    /// The arena.
    #[must_use]
    pub fn map(&self) -> &ArenaMap {
        &self.map
    }

    /// Counts a part of it that a run has the device copy.
    pub fn note_loan(&self) {
        self.loans.fetch_add(1, Ordering::Relaxed);
    }

    /// The parts that were lent so far.
    #[must_use]
    pub fn loans(&self) -> u64 {
        self.loans.load(Ordering::Relaxed)
    }
}

impl Drop for LockedArena {
    fn drop(&mut self) {
        let start = self.map.all().as_ptr();
        let undone = self.driver.enter(self.context).and_then(|()| self.driver.unregister(start));
        match undone {
            Ok(()) => {
                self.gauges.registered.subtract(self.map.bytes());
                tracing::debug!(
                    bytes = self.map.bytes(),
                    loans = self.loans(),
                    "an arena is unlocked"
                );
            }
            Err(fault) => {
                tracing::warn!(%fault, "an arena stays mapped, since its pages stay locked");
                mem::forget(Arc::clone(&self.map));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_ipc::arena::Arena;

    use super::super::fake;
    use super::*;

    #[test]
    fn pages_are_locked_and_counted_until_it_is_dropped_and_the_arena_stays_mapped() {
        let bytes = 1 << 16;
        let map = Arc::new(Arena::create(bytes).unwrap().map().unwrap());
        let gauges = Arc::<Gauges>::default();
        let registered = || gauges.memory().registered_bytes;
        let locked = LockedArena::over(fake::driver("").unwrap(), &map, &gauges).unwrap();
        assert_eq!(registered(), bytes);
        let (start, kept) = (map.all().as_ptr(), Arc::downgrade(&map));
        drop(map);
        assert_eq!(locked.map().all().as_ptr(), start);
        fake::take_calls();
        drop(locked);
        assert!(fake::take_calls().contains(&"cuMemHostUnregister"));
        assert_eq!((kept.upgrade().is_none(), registered()), (true, 0));
        let map = Arc::new(Arena::create(bytes).unwrap().map().unwrap());
        let driver = fake::driver("").unwrap();
        fake::fail("cuMemHostRegister", 712);
        assert!(LockedArena::over(driver, &map, &gauges).is_err());
        assert_eq!(registered(), 0);
    }
}
