//! The reference library in this process, on all cores: the speed without a pool, and the reference for all
//! results of a pool.
//!
//! It shares the batch out to threads. It does not use the CPU device, because that is compared with it.

use std::cell::RefCell;
use std::sync::Arc;

use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_kernels::reference::Evaluator;
use gridpool_kernels::reference::machine::Runner;
use gridpool_protocol::batch::{BatchError, GridBatch};
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::Program;
use gridpool_protocol::shared::SharedSlice;
use rayon::prelude::*;

/// Most cells that a thread takes at once: the cells, their results and their labels stay in its cache.
const CHUNK_CELLS_MAX: usize = 32 * 1024;
/// A solver may need long for a grid: each thread has this many chunks at least, so that none waits long for another.
const SOLVER_CHUNKS: usize = 8;

thread_local! {
    /// Its buffers are kept, so that only the first run allocates.
    static EVALUATOR: RefCell<Evaluator> = RefCell::default();
    /// The same for solvers.
    static RUNNER: RefCell<Runner> = RefCell::default();
}

/// A program over a batch, ready to run any number of times.
#[derive(Debug)]
pub(super) struct Library {
    program: Program,
    batch: Arc<GridBatch>,
    layout: OutputLayout,
    chunks: Vec<ItemSpan>,
    output: Vec<u8>,
}

impl Library {
    /// Allocates the result.
    pub(super) fn new(program: &Program, batch: Arc<GridBatch>) -> Result<Self, BatchError> {
        let layout = OutputLayout::new(program, batch.layout()?)?;
        let chunks = chunks(
            &batch,
            match program.solver() {
                Some(_) => batch.cells().len() / (SOLVER_CHUNKS * rayon::current_num_threads()),
                None => CHUNK_CELLS_MAX,
            },
        );
        let output = vec![0; layout.bytes()];
        Ok(Self { program: program.clone(), batch, layout, chunks, output })
    }

    /// Runs it on all cores.
    pub(super) fn run(&mut self) {
        let output = SharedSlice::private(&mut self.output);
        let (program, batch, layout) = (&self.program, self.batch.as_ref(), &self.layout);
        self.chunks.par_iter().for_each(|chunk| {
            run_chunk(program, batch, layout, chunk, &output);
        });
    }

    /// The result of the last run.
    pub(super) fn into_outputs(self) -> Outputs {
        let outputs = Outputs::new(self.program, self.batch, self.output);
        outputs.expect("the output is as long as its layout says")
    }
}

/// The results of `program` for `batch`.
///
/// # Errors
/// [`BatchError`] if the batch is not what the program takes.
pub fn outputs(program: &Program, batch: Arc<GridBatch>) -> Result<Outputs, BatchError> {
    let mut library = Library::new(program, batch)?;
    library.run();
    Ok(library.into_outputs())
}

/// Neighbouring items with about so many cells each, at most [`CHUNK_CELLS_MAX`].
fn chunks(batch: &GridBatch, cells: usize) -> Vec<ItemSpan> {
    let cells = cells.min(CHUNK_CELLS_MAX);
    let width = batch.grids_per_item() as usize;
    let offsets = batch.tables().offsets();
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < batch.len() {
        let first = offsets[width * start] as usize;
        let rest = &offsets[width * start + 1..];
        let grids = rest.partition_point(|&end| end as usize - first <= cells);
        let end = start + (grids / width).max(1);
        chunks.push(ItemSpan { items: start..end, cells: first..offsets[width * end] as usize });
        start = end;
    }
    chunks
}

fn run_chunk(
    program: &Program,
    batch: &GridBatch,
    layout: &OutputLayout,
    chunk: &ItemSpan,
    output: &SharedSlice<'_>,
) {
    let width = batch.grids_per_item() as usize;
    let shapes = &batch.tables().shapes()[width * chunk.items.start..width * chunk.items.end];
    let fill = |cells: &mut [u8]| cells.copy_from_slice(&batch.cells()[chunk.cells.clone()]);
    let write = |part: Part, bytes: &[u8]| {
        if let Some(span) = part.span(layout, chunk) {
            output.write(span.start, bytes);
        }
    };
    if let Some(solver) = program.solver() {
        return RUNNER.with_borrow_mut(|runner| {
            runner.load(shapes, fill);
            runner.run(solver, layout, chunk, || false);
            Part::ALL.into_iter().for_each(|part| write(part, runner.part(part)));
        });
    }
    EVALUATOR.with_borrow_mut(|evaluator| {
        evaluator.load(width, shapes, fill);
        evaluator.validate();
        for (at, step) in program.steps().iter().enumerate() {
            evaluator.apply(step, at, program.ties());
        }
        evaluator.finish(layout, chunk);
        Part::ALL.into_iter().for_each(|part| write(part, evaluator.part(part)));
    });
}

#[cfg(test)]
mod tests {
    use gridpool_kernels::reference;
    use gridpool_protocol::bench::Workload;
    use gridpool_protocol::program::Ties;

    use super::*;
    use crate::programs::PROGRAMS;
    use crate::workload::Source;

    #[test]
    fn all_cores_give_the_results_of_one() {
        let source = Source::open(None).unwrap();
        let batch = Arc::new(source.batch(Workload::Arc, 0..3_000));
        for program in PROGRAMS.map(|entry| entry.program()) {
            let got = outputs(&program, Arc::clone(&batch)).unwrap();
            let want = reference::run_batch(&program, &batch).unwrap();
            for item in 0..want.len() {
                assert_eq!(got.item(item), want.item(item), "{}: item {item}", program.text());
            }
        }
    }

    #[test]
    fn all_cores_give_the_results_of_one_for_solvers() {
        let source = Source::open(None).unwrap();
        let batch = Arc::new(source.batch(Workload::Arc, 0..300));
        for text in ["O = trim(rot90(I))", "O = objects(I, T, F, T)", "O = first(frontiers(I))"] {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let got = outputs(&program, Arc::clone(&batch)).unwrap();
            let want = reference::run_batch(&program, &batch).unwrap();
            assert_eq!(got.first_difference(&want), Ok(None), "{text}");
        }
    }

    #[test]
    fn pairs_are_never_split_between_threads() {
        let grids = Source::open(None).unwrap().batch(Workload::Arc, 0..3_000);
        let pair =
            |at: usize| (grids.grid(at), (!at.is_multiple_of(3)).then(|| grids.grid(at + 1)));
        let pairs: Vec<_> = (0..2_999).map(pair).collect();
        let pairs = pairs.iter().map(|(input, output)| (input, output.as_ref()));
        let batch = Arc::new(GridBatch::from_pairs(pairs).unwrap());
        assert!(chunks(&batch, CHUNK_CELLS_MAX).len() > 10);
        for text in ["hconcat", "apply(rot90)", "second | o_g(5)", "apply(palette)"] {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let got = outputs(&program, Arc::clone(&batch)).unwrap();
            let want = reference::run_batch(&program, &batch).unwrap();
            assert_eq!(got.first_difference(&want), Ok(None), "{text}");
        }
    }
}
