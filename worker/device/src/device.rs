//! What a worker needs from a device.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gridpool_protocol::batch::{BatchError, BatchLayout};
use gridpool_protocol::chaos::DeviceFault;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::{DeviceInfo, KernelUse};
use gridpool_protocol::search::{SearchError, SearchReport};
use gridpool_protocol::shared::SharedSlice;

use crate::fault::Fault;
use crate::gauges::Gauges;
use crate::search::SearchAttempt;

/// Attempts that run together: one program over the items of all of them.
#[derive(Clone, Copy, Debug)]
pub struct GridDispatch<'a> {
    /// What to run.
    pub program: &'a Program,
    /// What to run it over. Each has its own input and its own result.
    pub attempts: &'a [GridAttempt<'a>],
}

/// One attempt: neighbouring items of a batch and the place of the batch's result.
///
/// Lengths have been checked, so every range that follows from checked tables lies inside. The device reads
/// the tables chunk by chunk; the client may change them and the cells meanwhile.
#[derive(Clone, Debug)]
pub struct GridAttempt<'a> {
    batch: BatchLayout,
    items: Range<usize>,
    input: SharedSlice<'a>,
    output_layout: OutputLayout,
    output: SharedSlice<'a>,
    /// Set by another thread once nobody wants the result.
    stop: Option<&'a AtomicBool>,
}

impl<'a> GridAttempt<'a> {
    /// The attempt of `program` over `items` of a batch that lies in `input`. `output` is the place for the
    /// whole batch's result.
    ///
    /// # Errors
    /// [`AttemptRefusal`] if the batch is not what the program takes, `items` do not lie in the batch, or a
    /// place has another length than its layout.
    pub fn new(
        program: &Program,
        batch: BatchLayout,
        items: Range<usize>,
        input: SharedSlice<'a>,
        output: SharedSlice<'a>,
    ) -> Result<Self, AttemptRefusal> {
        let layout = OutputLayout::new(program, batch)?;
        Self::placed(batch, layout, items, input, output)
    }

    /// As [`GridAttempt::new`], with the layout of the program's result over that batch.
    ///
    /// # Errors
    /// As for [`GridAttempt::new`].
    pub fn placed(
        batch: BatchLayout,
        output_layout: OutputLayout,
        items: Range<usize>,
        input: SharedSlice<'a>,
        output: SharedSlice<'a>,
    ) -> Result<Self, AttemptRefusal> {
        if items.is_empty() || items.end > batch.items() {
            let Range { start, end } = items;
            return Err(AttemptRefusal::Part { start, end, items: batch.items() });
        }
        if input.bytes() < batch.bytes() {
            return Err(BatchError::Bytes { got: input.bytes(), want: batch.bytes() }.into());
        }
        let (got, want) = (output.bytes(), output_layout.bytes());
        if got != want {
            return Err(AttemptRefusal::Output { got, want });
        }
        Ok(Self { batch, items, input, output_layout, output, stop: None })
    }

    /// The same attempt, to be stopped once `stop` is set.
    #[must_use]
    pub fn with_stop(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Whether nobody wants its result any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Where the parts of the whole batch lie.
    #[must_use]
    pub fn batch(&self) -> BatchLayout {
        self.batch
    }

    /// The items of this attempt.
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

/// Why one attempt of a dispatch does not run. The others do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttemptRefusal {
    /// The batch, or its tables.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// It was cancelled before it was done.
    #[error("cancelled")]
    Cancelled,
    /// The programs of a search.
    #[error(transparent)]
    Search(SearchError),
    /// A place has another length than what lies there.
    #[error("the result takes {want} bytes; its place has {got}")]
    Output {
        /// Bytes of the place.
        got: usize,
        /// Bytes of the result.
        want: usize,
    },
    /// The items lie outside the batch.
    #[error("items {start} to {end} are outside a batch of {items}")]
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
pub struct DispatchReport {
    /// Kernels in order of first launch, over the items of all attempts.
    pub kernels: Vec<KernelUse>,
    /// Buffers made or enlarged and arenas registered since the last run.
    pub allocations: u32,
    /// In the order of the dispatch's attempts.
    pub attempts: Vec<Result<AttemptReport, AttemptRefusal>>,
}

impl DispatchReport {
    /// The sum over all attempts that were not refused.
    #[must_use]
    pub fn sum(&self) -> AttemptReport {
        let done = self.attempts.iter().flatten();
        done.fold(AttemptReport::default(), |sum, attempt| AttemptReport {
            item_errors: sum.item_errors + attempt.item_errors,
            h2d_bytes: sum.h2d_bytes + attempt.h2d_bytes,
            d2h_bytes: sum.d2h_bytes + attempt.d2h_bytes,
            search: attempt.search.map(|own| own.plus(sum.search.unwrap_or_default())),
        })
    }
}

/// What a run did for one attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptReport {
    /// Items with an error in place of a result.
    pub item_errors: u32,
    /// Bytes copied to the device.
    pub h2d_bytes: u64,
    /// Bytes copied back.
    pub d2h_bytes: u64,
    /// What a search did; `None` for other work.
    pub search: Option<SearchReport>,
}

/// A device that runs programs over batches.
///
/// A device belongs to one thread. After it has returned a sticky [`Fault`] it must not be used
/// again, not even dropped: the process ends.
pub trait Device {
    /// The device's description of itself.
    fn info(&self) -> &DeviceInfo;

    /// SHA-256 of the kernels it runs.
    fn module_hash(&self) -> &str;

    /// The memory that it holds, which another thread may read at any time.
    fn gauges(&self) -> Arc<Gauges>;

    /// Runs `dispatch`. Between two chunks it looks whether an attempt was [cancelled](GridAttempt::is_cancelled),
    /// and refuses the rest of it. For every attempt that is not refused, it writes every byte of the result that
    /// belongs to the attempt's items, except: high label bytes of values with at most 255 objects; what
    /// values in error have besides their status; and space of a packed result that no value needed. It
    /// neither reads nor writes bytes of other items.
    ///
    /// # Errors
    /// A [`Fault`]; the results of all attempts are then garbage.
    fn run(&mut self, dispatch: &GridDispatch<'_>) -> Result<DispatchReport, Fault>;

    /// Runs attempts of searches, one after the other. It looks whether one was
    /// [cancelled](SearchAttempt::is_cancelled) between two chunks, and refuses the rest of it. For every attempt
    /// that is not refused, it writes the verdicts of the attempt's programs, and no others.
    ///
    /// # Errors
    /// A [`Fault`]; the results of all attempts are then garbage.
    fn search(&mut self, attempts: &[SearchAttempt<'_>]) -> Result<DispatchReport, Fault>;

    /// Registers an arena before its first use, so that copies from and to it are fast.
    ///
    /// # Errors
    /// A [`Fault`] of the driver.
    fn adopt(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault>;

    /// Forgets an arena that [`Device::adopt`] registered, before it is unmapped.
    ///
    /// # Errors
    /// A [`Fault`] of the driver.
    fn release(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault>;

    /// Causes a fault on purpose. It launches what the fault needs; the next [`Device::run`] meets it.
    /// Only [`crate::chaos`] calls this.
    ///
    /// # Errors
    /// The fault, if it is known at once.
    fn inject(&mut self, fault: DeviceFault) -> Result<(), Fault>;
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;

    use super::*;

    #[test]
    fn an_attempt_whose_places_are_too_short_is_refused() {
        let program = Program::compile("rot90", Ties::Cpython).unwrap();
        let batch = BatchLayout::new(3, 1, 30).unwrap();
        let result = OutputLayout::new(&program, batch).unwrap();
        let make = |items, input: usize, output: usize| {
            let (mut input, mut output) = (vec![0; input], vec![0; output]);
            let input = SharedSlice::private(&mut input);
            let output = SharedSlice::private(&mut output);
            GridAttempt::new(&program, batch, items, input, output).map(|_| ())
        };
        let (bytes, place) = (batch.bytes(), result.bytes());
        assert_eq!(make(0..3, bytes, place), Ok(()));
        assert_eq!(make(2..3, bytes + 16, place), Ok(()));
        for items in [3..3, 1..1, 0..4, 4..5] {
            assert!(matches!(make(items, bytes, place), Err(AttemptRefusal::Part { .. })));
        }
        let short = Err(AttemptRefusal::Batch(BatchError::Bytes { got: bytes - 1, want: bytes }));
        assert_eq!(make(0..1, bytes - 1, place), short);
        for got in [0, place - 1, place + 1] {
            assert_eq!(make(0..1, bytes, got), Err(AttemptRefusal::Output { got, want: place }));
        }
    }
}
