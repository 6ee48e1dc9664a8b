//! Waits for a launch, and stops it once nobody wants any of its results: a word on the device says so, at which the
//! kernel looks every so many steps.

use std::hint;

use gridpool_kernels::argument::DeviceAddress;

use crate::cuda::driver::{Driver, Stream};
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::PinnedBuffer;
use crate::fault::Fault;

/// The word that stops a launch. The host clears it before the launch.
pub(super) const STOP_BYTES: usize = 4;

/// What sets the word while a launch runs.
#[derive(Debug)]
pub(super) struct Stop {
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

    /// Waits until everything in `running` is done. Sets `word`, at which the kernel there looks, once `is_cancelled`.
    pub(super) fn wait(
        &self,
        driver: &Driver,
        running: Stream,
        word: DeviceAddress,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let mut is_stopped = false;
        while !driver.is_done(running)? {
            if !is_stopped && is_cancelled() {
                let from = self.word.at(0);
                // SAFETY: both have these bytes, and the stream is waited for below.
                unsafe { driver.copy_to_device(word, from, STOP_BYTES, self.stream)? };
                is_stopped = true;
            }
            hint::spin_loop();
        }
        if is_stopped { driver.synchronize(self.stream) } else { Ok(()) }
    }
}
