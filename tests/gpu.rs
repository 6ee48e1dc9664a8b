//! A real GPU against the CPU device, value by value: every op and hundreds of chains, over all ARC training
//! tasks and 100,000 random grids.
//!
//! Without a GPU it prints that it was skipped and passes; with `GRIDPOOL_REQUIRE_GPU=1` it fails. The binary
//! needs only the driver, so it can be built here and run elsewhere, with the tasks that `GRIDPOOL_ARC` names:
//! `cargo test --release --no-run -p gridpool-tests --test gpu`.

use std::env;
use std::io::{self, Write};
use std::thread;

use gridpool_device::cpu::CpuDevice;
use gridpool_device::cuda::CudaDevice;
use gridpool_device::device::Device;
use gridpool_device::fault::Fault;
use gridpool_device::self_test::run_batch;
use gridpool_kernels::module::kernels_of;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::Outputs;
use gridpool_protocol::program::{Kind, OPS, OpSpec, Program, Ties, Type};
use gridpool_tests::oracle::programs::FORMS;
use gridpool_tests::oracle::samples::{self, SplitMix64};
use gridpool_tests::oracle::{chains, tasks};

const RANDOM_GRIDS: usize = 100_000;
/// Chains of random ops; they are many, so not each of them sees every grid.
const CHAINS: usize = 2_000;
const CHAIN_CALLS_MAX: usize = 10;
const CHAIN_ITEMS: usize = 4_000;
const SEED: u64 = 11;

/// Batches of each kind of item.
struct Inputs {
    grids: Vec<GridBatch>,
    pairs: Vec<GridBatch>,
}

impl Inputs {
    fn of(&self, program: &Program) -> &[GridBatch] {
        if program.takes() == Type::PAIR { &self.pairs } else { &self.grids }
    }
}

/// A GPU, and the CPU device that it must agree with.
struct Devices {
    gpu: CudaDevice,
    cpu: CpuDevice,
    compared: usize,
}

impl Devices {
    /// `None` if there is no GPU and none is required.
    fn open() -> Option<Self> {
        let gpu = match CudaDevice::open(0, None) {
            Err(Fault::NoDriver) if env::var_os("GRIDPOOL_REQUIRE_GPU").is_none() => {
                say("skipped: no GPU");
                return None;
            }
            opened => opened.expect("the GPU opens"),
        };
        let cpu = CpuDevice::open(0, threads()).expect("threads start");
        Some(Self { gpu, cpu, compared: 0 })
    }

    fn compare(&mut self, program: &Program, batch: &GridBatch) {
        let run = |device: &mut dyn Device| run_batch(device, program, batch).expect("a run");
        let (want, reference) = run(&mut self.cpu);
        let (got, work) = run(&mut self.gpu);
        assert_same(program, batch, &got, &want);
        assert_eq!(work.sum().item_errors, reference.sum().item_errors, "{}", program.text());
        // Those that a chunk of any grids launches.
        for kernel in kernels_of(program, 1, 1) {
            let launched = work.kernels.iter().any(|k| k.name == kernel.name && k.launches > 0);
            assert!(launched, "{}: no launch of {}", program.text(), kernel.name);
        }
        self.compared += batch.len();
    }
}

#[test]
fn every_op_gives_the_same_on_every_task_and_on_100_000_random_grids() {
    let Some(mut devices) = Devices::open() else { return };
    let inputs = Inputs {
        grids: [arc_grids(), Some(grids(&samples::random_grids(SEED, RANDOM_GRIDS)))]
            .into_iter()
            .flatten()
            .collect(),
        pairs: [arc_pairs(), Some(pairs(&samples::random_pairs(SEED, RANDOM_GRIDS / 2)))]
            .into_iter()
            .flatten()
            .collect(),
    };
    let examples: Vec<String> = OPS.iter().flat_map(examples).collect();
    let texts = examples.iter().map(String::as_str).chain(FORMS.iter().map(|(text, _)| *text));
    let mut programs = 0;
    for text in texts {
        for ties in [Ties::Cpython, Ties::Lowest] {
            let program = Program::compile(text, ties).expect(text);
            inputs.of(&program).iter().for_each(|batch| devices.compare(&program, batch));
            programs += 1;
        }
    }
    say(&format!("{programs} programs, {} results compared", devices.compared));
}

#[test]
fn random_chains_give_the_same() {
    let Some(mut devices) = Devices::open() else { return };
    let edges: Vec<Grid> = samples::adversarial().into_iter().map(|(_, grid)| grid).collect();
    let inputs = Inputs {
        grids: vec![grids(&edges), grids(&samples::random_grids(SEED + 1, CHAIN_ITEMS))],
        pairs: vec![pairs(&samples::random_pairs(SEED + 1, CHAIN_ITEMS))],
    };
    let mut rng = SplitMix64::new(SEED);
    for at in 0..CHAINS {
        let takes = if at % 3 == 0 { Type::PAIR } else { Type::one(Kind::Grid) };
        let program = chains::random_program(&mut rng, takes, CHAIN_CALLS_MAX);
        inputs.of(&program).iter().for_each(|batch| devices.compare(&program, batch));
    }
    say(&format!("{CHAINS} chains, {} results compared", devices.compared));
}

/// The op on each kind of value that it works on.
fn examples(spec: &OpSpec) -> Vec<String> {
    let example = spec.example();
    let op = example.rsplit(" | ").next().expect("an op").to_owned();
    let to_kind = |takes: &Type| match (takes.tuple, takes.kind) {
        (Some(_), _) | (None, Kind::Grid) => String::new(),
        (None, Kind::Objects) => "o_g(5) | ".to_owned(),
        (None, Kind::Object) => "o_g(5) | argmax(size) | ".to_owned(),
        (None, Kind::Patch) => "ofcolor(0) | ".to_owned(),
        (None, Kind::Number | Kind::Vector | Kind::Flag | Kind::Colors | Kind::Value) => {
            unreachable!("no op works on it")
        }
    };
    spec.kinds().iter().map(|(takes, _)| format!("{}{op}", to_kind(takes))).collect()
}

fn grids(grids: &[Grid]) -> GridBatch {
    GridBatch::from_grids(grids).expect("they fit a job")
}

fn pairs(pairs: &[(Grid, Option<Grid>)]) -> GridBatch {
    let pairs = pairs.iter().map(|(input, output)| (input, output.as_ref()));
    GridBatch::from_pairs(pairs).expect("they fit a job")
}

fn arc_grids() -> Option<GridBatch> {
    let tasks = tasks::arc_tasks()?;
    let all: Vec<Grid> = tasks.into_iter().flat_map(|task| task.grids).collect();
    Some(grids(&all))
}

fn arc_pairs() -> Option<GridBatch> {
    let tasks = tasks::arc_tasks()?;
    let all: Vec<_> = tasks.into_iter().flat_map(|task| task.pairs).collect();
    Some(pairs(&all))
}

/// Decodes and compares all items, on all cores.
fn assert_same(program: &Program, batch: &GridBatch, got: &Outputs, want: &Outputs) {
    let items = got.len();
    let share = items.div_ceil(threads());
    thread::scope(|scope| {
        for start in (0..items).step_by(share) {
            scope.spawn(move || {
                for item in start..(start + share).min(items) {
                    let (got, want) = (got.item(item), want.item(item));
                    let grid = batch.grid(item * batch.grids_per_item() as usize);
                    assert_eq!(got, want, "{}, item {item}: {grid:?}", program.text());
                }
            });
        }
    });
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Prints past libtest's capture.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").expect("standard error is open");
}
