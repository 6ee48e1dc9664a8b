//! An arena whose pages are locked, so that copies to the device need no staging.

#![expect(unsafe_code, reason = "registers an arena with the driver")]

use std::mem;
use std::sync::Arc;

use gridpool_ipc::arena::ArenaMap;
use gridpool_kernels::module::CUDA_VERSION_MIN;

use super::driver::{ContextHandle, Driver};
use crate::fault::Fault;

/// See the module's text. It keeps the arena mapped.
#[derive(Debug)]
pub struct LockedArena {
    driver: Driver,
    context: ContextHandle,
    map: Arc<ArenaMap>,
}

// SAFETY: the driver's handles belong to a process, not to a thread.
unsafe impl Send for LockedArena {}

// SAFETY: as above, and they are only read.
unsafe impl Sync for LockedArena {}

impl LockedArena {
    /// Locks the pages of an arena for the one device that this process sees.
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub fn lock(map: &Arc<ArenaMap>) -> Result<Self, Fault> {
        Self::over(Driver::open(CUDA_VERSION_MIN)?, map)
    }

    fn over(driver: Driver, map: &Arc<ArenaMap>) -> Result<Self, Fault> {
        let context = driver.enter_context(driver.only_device()?)?;
        let all = map.all();
        // SAFETY: the arena stays mapped until the drop has undone this.
        unsafe { driver.register(all.as_ptr(), all.bytes())? };
        Ok(Self { driver, context, map: Arc::clone(map) })
    }

    /// The arena.
    #[must_use]
    pub fn map(&self) -> &ArenaMap {
        &self.map
    }
}

impl Drop for LockedArena {
    fn drop(&mut self) {
        let start = self.map.all().as_ptr();
        let undone = self.driver.enter(self.context).and_then(|()| self.driver.unregister(start));
        if let Err(fault) = undone {
            tracing::warn!(%fault, "an arena stays mapped, since its pages stay locked");
            mem::forget(Arc::clone(&self.map));
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_ipc::arena::Arena;

    use super::super::fake;
    use super::*;

    #[test]
    fn pages_are_locked_until_it_is_dropped_and_the_arena_stays_mapped() {
        let map = Arc::new(Arena::create(1 << 16).unwrap().map().unwrap());
        let locked = LockedArena::over(fake::driver("").unwrap(), &map).unwrap();
        let (start, kept) = (map.all().as_ptr(), Arc::downgrade(&map));
        drop(map);
        assert_eq!(locked.map().all().as_ptr(), start);
        fake::take_calls();
        drop(locked);
        assert!(fake::take_calls().contains(&"cuMemHostUnregister"));
        assert!(kept.upgrade().is_none());
        let map = Arc::new(Arena::create(1 << 16).unwrap().map().unwrap());
        let driver = fake::driver("").unwrap();
        fake::fail("cuMemHostRegister", 712);
        assert!(LockedArena::over(driver, &map).is_err());
    }
}
