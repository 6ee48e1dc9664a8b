//! Starts kernels. The one caller of the driver's launch, and so the one place where launches are
//! counted: a kernel that was not launched cannot appear in a receipt.

#![expect(unsafe_code, reason = "the one place that launches kernels")]

use std::ffi::c_void;

use gridpool_kernels::module::{BLOCK_THREADS, KERNELS, Kernel, PTX};
use gridpool_protocol::limits::PROGRAM_OPS_MAX;
use gridpool_protocol::program::Extent;

use super::driver::{DeviceAddress, Driver, Event, FunctionHandle, Stream};
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

/// `Extent` of `kernels/cuda/step.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct ExtentArgument {
    per_cell: u32,
    per_value: u32,
    width: u32,
    grids: u32,
}

impl Default for ExtentArgument {
    /// No room; a place in it can be worked out and is 0.
    fn default() -> Self {
        Self { per_cell: 0, per_value: 0, width: 1, grids: 1 }
    }
}

impl From<Extent> for ExtentArgument {
    fn from(extent: Extent) -> Self {
        let aligned = extent.is_aligned();
        Self {
            per_cell: extent.per_cell(),
            per_value: extent.per_value(),
            // Where each value comes of one grid, grids are as good as items.
            width: if aligned { 1 } else { extent.width() },
            grids: if aligned { 1 } else { extent.grids_per_item() },
        }
    }
}

/// `Pictures` of `kernels/cuda/step.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct PicturesArgument {
    pub(super) shapes: DeviceAddress,
    pub(super) origins: DeviceAddress,
    pub(super) cells: DeviceAddress,
    pub(super) extent: ExtentArgument,
}

/// `Op` of `kernels/cuda/step.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct OpArgument {
    pub(super) code: u8,
    pub(super) place: u8,
    pub(super) gives: u8,
    pub(super) unused: u8,
    pub(super) args: [i16; 4],
}

/// `Step` of `kernels/cuda/step.cuh`, where the fields are explained: the one argument of every
/// kernel. What is 0 or null by default is not used by a kernel that serves no values.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct StepArgument {
    pub(super) values: u32,
    pub(super) width_before: u32,
    pub(super) width: u32,
    pub(super) ties: u32,
    pub(super) blanks: u32,
    pub(super) validates: u32,
    pub(super) op_count: u32,
    pub(super) values_per_warp: u32,
    pub(super) offsets: DeviceAddress,
    pub(super) status_before: DeviceAddress,
    pub(super) status: DeviceAddress,
    pub(super) from: PicturesArgument,
    pub(super) to: PicturesArgument,
    pub(super) counts: DeviceAddress,
    pub(super) labels_low: DeviceAddress,
    pub(super) labels_high: DeviceAddress,
    pub(super) numbers: DeviceAddress,
    pub(super) palettes: DeviceAddress,
    pub(super) sums: DeviceAddress,
    pub(super) places: DeviceAddress,
    pub(super) packed_low: DeviceAddress,
    pub(super) packed_high: DeviceAddress,
    pub(super) ops: [OpArgument; PROGRAM_OPS_MAX],
}

// The kernels assert the same of theirs.
const _: () = assert!(size_of::<StepArgument>() == 208 + 12 * PROGRAM_OPS_MAX);

impl Default for StepArgument {
    fn default() -> Self {
        let null = DeviceAddress::default();
        let pictures = PicturesArgument::default();
        Self {
            values: 0,
            width_before: 1,
            width: 1,
            ties: 0,
            blanks: 0,
            validates: 0,
            op_count: 0,
            values_per_warp: 1,
            offsets: null,
            status_before: null,
            status: null,
            from: pictures,
            to: pictures,
            counts: null,
            labels_low: null,
            labels_high: null,
            numbers: null,
            palettes: null,
            sums: null,
            places: null,
            packed_low: null,
            packed_high: null,
            ops: [OpArgument::default(); PROGRAM_OPS_MAX],
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
        // At least one block, so that a launch over no values, which loads a kernel, is a launch.
        let blocks = kernel.blocks(step.values).max(1);
        let mut arguments = [(&raw const *step).cast_mut().cast::<c_void>()];
        // SAFETY: the caller vouches for the addresses; every kernel takes one `Step` by value.
        unsafe { driver.launch(function, blocks, BLOCK_THREADS, &mut arguments, self.stream)? };
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
