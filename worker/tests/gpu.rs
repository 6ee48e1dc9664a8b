//! The kernels on a real GPU against the reference, item by item.
//!
//! Where there is no GPU each test says so and passes; with `GRIDPOOL_REQUIRE_GPU=1` that is a
//! failure. The binary needs nothing but the driver, so it can be built here and run elsewhere:
//! `cargo test --release --no-run -p gridpool-worker --test gpu`.

#![expect(clippy::print_stdout, reason = "a test that was skipped says so")]

use std::env;

use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS};
use gridpool_kernels::module::kernels_of;
use gridpool_protocol::batch::{Grid, GridBatch, Tables};
use gridpool_protocol::output::{NO_OP, OutputLayout, Outputs};
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::shared::SharedSlice;
use gridpool_worker::chunk::ChunkLimits;
use gridpool_worker::cpu::CpuDevice;
use gridpool_worker::cuda::CudaDevice;
use gridpool_worker::device::{Device, Task, Work};
use gridpool_worker::fault::Fault;
use gridpool_worker::self_test::{run_batch, self_test};

/// The GPU, or `None` where there is none and none is required.
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

/// Numbers that look random and are the same in every run (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits fit") % bound
    }

    /// A grid of up to ten colours that come in runs, as in ARC's grids, so that objects grow.
    fn grid(&mut self, h: usize, w: usize) -> Grid {
        let colors = 1 + self.below(10);
        let palette: Vec<usize> = (0..colors).map(|_| self.below(10)).collect();
        let change = 1 + self.below(4);
        let mut cells = Vec::with_capacity(h * w);
        let mut color = palette[0];
        for _ in 0..h * w {
            if self.below(change) == 0 {
                color = palette[self.below(colors)];
            }
            cells.push(u8::try_from(color).expect("colours are small"));
        }
        Grid::new(h, w, cells).expect("the sides are within the limits")
    }

    fn ragged(&mut self, items: usize) -> Vec<Grid> {
        let grid = |_| {
            let (h, w) = (1 + self.below(30), 1 + self.below(30));
            self.grid(h, w)
        };
        (0..items).map(grid).collect()
    }
}

fn batch(grids: &[Grid]) -> GridBatch {
    GridBatch::from_grids(grids).expect("the tests' batches fit a job")
}

/// The programs of the known-answer test: every op, every grouping, both tie modes, two chains.
fn programs() -> Vec<Program> {
    KNOWN_ANSWERS.iter().map(known_answer::KnownAnswer::program).collect()
}

fn compile(text: &str, ties: Ties) -> Program {
    Program::compile(text, ties).expect("the tests' programs compile")
}

fn assert_same(program: &Program, got: &Outputs, want: &Outputs) {
    for item in 0..want.len() {
        let want = want.item(item).expect("the reference is well formed");
        assert_eq!(got.item(item).as_ref(), Ok(&want), "{} item {item}", program.text());
    }
}

/// Runs `programs` over `grids` on both devices and compares every item.
fn compare(gpu: &mut CudaDevice, programs: &[Program], grids: &[Grid]) {
    let (mut cpu, batch) = (cpu(), batch(grids));
    for program in programs {
        let (got, work) = run_batch(gpu, program, &batch).expect("the GPU runs it");
        let (want, _) = run_batch(&mut cpu, program, &batch).expect("the CPU runs it");
        assert_same(program, &got, &want);
        assert_eq!(work.item_errors, 0);
    }
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
    for items in [1, 2, 5, 29, 31, 32, 33, 120, 4_096] {
        compare(&mut gpu, &programs(), &random.ragged(items));
    }
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
    // Many rounds: what threads do in which order differs from launch to launch.
    let repeated: Vec<_> = grids.iter().cycle().take(40 * grids.len()).cloned().collect();
    let objects: Vec<_> = (0..8).map(|t| compile(&format!("o_g({t})"), Ties::Cpython)).collect();
    compare(&mut gpu, &objects, &repeated);
}

#[test]
fn colours_that_tie_agree_in_every_order_of_arrival() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(7);
    let mut grids = Vec::new();
    for _ in 0..6_000 {
        // Each colour equally often, in a random order.
        let (colors, often) = (1 + random.below(6), 1 + random.below(12));
        let mut cells: Vec<u8> = (0..10).collect();
        for at in 0..10 {
            cells.swap(at, at + random.below(10 - at));
        }
        let mut cells = cells[..colors].repeat(often);
        for at in 0..cells.len() {
            let other = at + random.below(cells.len() - at);
            cells.swap(at, other);
        }
        grids.push(Grid::new(1, cells.len(), cells).unwrap());
    }
    let names = ["mostcolor", "leastcolor", "palette", "o_g(1)"];
    let programs: Vec<_> = [Ties::Cpython, Ties::Lowest]
        .iter()
        .flat_map(|&ties| names.map(|name| compile(name, ties)))
        .collect();
    compare(&mut gpu, &programs, &grids);
}

#[test]
fn ops_chain_without_a_host_between_them() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(99);
    let middle = [
        "rot90",
        "rot180",
        "rot270",
        "hmirror",
        "vmirror",
        "dmirror",
        "cmirror",
        "identity",
        "replace(0, 3)",
        "switch(1, 8)",
        "replace(5, 0)",
    ];
    let last = ["mostcolor", "palette", "numcolors", "colorcount(3)", "o_g(5)", "o_g(6)", "rot90"];
    let grids = random.ragged(300);
    let programs: Vec<_> = (0..60)
        .map(|_| {
            let length = 1 + random.below(12);
            let mut ops: Vec<_> = (0..length).map(|_| middle[random.below(middle.len())]).collect();
            ops.push(last[random.below(last.len())]);
            compile(&ops.join(" | "), Ties::Cpython)
        })
        .collect();
    compare(&mut gpu, &programs, &grids);
    let longest = vec!["rot90"; 64].join(" | ");
    compare(&mut gpu, &[compile(&longest, Ties::Cpython)], &grids);
}

#[test]
fn neither_order_nor_chunks_change_a_result() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(3);
    let grids = random.ragged(500);
    let reversed: Vec<_> = grids.iter().rev().cloned().collect();
    let (straight, reversed) = (batch(&grids), batch(&reversed));
    let run = |gpu: &mut CudaDevice, program: &Program, batch: &GridBatch| {
        run_batch(gpu, program, batch).unwrap()
    };
    let wanted: Vec<_> =
        programs().iter().map(|program| run(&mut gpu, program, &straight).0).collect();
    for (program, want) in programs().iter().zip(&wanted) {
        let (got, _) = run(&mut gpu, program, &reversed);
        for item in 0..want.len() {
            assert_eq!(got.item(want.len() - 1 - item), want.item(item), "{}", program.text());
        }
    }
    for (items_max, cells_max) in [(1, usize::MAX), (7, usize::MAX), (usize::MAX, 1_000)] {
        gpu = gpu.with_chunk_limits(ChunkLimits { items_max, cells_max });
        for (program, want) in programs().iter().zip(&wanted) {
            let (got, work) = run(&mut gpu, program, &straight);
            assert_same(program, &got, want);
            assert!(work.kernels.iter().all(|kernel| kernel.launches > 1), "{work:?}");
        }
    }
}

/// A batch and its result in memory of the test's own.
struct Memory {
    program: Program,
    batch: GridBatch,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Memory {
    fn new(program: Program, batch: GridBatch) -> Self {
        let layout = batch.layout().expect("the batch has grids");
        let mut input = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut input));
        let output = vec![0xee; OutputLayout::new(&program, layout).bytes()];
        Self { program, batch, input, output }
    }

    fn run(&mut self, device: &mut dyn Device) -> Work {
        let layout = self.batch.layout().expect("the batch has grids");
        let input = SharedSlice::private(&mut self.input);
        let task = Task {
            program: &self.program,
            batch: layout,
            tables: &Tables::read(layout, &input).expect("the tables are right"),
            input,
            output_layout: OutputLayout::new(&self.program, layout),
            output: SharedSlice::private(&mut self.output),
        };
        device.run(&task).expect("the device runs it")
    }

    fn outputs(&self) -> Outputs {
        let (tables, cells) = (self.batch.tables().clone(), self.batch.cells().to_vec());
        let layout = self.batch.layout().expect("the batch has grids");
        let outputs =
            Outputs::new(self.program.clone(), layout, tables, cells, self.output.clone());
        outputs.expect("the output is as long as its layout")
    }
}

#[test]
fn a_bad_cell_fails_its_item_alone_under_every_op() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(17);
    let grids = random.ragged(200);
    for program in programs() {
        let mut memory = Memory::new(program.clone(), batch(&grids));
        let cells = memory.batch.layout().unwrap().cells();
        for item in (0..grids.len()).step_by(3) {
            let place = memory.batch.tables().cells_of(item);
            let value = [10, 16, 127, 128, 255][item % 5];
            memory.input[cells.start + place.start + random.below(place.len())] = value;
        }
        let work = memory.run(&mut gpu);
        let got = memory.output.clone();
        let on_cpu = memory.run(&mut cpu());
        assert_eq!((work.item_errors, on_cpu.item_errors), (67, 67));
        // Byte for byte: what stands in an item's place does not depend on earlier jobs either.
        assert!(got == memory.output, "{}", program.text());
        for item in 0..grids.len() {
            let want = if item % 3 == 0 { [1, NO_OP] } else { [0, 0] };
            assert_eq!(got[2 * item..2 * item + 2], want, "{} item {item}", program.text());
        }
    }
}

#[test]
fn adopted_arenas_give_the_same_result_and_the_same_bytes_are_counted() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(23);
    for program in programs() {
        let mut staged = Memory::new(program.clone(), batch(&random.ragged(400)));
        let mut direct = Memory::new(program.clone(), staged.batch.clone());
        let slow = staged.run(&mut gpu);
        gpu.adopt(SharedSlice::private(&mut direct.input)).unwrap();
        gpu.adopt(SharedSlice::private(&mut direct.output)).unwrap();
        let fast = direct.run(&mut gpu);
        gpu.release(SharedSlice::private(&mut direct.input)).unwrap();
        gpu.release(SharedSlice::private(&mut direct.output)).unwrap();
        assert_same(&program, &direct.outputs(), &staged.outputs());
        let layout = staged.batch.layout().unwrap();
        assert!(slow.h2d_bytes >= layout.cells().len() as u64);
        // Only padding between parts may differ.
        let padding = |a: u64, b: u64| a.abs_diff(b) <= 16 * 8;
        assert!(padding(slow.h2d_bytes, fast.h2d_bytes) && padding(slow.d2h_bytes, fast.d2h_bytes));
    }
}

#[test]
fn a_receipt_names_every_kernel_of_the_program_with_its_launches_and_time() {
    let Some(gpu) = gpu() else { return };
    let limits = ChunkLimits { items_max: 100, cells_max: usize::MAX };
    let mut gpu = gpu.with_chunk_limits(limits);
    let grids = batch(&Random(5).ragged(250));
    for program in programs() {
        let (_, work) = run_batch(&mut gpu, &program, &grids).unwrap();
        for kernel in kernels_of(&program) {
            let in_one_chunk = kernels_of(&program).filter(|other| *other == kernel).count();
            let row = work.kernels.iter().find(|row| row.name == kernel.name).unwrap();
            assert_eq!(row.launches as usize, 3 * in_one_chunk, "{}", kernel.name);
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
