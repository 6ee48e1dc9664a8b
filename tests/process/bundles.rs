//! Small jobs that are sent together go as one. Each has its own part of the result and its own receipt, and none
//! suffers for another.

use std::collections::BTreeSet;

use gridpool_client::{Client, Grid, Handle, Job, Outputs};
use gridpool_protocol::message::{ClientMessage, Submission};
use gridpool_protocol::receipt::Verdict;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;

use crate::jobs::{answer, is_right, job, serves};
use crate::pool::{Pool, cpu};
use crate::processes::{go_on, signal};
use crate::raw::{Raw, inline, is_ok};
use crate::wait::within;

/// The grids of so many small jobs: no two jobs have the same.
fn batches(count: u64) -> Vec<Vec<Grid>> {
    let grids = |seed: u64| random_grids(seed, 1 + usize::try_from(seed % 7).expect("it is small"));
    (0..count).map(grids).collect()
}

fn sent(client: &Client, program: &str, batches: &[Vec<Grid>]) -> Vec<Handle<Outputs>> {
    let jobs: Vec<Job<Outputs>> = batches.iter().map(|grids| job(program, grids)).collect();
    let client = client.clone();
    within("jobs to be sent", move || client.send_many(jobs)).expect("they are sent")
}

/// Each job's answer is that of its own grids.
#[track_caller]
fn are_right(handles: Vec<Handle<Outputs>>, program: &str, batches: &[Vec<Grid>]) {
    for (handle, grids) in handles.into_iter().zip(batches) {
        let answer = answer(handle);
        is_right(&answer, program, grids);
        assert_eq!(answer.receipt.items as usize, grids.len());
    }
}

#[test]
fn jobs_that_go_as_one_each_get_their_own_results_and_receipt() {
    let pool = cpu(1).start();
    let client = pool.client();
    // In place, packed, with errors of items, numbers, lists of objects.
    let programs = ["rot90", "trim", "o_g(5) | first | subgrid", "mostcolor", "o_g(7)"];
    let batches = batches(32);
    for (at, program) in (1..).zip(programs) {
        are_right(sent(&client, program, &batches), program, &batches);
        let counters = pool.status().counters;
        assert_eq!((counters.accepted, counters.ok, counters.attempts), (32 * at, 32 * at, at));
    }
    assert_eq!(pool.slot("cpu0").jobs_done, programs.len() as u64);
}

#[test]
fn the_receipt_of_a_job_of_a_bundle_counts_its_own_items_and_errors() {
    let pool = cpu(1).start();
    let one = Grid::new(2, 2, vec![1, 1, 1, 1]).expect("a grid");
    let two = Grid::new(2, 2, vec![1, 1, 1, 2]).expect("a grid");
    // A grid of one colour has no object.
    let batches = [vec![one.clone(), two.clone()], vec![two.clone()], vec![one.clone(), one]];
    let client = pool.client();
    let handles = sent(&client, "o_g(5) | first", &batches);
    let keys: Vec<_> = handles.iter().map(|handle| handle.key().to_string()).collect();
    let receipts: Vec<_> = handles.into_iter().map(|handle| answer(handle).receipt).collect();
    let counted = receipts.iter().map(|receipt| (receipt.items, receipt.item_errors));
    assert_eq!(counted.collect::<Vec<_>>(), [(2, 1), (1, 0), (2, 2)]);
    for (receipt, key) in receipts.iter().zip(keys) {
        let [attempt] = &receipt.attempts[..] else { panic!("{receipt:?}") };
        assert_eq!((attempt.part.start, attempt.part.end), (0, receipt.items));
        assert_eq!((attempt.joined_items, &receipt.key), (5, &key));
        // The pool knows it by the number of the bundle.
        let known = client.job(receipt.job.parse().expect("a job")).expect("it answers");
        let known = known.expect("it knows the bundle").receipt;
        assert_eq!((known.items, receipt.job.starts_with(&known.job)), (5, true), "{known:?}");
    }
    let numbers: BTreeSet<_> = receipts.iter().map(|receipt| &receipt.job).collect();
    assert_eq!(numbers.len(), 3);
}

#[test]
fn a_death_from_outside_costs_a_bundle_one_attempt() {
    let (pool, handles, batches) = running();
    signal(pool.pid("cpu0"), Signal::SIGKILL);
    are_right(handles, "rot90", &batches);
    let counters = pool.status().counters;
    assert_eq!((counters.accepted, counters.ok, counters.attempts), (20, 20, 2));
}

/// A pool whose stopped worker has a bundle.
fn running() -> (Pool, Vec<Handle<Outputs>>, Vec<Vec<Grid>>) {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let batches = batches(20);
    let handles = sent(&pool.client(), "rot90", &batches);
    pool.until_busy("cpu0");
    (pool, handles, batches)
}

#[test]
fn a_bundle_whose_worker_died_of_it_is_run_one_by_one() {
    let (pool, handles, batches) = running();
    let pid = pool.pid("cpu0");
    signal(pid, Signal::SIGSEGV);
    go_on(pid);
    are_right(handles, "rot90", &batches);
    let counters = pool.status().counters;
    assert_eq!((counters.accepted, counters.cancelled, counters.ok), (40, 20, 20));
    assert_eq!(pool.status().denylist.contents, 0);
}

#[test]
fn a_large_job_of_a_bundle_that_is_given_back_gets_memory_of_its_own() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let batches = [random_grids(1, 200), random_grids(2, 300), random_grids(3, 2)];
    let handles = sent(&pool.client(), "upscale(2)", &batches);
    pool.until_busy("cpu0");
    let pid = pool.pid("cpu0");
    signal(pid, Signal::SIGSEGV);
    go_on(pid);
    are_right(handles, "upscale(2)", &batches);
    assert_eq!(pool.status().counters.ok, 3);
}

#[test]
fn a_cancelled_job_leaves_the_others_of_its_bundle_alone_and_the_last_takes_it_along() {
    let (pool, mut handles, mut batches) = running();
    let cancelled = handles.remove(3);
    drop(batches.remove(3));
    cancelled.cancel();
    let ended = answer(cancelled);
    assert_eq!((ended.verdict(), ended.receipt.items), (Verdict::Cancelled, 4));
    drop(handles.remove(0));
    drop(batches.remove(0));
    assert_eq!(pool.status().counters.cancelled, 0);
    pool.go_on("cpu0");
    are_right(handles, "rot90", &batches);
    assert_eq!(pool.status().counters.ok, 20, "the pool ran them all");

    let (pool, handles, _) = running();
    let (dropped, cancelled) =
        handles.into_iter().partition::<Vec<_>, _>(|own| own.key().0 % 2 == 0);
    drop(dropped);
    cancelled.iter().for_each(Handle::cancel);
    pool.until_status("the bundle to be cancelled", |status| status.counters.cancelled == 20);
    for handle in cancelled {
        assert_eq!(answer(handle).verdict(), Verdict::Cancelled);
    }
    pool.go_on("cpu0");
    serves(&pool.client());
}

#[test]
fn bundles_wait_for_the_limit_of_their_client_and_a_smaller_limit_takes_them_apart() {
    let batches = batches(200);
    for (limit, attempts) in [("client_jobs_max = 40", 7..=7), ("client_jobs_max = 20", 8..=200)] {
        let pool = cpu(1).limits(limit).start();
        are_right(sent(&pool.client(), "rot90", &batches), "rot90", &batches);
        let counters = pool.status().counters;
        assert_eq!((counters.accepted, counters.ok), (200, 200));
        assert!(attempts.contains(&counters.attempts), "{counters:?}");
    }
}

#[test]
fn a_bundle_goes_to_the_next_supervisor_as_one() {
    let (pool, handles, batches) = running();
    let waiting: Vec<_> =
        handles.into_iter().map(|handle| std::thread::spawn(move || handle.wait())).collect();
    let pool = pool.killed().start();
    for (waiting, grids) in waiting.into_iter().zip(&batches) {
        let waited = within("a verdict", move || waiting.join().expect("no panic"));
        is_right(&waited.expect("the next supervisor gives the verdict"), "rot90", grids);
    }
    let counters = pool.status().counters;
    assert_eq!((counters.accepted, counters.ok, counters.attempts), (20, 20, 1));
}

#[test]
fn a_bundle_of_no_number_of_jobs_that_may_be_is_refused() {
    let pool = cpu(1).start();
    let mut raw = Raw::greeted(&pool.socket());
    let grids = random_grids(5, 3);
    let good = inline(1, &grids);
    let wrong = [
        (0, "it stands for 0 jobs; one of 3 items may stand for 1 to 3"),
        (4, "it stands for 4 jobs; one of 3 items may stand for 1 to 3"),
        (u32::MAX, "it stands for 4294967295 jobs; one of 3 items may stand for 1 to 3"),
    ];
    let refused = |raw: &mut Raw, bad: Submission| {
        raw.say(&ClientMessage::Submit(Box::new(bad)));
        raw.hear_refused().to_string()
    };
    for (jobs, words) in wrong {
        assert_eq!(refused(&mut raw, Submission { jobs, ..good.clone() }), words);
    }
    let mut once = Submission { jobs: 3, ..good.clone() };
    once.terms.idempotent = false;
    let words = "jobs that may run only once, or meet a fault on purpose, cannot be bundled";
    assert_eq!(refused(&mut raw, once), words);
    raw.submit(Submission { jobs: 3, ..good });
    is_ok(&raw.hear_done().1);
    assert_eq!(pool.status().counters.ok, 3);
}
