//! Starts and counts kernels. Only this file launches, so a kernel that was not launched cannot appear in a
//! receipt.

#![expect(unsafe_code, reason = "the one place that launches kernels")]

use std::ffi::c_void;

use gridpool_kernels::argument::StepArgument;
use gridpool_kernels::module::{BLOCK_THREADS, KERNELS, Kernel, PTX};
use gridpool_kernels::solve::{SOLVE, SolveArgument};

use super::driver::{Driver, Event, FunctionHandle, Stream};
use super::solve::kernel as solve;
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
    launched: Vec<&'static str>,
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
        let function = module.function(kernel)?;
        // At least one block, so that a launch over no values still loads the kernel.
        let blocks = kernel.blocks(step.values).max(1);
        // SAFETY: the caller vouches for the addresses; every kernel takes one `Step` by value.
        unsafe { self.start(driver, kernel.name, (function, [blocks, BLOCK_THREADS, 0]), step) }
    }

    /// Starts the kernel of solvers, as `launch` says.
    ///
    /// # Safety
    /// As for [`Launcher::launch`], for what `argument` names.
    pub(super) unsafe fn solve(
        &mut self,
        driver: &Driver,
        launch: &solve::Launch,
        argument: &SolveArgument,
    ) -> Result<(), Fault> {
        // SAFETY: the caller vouches for the addresses; the kernel takes one `Solve` by value.
        unsafe { self.start(driver, SOLVE, (launch.function, launch.shape), argument) }
    }

    /// Starts a kernel, with its blocks, threads and shared memory.
    ///
    /// # Safety
    /// The kernel takes one `T`, and what that names on the device must be as long as it needs.
    unsafe fn start<T>(
        &mut self,
        driver: &Driver,
        name: &'static str,
        (function, shape): (FunctionHandle, [u32; 3]),
        argument: &T,
    ) -> Result<(), Fault> {
        if self.launched.is_empty() {
            self.mark(driver)?;
        }
        let mut arguments = [(&raw const *argument).cast_mut().cast::<c_void>()];
        // SAFETY: by this function's own contract.
        unsafe { driver.launch(function, shape, &mut arguments, self.stream)? };
        self.launched.push(name);
        self.mark(driver)
    }

    /// Adds what was launched to `tally`. The stream must have been waited for.
    pub(super) fn collect(&mut self, driver: &Driver, tally: &mut Tally) -> Result<(), Fault> {
        for (name, around) in self.launched.iter().zip(self.events.windows(2)) {
            tally.add(name, driver.elapsed_us(around[0], around[1])?);
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
