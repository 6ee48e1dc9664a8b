//! Starts and counts kernels. Only this file launches, so a kernel that was not launched cannot appear in a
//! receipt.

#![expect(unsafe_code, reason = "the one place that launches kernels")]

use std::ffi::c_void;

use gridpool_kernels::argument::StepArgument;
use gridpool_kernels::module::{BLOCK_THREADS, KERNELS, Kernel, PTX};

use super::driver::{Driver, Event, FunctionHandle, Stream};
use crate::fault::Fault;
use crate::tally::Tally;

/// The loaded kernels.
#[derive(Debug)]
pub(super) struct Module {
    functions: Vec<(&'static str, FunctionHandle)>,
}

impl Module {
    /// Loads the kernels of `gridpool-kernels` into the current context.
    pub(super) fn load(driver: &Driver) -> Result<Self, Fault> {
        let module = driver.load_module(PTX)?;
        let find = |kernel: &Kernel| Ok((kernel.name, driver.function(module, kernel.name)?));
        Ok(Self { functions: KERNELS.iter().map(find).collect::<Result<_, Fault>>()? })
    }

    fn function(&self, kernel: &Kernel) -> Result<FunctionHandle, Fault> {
        let found = self.functions.iter().find(|(name, _)| *name == kernel.name);
        found.map(|&(_, function)| function).ok_or(Fault::MissingSymbol { symbol: kernel.name })
    }
}

/// Launches into one stream, counted and timed.
#[derive(Debug)]
pub(super) struct Launcher {
    stream: Stream,
    /// Launched since the last [`Launcher::collect`]; launch `n` runs from event `n` to `n + 1`.
    launched: Vec<&'static Kernel>,
    events: Vec<Event>,
}

impl Launcher {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, launched: Vec::new(), events: Vec::new() }
    }

    /// Forgets uncollected launches of a run that failed.
    pub(super) fn reset(&mut self) {
        self.launched.clear();
    }

    /// Starts every kernel over no values.
    pub(super) fn launch_all_over_nothing(
        &mut self,
        driver: &Driver,
        module: &Module,
    ) -> Result<(), Fault> {
        for kernel in KERNELS {
            // SAFETY: every kernel reads the number of values first, and with none uses no address.
            unsafe { self.launch(driver, module, kernel, &StepArgument::default())? };
        }
        Ok(())
    }

    /// Starts `kernel` over the values of `step`.
    ///
    /// # Safety
    /// What `step` names on the device must be as long as the kernel needs for these values, until
    /// the stream has been waited for.
    pub(super) unsafe fn launch(
        &mut self,
        driver: &Driver,
        module: &Module,
        kernel: &'static Kernel,
        step: &StepArgument,
    ) -> Result<(), Fault> {
        if self.launched.is_empty() {
            self.mark(driver)?;
        }
        let function = module.function(kernel)?;
        // At least one block, so that a launch over no values still loads the kernel.
        let blocks = kernel.blocks(step.values).max(1);
        let mut arguments = [(&raw const *step).cast_mut().cast::<c_void>()];
        // SAFETY: the caller vouches for the addresses; every kernel takes one `Step` by value.
        unsafe {
            driver.launch(function, [blocks, BLOCK_THREADS, 0], &mut arguments, self.stream)?
        };
        self.launched.push(kernel);
        self.mark(driver)
    }

    /// Adds what was launched to `tally`. The stream must have been waited for.
    pub(super) fn collect(&mut self, driver: &Driver, tally: &mut Tally) -> Result<(), Fault> {
        for (kernel, around) in self.launched.iter().zip(self.events.windows(2)) {
            tally.add(kernel.name, driver.elapsed_us(around[0], around[1])?);
        }
        self.launched.clear();
        Ok(())
    }

    /// Records the event after the last launch.
    fn mark(&mut self, driver: &Driver) -> Result<(), Fault> {
        let at = self.launched.len();
        if at == self.events.len() {
            self.events.push(driver.event()?);
        }
        driver.record(self.events[at], self.stream)
    }
}
