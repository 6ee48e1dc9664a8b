//! Deadlines, cancellation, keys and priorities: each job gets exactly its verdict.

use std::time::Duration;

use gridpool_client::ClientError;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{ClientMessage, Priority, Refusal, ServerMessage};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};
use gridpool_protocol::status::WorkerState;
use gridpool_tests::oracle::samples::random_grids;
use serde_json::{Value, json};

use crate::command::gridpool;
use crate::jobs::{
    PROGRAM, answer, data, heavy_work, is_right, job, large_job, serves, small_job, submit,
};
use crate::pool::cpu;
use crate::processes::lives;
use crate::raw::{Raw, inline, is_ok};
use crate::wait::eventually_so;

#[test]
fn a_deadline_in_the_past_is_deadline_and_exit_code_1() {
    let arguments = ["run", PROGRAM, "--devices", "cpu:1", "--deadline", "0", "--json"];
    let finished = gridpool(arguments).arg(data("tasks/lines.json")).run();
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let lines = data("tasks/lines.json").display().to_string();
    let want = json!([{"input": lines, "verdict": "DEADLINE", "output": null}]);
    assert_eq!(document["results"], want);
    let receipt = &document["receipts"][0];
    assert_eq!((&receipt["verdict"], &receipt["attempts"]), (&json!("DEADLINE"), &json!([])));

    let pool = cpu(1).start();
    for job in [small_job(1), large_job(1)] {
        let answer = answer(submit(&pool.client(), job.with_deadline(Duration::ZERO)));
        assert_eq!(answer.verdict(), Verdict::Deadline);
        assert!(answer.outputs().is_none() && answer.receipt.attempts.is_empty());
    }
    assert_eq!(pool.status().counters.attempts, 0, "nothing was run");
}

#[test]
fn a_deadline_that_passes_while_the_job_runs_frees_the_device() {
    let pool = cpu(1).start();
    let held = pool.stop("cpu0");
    let soon = Duration::from_millis(50);
    let answer = answer(submit(&pool.client(), small_job(2).with_deadline(soon)));
    assert_eq!(answer.verdict(), Verdict::Deadline);
    let attempts = &answer.receipt.attempts;
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    assert_eq!((&*attempts[0].worker, attempts[0].outcome), ("cpu0#1", AttemptOutcome::Deadline));
    assert!(answer.receipt.total_us > 25_000, "it waited for the deadline: {:?}", answer.receipt);
    pool.until("cpu0", "in its second generation", |slot| {
        slot.generation == 2 && slot.state == WorkerState::Ready
    });
    assert!(!lives(held));
    serves(&pool.client());
}

#[test]
fn a_deadline_that_passes_in_the_queue_costs_no_attempt() {
    let pool = cpu(1).limits("feed_cost_max = 0").start();
    pool.stop("cpu0");
    let client = pool.client();
    let running = submit(&client, small_job(3));
    pool.until_busy("cpu0");
    let soon = Duration::from_millis(20);
    let late = answer(submit(&client, small_job(4).with_deadline(soon)));
    assert_eq!((late.verdict(), late.receipt.attempts.len()), (Verdict::Deadline, 0));
    pool.go_on("cpu0");
    assert_eq!(answer(running).verdict(), Verdict::Ok);
    assert_eq!(pool.slot("cpu0").generation, 1, "the worker did nothing wrong");
}

#[test]
fn a_worker_stops_a_job_that_is_late_or_cancelled_or_whose_client_is_gone() {
    // With this grace no worker is killed: it must stop by itself.
    let pool = cpu(1).limits("cancel_grace_s = 3000").start();
    let good = pool.client();
    serves(&good);
    let before = pool.slot("cpu0");
    let (text, grids) = heavy_work();
    for round in 0..6 {
        let client = pool.client();
        let work = job(&text, &grids);
        if round % 3 == 0 {
            let late = answer(submit(&client, work.with_deadline(Duration::from_millis(100))));
            assert_eq!(late.verdict(), Verdict::Deadline);
        } else {
            let handle = submit(&client, work);
            pool.until_busy("cpu0");
            if round % 3 == 1 {
                handle.cancel();
                assert_eq!(answer(handle).verdict(), Verdict::Cancelled);
            } else {
                drop((handle, client));
            }
        }
        serves(&good);
    }
    let after = pool.slot("cpu0");
    assert_eq!(after.generation, 1);
    // `serves` runs five items.
    assert_eq!(after.items_done - before.items_done, 6 * 5, "a heavy job ran to its end");
}

#[test]
fn a_cancelled_job_is_cancelled_wherever_it_is() {
    let pool = cpu(1).limits("cancel_grace_ms = 50\nfeed_cost_max = 0").start();
    let held = pool.stop("cpu0");
    let client = pool.client();
    let running = submit(&client, large_job(5));
    pool.until_busy("cpu0");
    let queued = submit(&client, small_job(6));
    for (handle, attempts) in [(queued, 0), (running, 1)] {
        handle.cancel();
        let answer = answer(handle);
        assert_eq!(answer.verdict(), Verdict::Cancelled);
        assert_eq!(answer.receipt.attempts.len(), attempts);
        assert!(answer.outputs().is_none());
    }
    // The worker gets its grace, does not use it, and is replaced.
    pool.until("cpu0", "in its second generation", |slot| slot.generation == 2);
    assert!(!lives(held));
    serves(&client);
    assert_eq!(pool.status().counters.cancelled, 2);
}

#[test]
fn a_cancelled_job_whose_worker_answers_in_time_costs_no_worker() {
    let pool = cpu(1).limits("cancel_grace_s = 600").start();
    let client = pool.client();
    pool.stop("cpu0");
    let handle = submit(&client, small_job(7));
    pool.until_busy("cpu0");
    handle.cancel();
    assert_eq!(answer(handle).verdict(), Verdict::Cancelled);
    pool.go_on("cpu0");
    serves(&client);
    assert_eq!(pool.slot("cpu0").generation, 1);
}

#[test]
fn a_dropped_handle_cancels_its_job() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let client = pool.client();
    let running = submit(&client, small_job(8));
    pool.until_busy("cpu0");
    drop(submit(&client, small_job(9)));
    pool.until_status("the dropped job to be cancelled", |s| s.counters.cancelled == 1);
    pool.go_on("cpu0");
    assert_eq!(answer(running).verdict(), Verdict::Ok);
}

#[test]
fn a_job_sent_twice_under_one_key_runs_once() {
    let pool = cpu(1).start();
    let grids = random_grids(10, 3);
    let mut raw = Raw::greeted(&pool.socket());
    pool.stop("cpu0");
    raw.submit(inline(77, &grids));
    raw.submit(inline(77, &grids));
    pool.until_busy("cpu0");
    pool.go_on("cpu0");
    let (key, receipt, _) = raw.hear_done();
    assert_eq!(key, JobKey(77));
    is_ok(&receipt);
    // Again once the verdict is known: it is repeated, without its result, and nothing is run.
    raw.say(&ClientMessage::Submit(Box::new(inline(77, &grids))));
    match raw.hear() {
        ServerMessage::Done { receipt: again, output: None, replayed: true, .. } => {
            assert_eq!(*again, receipt);
        }
        other => panic!("expected the same verdict, got {other:?}"),
    }
    let sums = pool.status().counters;
    assert_eq!((sums.accepted, sums.attempts, sums.ok), (1, 1, 1));
}

#[test]
fn a_key_names_one_job_for_all_connections_of_a_user() {
    let pool = cpu(1).start();
    let (client, other) = (pool.client(), pool.client());
    let key = JobKey(78);
    pool.stop("cpu0");
    let handle = submit(&client, small_job(11).with_key(key));
    pool.until_busy("cpu0");
    let taken = other.submit(small_job(11).with_key(key).refuse_if_busy());
    assert!(
        matches!(taken, Err(ClientError::Refused(Refusal::KeyInUse(k))) if k == key),
        "{taken:?}"
    );
    let error = other.submit(small_job(12).with_key(key)).expect_err("its grids are others");
    assert!(error.to_string().contains("was used for another job; choose a new key"), "{error}");
    let twice = client.submit(small_job(12).with_key(key));
    assert!(matches!(twice, Err(ClientError::Refused(Refusal::KeyInUse(_)))), "{twice:?}");
    pool.go_on("cpu0");
    assert_eq!(answer(handle).verdict(), Verdict::Ok);
    let error = other.submit(job("rot180", &random_grids(13, 5)).with_key(key)).expect_err("used");
    assert!(error.to_string().contains("was used for another job; choose a new key"), "{error}");
}

#[test]
fn priority_orders_the_jobs_of_a_client() {
    let pool = cpu(1).limits("feed_cost_max = 0").start();
    pool.stop("cpu0");
    let mut raw = Raw::greeted(&pool.socket());
    let grids = random_grids(14, 2);
    raw.submit(inline(1, &grids));
    pool.until_busy("cpu0");
    let priorities =
        [(2, Priority::Low), (3, Priority::Normal), (4, Priority::High), (5, Priority::Normal)];
    for (key, priority) in priorities {
        let mut submission = inline(key, &grids);
        submission.terms.priority = priority;
        raw.submit(submission);
    }
    pool.go_on("cpu0");
    let order: Vec<u128> = (0..5).map(|_| raw.hear_done().0.0).collect();
    assert_eq!(order, [1, 4, 3, 5, 2]);
}

#[test]
fn clients_in_many_threads_and_processes_all_get_their_own_answers() {
    let pool = cpu(2).start();
    let shared = pool.client();
    let threads: Vec<_> = (0..6)
        .map(|number: u64| {
            // Half of them share one connection, the others have their own.
            let client = if number.is_multiple_of(2) { shared.clone() } else { pool.client() };
            std::thread::spawn(move || {
                for (seed, items) in (0..10).zip([4, 44, 84].into_iter().cycle()) {
                    let grids = random_grids(100 * number + seed, items);
                    is_right(&answer(submit(&client, job(PROGRAM, &grids))), PROGRAM, &grids);
                }
            })
        })
        .collect();
    let calls: Vec<_> = (0..3)
        .map(|_| pool.cli(&["submit", "o_g(5)", "--json"]).arg(data("tasks")).start())
        .collect();
    for thread in threads {
        thread.join().expect("every answer is right");
    }
    let documents: Vec<Value> = calls.into_iter().map(|call| call.finish().document()).collect();
    let run = gridpool(["run", "o_g(5)", "--devices", "cpu:1", "--json"]).arg(data("tasks"));
    let want = run.run().document();
    for document in documents {
        assert_eq!(document["results"], want["results"], "submit gives what run gives");
    }
    eventually_so("the connections to be closed", || pool.status().supervisor.clients <= 2);
}
