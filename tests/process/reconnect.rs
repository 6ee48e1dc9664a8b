//! The client library after its supervisor is killed: it connects again and submits again with the same keys,
//! or reports that the pool is gone.

use std::time::Duration;

use gridpool_client::{Client, ClientError, Job, Outputs};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::receipt::Verdict;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::gridpool;
use crate::documents::{self, says};
use crate::jobs::{
    PROGRAM, answer, as_json, data, is_right, job, large_job, program, serves, small_job, submit,
};
use crate::pool::{Pool, Setup, cpu, named};
use crate::wait::within;

/// Kills the supervisor and starts another in its place.
fn replaced(pool: Pool) -> Pool {
    pool.killed().start()
}

#[test]
fn jobs_that_wait_for_their_verdict_get_it_from_the_next_supervisor() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let client = pool.client();
    let batches =
        [random_grids(1, 5), random_grids(2, 300), random_grids(3, 4), random_grids(4, 200)];
    let handles: Vec<_> =
        batches.iter().map(|grids| submit(&client, job(PROGRAM, grids))).collect();
    let keys: Vec<_> = handles.iter().map(|handle| handle.key().to_string()).collect();
    pool.until_busy("cpu0");
    // They wait already when the supervisor dies.
    let waiting: Vec<_> =
        handles.into_iter().map(|handle| std::thread::spawn(move || handle.wait())).collect();
    let pool = replaced(pool);
    for ((waiting, grids), key) in waiting.into_iter().zip(&batches).zip(keys) {
        let waited = within("a verdict", move || waiting.join().expect("no panic"));
        let answer = waited.expect("the next supervisor gives the verdict");
        is_right(&answer, PROGRAM, grids);
        assert_eq!((&answer.receipt.key, answer.receipt.attempts.len()), (&key, 1));
    }
    assert_eq!(pool.status().counters.accepted, 4, "each once");
}

/// Drains a pool that cannot finish its jobs, and waits until it has ended.
fn drained(pool: Pool) -> Setup {
    let setup = pool.setup().clone();
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
    setup
}

#[test]
fn jobs_that_a_drained_pool_gives_back_are_run_by_the_next_pool() {
    let pool = cpu(1).limits("drain_timeout_ms = 100").start();
    pool.stop("cpu0");
    let client = pool.client();
    let batches = [random_grids(1, 5), random_grids(2, 300)];
    let handles = batches.each_ref().map(|grids| submit(&client, job(PROGRAM, grids)));
    // One has more items than jobs in flight.
    let early = pool.cli(&["submit", PROGRAM, "--json", "--batch", "1"]).arg(data("tasks")).start();
    pool.until_status("all to wait", |status| status.counters.accepted > 30);
    let waiting = handles.map(|handle| std::thread::spawn(move || handle.wait()));
    let setup = drained(pool);
    // One is submitted while there is no pool, by a command that begins then.
    let late = gridpool(["submit", PROGRAM, "--json", "--socket"]).arg(setup.socket());
    let late = late.arg(data("tasks/lines.json")).start();
    let _pool = setup.start();
    for (waiting, grids) in waiting.into_iter().zip(&batches) {
        let waited = within("a verdict", move || waiting.join().expect("no panic"));
        is_right(&waited.expect("the next pool gives the verdict"), PROGRAM, grids);
    }
    assert_eq!([early, late].map(|submit| submit.finish().code), [Some(0); 2]);
}

#[test]
fn a_command_waits_for_a_pool_whose_folder_is_missing_too() {
    let setup = cpu(1);
    let run = setup.folder().join("run");
    let submit = gridpool(["submit", PROGRAM, "--json", "--socket"]).arg(run.join("pool.sock"));
    let submit = submit.arg(data("tasks/lines.json")).start();
    let pool = setup.start();
    // The command, which has begun long before, finds the pool behind it.
    std::os::unix::fs::symlink(pool.folder(), run).expect("a link can be made");
    let done = submit.finish();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("run/pool.sock yet: waiting up to 10 s"), "{}", done.stderr);
}

#[test]
fn a_job_that_no_pool_takes_over_is_cancelled() {
    let pool = cpu(1).limits("drain_timeout_ms = 100").start();
    pool.stop("cpu0");
    let client = Client::builder().socket(pool.socket()).reconnect_for(Duration::from_millis(50));
    let client = client.connect().expect("the pool is there");
    let patient = submit(&client, small_job(1));
    let once = submit(&client, small_job(2).at_most_once());
    let bound = submit(&pool.client(), small_job(3).end_with_pool());
    pool.until_busy("cpu0");
    let setup = drained(pool);
    for job in [patient, once, bound] {
        let answer = within("a verdict", move || job.wait()).expect("a verdict");
        assert_eq!(answer.verdict(), Verdict::Cancelled, "{}", answer.receipt.reason);
    }
    let call = gridpool(["submit", PROGRAM, "--no-wait", "--socket"]).arg(setup.socket());
    call.arg(data("tasks/lines.json")).run().complains(69, &["no pool", "gridpool serve"]);
}

/// A pool in which one of two devices hangs, and a job over these grids is cut into shards.
fn half_hung(grids: &[Grid]) -> (Pool, Job<Outputs>) {
    let limits = "drain_timeout_ms = 100\nshard_cost_min = 1\nfeed_cost_max = 0";
    let pool = cpu(2).limits(limits).start();
    pool.stop("cpu0");
    (pool, job(PROGRAM, grids))
}

/// Once one of the four shards runs on the worker that hangs and the others are done.
fn three_are_done(pool: &Pool) {
    pool.until_status("three shards to be done", |status| {
        status.workers.iter().map(|worker| worker.jobs_done).sum::<u64>() == 3
    });
}

#[test]
fn a_job_that_no_pool_takes_over_gives_what_was_done_of_it() {
    let grids = random_grids(1, 400);
    let (pool, large) = half_hung(&grids);
    let client = Client::builder().socket(pool.socket()).reconnect_for(Duration::from_millis(50));
    let handle = submit(&client.connect().expect("the pool is there"), large);
    three_are_done(&pool);
    drained(pool);
    let answer = answer(handle);
    assert_eq!((answer.verdict(), answer.outputs().is_some()), (Verdict::Cancelled, false));
    let outputs = answer.partial().expect("three shards of it");
    let done: Vec<_> = (0..grids.len()).filter(|&item| outputs.has(item)).collect();
    assert_eq!(done.len(), 300, "{:?}", answer.receipt.items_done());
    let program = program(PROGRAM);
    for item in done {
        assert_eq!(documents::item(outputs, item), says(&program, &grids[item]), "item {item}");
    }
    let undone = (0..grids.len()).find(|&item| !outputs.has(item)).expect("one shard");
    let error = outputs.item(undone).expect_err("nothing was read");
    assert!(error.to_string().contains("its job ended before it was done"), "{error}");
}

#[test]
fn a_submit_prints_what_was_done_and_says_how_much() {
    let grids = random_grids(2, 400);
    let (pool, _) = half_hung(&grids);
    let file = pool.folder().join("grids.json");
    std::fs::write(&file, as_json(&grids)).expect("a file can be written");
    let submit = pool.cli(&["submit", PROGRAM, "--json"]).arg(&file).start();
    three_are_done(&pool);
    drained(pool);
    let finished = submit.finish();
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    let words = "300 of 400 items have a result, 100 have none: submit those again";
    assert!(finished.stderr.contains(words), "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let result = &document["results"][0];
    assert_eq!(result["verdict"], "CANCELLED");
    let outputs = result["output"].as_array().expect("a result for each grid");
    assert_eq!(outputs.iter().filter(|one| one.is_null()).count(), 100);
    assert_eq!((outputs.len(), &document["receipts"][0]["verdict"]), (400, &"CANCELLED".into()));
}

#[test]
fn a_client_that_was_idle_uses_the_next_supervisor() {
    type Use = fn(&Client);
    let uses: [Use; 4] = [
        |client| serves(client),
        |client| drop(answer(submit(client, large_job(1)))),
        |client| assert_eq!(client.status().expect("a status").workers.len(), 1),
        |client| drop(client.kill(named("cpu0"), 18).expect("there is a worker")),
    ];
    let mut pool = cpu(1).start();
    for used in uses {
        let client = pool.client();
        // It has an arena of the old supervisor to spare.
        answer(submit(&client, large_job(2)));
        pool = replaced(pool);
        used(&client);
        used(&client);
    }
}

#[test]
fn a_job_that_may_run_once_is_not_submitted_again() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let client = pool.client();
    let once = submit(&client, small_job(1).at_most_once());
    pool.until_busy("cpu0");
    let often = submit(&client, small_job(2));
    let pool = replaced(pool);
    let error = within("an answer", move || once.wait()).expect_err("it may have run already");
    assert!(matches!(error, ClientError::Lost), "{error}");
    assert!(answer(often).outputs().is_some());
    assert_eq!(pool.status().counters.accepted, 1);
}

#[test]
fn a_submit_survives_its_supervisor() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let submit =
        pool.cli(&["submit", PROGRAM, "--json", "--batch", "9"]).arg(data("tasks")).start();
    pool.until_busy("cpu0");
    let pool = replaced(pool);
    let document = submit.finish().document();
    let results = document["results"].as_array().expect("a list of results");
    assert_eq!(results.len(), 8);
    assert!(results.iter().all(|result| result["verdict"] == "OK"), "{document}");
    drop(pool);
}

#[test]
fn the_client_of_a_pool_that_is_gone_gets_an_error() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let client = pool.client();
    let handle = submit(&client, small_job(1));
    pool.until_busy("cpu0");
    let setup = pool.killed();
    let error =
        within("the client to give up", move || handle.wait()).expect_err("no pool is there");
    assert!(matches!(error, ClientError::Lost), "{error}");
    let error = client.submit(small_job(2)).map(drop).expect_err("no pool is there");
    assert!(matches!(error, ClientError::Lost), "{error}");
    let error = Client::connect(setup.socket()).map(drop).expect_err("no pool is there");
    assert!(error.to_string().starts_with("no pool is running at "), "{error}");
}
