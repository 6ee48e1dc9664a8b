//! Stops launches whose results nobody wants any more: a word on the device says so, at which the kernel looks every so
//! many steps.

#![expect(unsafe_code, reason = "copies its own word")]

use std::hint;

use gridpool_kernels::argument::DeviceAddress;

use crate::cuda::driver::{Driver, Stream};
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::PinnedBuffer;
use crate::fault::Fault;

/// The word that stops a launch. The host clears it before the launch.
pub(in crate::cuda) const STOP_BYTES: usize = 4;

/// What sets the words of launches that run.
#[derive(Debug)]
pub(in crate::cuda) struct Stop {
    /// The launch's own stream is busy.
    stream: Stream,
    /// The word as it stops a launch, once it is needed.
    word: PinnedBuffer,
}

impl Stop {
    /// For launches on the GPU of this driver.
    pub(super) fn new(driver: &Driver) -> Result<Self, Fault> {
        Ok(Self { stream: driver.stream()?, word: PinnedBuffer::default() })
    }

    /// Makes what a stop needs, before the launch that may be stopped.
    pub(super) fn prepare(&mut self, gpu: &mut Gpu) -> Result<(), Fault> {
        self.word.reserve(&mut gpu.allocator, STOP_BYTES)?;
        self.word.bytes()[..STOP_BYTES].copy_from_slice(&1_u32.to_le_bytes());
        Ok(())
    }

    /// Queues that a launch is stopped which looks at `word`.
    pub(in crate::cuda) fn set(&self, driver: &Driver, word: DeviceAddress) -> Result<(), Fault> {
        let from = self.word.at(0);
        // SAFETY: both have these bytes, and the stream is waited for by `settle`.
        unsafe { driver.copy_to_device(word, from, STOP_BYTES, self.stream) }
    }

    /// Waits until what was queued is done.
    pub(in crate::cuda) fn settle(&self, driver: &Driver) -> Result<(), Fault> {
        driver.synchronize(self.stream)
    }

    /// Waits until everything in `running` is done. Sets `word`, at which the kernel there looks, once `is_cancelled`.
    pub(in crate::cuda) fn wait(
        &self,
        driver: &Driver,
        running: Stream,
        word: DeviceAddress,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let mut is_stopped = false;
        while !driver.is_done(running)? {
            if !is_stopped && is_cancelled() {
                self.set(driver, word)?;
                is_stopped = true;
            }
            hint::spin_loop();
        }
        if is_stopped { self.settle(driver) } else { Ok(()) }
    }
}
