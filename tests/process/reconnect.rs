//! The client library after its supervisor is killed: it connects again and submits again with the same keys,
//! or reports that the pool is gone.

use gridpool_client::{Client, ClientError};
use gridpool_tests::oracle::samples::random_grids;

use crate::jobs::{PROGRAM, answer, data, is_right, job, large_job, serves, small_job, submit};
use crate::pool::{Pool, cpu, named};
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
