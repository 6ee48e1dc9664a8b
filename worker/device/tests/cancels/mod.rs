//! A big job on a real GPU that is cancelled midway, and how long the longest chunks take: the device looks whether a
//! job was cancelled between two chunks, so a cancel takes as long as those under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_device::device::{AttemptRefusal, Device, GridAttempt, GridDispatch};
use gridpool_device::search::SearchAttempt;
use gridpool_ipc::clock;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::limits::STEPS_MAX;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::search::{PackedPrograms, Score, SearchLayout};
use gridpool_protocol::shared::SharedSlice;

use super::attempts::{AttemptData, assert_right_together, batch_for, run_together};
use super::random::Random;
use super::{compile, gpu};

/// What a worker has before it is killed for a job that was cancelled (`cancel_grace_s`).
const GRACE: Duration = Duration::from_millis(250);
/// Chunks under way at once.
const LANES: f64 = 4.0;

/// The longest programs of the most expensive steps.
const UNITS: [&str; 5] = [
    "o_g(7) | merge | paint",
    "o_g(4) | argmax(size) | paint",
    "o_g(5) | argmin(size) | fill(3)",
    "o_g(5) | sizefilter(1) | merge | cover",
    "partition | merge | paint",
];

/// A program of as many steps as there may be, that repeats `unit`.
fn longest(unit: &str) -> Program {
    let steps = unit.matches('|').count() + 1;
    compile(&vec![unit; 64 / steps].join(" | "))
}

fn data(program: &Program, grids: &[Grid]) -> AttemptData {
    AttemptData::whole(program, &batch_for(program, grids))
}

#[test]
fn the_longest_chunks_take_far_less_than_the_grace_before_a_kill() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(5);
    let sets: [Vec<Grid>; 4] = [(1 << 18, 1), (1 << 18, 3), (1 << 14, 30), (2_048, 64)]
        .map(|(count, side)| (0..count).map(|_| random.grid(side, side)).collect());
    let mut most = 0.0_f64;
    for grids in sets {
        for program in UNITS.map(longest) {
            let work = run_together(&mut gpu, &mut [data(&program, &grids)]).expect("it runs");
            let us: f64 = work.kernels.iter().map(|kernel| kernel.device_us).sum();
            let chunks = work.kernels.iter().map(|kernel| kernel.launches).max().expect("some ran");
            let chunk_ms = us / f64::from(chunks) / 1e3;
            let (side, unit) = (grids[0].h(), &program.text()[..25]);
            println!("{side} x {side}: {chunk_ms:.2} ms a chunk, {chunks} chunks: {unit}");
            most = most.max(chunk_ms);
        }
    }
    println!("the longest takes {most:.2} ms");
    assert!(LANES * most < GRACE.as_secs_f64() * 1e3, "{most} ms in each of {LANES} lanes");
}

#[test]
fn a_job_that_is_cancelled_midway_is_stopped_and_the_next_one_runs() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(6);
    let grids: Vec<_> = (0..16_384).map(|_| random.grid(64, 64)).collect();
    let program = longest(UNITS[0]);
    let mut job = data(&program, &grids);
    let (layout, items, status) = (job.layout(), job.items.clone(), job.result().status().start);
    let untouched = job.output[status];
    let input = SharedSlice::private(&mut job.input);
    let output = SharedSlice::private(&mut job.output);
    let stop = AtomicBool::new(false);
    let (work, took) = thread::scope(|scope| {
        // Nobody wants it any more once its first result is there.
        let canceller = scope.spawn(|| {
            let mut first = [untouched];
            while first == [untouched] {
                thread::yield_now();
                output.read(status, &mut first);
            }
            stop.store(true, Ordering::Relaxed);
            clock::now()
        });
        let attempt = GridAttempt::new(&program, layout, items, input, output).expect("it fits");
        let attempts = [attempt.with_stop(&stop)];
        let work = gpu.run(&GridDispatch { program: &program, attempts: &attempts });
        let ended = clock::now();
        (work.expect("the GPU runs it"), ended - canceller.join().expect("no panic"))
    });
    assert_eq!(work.attempts, [Err(AttemptRefusal::Cancelled)]);
    println!("it ended {:.2} ms after it was cancelled", took.as_secs_f64() * 1e3);
    assert!(took < GRACE, "{took:?}");
    let mut next = [data(&program, &random.ragged(300))];
    assert_right_together(&mut gpu, &mut next);
}

/// A solver that runs as many instructions as a job may ask for, minutes on any device.
const ENDLESS: &str = "m = multiply(multiply(TEN, TEN), multiply(TEN, TEN))\n\
                       f = lambda x: power(increment, m)(x)\n\
                       x1 = power(f, m)(ZERO)\n\
                       O = canvas(x1, UNITY)";

/// Long enough for the kernel to be at work, once it is loaded.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// Sets `stop` once the kernel is at work. Returns when it did.
fn set_under_way(stop: &AtomicBool) -> Instant {
    let at = clock::now() + UNDER_WAY;
    while !clock::until(at).is_zero() {
        thread::park_timeout(clock::until(at));
    }
    stop.store(true, Ordering::Relaxed);
    clock::now()
}

#[test]
fn a_solver_that_would_run_for_minutes_is_stopped_in_the_midst_of_its_launch() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(7);
    let grids: Vec<_> = (0..200).map(|_| random.grid(2, 2)).collect();
    // The first solver waits for the driver to assemble the kernel.
    let short = compile("O = rot90(I)");
    assert_right_together(&mut gpu, &mut [data(&short, &grids)]);
    let program = compile(ENDLESS).with_step_limit(STEPS_MAX).expect("so many are allowed");
    let mut job = data(&program, &grids);
    let (layout, items) = (job.layout(), job.items.clone());
    let input = SharedSlice::private(&mut job.input);
    let output = SharedSlice::private(&mut job.output);
    let stop = AtomicBool::new(false);
    let (work, took) = thread::scope(|scope| {
        let canceller = scope.spawn(|| set_under_way(&stop));
        let attempt = GridAttempt::new(&program, layout, items, input, output).expect("it fits");
        let attempts = [attempt.with_stop(&stop)];
        let work = gpu.run(&GridDispatch { program: &program, attempts: &attempts });
        let ended = clock::now();
        (work.expect("the GPU runs it"), ended - canceller.join().expect("no panic"))
    });
    assert_eq!(work.attempts, [Err(AttemptRefusal::Cancelled)]);
    println!("it ended {:.2} ms after it was cancelled", took.as_secs_f64() * 1e3);
    assert!(took < GRACE, "{took:?}");
    assert_right_together(&mut gpu, &mut [data(&short, &grids)]);
}

#[test]
fn a_search_whose_programs_would_run_for_minutes_is_stopped_in_the_midst_of_its_launch() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(8);
    let grids: Vec<_> = (0..4).map(|_| random.grid(2, 2)).collect();
    let pairs = GridBatch::from_pairs(grids.iter().map(|grid| (grid, Some(grid)))).expect("pairs");
    let mut searched = |text: &str, stop: &AtomicBool| {
        let code = gridpool_protocol::search::compile(text, Ties::Cpython, STEPS_MAX);
        let (bytes, mut packed) = (code.expect("a program").to_bytes(), PackedPrograms::default());
        (0..1_000).for_each(|_| packed.push(&bytes).expect("room"));
        let size = packed.size(pairs.layout().expect("a layout"));
        let layout = SearchLayout::new(size, Score::Exact).expect("a layout");
        let (mut input, mut output) =
            (vec![0; layout.input_bytes()], vec![0; layout.output_bytes()]);
        let (from, to) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
        pairs.write_to(layout.batch(), &from);
        packed.write_to(layout, &from);
        let attempt = SearchAttempt::new(layout, 0..1_000, from, to).expect("it fits");
        let report = gpu.search(&[attempt.with_stop(stop)]).expect("the GPU runs it");
        (report.attempts, clock::now())
    };
    let never = AtomicBool::new(false);
    // The first search waits for the driver to load the kernel.
    assert!(searched("O = rot90(I)", &never).0[0].is_ok());
    let stop = AtomicBool::new(false);
    let ((attempts, ended), stopped) = thread::scope(|scope| {
        let canceller = scope.spawn(|| set_under_way(&stop));
        (searched(ENDLESS, &stop), canceller.join().expect("no panic"))
    });
    assert_eq!(attempts, [Err(AttemptRefusal::Cancelled)]);
    println!("it ended {:.2} ms after it was cancelled", (ended - stopped).as_secs_f64() * 1e3);
    assert!(ended - stopped < GRACE, "{:?}", ended - stopped);
    assert!(searched("O = rot90(I)", &never).0[0].is_ok());
}
