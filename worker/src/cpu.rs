//! The CPU device: the reference implementation on threads, when a `cpu` device was named.
//!
//! It is never a stand-in for a GPU. In its reports a kernel is a reference function, and a launch
//! is one call of it over a chunk of the batch; its time is the sum over threads.

use std::fs;
use std::ops::Range;
use std::time::Instant;

use gridpool_kernels::part::{Part, Run};
use gridpool_kernels::reference::{self, Evaluator};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::shared::SharedSlice;
use rayon::prelude::*;

use crate::chunk::{ChunkLimits, cut};
use crate::device::{Device, Task, Work};
use crate::fault::Fault;
use crate::tally::Tally;

/// The step before the first op, as reports name it.
const VALIDATE: &str = "validate";

/// Chunks per thread, so that threads that finish early find more work.
const CHUNKS_PER_THREAD: usize = 4;
/// A chunk smaller than this costs more to hand over than to compute.
const CHUNK_CELLS_MIN: usize = 8 * 1024;
/// A chunk of this size, its image and its labels stay in a core's second-level cache. Chunks of
/// programs that make grids grow have as much room for what they make.
const CHUNK_CELLS_MAX: usize = 64 * 1024;

/// Threads that run the reference implementation.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    threads: rayon::ThreadPool,
    /// For batches of one chunk, which run on the caller's thread.
    evaluator: Evaluator,
}

impl CpuDevice {
    /// A device of `threads` threads, the `index`th of its kind.
    ///
    /// # Errors
    /// [`Fault::Threads`] if they cannot be started.
    pub fn open(index: u32, threads: usize) -> Result<Self, Fault> {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = builder.thread_name(|n| format!("reference {n}")).build();
        let refused = |error: rayon::ThreadPoolBuildError| {
            let reason = error.to_string();
            Fault::Threads { threads, reason }
        };
        let info = DeviceInfo {
            kind: DeviceKind::Cpu,
            index,
            name: match threads {
                1 => format!("{}, 1 thread", processor()),
                _ => format!("{}, {threads} threads", processor()),
            },
            uuid: String::new(),
            driver: String::new(),
        };
        Ok(Self { info, threads: pool.map_err(refused)?, evaluator: Evaluator::default() })
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_hash(&self) -> &str {
        reference::source_hash()
    }

    fn run(&mut self, task: &Task<'_>) -> Result<Work, Fault> {
        let share =
            task.batch.cell_count() / (self.threads.current_num_threads() * CHUNKS_PER_THREAD);
        let cells_max = share.clamp(CHUNK_CELLS_MIN, CHUNK_CELLS_MAX);
        let limits = ChunkLimits { items_max: usize::MAX, cells_max };
        let chunks = cut(task.program, task.tables, limits);
        let done = if let [only] = chunks.as_slice() {
            run_chunk(&mut self.evaluator, task, only)?
        } else {
            self.threads.install(|| {
                let chunks = chunks.par_iter();
                let done = chunks.map_init(Evaluator::default, |evaluator, chunk| {
                    run_chunk(evaluator, task, chunk)
                });
                done.try_reduce(Done::default, |a, b| Ok(a.merged(b)))
            })?
        };
        Ok(Work {
            kernels: done.tally.into_uses(),
            item_errors: done.item_errors,
            h2d_bytes: 0,
            d2h_bytes: 0,
        })
    }

    fn adopt(&mut self, _arena: SharedSlice<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn release(&mut self, _arena: SharedSlice<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

#[derive(Default)]
struct Done {
    tally: Tally,
    item_errors: u32,
}

impl Done {
    fn merged(self, other: Self) -> Self {
        Self {
            tally: self.tally.merged(other.tally),
            item_errors: self.item_errors + other.item_errors,
        }
    }
}

/// Reads a chunk's cells once, applies the program, writes each part of the result once.
fn run_chunk(evaluator: &mut Evaluator, task: &Task<'_>, chunk: &Run) -> Result<Done, Fault> {
    let mut tally = Tally::default();
    let grids_per_item = task.batch.grids_per_item();
    let grids = chunk.items.start * grids_per_item..chunk.items.end * grids_per_item;
    evaluator.load(grids_per_item, &task.tables.shapes()[grids], |cells| {
        task.input.read(task.batch.cells().start + chunk.cells.start, cells);
    });
    timed(&mut tally, VALIDATE, || evaluator.validate());
    let steps = task.program.steps();
    for (at, step) in steps.iter().enumerate() {
        timed(&mut tally, step.op.name(), || {
            evaluator.apply(step, at, task.program.ties());
            if at + 1 == steps.len() {
                evaluator.finish(&task.output_layout, chunk);
            }
        });
    }
    for part in Part::ALL {
        if let Some(span) = part.span(&task.output_layout, chunk) {
            write_part(task, part, span, evaluator.part(part))?;
        }
    }
    Ok(Done { tally, item_errors: evaluator.item_errors() })
}

/// Puts a part of a chunk's result in its place, and never into that of its neighbours. Of a packed
/// result a part may leave a rest of its room.
fn write_part(task: &Task<'_>, part: Part, span: Range<usize>, bytes: &[u8]) -> Result<(), Fault> {
    if bytes.len() > span.len() {
        let (found, room) = (bytes.len(), span.len());
        let detail = format!("{found} bytes of {part:?} where there is room for {room}");
        return Err(Fault::WrongResult { detail });
    }
    task.output.write(span.start, bytes);
    Ok(())
}

fn timed<T>(tally: &mut Tally, name: &str, call: impl FnOnce() -> T) -> T {
    #[expect(clippy::disallowed_methods, reason = "a device times its own work")]
    let start = Instant::now();
    let result = call();
    tally.add(name, start.elapsed().as_secs_f64() * 1e6);
    result
}

/// The processor's name as Linux gives it.
pub(crate) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    let name = model.map(|line| line.trim_start_matches([' ', '\t', ':']));
    name.unwrap_or("unknown processor").to_owned()
}

#[cfg(test)]
mod tests {
    use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS};
    use gridpool_protocol::batch::{Grid, GridBatch, Tables};
    use gridpool_protocol::output::{ItemErrorCode, NO_OP, OutputLayout, Outputs};
    use gridpool_protocol::program::{Program, Ties};

    use super::*;
    use crate::self_test::{run_batch, self_test};

    #[test]
    fn it_passes_its_self_test() {
        self_test(&mut CpuDevice::open(0, 2).unwrap()).unwrap();
    }

    /// 3,000 items, those of the self-test in another order.
    fn many(takes_pairs: bool) -> GridBatch {
        if !takes_pairs {
            let known = known_answer::batch();
            let grids: Vec<Grid> = (0..3_000).map(|i| known.grid(i * 7 % known.len())).collect();
            return GridBatch::from_grids(&grids).unwrap();
        }
        let known = known_answer::pair_batch();
        let grids: Vec<Grid> = (0..2 * known.len()).map(|at| known.grid(at)).collect();
        let pairs = (0..3_000).map(|i| 2 * (i * 3 % known.len()));
        let pairs = pairs.map(|at| (&grids[at], Some(&grids[at + 1])));
        GridBatch::from_pairs(pairs.map(|(a, b)| (a, b.filter(|b| !b.is_empty())))).unwrap()
    }

    fn errors(outputs: &Outputs) -> usize {
        (0..outputs.len()).filter(|&item| outputs.item(item).unwrap().is_err()).count()
    }

    #[test]
    fn many_chunks_on_threads_give_what_one_run_gives() {
        let mut device = CpuDevice::open(0, 3).unwrap();
        for text in [
            "rot90 | replace(0, 5)",
            "palette",
            "leastcolor",
            "rot90 | o_g(5)",
            "o_g(4)",
            "o_g(5) | argmax(size) | outbox",
            "ofcolor(2) | subgrid",
            "hsplit(3) | apply(o_g(7) | size)",
            "trim | o_g(6)",
            "cellwise(7)",
            "apply(hmirror)",
            "apply(fgpartition)",
            "vconcat",
        ] {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let batch = many(program.grids_per_item() == 2);
            let (outputs, work) = run_batch(&mut device, &program, &batch).unwrap();
            let want = reference::run_batch(&program, &batch).unwrap();
            for item in 0..want.len() {
                assert_eq!(outputs.item(item), want.item(item), "{text}: item {item}");
            }
            assert!(work.kernels.iter().all(|kernel| kernel.launches > 1), "{text}: {work:?}");
            assert_eq!(work.item_errors as usize, errors(&want), "{text}");
        }
    }

    #[test]
    fn results_in_place_are_the_same_bytes_in_any_chunks() {
        let mut device = CpuDevice::open(0, 2).unwrap();
        for text in ["rot90 | fill(3, ofcolor(0))", "rot90 | o_g(5)", "apply(rot90)"] {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let batch = many(program.grids_per_item() == 2);
            let (outputs, _) = run_batch(&mut device, &program, &batch).unwrap();
            let want = reference::run_batch(&program, &batch).unwrap();
            assert_eq!(outputs.packed(), want.packed(), "{text}");
        }
    }

    #[test]
    fn a_report_names_each_function_and_counts_its_calls() {
        let batch = GridBatch::from_grids([&Grid::from_rows(&[[1, 2]]).unwrap()]).unwrap();
        let program = Program::compile("rot90 | fill(3, ofcolor(1)) | rot90", Ties::Cpython);
        let mut device = CpuDevice::open(1, 1).unwrap();
        let (_, work) = run_batch(&mut device, &program.unwrap(), &batch).unwrap();
        let calls: Vec<_> = work.kernels.iter().map(|k| (k.name.as_str(), k.launches)).collect();
        assert_eq!(calls, [(VALIDATE, 1), ("rot90", 2), ("ofcolor", 1), ("fill", 1)]);
        assert_eq!((work.h2d_bytes, work.d2h_bytes, work.item_errors), (0, 0, 0));
        assert_eq!(device.info().id().to_string(), "cpu1");
    }

    #[test]
    fn an_item_in_error_is_counted_once() {
        let known = known_answer::pair_batch();
        let mut device = CpuDevice::open(0, 1).unwrap();
        for known_answer in KNOWN_ANSWERS.iter().filter(|known| known.takes_pairs()) {
            let program = known_answer.program();
            let (outputs, work) = run_batch(&mut device, &program, &known).unwrap();
            assert_eq!(work.item_errors as usize, errors(&outputs), "{}", program.text());
        }
    }

    #[test]
    fn a_bad_cell_is_counted_and_its_neighbours_are_right() {
        let grid = Grid::from_rows(&[[1, 2]]).unwrap();
        let batch = GridBatch::from_grids([&grid, &grid, &grid]).unwrap();
        let program = Program::compile("vmirror", Ties::Cpython).unwrap();
        let layout = batch.layout().unwrap();
        let output_layout = OutputLayout::new(&program, layout).unwrap();
        let (mut input, mut output) = (vec![0; layout.bytes()], vec![0; output_layout.bytes()]);
        batch.write_to(layout, &SharedSlice::private(&mut input));
        input[layout.cells().start + 3] = 10;
        let shared = SharedSlice::private(&mut input);
        let tables = Tables::read(layout, &shared).unwrap();
        let task = Task {
            program: &program,
            batch: layout,
            tables: &tables,
            input: shared,
            output_layout,
            output: SharedSlice::private(&mut output),
        };
        let work = CpuDevice::open(0, 1).unwrap().run(&task).unwrap();
        assert_eq!(work.item_errors, 1);
        let bad = ItemErrorCode::BadCell as u8;
        assert_eq!(output[output_layout.status()], [0, 0, bad, NO_OP, 0, 0]);
        let cells = &output[output_layout.cells()];
        assert_eq!((&cells[..2], &cells[4..]), (&[2, 1][..], &[2, 1][..]));
    }

    #[test]
    fn a_part_that_is_longer_than_its_room_is_a_fault_and_not_written() {
        let program = Program::compile("vmirror", Ties::Cpython).unwrap();
        let batch = GridBatch::from_grids([&Grid::from_rows(&[[1, 2]]).unwrap()]).unwrap();
        let layout = batch.layout().unwrap();
        let output_layout = OutputLayout::new(&program, layout).unwrap();
        let (mut input, mut output) = (vec![0; layout.bytes()], vec![9; output_layout.bytes()]);
        batch.write_to(layout, &SharedSlice::private(&mut input));
        let shared = SharedSlice::private(&mut input);
        let task = Task {
            program: &program,
            batch: layout,
            tables: &Tables::read(layout, &shared).unwrap(),
            input: shared,
            output_layout,
            output: SharedSlice::private(&mut output),
        };
        let error = write_part(&task, Part::Status, 0..2, &[0; 3]).unwrap_err();
        assert!(matches!(error, Fault::WrongResult { .. }), "{error}");
        write_part(&task, Part::Status, 0..2, &[0; 2]).unwrap();
        assert_eq!(output[..3], [0, 0, 9]);
    }
}
