//! Starts kernels. The one caller of the driver's launch, and so the one place where launches are
//! counted: a kernel that was not launched cannot appear in a receipt.

#![expect(unsafe_code, reason = "the one place that launches kernels")]

use std::ffi::c_void;

use gridpool_kernels::module::{KERNELS, Kernel, PTX};

use super::driver::{DeviceAddress, Driver, Event, FunctionHandle, Stream};
use crate::fault::Fault;
use crate::tally::Tally;

/// Arguments of the kernel that takes most.
const ARGUMENTS_MAX: usize = 10;

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

/// `Batch` of `kernels/cuda/grid.cuh`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct BatchArgument {
    pub(super) items: u32,
    pub(super) offsets: DeviceAddress,
}

/// `Stage` of `kernels/cuda/grid.cuh`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct StageArgument {
    pub(super) shapes: DeviceAddress,
    pub(super) cells: DeviceAddress,
}

/// One argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument {
    Address(DeviceAddress),
    Batch(BatchArgument),
    Number(u32),
    Stage(StageArgument),
}

impl Argument {
    fn as_ptr(&self) -> *const c_void {
        match self {
            Self::Address(address) => (&raw const *address).cast(),
            Self::Batch(batch) => (&raw const *batch).cast(),
            Self::Number(number) => (&raw const *number).cast(),
            Self::Stage(stage) => (&raw const *stage).cast(),
        }
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

    /// Forgets launches that were not collected, because the run that made them failed.
    pub(super) fn reset(&mut self) {
        self.launched.clear();
    }

    /// Starts every kernel over no items.
    pub(super) fn launch_all_over_nothing(
        &mut self,
        driver: &Driver,
        module: &Module,
    ) -> Result<(), Fault> {
        // Every kernel reads the number of items first, from its first argument, and with none
        // reads nothing more; what follows only has to be long enough to be copied.
        let batch = [Argument::Batch(BatchArgument::default())];
        let rest = [Argument::Stage(StageArgument::default()); ARGUMENTS_MAX - 1];
        for kernel in &KERNELS {
            // SAFETY: over no items no address is used.
            unsafe { self.launch(driver, module, kernel, 0, &[&batch[..], &rest[..]].concat())? };
        }
        Ok(())
    }

    /// Starts `kernel` over `items` items.
    ///
    /// # Safety
    /// `arguments` must be of the kinds that the kernel takes, in its order, and what they name on
    /// the device must be as long as the kernel needs for `items` items, until the stream has been
    /// waited for.
    pub(super) unsafe fn launch(
        &mut self,
        driver: &Driver,
        module: &Module,
        kernel: &'static Kernel,
        items: u32,
        arguments: &[Argument],
    ) -> Result<(), Fault> {
        if self.launched.is_empty() {
            self.mark(driver)?;
        }
        let mut pointers: Vec<_> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
        let function = module.function(kernel)?;
        // At least one block, so that a launch over no items, which loads a kernel, is a launch.
        let blocks = kernel.blocks(items).max(1);
        // SAFETY: the caller vouches for the arguments; `pointers` points at them.
        unsafe { driver.launch(function, blocks, kernel.threads, &mut pointers, self.stream)? };
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
