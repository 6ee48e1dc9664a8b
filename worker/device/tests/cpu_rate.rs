//! Compares the CPU device with the bare library on the same grids and cores. It asserts no times: run it
//! and read the output.
//!
//! `GRIDPOOL_ARC=FOLDER cargo test --release -p gridpool-device --test cpu_rate -- --ignored --nocapture`

use std::env;
use std::fs;
use std::sync::Arc;
use std::thread;

use gridpool_device::cpu::CpuDevice;
use gridpool_device::device::{Device, GridAttempt, GridDispatch};
use gridpool_device::self_test::{run_batch, self_test};
use gridpool_ipc::clock;
use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS};
use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_kernels::reference::{Evaluator, symmetry};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::{Program, Symmetry, Ties};
use gridpool_protocol::shared::SharedSlice;
use rayon::prelude::*;

/// How often the batch repeats the ARC tasks.
const TIMES: usize = 20;
/// Cells that a thread of the bare loop takes at once.
const CHUNK_CELLS: usize = 32 * 1024;
/// Repetitions; the best one counts, because disturbances only make a run slower.
const REPETITIONS: usize = 9;

fn grids() -> Vec<Grid> {
    let folder = env::var_os("GRIDPOOL_ARC").expect("GRIDPOOL_ARC names a folder of ARC tasks");
    let entries = fs::read_dir(folder).expect("the folder of ARC tasks can be listed");
    let mut grids = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry can be read").path()) {
        let text = fs::read(path).expect("a task can be read");
        let task: serde_json::Value = serde_json::from_slice(&text).expect("a task is JSON");
        let pairs = ["train", "test"].into_iter().filter_map(|part| task[part].as_array());
        for pair in pairs.flatten() {
            for rows in [&pair["input"], &pair["output"]] {
                let rows: Vec<Vec<u8>> = serde_json::from_value(rows.clone()).expect("a grid");
                grids.push(Grid::new(rows.len(), rows[0].len(), rows.concat()).expect("a grid"));
            }
        }
    }
    grids
}

fn compile(text: &str) -> Program {
    Program::compile(text, Ties::Cpython).expect("the program compiles")
}

fn seconds(run: impl FnOnce()) -> f64 {
    let start = clock::now();
    run();
    start.elapsed().as_secs_f64()
}

/// The library over the batch, each thread with an evaluator of its own.
fn bare(program: &Program, batch: &GridBatch, chunks: &[ItemSpan], output: &SharedSlice<'_>) {
    let layout = OutputLayout::new(program, batch.layout().expect("it has grids"));
    let layout = layout.expect("the result fits a job");
    chunks.par_iter().for_each_init(Evaluator::default, |evaluator, chunk| {
        evaluator.load(1, &batch.tables().shapes()[chunk.items.clone()], |cells| {
            cells.copy_from_slice(&batch.cells()[chunk.cells.clone()]);
        });
        evaluator.validate();
        for (at, step) in program.steps().iter().enumerate() {
            evaluator.apply(step, at, program.ties());
        }
        evaluator.finish(&layout, chunk);
        for part in Part::ALL {
            if let Some(span) = part.span(&layout, chunk) {
                output.write(span.start, evaluator.part(part));
            }
        }
    });
}

/// Runs the function alone, from the batch's cells to others: no check, no statuses, no shapes.
fn barest(batch: &GridBatch, chunks: &[ItemSpan], to: &mut [u8]) {
    let mut rest = to;
    let mut places = Vec::new();
    for chunk in chunks {
        let (place, more) = rest.split_at_mut(chunk.cells.len());
        places.push((chunk, place));
        rest = more;
    }
    places.into_par_iter().for_each(|(chunk, place)| {
        for item in chunk.items.clone() {
            let cells = batch.tables().cells_of(item);
            let at = cells.start - chunk.cells.start..cells.end - chunk.cells.start;
            let shape = batch.tables().shapes()[item];
            symmetry::apply(Symmetry::Rot90, shape, &batch.cells()[cells], &mut place[at]);
        }
    });
}

fn chunks(batch: &GridBatch) -> Vec<ItemSpan> {
    let offsets = batch.tables().offsets();
    let (mut chunks, mut start) = (Vec::new(), 0);
    while start < batch.len() {
        let first = offsets[start] as usize;
        let fits = |&end: &u32| end as usize - first <= CHUNK_CELLS;
        let end = start + offsets[start + 1..].partition_point(fits).max(1);
        chunks.push(ItemSpan { items: start..end, cells: first..offsets[end] as usize });
        start = end;
    }
    chunks
}

#[test]
#[ignore = "prints rates"]
#[expect(clippy::print_stdout, reason = "a measurement is read by people")]
fn what_the_device_costs_beside_the_bare_library() {
    let grids = grids();
    let batch = GridBatch::from_grids(grids.iter().cycle().take(TIMES * grids.len()))
        .expect("the grids fit a job");
    let layout = batch.layout().expect("it has grids");
    let chunks = chunks(&batch);
    let threads = thread::available_parallelism().expect("there are cores").get();
    let mut device = CpuDevice::open(0, threads).expect("threads start");
    let mut input = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut input));
    println!("{} grids, {} cells, {threads} threads", batch.len(), batch.cells().len());
    for text in [
        "rot90",
        "o_g(1)",
        "o_g(5)",
        "palette",
        "trim",
        "rot90 | replace(0, 5) | fill(3, ofcolor(2)) | cmirror",
        "o_g(5) | argmax(size) | outbox | fill(2)",
    ] {
        let program = compile(text);
        let result = OutputLayout::new(&program, layout).expect("the result fits a job");
        let mut output = vec![0; result.bytes()];
        let mut want = output.clone();
        // Alternately, so that both see the same disturbances of the machine.
        let (mut library, mut pool) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..REPETITIONS {
            library = library.min(seconds(|| {
                bare(&program, &batch, &chunks, &SharedSlice::private(&mut want));
            }));
            let input = SharedSlice::private(&mut input);
            let place = SharedSlice::private(&mut output);
            let attempt = GridAttempt::new(&program, layout, 0..layout.items(), input, place);
            let attempts = [attempt.expect("the places fit")];
            let dispatch = GridDispatch { program: &program, attempts: &attempts };
            pool = pool.min(seconds(|| drop(device.run(&dispatch).expect("the device runs it"))));
        }
        let outputs = |bytes| Outputs::new(program.clone(), Arc::new(batch.clone()), bytes);
        let (got, want) = (outputs(output).expect("a result"), outputs(want).expect("a result"));
        assert_eq!(got.first_difference(&want), Ok(None), "{text}");
        let rate =
            |seconds: f64| f64::from(u32::try_from(batch.len()).unwrap_or(0)) / seconds / 1e6;
        println!(
            "{:6.2} M grids/s, library {:6.2}: {:.2} times its time  {text}",
            rate(pool),
            rate(library),
            pool / library
        );
        if text == "rot90" {
            let mut cells = vec![0; batch.cells().len()];
            let function =
                (0..REPETITIONS).map(|_| seconds(|| barest(&batch, &chunks, &mut cells)));
            let function = function.fold(f64::INFINITY, f64::min);
            println!("{:6.2} M grids/s for the function alone", rate(function));
        }
    }
}

/// How long a job waits for one step of the self-test, and how long the whole test takes.
#[test]
#[ignore = "prints times"]
#[expect(clippy::print_stdout, reason = "a measurement is read by people")]
fn the_known_answers_one_by_one() {
    let mut device = CpuDevice::open(0, 1).expect("a thread starts");
    self_test(&mut device).expect("the CPU passes");
    let mut times = [f64::INFINITY; KNOWN_ANSWERS.len()];
    for _ in 0..REPETITIONS {
        for (time, known) in times.iter_mut().zip(KNOWN_ANSWERS) {
            let program = known.program();
            let pairs = known.takes_pairs();
            let batch = if pairs { known_answer::pair_batch() } else { known_answer::batch() };
            let took = seconds(|| {
                let (outputs, _) = run_batch(&mut device, &program, &batch).expect("it runs");
                known.check(&outputs).expect("it is right");
            });
            *time = time.min(took);
        }
    }
    let slowest = (0..times.len()).max_by(|&a, &b| times[a].total_cmp(&times[b])).expect("some");
    println!(
        "{} known answers: {:.1} ms, the slowest {:.2} ms: {}",
        times.len(),
        1e3 * times.iter().sum::<f64>(),
        1e3 * times[slowest],
        KNOWN_ANSWERS[slowest].text,
    );
}
