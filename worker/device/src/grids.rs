//! A program over the grids of a tensor that lie in the host's memory already, by the reference: a step of a pipeline
//! on a CPU device. `cuda::GridsOnDevice` is the same on a GPU.

use std::ops::Range;

use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_kernels::reference::Evaluator;
use gridpool_kernels::reference::machine::Runner;
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::output::{NO_OP, OutputLayout};
use gridpool_protocol::tensor::pipeline::{GridStep, GridsRun};

/// Runs a whole job: tests compare a step with it.
pub use gridpool_kernels::reference::run_batch;

/// Cells of the grids that are worked on together: they stay in a core's second-level cache.
const CELLS_MAX: usize = 64 * 1024;

/// Bytes of the size of a grid: INT64, rows and columns.
const SIZE_BYTES: usize = 16;

/// The tensors of a run, as bytes. Results, statuses and their sizes are to be zeros before.
#[derive(Debug)]
pub struct HostTensors<'a> {
    /// The cells of the grids.
    pub grids: &'a [u8],
    /// The size of each grid, if the step takes it.
    pub sizes: Option<&'a [u8]>,
    /// The cells of the results.
    pub results: &'a mut [u8],
    /// Two bytes for each grid.
    pub status: &'a mut [u8],
    /// The size of each result; nothing if the step gives none.
    pub result_sizes: &'a mut [u8],
}

/// The buffers of the reference, kept from run to run.
#[derive(Debug, Default)]
pub struct GridsOnHost {
    evaluator: Evaluator,
    runner: Runner,
    chunk: Chunk,
}

/// Grids that are worked on together.
#[derive(Debug, Default)]
struct Chunk {
    /// Their places in the tensor.
    items: Vec<usize>,
    shapes: Vec<[u8; 2]>,
    /// Their cells, one grid behind the other.
    cells: Vec<u8>,
}

impl GridsOnHost {
    /// Runs the program of a step over the grids of a tensor. A failed grid leaves zeros in place of its result.
    ///
    /// # Panics
    /// If a tensor has not the length that `run` says.
    pub fn run(&mut self, step: &GridStep, run: &GridsRun, mut tensors: HostTensors<'_>) {
        let (count, area) = (run.count(), run.area());
        assert_eq!(tensors.grids.len(), count * area, "the grids");
        let sizes = step.takes_sizes().then_some(SIZE_BYTES * count);
        assert_eq!(tensors.sizes.map(<[u8]>::len), sizes, "the size of each grid");
        assert_eq!(tensors.results.len(), count * run.result_cells(), "the results");
        assert_eq!(tensors.status.len(), 2 * count, "two bytes for each");
        let sizes = if step.gives_sizes() { SIZE_BYTES * count } else { 0 };
        assert_eq!(tensors.result_sizes.len(), sizes, "the size of each result");
        let items = (CELLS_MAX / area).max(1);
        for first in (0..count).step_by(items) {
            self.chunk.take(run, &mut tensors, first..count.min(first + items));
            if !self.chunk.items.is_empty() {
                self.evaluate(step);
                self.put(step, run, &mut tensors);
            }
        }
    }

    fn evaluate(&mut self, step: &GridStep) {
        let (program, Chunk { shapes, cells, .. }) = (step.program(), &self.chunk);
        let number = |count: usize| u32::try_from(count).expect("a chunk is no larger than a job");
        let batch = BatchLayout::new(number(shapes.len()), 1, number(cells.len()));
        let batch = batch.expect("a chunk is no larger than a job");
        let layout = OutputLayout::new(program, batch).expect("the whole result fits a job");
        let all = ItemSpan { items: 0..shapes.len(), cells: 0..cells.len() };
        if let Some(solver) = program.solver() {
            self.runner.load(shapes, |to| to.copy_from_slice(cells));
            self.runner.run(solver, &layout, &all, || false);
            return;
        }
        self.evaluator.load(1, shapes, |to| to.copy_from_slice(cells));
        self.evaluator.validate();
        for (at, op) in program.steps().iter().enumerate() {
            self.evaluator.apply(op, at, program.ties());
        }
        self.evaluator.finish(&layout, &all);
    }

    /// Puts each result in its place.
    fn put(&self, step: &GridStep, run: &GridsRun, tensors: &mut HostTensors<'_>) {
        let program = step.program();
        let part = |part| match program.solver() {
            Some(_) => self.runner.part(part),
            None => self.evaluator.part(part),
        };
        let (statuses, shapes) =
            (part(Part::Status).as_chunks::<2>().0, part(Part::Shapes).as_chunks::<2>().0);
        let (instructions, cells) = (part(Part::Numbers).as_chunks::<4>().0, part(Part::Cells));
        // Packed results follow each other, and failed ones have none. Others lie where their grids did.
        let mut start = 0;
        for (at, &item) in self.chunk.items.iter().enumerate() {
            let (mut status, shape) = (statuses[at], shapes[at]);
            let has_failed = status != [0; 2];
            if has_failed && program.solver().is_some() && status[1] != NO_OP {
                status = GridsRun::status_of(status[0], u32::from_le_bytes(instructions[at]));
            }
            let [rows, columns] = shape.map(usize::from);
            let from = start..start + if has_failed { 0 } else { rows * columns };
            start = match program.is_packed() {
                true => from.end,
                false => start + self.chunk.shapes[at].map(usize::from).iter().product::<usize>(),
            };
            if !has_failed && (shape[0] > run.result[0] || shape[1] > run.result[1]) {
                status = GridsRun::NO_ROOM;
            }
            tensors.status[2 * item..][..2].copy_from_slice(&status);
            if status != [0; 2] {
                continue;
            }
            if columns > 0 {
                let plane = &mut tensors.results[item * run.result_cells()..][..run.result_cells()];
                let lines = plane.chunks_exact_mut(run.result[1].into());
                for (to, from) in lines.zip(cells[from].chunks_exact(columns)) {
                    to[..columns].copy_from_slice(from);
                }
            }
            if step.gives_sizes() {
                let size = &mut tensors.result_sizes[SIZE_BYTES * item..][..SIZE_BYTES];
                size.as_chunks_mut::<8>()
                    .0
                    .copy_from_slice(&shape.map(|side| i64::from(side).to_le_bytes()));
            }
        }
    }
}

impl Chunk {
    /// Takes the grids of a part of a tensor whose size is within it. The others have their status.
    fn take(&mut self, run: &GridsRun, tensors: &mut HostTensors<'_>, items: Range<usize>) {
        self.items.clear();
        self.shapes.clear();
        self.cells.clear();
        for item in items {
            let plane = &tensors.grids[item * run.area()..][..run.area()];
            let given = tensors.sizes.map(|sizes| &sizes[SIZE_BYTES * item..][..SIZE_BYTES]);
            let Some(shape) = given.map_or(Some(run.size), |size| size_within(size, run.size))
            else {
                tensors.status[2 * item..][..2].copy_from_slice(&GridsRun::BAD_SIZE);
                continue;
            };
            self.items.push(item);
            self.shapes.push(shape);
            let [rows, columns] = shape.map(usize::from);
            for line in plane.chunks_exact(run.size[1].into()).take(rows) {
                self.cells.extend_from_slice(&line[..columns]);
            }
        }
    }
}

/// The size of a grid as a tensor says it, if it is one within the rows and columns of the tensor.
fn size_within(bytes: &[u8], plane: [u8; 2]) -> Option<[u8; 2]> {
    let mut size = [0; 2];
    for ((side, bytes), most) in size.iter_mut().zip(bytes.as_chunks::<8>().0).zip(plane) {
        *side = u8::try_from(i64::from_le_bytes(*bytes))
            .ok()
            .filter(|side| (1..=most).contains(side))?;
    }
    Some(size)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::pipeline::StepProgram;

    use super::*;

    /// Runs a step without sizes.
    fn plain(step: &GridStep, run: &GridsRun, grids: &[u8], results: &mut [u8], status: &mut [u8]) {
        let tensors = HostTensors { grids, sizes: None, results, status, result_sizes: &mut [] };
        GridsOnHost::default().run(step, run, tensors);
    }

    /// What a step over planes of 3 rows and 4 columns gives in planes of 2 rows and 3 columns.
    fn sized(
        text: &str,
        grids: &[u8],
        sizes: Option<&[[i64; 2]]>,
    ) -> (Vec<u8>, Vec<[u8; 2]>, Vec<[i64; 2]>) {
        let program = StepProgram { text: text.to_owned(), result: Some([2, 3]) };
        let step = GridStep::new(&program, sizes.is_some()).unwrap();
        let run = step.run([grids.len() as u64 / 12, 3, 4]).unwrap();
        let bytes: Option<Vec<u8>> =
            sizes.map(|all| all.iter().flatten().flat_map(|side| side.to_le_bytes()).collect());
        let (mut results, mut status) = (vec![0; 6 * run.count()], vec![0; 2 * run.count()]);
        let mut result_sizes = vec![0; 16 * run.count()];
        let tensors = HostTensors {
            grids,
            sizes: bytes.as_deref(),
            results: &mut results,
            status: &mut status,
            result_sizes: &mut result_sizes,
        };
        GridsOnHost::default().run(&step, &run, tensors);
        let sides = result_sizes.as_chunks::<8>().0.iter().map(|side| i64::from_le_bytes(*side));
        let sides: Vec<_> = sides.collect();
        (results, status.as_chunks().0.to_vec(), sides.as_chunks().0.to_vec())
    }

    #[test]
    fn results_of_several_sizes_are_padded_and_too_large_ones_fail_their_grid() {
        let grids = [
            [0, 0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0],
            [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [0; 12],
        ]
        .concat();
        let solver = "def f(I):\n  return subgrid(merge(objects(I, F, T, T)), I)";
        for (text, nothing) in [("o_g(3) | merge | subgrid", [4, 1]), (solver, [4, 3])] {
            let (results, status, sizes) = sized(text, &grids, None);
            let empty = [0; 6];
            assert_eq!(
                results,
                [[5, 6, 0, 0, 0, 0], empty, empty, [7, 0, 0, 0, 0, 0], empty].concat()
            );
            assert_eq!(status[..4], [[0, 0], GridsRun::NO_ROOM, [1, 255], [0, 0]], "{text}");
            assert_eq!(status[4][0], nothing[0], "{text}");
            assert_eq!(sizes, [[1, 2], [0, 0], [0, 0], [1, 1], [0, 0]], "{text}");
        }
        let (results, status, sizes) = sized("crop(0, 0, 2, 3) | trim", &grids[..12], None);
        assert_eq!((results, status), (vec![0; 6], vec![[0, 0]]), "an empty grid is a result");
        assert_eq!(sizes, [[0, 0]]);
    }

    #[test]
    fn grids_of_several_sizes_lie_in_one_tensor_and_a_bad_size_fails_its_grid() {
        let plane: Vec<u8> = (0..12).map(|cell| cell % 10).collect();
        let good = [[1, 1], [2, 2], [3, 2], [1, 4], [3, 1]];
        let bad = [[0, 1], [1, 0], [4, 1], [1, 5], [-1, 2], [i64::MIN, i64::MAX], [257, 258]];
        let all = [&good[..], &bad].concat();
        for text in ["rot90", "O = rot90(I)"] {
            let (results, status, sizes) = sized(text, &plane.repeat(all.len()), Some(&all));
            assert_eq!(sizes[..5], [[1, 1], [2, 2], [2, 3], [0, 0], [1, 3]], "{text}");
            let room = [[0, 0], [0, 0], [0, 0], GridsRun::NO_ROOM, [0, 0]];
            assert_eq!(status[..5], room, "{text}: the fourth has 4 rows then");
            assert_eq!(results[..6], [0; 6]);
            assert_eq!(results[6..18], [4, 0, 0, 5, 1, 0, 8, 4, 0, 9, 5, 1], "{text}");
            assert_eq!(results[24..30], [8, 4, 0, 0, 0, 0], "{text}");
            assert!(status[5..].iter().all(|status| *status == GridsRun::BAD_SIZE), "{text}");
            assert!(results[30..].iter().all(|cell| *cell == 0), "{text}");
            assert_eq!(sizes[5..], [[0, 0]; 7], "{text}");
        }
        // What lies beside a grid is no part of it.
        let mut noisy = plane.clone();
        noisy[2] = 200;
        assert_eq!(sized("rot180", &noisy, Some(&[[2, 2]])).0, [5, 4, 0, 1, 0, 0]);
    }

    #[test]
    fn each_result_is_in_its_place_and_a_failed_grid_leaves_zeros() {
        let run = |text: &str, shape: [u64; 3], cells: &[u8]| {
            let step = GridStep::compile(text).unwrap();
            let run = step.run(shape).unwrap();
            let mut results = vec![0; run.count() * run.result_cells()];
            let mut status = vec![0; 2 * run.count()];
            plain(&step, &run, cells, &mut results, &mut status);
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
        plain(&step, &run, &cells, &mut results, &mut status);
        assert!(status.iter().all(|byte| *byte == 0));
        let is_whole =
            |(at, grid): (usize, &[u8])| grid.iter().all(|cell| usize::from(*cell) == at % 10);
        assert!(results.chunks(62 * 62).enumerate().all(is_whole));
    }
}
