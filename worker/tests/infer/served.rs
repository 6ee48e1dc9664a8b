//! A worker that serves models, through its channel: requests are withdrawn, and models are loaded, unloaded
//! and given contexts while others run.

use std::collections::BTreeSet;
use std::fs;

use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::message::{AttemptError, FromWorker, ModelCommand};
use gridpool_protocol::tensor::model::ModelState;
use gridpool_protocol::tensor::options::ModelPlan;

use crate::harness::{
    TestWorker, answered, attempt, command_result, contexts, is_answer_to, load, plan, unload,
};
use crate::onnx::{Folder, TURNS_WIDTH, turns};
use crate::tensors::{Full, device, fp32, int64, irregular, model};

/// More turns than any process completes.
const ENDLESS: i64 = 1 << 50;
/// Keeps a context busy for a while.
const LONG: i64 = 30_000;

fn turn(count: i64) -> [Full; 1] {
    [int64("n", &[], &[count])]
}

fn row(seed: u64) -> [Full; 1] {
    [fp32("x", &[1, 16], &irregular(seed, 16))]
}

/// A worker with `mlp`, and with `turns` on this many contexts. `None` on a GPU: CUDA's provider runs a loop's
/// condition on the CPU, which no model may do there.
#[expect(clippy::print_stdout, reason = "a test that was skipped says so")]
fn worker(count: u32) -> Option<(Folder, TestWorker)> {
    if device() == DeviceKind::Gpu {
        println!("skipped: a loop is for cpu devices");
        return None;
    }
    let folder = Folder::new();
    let turns = plan("turns", folder.file("turns.onnx", &turns()), count);
    let worker = TestWorker::start(&[turns, mlp("mlp")], &[])?;
    Some((folder, worker))
}

fn mlp(name: &str) -> ModelPlan {
    plan(name, model("mlp"), 1)
}

#[track_caller]
fn turned(worker: &mut TestWorker, job: u64) {
    let want: Vec<f32> = (0..TURNS_WIDTH).map(|at| at as f32).collect();
    assert_eq!(worker.answer(job), Ok(vec![fp32("y", &[1, TURNS_WIDTH], &want)]), "{job}");
}

/// Asserts that another attempt may succeed.
#[track_caller]
fn is_of_the_worker(worker: &mut TestWorker, job: u64, why: &str) {
    let answer = worker.answer(job);
    let is_so = matches!(&answer, Err(AttemptError::Device(said)) if said.contains(why));
    assert!(is_so, "{answer:?}");
}

/// Asserts that no other attempt can succeed.
#[track_caller]
fn is_of_the_request(worker: &mut TestWorker, job: u64, why: &str) {
    let answer = worker.answer(job);
    let is_so = matches!(&answer, Err(AttemptError::Refused(said)) if said.contains(why));
    assert!(is_so, "{answer:?}");
}

#[test]
fn waiting_requests_are_withdrawn_and_answered_once_and_others_run() {
    let Some((_folder, mut worker)) = worker(1) else { return };
    worker.ask(1, "turns", &turn(ENDLESS));
    (2..=4).for_each(|job| worker.ask(job, "turns", &turn(0)));
    worker.cancel(&[2, 99, 4]);
    for job in [4, 2] {
        is_of_the_request(&mut worker, job, "the request was cancelled");
    }
    // One that was withdrawn, and one that was answered.
    worker.cancel(&[2]);
    worker.ask(5, "mlp", &row(5));
    assert!(worker.answer(5).is_ok());
    worker.cancel(&[5, 3]);
    is_of_the_request(&mut worker, 3, "cancelled");
    worker.ask(6, "mlp", &row(6));
    assert!(worker.answer(6).is_ok());
    let answers = [1, 2, 3, 4, 5, 6].map(|job| worker.answers(job));
    assert_eq!(answers, [0, 1, 1, 1, 1, 1]);
    assert_eq!(worker.stop(), Some(0), "whatever runs");
}

#[test]
fn a_request_that_has_begun_is_stopped() {
    let Some((folder, _)) = worker(1) else { return };
    let mut one = plan("one", folder.0.path().join("turns.onnx"), 1);
    one.options.queue_requests = 1;
    let Some(mut worker) = TestWorker::start(&[one, mlp("mlp")], &[]) else { return };
    worker.ask(1, "one", &turn(ENDLESS));
    let waits = (2..)
        .find(|&job| {
            worker.ask(job, "one", &turn(0));
            worker.ask(1_000 * job, "mlp", &row(job));
            assert!(worker.answer(1_000 * job).is_ok());
            worker.answers(job) == 0
        })
        .expect("endless");
    // Only one request may wait: the first has begun.
    worker.cancel(&[1, waits]);
    is_of_the_request(&mut worker, waits, "cancelled");
    is_of_the_request(&mut worker, 1, "cancelled");
    assert_eq!((worker.answers(1), worker.answers(waits)), (1, 1));
    // The next run of its context is whole.
    worker.ask(2_000_000, "one", &turn(7));
    turned(&mut worker, 2_000_000);
}

#[test]
fn requests_are_answered_while_another_model_is_loaded_and_stop_ends_the_load() {
    let Some((_folder, mut worker)) = worker(1) else { return };
    worker.send_command(1, load(plan("late", model("endless"), 2)));
    worker.ask(1, "mlp", &row(1));
    let want = worker.answer(1).expect("the others serve");
    worker.ask(2, "late", &row(1));
    is_of_the_worker(&mut worker, 2, "there is no model `late`; there is mlp, turns");
    let more = worker.run_command(2, unload("mlp")).expect_err("a command is running");
    assert!(more.contains("another command is running, and a worker runs 1 at a time"), "{more}");
    worker.ask(3, "mlp", &row(1));
    assert_eq!(worker.answer(3), Ok(want), "what was refused has changed nothing");
    assert!(
        !worker.received.iter().any(|said| command_result(said, 1).is_some()),
        "{:?}",
        worker.received
    );
    worker.ask(4, "turns", &turn(ENDLESS));
    assert_eq!(worker.stop(), Some(0), "whatever is loaded and runs");
}

#[test]
fn a_model_is_listed_before_the_result_of_its_load_and_serves() {
    let Some(mut worker) = TestWorker::start(&[mlp("mlp")], &[]) else { return };
    worker.ask(1, "mlp", &row(1));
    let want = worker.answer(1);
    assert_eq!(worker.run_command(1, load(plan("late", model("mlp"), 2))), Ok(()));
    assert_eq!(worker.names(), ["late", "mlp"]);
    assert_eq!((worker.models()[0].state, worker.models()[0].contexts), (ModelState::Ready, 2));
    worker.ask(2, "late", &row(1));
    assert!(want.is_ok() && worker.answer(2) == want);
}

#[test]
fn a_load_that_fails_changes_nothing_and_says_why_with_the_hash_of_the_file() {
    let Some((folder, _)) = worker(1) else { return };
    let bad = ModelPlan { path: model("four_bits"), ..plan("bad", "", 1) };
    let Some(mut worker) = TestWorker::start(&[mlp("mlp"), bad], &[]) else { return };
    let before = worker.models().to_vec();
    assert_eq!(before[0].state, ModelState::Unavailable);
    let told = |worker: &TestWorker| {
        worker.received.iter().filter(|said| matches!(said, FromWorker::Models { .. })).count()
    };
    let broken = folder.file("broken.onnx", b"this is no model");
    let hash_of = |path: &std::path::Path| {
        use sha2::{Digest, Sha256};
        let hash = Sha256::digest(fs::read(path).expect("it was written"));
        format!("(sha256 {})", gridpool_protocol::program::hex(&hash))
    };
    let gone = folder.0.path().join("gone.onnx");
    let wrong = |name: &str, path: &std::path::Path| load(plan(name, path, 1));
    let commands: [(ModelCommand, &str, &str); 8] = [
        (wrong("new", &broken), "because protobuf parsing failed", &hash_of(&broken)),
        (
            wrong("new", &model("four_bits")),
            "holds numbers of 4 bits",
            &hash_of(&model("four_bits")),
        ),
        (wrong("new", &gone), "gone.onnx: No such file or directory", ""),
        (wrong("bad", &broken), "because protobuf parsing failed", &hash_of(&broken)),
        (wrong("mlp", &model("mlp")), "a model `mlp` is loaded already", ""),
        (wrong("a/b", &model("mlp")), "`a/b` cannot be the name of a model", ""),
        (load(plan("new", "", 1)), "the model `new` has no file", ""),
        (load(plan("new", model("mlp"), 65)), "65 contexts: write 1 to 64", "(sha256 "),
    ];
    for (number, (command, why, hash)) in (1..).zip(commands) {
        let said = worker.run_command(number, command.clone()).expect_err("it cannot be");
        assert!(said.contains(why) && said.contains(hash), "{command:?}: {said}");
        assert_eq!(hash.is_empty(), !said.contains("sha256"), "{said}");
    }
    assert_eq!(worker.models(), before, "bad, with its own reason, and mlp");
    assert_eq!(told(&worker), 1, "there was nothing to tell");
    worker.ask(1, "mlp", &row(1));
    assert!(worker.answer(1).is_ok());
    worker.ask(2, "bad", &row(1));
    is_of_the_worker(
        &mut worker,
        2,
        "`bad` is not available: its input `x` holds numbers of 4 bits",
    );
    // An unavailable model can be unloaded, and its name reused.
    assert_eq!(worker.run_command(9, unload("bad")), Ok(()));
    assert_eq!(worker.names(), ["mlp"]);
    let none = worker.run_command(10, unload("bad")).expect_err("it is gone");
    assert_eq!(none, "there is no model `bad`; there is mlp");
    assert_eq!(worker.run_command(11, load(mlp("bad"))), Ok(()));
    worker.ask(3, "bad", &row(1));
    assert!(worker.answer(3).is_ok());
}

#[test]
fn a_model_has_more_contexts_while_its_only_one_runs_and_fewer_again() {
    let Some((_folder, mut worker)) = worker(1) else { return };
    worker.ask(1, "turns", &turn(ENDLESS));
    worker.ask(2, "turns", &turn(3));
    assert_eq!(worker.run_command(1, contexts("turns", 2)), Ok(()));
    assert_eq!(worker.models()[1].contexts, 2);
    turned(&mut worker, 2);
    assert_eq!(worker.answers(1), 0, "it runs for ever");
    assert_eq!(worker.run_command(2, contexts("turns", 1)), Ok(()), "the idle one has gone");
    assert_eq!(worker.models()[1].contexts, 1);
    worker.ask(3, "turns", &turn(0));
    for (number, count) in [(3, 0), (4, 65)] {
        let why = worker.run_command(number, contexts("turns", count)).expect_err("beyond a limit");
        assert_eq!(why, format!("{count} contexts: write 1 to 64"));
    }
    let why = worker.run_command(5, contexts("no", 1)).expect_err("there is no such model");
    assert_eq!(why, "there is no model `no`; there is mlp, turns");
    assert_eq!(worker.models()[1].contexts, 1);
    assert_eq!(worker.answers(3), 0, "it has not run");
}

#[test]
fn no_request_of_eight_clients_is_lost_while_contexts_come_and_go() {
    const CLIENTS: u64 = 8;
    let Some((_folder, mut worker)) = worker(1) else { return };
    worker.ask(0, "mlp", &row(0));
    worker.answer(0).expect("it serves");
    let mut jobs = 1..;
    let mut sent = Vec::new();
    for (number, count) in (1..).zip([4, 2, 1, 8, 3]) {
        let mut ask = |worker: &TestWorker| {
            for (client, job) in (1..=CLIENTS).zip(&mut jobs) {
                worker.ask_by(job, "turns", &turn(50 * i64::from(client == 1)), client, 1 << 20);
                sent.push(job);
            }
        };
        (0..3).for_each(|_| ask(&worker));
        worker.send_command(number, contexts("turns", count));
        (0..3).for_each(|_| ask(&worker));
        assert_eq!(worker.command_result(number), Ok(()));
        assert_eq!(worker.models()[1].contexts, count);
        sent.drain(..).for_each(|job| turned(&mut worker, job));
    }
    let answers = worker.received.iter().filter_map(answered);
    let all: Vec<_> = answers.map(|(attempt, _)| attempt).collect();
    let different: BTreeSet<_> = all.iter().collect();
    assert_eq!(all.len(), different.len(), "each was answered once");
    assert!(different.contains(&attempt(6 * 5 * CLIENTS)));
}

#[test]
fn requests_before_an_unload_run_and_requests_after_it_do_not() {
    const WAITING: u64 = 60;
    let Some((_folder, mut worker)) = worker(1) else { return };
    worker.ask(1, "turns", &turn(LONG));
    (2..=WAITING).for_each(|job| worker.ask(job, "turns", &turn(1)));
    worker.send_command(1, unload("turns"));
    worker.ask(100, "turns", &turn(0));
    is_of_the_worker(&mut worker, 100, "there is no model `turns`; there is mlp");
    // Its name is gone, but waiting requests can still be withdrawn.
    worker.cancel(&[WAITING]);
    is_of_the_request(&mut worker, WAITING, "cancelled");
    assert_eq!(worker.command_result(1), Ok(()));
    assert_eq!(worker.names(), ["mlp"]);
    let obeyed = worker.position(|said| command_result(said, 1).is_some());
    for job in 1..WAITING {
        assert!(worker.position(|said| is_answer_to(said, job)) < obeyed, "{job}");
        turned(&mut worker, job);
    }
}

#[test]
fn two_loads_of_one_name_give_one_model_and_a_name_is_free_once_it_was_unloaded() {
    let Some((_folder, mut worker)) = worker(1) else { return };
    assert_eq!(worker.run_command(1, load(mlp("m"))), Ok(()));
    let why = worker.run_command(2, load(plan("m", model("fixed"), 3))).expect_err("it is taken");
    assert_eq!(why, "a model `m` is loaded already");
    assert_eq!((worker.names(), worker.models()[0].contexts), (vec!["m", "mlp", "turns"], 1));
    assert_eq!(worker.run_command(3, unload("m")), Ok(()));
    assert_eq!(worker.run_command(4, load(plan("m", model("fixed"), 3))), Ok(()));
    assert_eq!(worker.models()[0].contexts, 3);
}

#[test]
fn a_request_that_a_worker_cannot_take_may_run_elsewhere() {
    let Some((folder, _)) = worker(1) else { return };
    let mut full = plan("full", folder.0.path().join("turns.onnx"), 1);
    full.options.queue_requests = 1;
    let Some(mut worker) = TestWorker::start(&[full, mlp("mlp")], &[]) else { return };
    worker.ask(1, "full", &turn(ENDLESS));
    // The first may or may not have begun: of two more, one waits and one is refused.
    (2..=3).for_each(|job| worker.ask(job, "full", &turn(0)));
    let refused = worker.wait_for(|said| (2..=3).find(|&job| is_answer_to(said, job)));
    is_of_the_worker(&mut worker, refused, "1 requests wait for this model already");
    worker.ask(4, "nobody", &turn(0));
    is_of_the_worker(&mut worker, 4, "there is no model `nobody`");
    worker.ask(5, "mlp", &turn(0));
    is_of_the_request(&mut worker, 5, "the input `x` is missing");
}

#[test]
fn a_worker_refuses_requests_beyond_its_limit_in_flight() {
    let Some((_folder, mut worker)) = worker(1) else { return };
    worker.ask(0, "turns", &turn(ENDLESS));
    (1..=64).for_each(|job| worker.ask(job, "turns", &turn(0)));
    is_of_the_worker(&mut worker, 64, "64 requests are in flight already");
    worker.cancel(&[7]);
    is_of_the_request(&mut worker, 7, "cancelled");
    worker.ask(65, "mlp", &row(1));
    assert!(worker.answer(65).is_ok(), "one more is accepted");
}
