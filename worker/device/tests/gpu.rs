//! The kernels on a real GPU against the reference, item by item.
//!
//! Without a GPU each test prints that it was skipped and passes; with `GRIDPOOL_REQUIRE_GPU=1` it fails. The
//! binary needs only the driver, so it can be built here and run elsewhere:
//! `cargo test --release --no-run -p gridpool-device --test gpu`. Run it with
//! `--test-threads 1`: a test that measures how soon a launch stops must have the GPU alone.

#![expect(clippy::print_stdout, reason = "a test that was skipped says so")]

mod attempts;
mod cancels;
mod lanes;
mod random;

use std::env;

use gridpool_device::chunk::ChunkLimits;
use gridpool_device::cpu::CpuDevice;
use gridpool_device::cuda::CudaDevice;
use gridpool_device::device::{AttemptReport, Device};
use gridpool_device::fault::Fault;
use gridpool_device::self_test::{run_batch, self_test};
use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS, KnownAnswer};
use gridpool_kernels::module::{Kernel, kernels_of};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{ItemErrorCode, NO_OP, Outputs};
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::shared::SharedSlice;

use attempts::{AttemptData, run_together};
use random::Random;

/// The GPU, or `None` if there is no GPU and none is required.
fn gpu() -> Option<CudaDevice> {
    match CudaDevice::open(0, None) {
        Err(Fault::NoDriver) if env::var_os("GRIDPOOL_REQUIRE_GPU").is_none() => {
            println!("skipped: no GPU");
            None
        }
        opened => Some(opened.expect("the GPU opens")),
    }
}

fn cpu() -> CpuDevice {
    CpuDevice::open(0, 4).expect("threads start")
}

/// The same grids as a batch of grids and as a batch of pairs.
struct Batches {
    grids: GridBatch,
    pairs: GridBatch,
}

impl Batches {
    fn of(grids: &[Grid]) -> Self {
        let next = grids.iter().skip(1).chain(&grids[..1]);
        // Every fifth pair has no output.
        let pairs = grids.iter().zip(next).enumerate();
        let pairs = pairs.map(|(at, (input, output))| (input, (at % 5 != 3).then_some(output)));
        Self { grids: batch(grids), pairs: GridBatch::from_pairs(pairs).expect("pairs fit a job") }
    }

    fn for_program(&self, program: &Program) -> &GridBatch {
        if program.grids_per_item() == 2 { &self.pairs } else { &self.grids }
    }
}

fn batch(grids: &[Grid]) -> GridBatch {
    GridBatch::from_grids(grids).expect("the tests' batches fit a job")
}

/// The programs of the known-answer test: every op, every grouping, both tie modes, chains.
fn programs() -> Vec<Program> {
    KNOWN_ANSWERS.iter().map(KnownAnswer::program).collect()
}

fn compile(text: &str) -> Program {
    Program::compile(text, Ties::Cpython).expect("the tests' programs compile")
}

fn assert_same(program: &Program, got: &Outputs, want: &Outputs) {
    assert_eq!(got.len(), want.len());
    for item in 0..want.len() {
        let want = want.item(item).expect("the reference is well formed");
        assert_eq!(got.item(item).as_ref(), Ok(&want), "{} item {item}", program.text());
    }
}

/// Runs `programs` over `grids` on both devices and compares every item. Returns how many items had a result
/// and how many an error.
fn compare(gpu: &mut CudaDevice, programs: &[Program], grids: &[Grid]) -> (usize, usize) {
    let (mut cpu, batches) = (cpu(), Batches::of(grids));
    let (mut results, mut errors) = (0, 0);
    for program in programs {
        let batch = batches.for_program(program);
        let (got, work) = run_batch(gpu, program, batch).expect("the GPU runs it");
        let (want, reference) = run_batch(&mut cpu, program, batch).expect("the CPU runs it");
        assert_same(program, &got, &want);
        assert_eq!(work.sum().item_errors, reference.sum().item_errors, "{}", program.text());
        errors += work.sum().item_errors as usize;
        results += want.len() - work.sum().item_errors as usize;
    }
    (results, errors)
}

#[test]
fn the_gpu_passes_the_self_test() {
    let Some(mut gpu) = gpu() else { return };
    println!("{:?} {}", gpu.info(), gpu.module_hash());
    self_test(&mut gpu).unwrap();
}

#[test]
fn every_op_agrees_with_the_reference_at_every_batch_size() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for items in [1, 2, 5, 31, 32, 33, 120, 2_048] {
        compare(&mut gpu, &programs(), &random.ragged(items));
    }
    // More than one tile of values to place.
    let many = ["trim", "apply(ofcolor(3))", "hsplit(3)"].map(compile);
    compare(&mut gpu, &many, &random.ragged(9_000));
}

#[test]
fn every_shape_of_arc_and_the_largest_grids_agree() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(42);
    let shapes = (1..=30).flat_map(|h| (1..=30).map(move |w| (h, w)));
    let large = [(64, 64), (255, 16), (16, 255), (1, 255), (255, 1), (31, 31), (36, 36), (147, 3)];
    let shapes: Vec<_> = shapes.chain(large.repeat(20)).collect();
    let grids: Vec<_> = shapes.iter().map(|&(h, w)| random.grid(h, w)).collect();
    compare(&mut gpu, &programs(), &grids);
}

#[test]
fn the_hardest_grids_for_labels_agree() {
    let Some(mut gpu) = gpu() else { return };
    let grid = |h: usize, w: usize, color: &dyn Fn(usize, usize) -> bool| {
        let cells = (0..h * w).map(|at| u8::from(color(at / w, at % w))).collect();
        Grid::new(h, w, cells).unwrap()
    };
    let known = known_answer::batch();
    let mut grids: Vec<_> = (0..known.len()).map(|item| known.grid(item)).collect();
    for (h, w) in [(64, 64), (30, 30), (255, 16), (16, 255)] {
        grids.push(grid(h, w, &|i, j| (i + j) % 2 == 0));
        grids.push(grid(h, w, &|_, _| true));
        // A snake, a comb open below, a comb open to the right.
        grids.push(grid(h, w, &|i, j| i % 2 == 0 || j == if i % 4 == 1 { w - 1 } else { 0 }));
        grids.push(grid(h, w, &|i, j| i == 0 || j % 2 == 0));
        grids.push(grid(h, w, &|i, j| j == w - 1 || i % 2 == 0));
    }
    // Many rounds: the order of threads differs from launch to launch.
    let repeated: Vec<_> = grids.iter().cycle().take(20 * grids.len()).cloned().collect();
    let ends = ["", " | colorfilter(1)", " | sizefilter(1)", " | argmin(leftmost)", " | nth(-300)"];
    let programs: Vec<_> = (0..8)
        .flat_map(|grouping| ends.map(|end| compile(&format!("o_g({grouping}){end}"))))
        .collect();
    compare(&mut gpu, &programs, &repeated);
}

#[test]
fn ties_of_colours_agree_in_every_order_of_arrival() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(7);
    let mut grids = Vec::new();
    for _ in 0..6_000 {
        // Each colour equally often, in a random order.
        let (colors, often) = (1 + random.below(6), 1 + random.below(12));
        let mut cells: Vec<u8> = (0..10).collect();
        random.shuffle(&mut cells);
        let mut cells = cells[..colors].repeat(often);
        random.shuffle(&mut cells);
        grids.push(Grid::new(1, cells.len(), cells).unwrap());
    }
    let names = ["mostcolor", "leastcolor", "palette", "o_g(1)", "fgpartition", "asobject | cover"];
    let in_both = |name| [Ties::Cpython, Ties::Lowest].map(|ties| Program::compile(name, ties));
    let programs: Vec<_> =
        names.iter().flat_map(|name| in_both(name)).map(Result::unwrap).collect();
    compare(&mut gpu, &programs, &grids);
}

#[test]
fn random_programs_agree_item_by_item() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(99);
    let mut grids = random.ragged(60);
    for (h, w) in [(64, 64), (1, 255), (255, 16), (1, 1), (2, 2)] {
        grids.push(random.grid(h, w));
    }
    let programs: Vec<_> = (0..1_200).map(|_| random.program(10)).collect();
    let (results, errors) = compare(&mut gpu, &programs, &grids);
    println!("{results} results, {errors} errors");
    assert!(results > 10_000 && errors > 1_000, "{results} results, {errors} errors");
    let longest = compile(&vec!["rot90"; 64].join(" | "));
    compare(&mut gpu, &[longest], &grids);
}

/// The values of all turns weigh over the limit; as a set some do not, and one does at the last turns.
#[test]
fn loops_that_collect_few_different_values_agree() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(7);
    let sides = [(30, 30), (30, 29), (20, 30), (12, 17), (5, 5), (64, 64)];
    let grids: Vec<_> = sides.iter().map(|(h, w)| random.grid(*h, *w)).collect();
    let programs = [
        "O = fill(I, 5, merge(prapply(connect, ofcolor(I, 2), ofcolor(I, 2))))",
        "x = ofcolor(I, 1)\nO = apply(size, prapply(lambda a, b: recolor(index(I, a), connect(a, b)), x, x))",
        "x = sfilter(asindices(I), lambda p: even(last(p)))\nO = size(prapply(lambda a, b: (7, subtract(a, b)), x, x))",
        "O = size(prapply(add, interval(0, 400, 1), interval(0, 400, 1)))",
        "O = apply(lambda p: crop(I, (0, last(p)), (height(I), 9)), asindices(I))",
        "O = size(apply(lambda p: (last(p), rot90(I)), asindices(I)))",
        "O = apply(lambda p: repeat(apply(increment, (last(p), 9, 8)), 60), asindices(I))",
        "O = size(apply(lambda p: partition(crop(I, (first(p), 0), (20, 20))), asindices(I)))",
        "f = lambda p: size(merge(prapply(lambda a, b: connect(p, (999, 8)), asindices(I), (1, 2, 3))))\n\
         O = apply(lambda p: divide(9, subtract(f(p), 996)), sfilter(asindices(I), matcher(last, 8)))",
        "f = lambda n, m: repeat(m, n)\nO = apply(size, prapply(f, (0, 65000, 66068, 65000), (5, 5, 5)))",
        "f = lambda n, m: repeat(m, n)\nO = apply(size, prapply(f, (0, 65000, 66069, 65000), (5, 5, 5)))",
    ];
    let (results, errors) = compare(&mut gpu, &programs.map(compile), &grids);
    println!("{results} results, {errors} errors");
    assert!(results > 30 && errors >= grids.len(), "{results} results, {errors} errors");
}

/// Buffers of the result are as wide as its last step: an earlier, wider step must not write there.
#[test]
fn steps_wider_than_their_result_agree_after_a_small_job() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(31);
    // The device's buffers are no larger than the largest job so far.
    let small: Vec<_> = (0..400).map(|_| random.grid(1, 1)).collect();
    compare(&mut gpu, &[compile("hsplit(30)")], &small);
    for (split, h, w) in [("hsplit(30)", 1, 30), ("vsplit(30)", 30, 1)] {
        let narrow: Vec<_> = (0..2_500).map(|_| random.grid(h, w)).collect();
        let programs = [
            "apply(o_g(5) | merge | paint) | first",
            "apply(o_g(5) | argmax(size) | fill(3)) | last | o_g(4) | colorfilter(3)",
            "apply(fgpartition | colorfilter(2) | merge | subgrid) | nth(7) | palette",
            "apply(partition | first | cover) | hconcat | ofcolor(0) | size",
            "apply(o_g(4) | sizefilter(1))",
            "apply(o_g(5) | size)",
        ];
        let programs = programs.map(|rest| compile(&format!("{split} | {rest}")));
        compare(&mut gpu, &programs, &narrow);
    }
}

#[test]
fn neither_order_nor_chunks_change_a_result() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(3);
    let mut programs = programs();
    programs.extend((0..100).map(|_| random.program(6)));
    let grids = random.ragged(130);
    let batches = Batches::of(&grids);
    let run =
        |gpu: &mut CudaDevice, program: &Program, batch| run_batch(gpu, program, batch).unwrap();
    let want = |program| run(&mut gpu, program, batches.for_program(program)).0;
    let wanted: Vec<_> = programs.iter().map(want).collect();
    let reversed: Vec<_> = grids.iter().rev().cloned().collect();
    let reversed = batch(&reversed);
    for (program, want) in programs.iter().zip(&wanted).filter(|(p, _)| p.grids_per_item() == 1) {
        let (got, _) = run(&mut gpu, program, &reversed);
        for item in 0..want.len() {
            assert_eq!(got.item(want.len() - 1 - item), want.item(item), "{}", program.text());
        }
    }
    for (items_max, cells_max) in [(1, usize::MAX), (7, usize::MAX), (usize::MAX, 1_000)] {
        gpu = gpu.with_chunk_limits(ChunkLimits { items_max, cells_max });
        for (program, want) in programs.iter().zip(&wanted) {
            let (got, work) = run(&mut gpu, program, batches.for_program(program));
            assert_same(program, &got, want);
            assert!(work.kernels.iter().all(|kernel| kernel.launches > 1), "{work:?}");
        }
    }
}

#[test]
fn every_error_has_its_code() {
    use ItemErrorCode::{BadCrop, BadIndex, BadShape, EmptyArg, MissingOutput, Overflow};
    let Some(mut gpu) = gpu() else { return };
    let full = |h, w| Grid::new(h, w, vec![5; h * w]).unwrap();
    let grids = [full(64, 64), full(1, 255), full(255, 1), full(2, 2)];
    let batches = Batches::of(&grids);
    let cases: [(&str, [Option<ItemErrorCode>; 4]); 15] = [
        ("upscale(2)", [Some(Overflow), Some(Overflow), Some(Overflow), None]),
        ("hupscale(16)", [Some(Overflow), Some(Overflow), None, None]),
        ("vupscale(2)", [Some(Overflow), None, Some(Overflow), None]),
        ("asindices | outbox", [Some(Overflow), Some(Overflow), Some(Overflow), None]),
        ("asobject | upscale(30)", [Some(Overflow), Some(Overflow), Some(Overflow), None]),
        ("vsplit(2) | hconcat", [None, Some(EmptyArg), None, None]),
        ("tophalf | rot90", [None, Some(EmptyArg), None, None]),
        ("trim | palette", [None, Some(EmptyArg), Some(EmptyArg), Some(EmptyArg)]),
        ("o_g(5) | first", [Some(EmptyArg); 4]),
        ("o_g(5) | nth(3)", [Some(BadIndex); 4]),
        ("asobject | shift(-1, 0) | subgrid", [Some(BadCrop); 4]),
        ("ofcolor(3) | center", [Some(EmptyArg); 4]),
        ("second", [None, None, None, Some(MissingOutput)]),
        ("vconcat", [Some(BadShape), Some(BadShape), Some(BadShape), Some(MissingOutput)]),
        ("cellwise(0)", [Some(BadShape), Some(BadShape), Some(BadShape), Some(MissingOutput)]),
    ];
    for (text, want) in cases {
        let program = compile(text);
        let batch = batches.for_program(&program);
        let (outputs, work) = run_batch(&mut gpu, &program, batch).unwrap();
        let code = |item| outputs.item(item).unwrap().err().map(|error| error.code);
        assert_eq!([0, 1, 2, 3].map(code), want, "{text}");
        assert_eq!(work.sum().item_errors as usize, want.iter().flatten().count(), "{text}");
        assert_same(&program, &outputs, &run_batch(&mut cpu(), &program, batch).unwrap().0);
    }
}

/// Runs one source alone and returns its report.
fn run_alone(device: &mut dyn Device, source: &mut AttemptData) -> AttemptReport {
    let work = run_together(device, std::slice::from_mut(source)).expect("the device runs it");
    work.attempts[0].clone().expect("the tables are right")
}

#[test]
fn a_bad_cell_fails_its_item_alone_and_shows_nothing_of_an_earlier_job() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(17);
    let batches = Batches::of(&random.ragged(200));
    for program in programs() {
        let batch = batches.for_program(&program);
        let mut memory = AttemptData::whole(&program, batch);
        run_alone(&mut gpu, &mut memory);
        let cells = memory.result().cells();
        let in_place = !cells.is_empty() && !memory.result().is_packed();
        let per_item = batch.grids_per_item() as usize;
        let start = batch.layout().unwrap().cells().start;
        for item in (0..batch.len()).step_by(3) {
            let place = batch.tables().cells_of(per_item * item);
            let value = [10, 16, 127, 128, 255][item % 5];
            memory.input[start + place.start + random.below(place.len())] = value;
        }
        memory.output.fill(0xee);
        let work = run_alone(&mut gpu, &mut memory);
        let (got, outputs) = (memory.output.clone(), memory.outputs());
        let on_cpu = run_alone(&mut cpu(), &mut memory);
        assert_eq!(work.item_errors, on_cpu.item_errors, "{}", program.text());
        assert_same(&program, &outputs, &memory.outputs());
        // The program may use only the other grid of a pair.
        let failed = (0..batch.len()).step_by(3).filter(|_| per_item == 1);
        for item in failed {
            let width = memory.result().width();
            let status = &got[2 * width * item..2 * width * (item + 1)];
            assert_eq!(status, [1, NO_OP].repeat(width), "{} item {item}", program.text());
            let mut shown = batch.tables().cells_of(item).map(|at| got[cells.start + at]);
            assert!(!in_place || shown.all(|cell| cell == 0), "{} item {item}", program.text());
        }
    }
}

#[test]
fn adopted_arenas_give_the_same_result_and_the_same_bytes_are_counted() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(23);
    for program in programs() {
        let batches = Batches::of(&random.ragged(400));
        let mut staged = AttemptData::whole(&program, batches.for_program(&program));
        let mut direct = AttemptData::whole(&program, batches.for_program(&program));
        let slow = run_alone(&mut gpu, &mut staged);
        gpu.adopt(SharedSlice::private(&mut direct.input)).unwrap();
        gpu.adopt(SharedSlice::private(&mut direct.output)).unwrap();
        let fast = run_alone(&mut gpu, &mut direct);
        gpu.release(SharedSlice::private(&mut direct.input)).unwrap();
        gpu.release(SharedSlice::private(&mut direct.output)).unwrap();
        assert_same(&program, &direct.outputs(), &staged.outputs());
        assert!(slow.h2d_bytes >= staged.batch.cells().len() as u64);
        // Only padding between parts may differ.
        let padding = |a: u64, b: u64| a.abs_diff(b) <= 16 * 12;
        assert!(padding(slow.h2d_bytes, fast.h2d_bytes) && padding(slow.d2h_bytes, fast.d2h_bytes));
    }
}

#[test]
fn only_the_used_part_of_a_packed_result_comes_back() {
    let Some(mut gpu) = gpu() else { return };
    let grids = vec![Random(1).grid(30, 30); 1_000];
    for (text, bytes_per_item) in
        [("crop(3, 4, 2, 5)", 18), ("ofcolor(3) | normalize | subgrid", 908)]
    {
        let (_, work) = run_batch(&mut gpu, &compile(text), &batch(&grids)).unwrap();
        let most = 1_000 * bytes_per_item + 16 * 12;
        let bytes = work.sum().d2h_bytes;
        assert!(bytes <= most, "{text}: {bytes} bytes");
    }
}

#[test]
fn a_receipt_names_every_kernel_of_the_program_with_its_launches_and_time() {
    let Some(gpu) = gpu() else { return };
    let limits = ChunkLimits { items_max: 100, cells_max: usize::MAX };
    let mut gpu = gpu.with_chunk_limits(limits);
    let batches = Batches::of(&Random(5).ragged(250));
    for program in programs() {
        let (_, work) = run_batch(&mut gpu, &program, batches.for_program(&program)).unwrap();
        let row = |name| work.kernels.iter().find(|row| row.name == name).unwrap();
        // Those that a chunk of any grids launches.
        let kernels: Vec<_> =
            kernels_of(&program, 1, 1).filter(|k| *k != Kernel::CHAIN_LARGE).collect();
        let in_one_chunk = |kernel| kernels.iter().filter(|other| **other == kernel).count();
        // A hundred items at a time, or fewer if an item has several values.
        let chunks = row(kernels[0].name).launches as usize / in_one_chunk(kernels[0]);
        assert!((3..=25).contains(&chunks), "{work:?}");
        for &kernel in &kernels {
            let in_one_chunk = in_one_chunk(kernel);
            let row = row(kernel.name);
            assert_eq!(row.launches as usize, chunks * in_one_chunk, "{}", kernel.name);
            assert!(row.device_us > 0.0 && row.device_us < 1e6, "{row:?}");
        }
    }
}

#[test]
fn another_gpu_than_the_one_asked_for_is_refused() {
    let Some(gpu) = gpu() else { return };
    let uuid = gpu.info().uuid.clone();
    assert!(CudaDevice::open(0, Some(&uuid)).is_ok());
    let other = "GPU-00000000-0000-0000-0000-000000000000";
    let want = Fault::WrongDevice { want: other.to_owned(), got: uuid };
    assert_eq!(CudaDevice::open(0, Some(other)).unwrap_err(), want);
}
