//! Models in workers of their own: what one of them suffers costs the others nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use gridpool_protocol::status::{WorkerState, WorkerStatus};
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};

use super::*;
use crate::wait::{SetAtEnd, eventually_so};

/// More turns than any process completes.
const ENDLESS: i64 = 1 << 50;

/// A model of tests/data/models, in a worker of its own.
fn plan(name: &str) -> ModelPlan {
    ModelPlan { name: name.to_owned(), path: model(name), options: ModelOptions::default() }
}

/// A request that lasts so many turns.
fn turn(count: i64) -> Job<TensorOutputs> {
    let n = ModelInput::new("n", [], vec![count]).expect("a number");
    Job::model("turns", [n]).expect("a small tensor")
}

/// Process id and answered requests of the worker of a group.
fn worker_of(pool: &Pool, group: &str) -> Option<(u32, u64)> {
    let workers = pool.status().workers;
    workers.iter().find(|row| row.group == group).map(|row| (row.pid, row.jobs_done))
}

/// Answers of `three_outputs` come, one after the other, from the same process, while `what` happens.
#[track_caller]
fn neighbour_goes_on(pool: &Pool, what: impl FnOnce(&Pool)) {
    let (before, _) = worker_of(pool, "three_outputs").expect("it serves");
    let is_over = AtomicBool::new(false);
    let client = pool.client();
    let answered = std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut answered = 0;
            while !is_over.load(Ordering::Relaxed) {
                let (numbers, job) = rows(answered, 3);
                is_right(&answer(ask(&client, job)), &numbers);
                answered += 1;
            }
            answered
        });
        let ends = SetAtEnd(&is_over);
        what(pool);
        drop(ends);
        asks.join().expect("every answer is right")
    });
    let (after, done) = worker_of(pool, "three_outputs").expect("it serves");
    assert_eq!(after, before, "its worker is the same");
    assert!(answered > 0 && done >= answered);
}

/// Waits until the worker of `turns` is in this state.
fn until(pool: &Pool, state: WorkerState) {
    let is_so = |row: &WorkerStatus| row.group == "turns" && row.state == state;
    eventually_so("a state of `turns`", || pool.status().workers.iter().any(is_so));
}

/// Waits until the neighbour has answered some more requests.
fn more_answers(pool: &Pool) {
    let done = || worker_of(pool, "three_outputs").map_or(0, |(_, done)| done);
    let before = done();
    eventually_so("more answers", || done() > before + 20);
}

#[test]
fn a_model_that_hangs_crashes_or_loads_for_ever_costs_its_neighbour_nothing() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    if one().1 != "cpu0" {
        return; // CUDA's provider runs the condition of a loop on the CPU.
    }
    pool.client().load_model(plan("turns")).expect("it loads");
    neighbour_goes_on(&pool, |pool| {
        let hangs = ask(&pool.client(), turn(ENDLESS));
        more_answers(pool);
        hangs.cancel();
        assert_eq!(answer(hangs).verdict(), Verdict::Cancelled);
    });
    neighbour_goes_on(&pool, |pool| {
        // The cancelled request has its verdict before its worker has stopped it, and one that waits behind it is not
        // lost with the worker.
        until(pool, WorkerState::Ready);
        let first = ask(&pool.client(), turn(ENDLESS).at_most_once());
        until(pool, WorkerState::Busy);
        pool.observer().kill(named("cpu0/turns"), 11).expect("it is there");
        assert_eq!(answer(first).verdict(), Verdict::Failed);
        more_answers(pool);
        // The next worker has the model again.
        assert_eq!(answer(ask(&pool.client(), turn(3))).verdict(), Verdict::Ok);
    });
    neighbour_goes_on(&pool, |pool| {
        let client = pool.client();
        let loads = std::thread::spawn(move || client.load_model(plan("endless")));
        // One that ends before it is READY has not been told to load, and the next one is.
        let serves = |row: &WorkerStatus| row.group == "endless" && row.state.serves();
        eventually_so("it to be told", || pool.status().workers.iter().any(serves));
        more_answers(pool);
        // Another model is loaded meanwhile, and the endless load ends with its worker.
        pool.client().load_model(plan("two_inputs")).expect("it loads");
        assert!(!loads.is_finished());
        pool.observer().kill(named("cpu0/endless"), 9).expect("it is there");
        let why = within("an end of the load", || loads.join()).expect("no panic");
        let why = why.expect_err("it cannot").to_string();
        assert!(why.contains("ended before it had answered the command"), "{why}");
    });
}

#[test]
fn models_of_one_group_share_a_process() {
    if !has_runtime() {
        return;
    }
    let pool = one().0.start();
    let client = pool.client();
    let options = ModelOptions { group: Some("small".to_owned()), ..ModelOptions::default() };
    for name in ["three_outputs", "mlp"] {
        let shared = ModelPlan { options: options.clone(), ..plan(name) };
        client.load_model(shared).expect("it loads");
    }
    let workers = pool.status().workers;
    let groups: Vec<_> = workers.iter().map(|row| (&*row.role, &*row.group)).collect();
    assert_eq!(groups, [("grid", "grid"), ("infer", "small")]);
    is_right(&answer(ask(&client, rows(3, 5).1)), &rows(3, 5).0);
}
