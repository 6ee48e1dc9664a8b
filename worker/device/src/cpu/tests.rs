//! The CPU device, with work cut in many ways, against one run of the library.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::limits::STEPS_MAX;
use gridpool_protocol::output::{ItemErrorCode, NO_OP, Outputs};
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::search::{PackedPrograms, Score, SearchLayout, compile};

use super::*;
use crate::attempts::{AttemptData, assert_right_together, run_together};
use crate::device::{AttemptRefusal, AttemptReport};
use crate::self_test::{run_batch, self_test};

#[test]
fn it_passes_its_self_test() {
    self_test(&mut CpuDevice::open(0, 2).unwrap()).unwrap();
}

/// 3,000 items: those of the self-test in another order.
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
        assert_eq!(work.sum().item_errors as usize, errors(&want), "{text}");
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
    assert_eq!(work.sum(), AttemptReport::default());
    assert_eq!(device.info().id().to_string(), "cpu1");
}

#[test]
fn an_item_in_error_is_counted_once() {
    let known = known_answer::pair_batch();
    let mut device = CpuDevice::open(0, 1).unwrap();
    for known_answer in KNOWN_ANSWERS.iter().filter(|known| known.takes_pairs()) {
        let program = known_answer.program();
        let (outputs, work) = run_batch(&mut device, &program, &known).unwrap();
        assert_eq!(work.sum().item_errors as usize, errors(&outputs), "{}", program.text());
    }
}

#[test]
fn a_bad_cell_is_counted_and_its_neighbours_are_right() {
    let grid = Grid::from_rows(&[[1, 2]]).unwrap();
    let batch = GridBatch::from_grids([&grid, &grid, &grid]).unwrap();
    let program = Program::compile("vmirror", Ties::Cpython).unwrap();
    let mut source = [AttemptData::whole(&program, &batch)];
    let at = source[0].layout().cells().start + 3;
    source[0].input[at] = 10;
    let work = run_together(&mut CpuDevice::open(0, 1).unwrap(), &mut source).unwrap();
    assert_eq!(work.sum().item_errors, 1);
    let (result, output) = (source[0].result(), &source[0].output);
    let bad = ItemErrorCode::BadCell as u8;
    assert_eq!(output[result.status()], [0, 0, bad, NO_OP, 0, 0]);
    let cells = &output[result.cells()];
    assert_eq!((&cells[..2], &cells[4..]), (&[2, 1][..], &[2, 1][..]));
}

#[test]
fn a_part_longer_than_its_place_is_a_fault_and_not_written() {
    let program = Program::compile("vmirror", Ties::Cpython).unwrap();
    let batch = GridBatch::from_grids([&Grid::from_rows(&[[1, 2]]).unwrap()]).unwrap();
    let mut source = AttemptData::whole(&program, &batch);
    let layout = source.layout();
    source.output.fill(9);
    let input = SharedSlice::private(&mut source.input);
    let output = SharedSlice::private(&mut source.output);
    let attempt = GridAttempt::new(&program, layout, 0..1, input, output).unwrap();
    let error = write_part(&attempt, Part::Status, 0..2, &[0; 3]).unwrap_err();
    assert!(matches!(error, Fault::WrongResult { .. }), "{error}");
    write_part(&attempt, Part::Status, 0..2, &[0; 2]).unwrap();
    assert_eq!(source.output[..3], [0, 0, 9]);
}

#[test]
fn attempts_and_shards_write_only_their_own_results() {
    let mut device = CpuDevice::open(0, 3).unwrap();
    for text in ["rot90", "trim | o_g(5)", "apply(ofcolor(2))", "vconcat", "o_g(0)"] {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        let batch = many(program.grids_per_item() == 2);
        let parts = [0..3_000, 17..18, 2_000..3_000, 0..1_999];
        let mut sources = parts.map(|part| AttemptData::new(&program, &batch, part));
        assert_right_together(&mut device, &mut sources);
        let mut small = [5..6, 9..12, 2_999..3_000];
        small.rotate_left(1);
        let mut sources = small.map(|part| AttemptData::new(&program, &batch, part));
        let work = assert_right_together(&mut device, &mut sources);
        assert!(work.kernels.iter().all(|kernel| kernel.launches >= 3), "one run each");
    }
}

#[test]
fn a_batch_that_is_not_like_its_mean_is_cut_as_it_is() {
    let large = Grid::new(64, 64, vec![1; 4_096]).unwrap();
    let small = Grid::new(1, 1, vec![1]).unwrap();
    let grids: Vec<_> = (0..3_000).map(|at| if at < 100 { &large } else { &small }).collect();
    let batch = GridBatch::from_grids(grids).unwrap();
    let mut device = CpuDevice::open(0, 2).unwrap();
    for text in ["upscale(2) | palette", "rot90", "o_g(0)"] {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        assert_right_together(&mut device, &mut [AttemptData::whole(&program, &batch)]);
    }
}

#[test]
fn an_attempt_with_bad_tables_is_refused_alone_wherever_they_are_bad() {
    let program = Program::compile("rot90", Ties::Cpython).unwrap();
    let mut device = CpuDevice::open(0, 2).unwrap();
    for bad in [0, 1, 700, 2_999] {
        let batch = many(false);
        let mut sources = [0; 3].map(|_| AttemptData::whole(&program, &batch));
        sources[1].input[2 * bad] = 0;
        let work = run_together(&mut device, &mut sources).unwrap();
        assert!(
            matches!(work.attempts[1], Err(AttemptRefusal::Batch(_))),
            "{:?}",
            work.attempts[1]
        );
        for at in [0, 2] {
            sources[at].assert_right(*work.attempts[at].as_ref().unwrap());
        }
    }
}

#[test]
fn a_search_whose_program_would_run_for_minutes_is_stopped_in_its_midst() {
    let endless = "m = multiply(multiply(TEN, TEN), multiply(TEN, TEN))\n\
                   f = lambda x: power(increment, m)(x)\n\
                   O = canvas(power(f, m)(ZERO), UNITY)";
    let grid = Grid::from_rows(&[[1, 2]]).unwrap();
    let batch = GridBatch::from_pairs([(&grid, Some(&grid))]).unwrap();
    let mut packed = PackedPrograms::default();
    packed.push(&compile(endless, Ties::Cpython, STEPS_MAX).unwrap().to_bytes()).unwrap();
    let size = packed.size(batch.layout().unwrap());
    let layout = SearchLayout::new(size, Score::Exact).unwrap();
    let (mut input, mut output) = (vec![0; layout.input_bytes()], vec![0; layout.output_bytes()]);
    let (from, to) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
    batch.write_to(layout.batch(), &from);
    packed.write_to(layout, &from);
    let (stop, mut device) = (AtomicBool::new(false), CpuDevice::open(0, 2).unwrap());
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            // Long enough for the program to be at work; if not, it is cancelled before it begins.
            let at = clock::now() + Duration::from_millis(50);
            while !clock::until(at).is_zero() {
                thread::park_timeout(clock::until(at));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let attempt = SearchAttempt::new(layout, 0..1, from, to).unwrap();
        device.search(&[attempt.with_stop(&stop)]).unwrap()
    });
    assert_eq!(report.attempts, [Err(AttemptRefusal::Cancelled)]);
}
