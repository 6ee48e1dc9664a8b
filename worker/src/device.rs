//! What a worker needs of a device, and nothing else.

use gridpool_protocol::batch::{BatchLayout, Tables};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::{DeviceInfo, KernelUse};
use gridpool_protocol::shared::SharedSlice;

use crate::fault::Fault;

/// One attempt: a program over a batch whose tables have been copied and checked.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// What to run.
    pub program: &'a Program,
    /// Where the parts of the input lie.
    pub batch: BatchLayout,
    /// Shapes and offsets, private to this process.
    pub tables: &'a Tables,
    /// The input, `batch.bytes()` long. Its cells may change while they are read.
    pub input: SharedSlice<'a>,
    /// Where the parts of the result lie.
    pub output_layout: OutputLayout,
    /// The result, `output_layout.bytes()` long.
    pub output: SharedSlice<'a>,
}

/// What a run did, counted and timed by the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Kernels in order of first launch.
    pub kernels: Vec<KernelUse>,
    /// Items with an error in place of a result.
    pub item_errors: u32,
    /// Bytes copied to the device.
    pub h2d_bytes: u64,
    /// Bytes copied back.
    pub d2h_bytes: u64,
}

/// A device that runs programs over batches.
///
/// A device belongs to one thread. After it has returned a sticky [`Fault`] it must not be used
/// again, not even dropped: the process ends.
pub trait Device {
    /// The device as it found itself.
    fn info(&self) -> &DeviceInfo;

    /// SHA-256 of the kernels it runs.
    fn module_hash(&self) -> &str;

    /// Runs `task`. Every byte of every part of the output that the kind has is written, except
    /// high label bytes of values with at most 255 objects, what values in error have besides their
    /// status, and, where the result is packed, room that no value needed.
    ///
    /// # Errors
    /// A [`Fault`]; the output is then garbage.
    fn run(&mut self, task: &Task<'_>) -> Result<Work, Fault>;

    /// Makes an arena known before its first use, so that copies from and to it are fast.
    ///
    /// # Errors
    /// A [`Fault`] of the driver.
    fn adopt(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault>;

    /// Forgets an arena that [`Device::adopt`] was told of, before it is unmapped.
    ///
    /// # Errors
    /// A [`Fault`] of the driver.
    fn release(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault>;
}
