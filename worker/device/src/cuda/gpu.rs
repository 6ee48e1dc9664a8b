//! What all lanes of a GPU share: the driver, the kernels, memory, and the arenas that kernels reach.

#![expect(unsafe_code, reason = "registers arenas with the driver")]

use std::ops::Range;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_protocol::shared::SharedSlice;

use super::driver::Driver;
use super::launch::Module;
use super::memory::Allocator;
use super::pass::StagingLimits;
use crate::fault::Fault;

/// Shared by all lanes.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) driver: Driver,
    pub(super) module: Module,
    pub(super) allocator: Allocator,
    pub(super) staging: StagingLimits,
    arenas: Vec<Registered>,
}

/// An arena that is registered with the driver.
#[derive(Debug)]
struct Registered {
    /// In this process.
    addresses: Range<usize>,
    /// For kernels.
    on_device: DeviceAddress,
}

impl Gpu {
    pub(super) fn new(driver: Driver, module: Module, allocator: Allocator) -> Self {
        Self { driver, module, allocator, staging: StagingLimits::USUAL, arenas: Vec::new() }
    }

    /// The device address of memory that lies in a registered arena.
    pub(super) fn mapped(&self, slice: &SharedSlice<'_>) -> Option<DeviceAddress> {
        let range = addresses(slice);
        let lies_in = |arena: &&Registered| {
            arena.addresses.start <= range.start && range.end <= arena.addresses.end
        };
        let arena = self.arenas.iter().find(lies_in)?;
        Some(arena.on_device.plus(range.start - arena.addresses.start))
    }

    /// Registers an arena, so that kernels and copies reach it.
    pub(super) fn adopt(&mut self, arena: &SharedSlice<'_>) -> Result<(), Fault> {
        let Self { driver, allocator, arenas, .. } = self;
        // SAFETY: the caller keeps the arena mapped until it has released it.
        match unsafe { driver.register(arena.as_ptr(), arena.bytes()) } {
            Ok(()) => {
                // SAFETY: the arena has just been registered.
                let mapped = unsafe { driver.mapped(arena.as_ptr()) };
                let on_device = match mapped {
                    Ok(on_device) => on_device,
                    Err(fault) if fault.ends_worker() => return Err(fault),
                    Err(fault) => return driver.unregister(arena.as_ptr()).and(Err(fault)),
                };
                arenas.push(Registered { addresses: addresses(arena), on_device });
                allocator.gauges().registered.add(arena.bytes());
                allocator.count();
            }
            Err(fault) if fault.ends_worker() => return Err(fault),
            // If pages cannot be locked, copies go through staging, as for inline inputs.
            Err(fault) => tracing::warn!(%fault, "an arena is copied through staging"),
        }
        Ok(())
    }

    pub(super) fn release(&mut self, arena: &SharedSlice<'_>) -> Result<(), Fault> {
        let Self { driver, allocator, arenas, .. } = self;
        let range = addresses(arena);
        let known = arenas.iter().position(|known| known.addresses == range);
        let Some(at) = known else { return Ok(()) };
        arenas.swap_remove(at);
        allocator.gauges().registered.subtract(arena.bytes());
        driver.unregister(arena.as_ptr())
    }
}

fn addresses(slice: &SharedSlice<'_>) -> Range<usize> {
    let start = slice.as_ptr().addr();
    start..start + slice.bytes()
}
