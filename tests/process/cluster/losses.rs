//! What the servers lose although it was acknowledged: clients that still wait for it send it again.

use std::time::Duration;

use gridpool_client::{JobKey, Verdict};
use gridpool_nats::{Store, StreamLimits, Streams, connect};
use gridpool_protocol::message::Input;
use gridpool_tests::oracle::samples::random_grids;
use tokio::runtime::Runtime;

use super::pieces::streams;
use super::servers::{Servers, are_there};
use super::{client, counts, of_a_client_that_vanishes, serving, until};
use crate::jobs::{PROGRAM, answer, is_right, job, small_job, submit};
use crate::raw::inline;
use crate::wait::eventually;

/// Long enough that no test waits for it.
const DEADLINE: Duration = Duration::from_secs(600);

#[test]
fn a_batch_that_the_servers_lose_is_sent_again_by_the_client_that_waits() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 1");
    let (client, grids) = (client(&servers), [1, 2, 3].map(|seed| random_grids(seed, 4_000)));
    let (runtime, streams) = streams(&servers);
    let request = |subject: &str, payload: String| {
        let answer = streams.connection.client.request(subject.to_owned(), payload.into());
        let answer = runtime.block_on(answer).expect("an answer").payload;
        assert!(answer.windows(14).any(|part| part == b"\"success\":true"), "{answer:?}");
    };
    let digests = grids.each_ref().map(|grids| {
        let Input::Inline(batch) = inline(1, grids).payload.input else { panic!("it is inline") };
        (Store::digest(&batch.0), batch.0.len() as u64)
    });
    // All of it with its stream; its end, and those that belong to it; a piece alone, whose end stays.
    for (round, grids) in grids.iter().enumerate() {
        pool.stop("cpu0");
        let first = submit(&client, small_job(1).with_deadline(DEADLINE));
        let runs = |lane: &gridpool_nats::LaneRow| lane.running == 1;
        until(&servers, "a job that runs", |status| status.lanes.iter().any(runs));
        let waits = submit(&client, job(PROGRAM, grids).with_deadline(DEADLINE));
        until(&servers, "both jobs", |status| status.jobs == 2);
        let (digest, size) = digests[round];
        match round {
            0 => request("$JS.API.STREAM.DELETE.gridpool-data", String::new()),
            1 => runtime.block_on(streams.data.remove(digest, size)).expect("they are removed"),
            _ => {
                let newest =
                    runtime.block_on(streams.data.newest(digest, size)).expect("an answer");
                let piece = newest.expect("it is there");
                let piece = format!("{{\"seq\": {piece}}}");
                request("$JS.API.STREAM.MSG.DELETE.gridpool-data", piece);
            }
        }
        pool.go_on("cpu0");
        assert_eq!(answer(first).verdict(), Verdict::Ok);
        is_right(&answer(waits), PROGRAM, grids);
        let missed = pool.log().matches("a batch is looked for again").count();
        assert!(missed >= round, "{missed} in round {round}");
    }
    counts(&pool, "published", |jobs| jobs == 6);
}

#[test]
fn jobs_that_the_only_server_loses_with_its_disk_are_sent_again_unless_they_may_run_only_once() {
    if !are_there() {
        return;
    }
    let mut servers = Servers::start(1);
    drop(serving(&servers, "first", "").killed());
    let client = client(&servers);
    let (small, large) = (random_grids(1, 3), random_grids(2, 4_000));
    let sent = [&small, &large]
        .map(|grids| (grids, submit(&client, job(PROGRAM, grids).with_deadline(DEADLINE))));
    let once = submit(&client, small_job(4).with_deadline(DEADLINE).at_most_once());
    until(&servers, "three jobs", |status| status.jobs == 3);
    servers.lose(0);
    let _second = serving(&servers, "second", "");
    for (grids, handle) in sent {
        let answer = answer(handle);
        is_right(&answer, PROGRAM, grids);
        assert_eq!(answer.receipt.host, "second");
    }
    let once = answer(once);
    assert_eq!(once.verdict(), Verdict::Failed);
    assert!(once.receipt.reason.contains("the servers have lost it"), "{:?}", once.receipt);
}

#[test]
fn a_result_that_nobody_reads_expires_and_its_job_runs_anew_for_who_asks_then() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let options = servers.options();
    // As a pool makes them, but for an age that no file may set.
    let runtime = Runtime::new().expect("a runtime");
    let made = runtime.block_on(async {
        let connection = connect(&options, "test").await.expect("a server");
        let bytes = 1 << 24;
        let limits = StreamLimits {
            jobs_bytes_max: bytes,
            data_bytes_max: bytes,
            results_bytes_max: bytes,
            results_age: Duration::from_secs(1),
            ..StreamLimits::new(1)
        };
        Streams::open(&connection, &options.prefix, Some(&limits)).await.expect("streams")
    });
    let pool = serving(&servers, "one", "");
    let (grids, key) = (random_grids(1, 5), JobKey(77));
    of_a_client_that_vanishes(&servers, key, &grids);
    counts(&pool, "published", |jobs| jobs == 1);
    eventually("the result to expire", || match runtime.block_on(made.results.find_surely(key)) {
        Ok(None) => Ok(()),
        there => Err(format!("{there:?}")),
    });
    let again = job(PROGRAM, &grids).with_key(key).with_deadline(DEADLINE);
    is_right(&answer(submit(&client(&servers), again)), PROGRAM, &grids);
    assert_eq!(pool.status().counters.accepted, 2);
}
