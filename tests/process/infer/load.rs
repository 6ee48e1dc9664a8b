//! Grids and models at full load on one device: each gives what it gives alone.

use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::output::Outputs;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_tests::oracle::samples::random_grids;

use super::*;
use crate::jobs;

/// For how many seconds, where more are wanted than a test should take.
const SECONDS: &str = "GRIDPOOL_LOAD_SECONDS";
const SECONDS_DEFAULT: u64 = 2;
/// A model with one input of single precision, where another is wanted than a small one.
const MODEL: &str = "GRIDPOOL_LOAD_MODEL";
/// Clients of each role, and what each has under way.
const CLIENTS: u64 = 3;
const UNDER_WAY: u64 = 8;
/// Different batches, and different requests.
const KINDS: u64 = 5;
const PROGRAMS: [&str; 2] =
    ["rot90 | upscale(2) | objects(true, false, true)", "compress | vmirror"];
/// What numbers may differ by: requests share runs, and kernels add in another order.
const TOLERANCE: f32 = 1e-3;

/// A batch of its kind: some travel in messages, some in shared memory.
fn batch(kind: u64) -> Job<Outputs> {
    let program = PROGRAMS[usize::from(kind > 2)];
    let count = if kind.is_multiple_of(2) { 5 } else { 2_000 };
    jobs::job(program, &random_grids(kind, count))
}

fn results(answer: Answer<Outputs>) -> Outputs {
    assert_eq!(answer.verdict(), Verdict::Ok, "{:?}", answer.receipt);
    answer.ok().expect("OK comes with results")
}

/// A request of its kind: irregular numbers, one row where the model takes any number of them, or a few.
fn request(info: &ModelInfo, kind: u64) -> Job<TensorOutputs> {
    let input = &info.inputs[0];
    let shape: Vec<u64> =
        input.shape.iter().map(|&side| u64::try_from(side).unwrap_or(1 + kind)).collect();
    let count = shape.iter().product::<u64>();
    let number = |at: u64| {
        let mixed = (kind * 1_000_003 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        f32::from(u16::try_from(mixed).expect("16 bits")) / 32_768.0 - 1.0
    };
    let numbers: Vec<f32> = (0..count).map(number).collect();
    let input = ModelInput::new(&input.name, shape, numbers).expect("as much data as it has");
    Job::model(&info.name, [input]).expect("a small tensor")
}

fn numbers(answer: &Answer<TensorOutputs>) -> Vec<f32> {
    assert_eq!(answer.verdict(), Verdict::Ok, "{:?}", answer.receipt);
    let outputs = answer.outputs().expect("OK comes with outputs");
    outputs.values(outputs.tensors()[0].name()).expect("singles").into_vec()
}

#[track_caller]
fn are_alike(got: &[f32], alone: &[f32]) {
    assert_eq!(got.len(), alone.len());
    for (at, (got, alone)) in got.iter().zip(alone).enumerate() {
        let apart = (got - alone).abs();
        assert!(apart <= TOLERANCE * (1.0 + alone.abs()), "{at}: {got} instead of {alone}");
    }
}

/// Keeps a number of requests in flight until the time is over. Returns how many there were.
fn keep_on<T>(
    until: std::time::Instant,
    mut begin: impl FnMut(u64) -> T,
    mut end: impl FnMut(u64, T),
) -> u64 {
    let mut under_way: std::collections::VecDeque<(u64, T)> =
        (0..UNDER_WAY).map(|n| (n, begin(n))).collect();
    let mut count = 0;
    while let Some((number, handle)) = under_way.pop_front() {
        end(number, handle);
        count += 1;
        if !clock::until(until).is_zero() {
            let next = number + UNDER_WAY;
            under_way.push_back((next, begin(next)));
        }
    }
    count
}

#[test]
#[expect(clippy::print_stdout, reason = "how much was compared is read by people")]
fn grids_and_models_at_full_load_give_what_each_gives_alone() {
    if !has_runtime() {
        return;
    }
    let seconds = std::env::var(SECONDS).map_or(SECONDS_DEFAULT, |text| {
        text.parse().unwrap_or_else(|_| panic!("{SECONDS}={text}: write seconds"))
    });
    let path = std::env::var(MODEL).map_or_else(|_| model("mlp"), PathBuf::from);
    let pool = one().0.args(&["--model", &format!("m={}", path.display())]).start();
    let client = pool.client();
    let info = eventually("the model to be READY", || {
        let rows = client.models().map_err(|error| error.to_string())?;
        let ready = rows.iter().find(|row| row.model.state == ModelState::Ready);
        ready.map(|row| row.model.clone()).ok_or_else(|| format!("{rows:?}\\n{}", pool.log()))
    });
    // One after the other, with nothing beside.
    let grids: Vec<Outputs> = (0..KINDS)
        .map(|kind| results(jobs::answer(jobs::submit(&client, batch(kind)))).into_private())
        .collect();
    let tensors: Vec<Vec<f32>> =
        (0..KINDS).map(|kind| numbers(&answer(ask(&client, request(&info, kind))))).collect();
    let until = clock::now() + Duration::from_secs(seconds);
    let kind = |number: u64| number % KINDS;
    let at = |number: u64| usize::try_from(number % KINDS).expect("a few");
    let (jobs_done, requests_done) = std::thread::scope(|scope| {
        let of_grids: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (client, grids) = (pool.client(), &grids);
                scope.spawn(move || {
                    let begin = |number| jobs::submit(&client, batch(kind(number)));
                    keep_on(until, begin, |number, handle| {
                        let got = results(jobs::answer(handle));
                        let differs = got.first_difference(&grids[at(number)]);
                        assert_eq!(differs.expect("results are well formed"), None);
                    })
                })
            })
            .collect();
        let of_models: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (client, info, tensors) = (pool.client(), &info, &tensors);
                scope.spawn(move || {
                    let begin = |number| ask(&client, request(info, kind(number)));
                    keep_on(until, begin, |number, handle| {
                        are_alike(&numbers(&answer(handle)), &tensors[at(number)]);
                    })
                })
            })
            .collect();
        let sum = |threads: Vec<std::thread::ScopedJoinHandle<'_, u64>>| -> u64 {
            threads.into_iter().map(|one| one.join().expect("every answer is right")).sum()
        };
        (sum(of_grids), sum(of_models))
    });
    println!(
        "{jobs_done} jobs over grids and {requests_done} requests in {seconds} s, all as alone"
    );
    let counters = pool.status().counters;
    assert_eq!(counters.ok, jobs_done + requests_done + 2 * KINDS);
    assert_eq!((counters.restarts, counters.attempts), (0, counters.ok));
}
