//! Attempts whose memory a test owns, and a check that holds on any device: their own items have the
//! reference's results, and no other byte is written.

use std::ops::Range;
use std::sync::Arc;

use gridpool_device::device::{AttemptReport, Device, DispatchReport, GridAttempt, GridDispatch};
use gridpool_device::fault::Fault;
use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_kernels::reference;
use gridpool_protocol::batch::{BatchLayout, Grid, GridBatch};
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::Program;
use gridpool_protocol::shared::SharedSlice;

/// What a result is filled with before a run.
const UNTOUCHED: u8 = 0xee;

/// Some items of a batch, and memory for all of it and for its result.
#[derive(Debug)]
pub(crate) struct AttemptData {
    pub(crate) program: Program,
    pub(crate) batch: Arc<GridBatch>,
    pub(crate) items: Range<usize>,
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl AttemptData {
    pub(crate) fn new(program: &Program, batch: &GridBatch, items: Range<usize>) -> Self {
        let layout = batch.layout().expect("the batch has grids");
        let mut input = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut input));
        let result = OutputLayout::new(program, layout).expect("the result fits a job");
        let output = vec![UNTOUCHED; result.bytes()];
        Self { program: program.clone(), batch: Arc::new(batch.clone()), items, input, output }
    }

    /// All of a batch.
    pub(crate) fn whole(program: &Program, batch: &GridBatch) -> Self {
        Self::new(program, batch, 0..batch.len())
    }

    pub(crate) fn layout(&self) -> BatchLayout {
        self.batch.layout().expect("the batch has grids")
    }

    pub(crate) fn result(&self) -> OutputLayout {
        OutputLayout::new(&self.program, self.layout()).expect("the result fits a job")
    }

    pub(crate) fn outputs(&self) -> Outputs {
        let (program, bytes) = (self.program.clone(), self.output.clone());
        Outputs::new(program, Arc::clone(&self.batch), bytes).expect("it has the layout's length")
    }

    /// Where its items and their cells lie in the batch.
    fn span(&self) -> ItemSpan {
        let per_item = self.batch.grids_per_item() as usize;
        let cells_before = |item: usize| self.batch.tables().offsets()[item * per_item] as usize;
        let cells = cells_before(self.items.start)..cells_before(self.items.end);
        ItemSpan { items: self.items.clone(), cells }
    }

    /// Checks that its items have the reference's results, that `work` counts their errors, and that nothing
    /// else was written.
    pub(crate) fn assert_right(&self, work: AttemptReport) {
        let text = self.program.text();
        let want = reference::run_batch(&self.program, &self.batch).expect("the reference runs it");
        let got = self.outputs();
        let mut errors = 0;
        for item in self.items.clone() {
            let want = want.item(item).expect("the reference is well formed");
            assert_eq!(got.item(item).as_ref(), Ok(&want), "{text}: item {item}");
            errors += u32::from(want.is_err());
        }
        assert_eq!(work.item_errors, errors, "{text}");
        let mut others = self.output.clone();
        for part in Part::ALL {
            if let Some(own) = part.span(&self.result(), &self.span()) {
                others[own].fill(UNTOUCHED);
            }
        }
        let strange = others.iter().position(|&byte| byte != UNTOUCHED);
        assert_eq!(strange, None, "{text}: a byte outside its own parts was written");
    }
}

/// Runs all `sources` as attempts of one dispatch.
pub(crate) fn run_together(
    device: &mut dyn Device,
    sources: &mut [AttemptData],
) -> Result<DispatchReport, Fault> {
    let program = sources[0].program.clone();
    let attempts: Vec<_> = sources
        .iter_mut()
        .map(|source| {
            let (layout, items) = (source.layout(), source.items.clone());
            let input = SharedSlice::private(&mut source.input);
            let output = SharedSlice::private(&mut source.output);
            GridAttempt::new(&program, layout, items, input, output).expect("the places fit")
        })
        .collect();
    device.run(&GridDispatch { program: &program, attempts: &attempts })
}

/// Runs them together and checks all results.
pub(crate) fn assert_right_together(
    device: &mut dyn Device,
    sources: &mut [AttemptData],
) -> DispatchReport {
    let work = run_together(device, sources).expect("the device runs it");
    assert_eq!(work.attempts.len(), sources.len());
    for (source, attempt) in sources.iter().zip(&work.attempts) {
        source.assert_right(*attempt.as_ref().expect("the tables are right"));
    }
    work
}

/// A batch of `grids`; for programs over pairs, each grid with the next as its output, and every fifth
/// without an output.
pub(crate) fn batch_for(program: &Program, grids: &[Grid]) -> GridBatch {
    if program.grids_per_item() == 1 {
        return GridBatch::from_grids(grids).expect("the tests' batches fit a job");
    }
    let next = grids.iter().skip(1).chain(&grids[..1]);
    let pairs = grids.iter().zip(next).enumerate();
    let pairs = pairs.map(|(at, (input, output))| (input, (at % 5 != 3).then_some(output)));
    GridBatch::from_pairs(pairs).expect("the tests' batches fit a job")
}

/// A board of single cells: more objects than a byte can count.
pub(crate) fn many_objects(side: usize) -> Grid {
    let cells = (0..side * side).map(|at| u8::from((at / side + at % side).is_multiple_of(2)));
    Grid::new(side, side, cells.collect()).expect("a board is a grid")
}
