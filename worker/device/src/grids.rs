//! A program over grids of one size that lie in the host's memory already, by the reference: a step of a pipeline on a
//! CPU device. `cuda::GridsOnDevice` is the same on a GPU.

use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_kernels::reference::Evaluator;
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::tensor::pipeline::{GridStep, GridsRun};

/// Cells of the grids that are worked on together: they stay in a core's second-level cache.
const CELLS_MAX: usize = 64 * 1024;

/// The buffers of the reference, kept from run to run.
#[derive(Debug, Default)]
pub struct GridsOnHost {
    evaluator: Evaluator,
}

impl GridsOnHost {
    /// Runs the program of a step over the grids of a tensor. Both results are to be zeros before; a failed grid leaves
    /// its own as they are.
    ///
    /// # Panics
    /// If a slice has not the length that `run` says.
    pub fn run(
        &mut self,
        step: &GridStep,
        run: &GridsRun,
        cells: &[u8],
        results: &mut [u8],
        status: &mut [u8],
    ) {
        let area: usize = run.size.map(usize::from).iter().product();
        let result_area = run.result_cells();
        assert_eq!(cells.len(), run.count() * area, "the grids");
        assert_eq!(results.len(), run.count() * result_area, "the results");
        assert_eq!(status.len(), 2 * run.count(), "two bytes for each");
        let items = (CELLS_MAX / area).max(1);
        for (at, cells) in cells.chunks(items * area).enumerate() {
            let first = at * items;
            let count = cells.len() / area;
            self.run_chunk(step, run, cells);
            let status = &mut status[2 * first..2 * (first + count)];
            status.copy_from_slice(self.evaluator.part(Part::Status));
            let results = &mut results[first * result_area..(first + count) * result_area];
            self.take(step, area, status, (results, result_area));
        }
    }

    fn run_chunk(&mut self, step: &GridStep, run: &GridsRun, cells: &[u8]) {
        let program = step.program();
        let area: usize = run.size.map(usize::from).iter().product();
        let count = cells.len() / area;
        self.evaluator.load(1, &vec![run.size; count], |to| to.copy_from_slice(cells));
        self.evaluator.validate();
        for (at, op) in program.steps().iter().enumerate() {
            self.evaluator.apply(op, at, program.ties());
        }
        let number = |count: usize| u32::try_from(count).expect("a chunk is no larger than a job");
        let batch = BatchLayout::new(number(count), 1, number(cells.len()));
        let batch = batch.expect("a chunk is no larger than a job");
        let layout = OutputLayout::new(program, batch).expect("the whole result fits a job");
        self.evaluator.finish(&layout, &ItemSpan { items: 0..count, cells: 0..cells.len() });
    }

    /// Puts each result in its place.
    fn take(&self, step: &GridStep, area: usize, status: &[u8], results: (&mut [u8], usize)) {
        let (results, result_area) = results;
        let cells = self.evaluator.part(Part::Cells);
        let is_packed = step.program().is_packed();
        // Packed results follow each other, and failed ones have none.
        let mut start = 0;
        for (at, status) in status.as_chunks::<2>().0.iter().enumerate() {
            let is_right = *status == [0; 2];
            let from = if is_packed { start } else { at * area };
            if is_right {
                let to = &mut results[at * result_area..(at + 1) * result_area];
                to.copy_from_slice(&cells[from..from + result_area]);
                start += result_area;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_in_its_place_and_a_failed_grid_leaves_zeros() {
        let run = |text: &str, shape: [u64; 3], cells: &[u8]| {
            let step = GridStep::compile(text).unwrap();
            let run = step.run(shape).unwrap();
            let mut results = vec![0; run.count() * run.result_cells()];
            let mut status = vec![0; 2 * run.count()];
            GridsOnHost::default().run(&step, &run, cells, &mut results, &mut status);
            (results, status)
        };
        let grids = [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 10, 9, 8, 7, 6, 5, 4];
        let (results, status) = run("rot90", [3, 2, 3], &grids);
        assert_eq!(results, [4, 1, 5, 2, 6, 3, 0, 0, 0, 0, 0, 0, 6, 9, 5, 8, 4, 7]);
        assert_eq!(status, [0, 0, 1, 255, 0, 0]);
        let (results, status) = run("rot90 | crop(0, 0, 1, 2)", [3, 2, 3], &grids);
        assert_eq!((results, status), (vec![4, 1, 0, 0, 6, 9], vec![0, 0, 1, 255, 0, 0]));
        // The op that fails is named, and nothing is in place of its result.
        let (results, status) =
            run("objects(true, true, true) | argmax(size) | fill(3)", [1, 1, 2], &[4, 4]);
        assert_eq!((results, status), (vec![0, 0], vec![4, 1]));
        assert_eq!(run("trim", [2, 2, 2], &[1; 8]), (Vec::new(), vec![0; 4]));
        assert_eq!(run("rot90", [0, 2, 2], &[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn many_grids_are_worked_on_in_parts() {
        let step = GridStep::compile("trim").unwrap();
        let run = step.run([200, 64, 64]).unwrap();
        let cells: Vec<u8> =
            (0..200 * 4_096).map(|at: usize| u8::try_from(at / 4_096 % 10).unwrap()).collect();
        let (mut results, mut status) = (vec![0; 200 * 62 * 62], vec![0; 400]);
        GridsOnHost::default().run(&step, &run, &cells, &mut results, &mut status);
        assert!(status.iter().all(|byte| *byte == 0));
        let is_whole =
            |(at, grid): (usize, &[u8])| grid.iter().all(|cell| usize::from(*cell) == at % 10);
        assert!(results.chunks(62 * 62).enumerate().all(is_whole));
    }
}
