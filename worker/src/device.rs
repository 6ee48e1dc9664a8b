//! What a worker needs of a device, and nothing else.

use std::ops::Range;
use std::sync::Arc;

use gridpool_protocol::batch::{BatchError, BatchLayout};
use gridpool_protocol::chaos::DeviceFault;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::{DeviceInfo, KernelUse};
use gridpool_protocol::shared::SharedSlice;

use crate::fault::Fault;
use crate::gauges::Gauges;

/// Attempts that run together: one program over the items of all members.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// What to run.
    pub program: &'a Program,
    /// Over what. Each has its own input and its own result.
    pub members: &'a [TaskMember<'a>],
}

/// One attempt: neighbouring items of a batch and the place of the batch's result.
///
/// Lengths have been compared, so that every range that follows from checked tables lies inside.
/// Tables are read by the device, chunk by chunk; they and the cells may change meanwhile.
#[derive(Clone, Debug)]
pub struct TaskMember<'a> {
    batch: BatchLayout,
    items: Range<usize>,
    input: SharedSlice<'a>,
    output_layout: OutputLayout,
    output: SharedSlice<'a>,
}

impl<'a> TaskMember<'a> {
    /// The attempt of `program` over `items` of a batch that lies in `input`. What the whole batch
    /// gives has its place in `output`.
    ///
    /// # Errors
    /// [`Refusal`] if the batch is none of the program's, `items` are none of the batch, or a place
    /// has another length than its layout.
    pub fn new(
        program: &Program,
        batch: BatchLayout,
        items: Range<usize>,
        input: SharedSlice<'a>,
        output: SharedSlice<'a>,
    ) -> Result<Self, Refusal> {
        let output_layout = OutputLayout::new(program, batch)?;
        if items.is_empty() || items.end > batch.items() {
            let Range { start, end } = items;
            return Err(Refusal::Part { start, end, items: batch.items() });
        }
        if input.bytes() < batch.bytes() {
            return Err(BatchError::Bytes { got: input.bytes(), want: batch.bytes() }.into());
        }
        if output.bytes() != output_layout.bytes() {
            return Err(Refusal::Output { got: output.bytes(), want: output_layout.bytes() });
        }
        Ok(Self { batch, items, input, output_layout, output })
    }

    /// Where the parts of the whole batch lie.
    #[must_use]
    pub fn batch(&self) -> BatchLayout {
        self.batch
    }

    /// The items that this attempt is about.
    #[must_use]
    pub fn items(&self) -> Range<usize> {
        self.items.clone()
    }

    /// The whole batch, at least `batch().bytes()` long.
    #[must_use]
    pub fn input(&self) -> SharedSlice<'a> {
        self.input
    }

    /// Where the parts of the whole result lie.
    #[must_use]
    pub fn output_layout(&self) -> &OutputLayout {
        &self.output_layout
    }

    /// The place of the whole result, `output_layout().bytes()` long.
    #[must_use]
    pub fn output(&self) -> SharedSlice<'a> {
        self.output
    }
}

/// Why one member of a task is not run. The others are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The batch, or its tables.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The place for the result has another length than the result.
    #[error("the result takes {want} bytes; its place has {got}")]
    Output {
        /// Bytes of the place.
        got: usize,
        /// Bytes of the result.
        want: usize,
    },
    /// There are no such items.
    #[error("items {start} to {end} are no part of a batch of {items}")]
    Part {
        /// The first that was asked for.
        start: usize,
        /// One past the last.
        end: usize,
        /// Items of the batch.
        items: usize,
    },
}

/// What a run did, counted and timed by the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Kernels in order of first launch, over the items of all members.
    pub kernels: Vec<KernelUse>,
    /// Buffers made or enlarged and arenas registered since the run before.
    pub allocations: u32,
    /// In the order of the task's members.
    pub members: Vec<Result<MemberWork, Refusal>>,
}

impl Work {
    /// What was done for all members together that were not refused.
    #[must_use]
    pub fn sum(&self) -> MemberWork {
        let done = self.members.iter().flatten();
        done.fold(MemberWork::default(), |sum, member| MemberWork {
            item_errors: sum.item_errors + member.item_errors,
            h2d_bytes: sum.h2d_bytes + member.h2d_bytes,
            d2h_bytes: sum.d2h_bytes + member.d2h_bytes,
        })
    }
}

/// What a run did for one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberWork {
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

    /// What it holds beside arenas, for another thread to read at any time.
    fn gauges(&self) -> Arc<Gauges>;

    /// Runs `task`. Of every member that is not refused, every byte of every part of the result that
    /// belongs to its items is written, except high label bytes of values with at most 255 objects,
    /// what values in error have besides their status, and, where the result is packed, room that no
    /// value needed. No other item's bytes are written, and none is read.
    ///
    /// # Errors
    /// A [`Fault`]; the results of all members are then garbage.
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

    /// Meets a fault on purpose: what has to be launched for it is, and the next [`Device::run`] finds
    /// out. Only [`crate::chaos`] calls this.
    ///
    /// # Errors
    /// The fault, where it is known at once.
    fn meet(&mut self, fault: DeviceFault) -> Result<(), Fault>;
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;

    use super::*;

    #[test]
    fn a_member_whose_places_are_too_short_is_refused() {
        let program = Program::compile("rot90", Ties::Cpython).unwrap();
        let batch = BatchLayout::new(3, 1, 30).unwrap();
        let result = OutputLayout::new(&program, batch).unwrap();
        let make = |items, input: usize, output: usize| {
            let (mut input, mut output) = (vec![0; input], vec![0; output]);
            let input = SharedSlice::private(&mut input);
            let output = SharedSlice::private(&mut output);
            TaskMember::new(&program, batch, items, input, output).map(|_| ())
        };
        let (bytes, room) = (batch.bytes(), result.bytes());
        assert_eq!(make(0..3, bytes, room), Ok(()));
        assert_eq!(make(2..3, bytes + 16, room), Ok(()));
        for items in [3..3, 1..1, 0..4, 4..5] {
            assert!(matches!(make(items, bytes, room), Err(Refusal::Part { .. })));
        }
        let short = Err(Refusal::Batch(BatchError::Bytes { got: bytes - 1, want: bytes }));
        assert_eq!(make(0..1, bytes - 1, room), short);
        for got in [0, room - 1, room + 1] {
            assert_eq!(make(0..1, bytes, got), Err(Refusal::Output { got, want: room }));
        }
    }
}
