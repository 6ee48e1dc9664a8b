//! Large jobs over several devices, small jobs in one launch, and the jobs behind them.

use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Receipt};
use gridpool_protocol::status::WorkerState;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;

use crate::jobs::{PROGRAM, answer, is_right, job, submit};
use crate::pool::cpu;
use crate::processes::signal;

/// Limits under which a few hundred grids are a large job.
const SPLITS: &str = "shard_cost_min = 10000\n";

/// The attempts that were answered, in order of their parts, which hold every item once.
#[track_caller]
fn parts(receipt: &Receipt) -> Vec<&Attempt> {
    let ok = receipt.attempts.iter().filter(|attempt| attempt.outcome == AttemptOutcome::Ok);
    let mut parts: Vec<_> = ok.collect();
    parts.sort_unstable_by_key(|attempt| attempt.part.start);
    let end = parts.iter().try_fold(0, |at, a| (a.part.start == at).then_some(a.part.end));
    assert_eq!(end, Some(receipt.items), "{receipt:?}");
    parts
}

#[test]
fn a_large_job_is_split_over_the_devices_and_gives_what_one_device_gives() {
    let pool = cpu(2).limits(SPLITS).start();
    let client = pool.client();
    let grids = random_grids(31, 2_000);
    let programs = [
        PROGRAM,
        "objects(true, false, true)",
        "palette",
        "upscale(2) | hmirror",
        "o_g(5) | first | subgrid",
        "o_g(7) | sizefilter(1) | merge",
        "hsplit(2)",
    ];
    for text in programs {
        let answer = answer(submit(&client, job(text, &grids)));
        is_right(&answer, text, &grids);
        let parts = parts(&answer.receipt);
        assert!(parts.len() >= 2, "{text}: {parts:?}");
        let workers = ["cpu0#1", "cpu1#1"];
        assert!(
            workers.iter().all(|name| parts.iter().any(|part| *part.worker == **name)),
            "{text}"
        );
        let outputs = answer.outputs().expect("OK comes with results");
        let errors = (0..grids.len()).filter(|&item| outputs.item(item).expect("formed").is_err());
        assert_eq!(answer.receipt.item_errors as usize, errors.count(), "{text}");
    }
}

#[test]
fn a_worker_killed_in_a_split_job_costs_one_attempt_of_one_shard() {
    let pool = cpu(2).limits(SPLITS).limits("feed_cost_max = 0").start();
    pool.stop("cpu0");
    pool.stop("cpu1");
    let grids = random_grids(32, 700);
    let handle = submit(&pool.client(), job(PROGRAM, &grids));
    pool.until_busy("cpu0");
    pool.until_busy("cpu1");
    signal(pool.pid("cpu0"), Signal::SIGKILL);
    pool.go_on("cpu1");
    let answer = answer(handle);
    is_right(&answer, PROGRAM, &grids);
    assert!(parts(&answer.receipt).len() >= 2);
    let lost = answer.receipt.attempts.iter().filter(|a| a.outcome != AttemptOutcome::Ok);
    let lost: Vec<_> = lost.map(|a| (&*a.worker, a.outcome)).collect();
    assert_eq!(lost, [("cpu0#1", AttemptOutcome::WorkerDied)]);
    pool.until("cpu0", "in its second generation", |slot| {
        slot.generation == 2 && slot.state == WorkerState::Ready
    });
    assert_eq!(pool.slot("cpu1").restarts, 0, "the neighbour was not touched");
}

#[test]
fn jobs_of_two_clients_that_wait_for_one_program_share_a_launch() {
    let pool = cpu(1).limits("feed_cost_max = 0").start();
    pool.stop("cpu0");
    let first = submit(&pool.client(), job("rot180", &random_grids(33, 5)));
    pool.until_busy("cpu0");
    // One of them inline, the other in shared memory.
    let grids = [random_grids(34, 5), random_grids(35, 300)];
    let waiting = [0, 1].map(|n| submit(&pool.client(), job(PROGRAM, &grids[n])));
    pool.go_on("cpu0");
    assert_eq!(answer(first).receipt.attempts[0].joined_items, 5);
    for (handle, grids) in waiting.into_iter().zip(&grids) {
        let answer = answer(handle);
        is_right(&answer, PROGRAM, grids);
        let [attempt] = &answer.receipt.attempts[..] else { panic!("{:?}", answer.receipt) };
        assert_eq!(attempt.joined_items, 305, "the other's items included");
    }
    let sums = pool.status().counters;
    assert_eq!((sums.runs, sums.attempts, sums.joined), (2, 3, 2));
}

#[test]
fn jobs_behind_a_batch_that_kills_its_worker_lose_nothing() {
    let pool = cpu(1).limits("attempts_max = 2").start();
    pool.stop("cpu0");
    let client = pool.client();
    let grids = random_grids(36, 5);
    let handles = [PROGRAM, "rot180"].map(|text| submit(&client, job(text, &grids)));
    pool.until_status("both to be sent", |s| s.counters.runs == 2 && s.queue.jobs == 0);
    signal(pool.pid("cpu0"), Signal::SIGKILL);
    let want = [AttemptOutcome::WorkerDied, AttemptOutcome::Preempted];
    for ((handle, text), want) in handles.into_iter().zip([PROGRAM, "rot180"]).zip(want) {
        let answer = answer(handle);
        is_right(&answer, text, &grids);
        let outcomes: Vec<_> = answer.receipt.attempts.iter().map(|a| a.outcome).collect();
        assert_eq!(outcomes, [want, AttemptOutcome::Ok]);
    }
    let queue = pool.status().queue;
    assert!(queue.jobs_high >= 1 && queue.bytes_high > 0, "{queue:?}");
}
