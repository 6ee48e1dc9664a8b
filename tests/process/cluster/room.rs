//! Streams that are full, by each of their limits: clients hear BUSY, hosts wait with results, and nothing is lost.

use std::time::Duration;

use gridpool_client::{Client, ClientError, Handle, JobKey, Limit, Outputs, Refusal, Verdict};
use gridpool_ipc::clock;
use gridpool_nats::{Carried, Outcome, Published, Store};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::message::{Inline, Input};
use gridpool_protocol::receipt::Receipt;
use gridpool_tests::oracle::samples::random_grids;

use super::pieces::streams;
use super::servers::{Servers, are_there};
use super::{client, counts, serving, until};
use crate::jobs::{PROGRAM, answer, is_right, job, small_job};
use crate::pool::Pool;
use crate::raw::inline;
use crate::wait::{TIMEOUT, eventually};

/// Long enough that no test waits for it.
const DEADLINE: Duration = Duration::from_secs(600);
/// The least that each limit of bytes may be.
const LEAST: usize = 1 << 20;

/// Submits jobs of so many grids until one is refused, which must be for this limit.
fn fill(
    client: &Client,
    grids: usize,
    (of, named): (Limit, &str),
) -> Vec<(Vec<Grid>, Handle<Outputs>)> {
    let mut taken = Vec::new();
    for seed in 0..64 {
        let grids = random_grids(seed, grids);
        let job = job(PROGRAM, &grids).with_deadline(DEADLINE).refuse_if_busy();
        match client.submit(job) {
            Ok(handle) => taken.push((grids, handle)),
            Err(ClientError::Refused(Refusal::Busy(limit))) => {
                assert_eq!(limit, of);
                let said = ClientError::Refused(Refusal::Busy(limit)).to_string();
                assert!(said.contains(named), "{said}");
                assert!(taken.len() > 1, "{taken:?}");
                return taken;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("64 jobs fill the stream");
}

/// Waits until a host says that a result waits, and for which limit.
fn waits(pool: &Pool, limit: &str) {
    eventually("the host to wait with a result", || {
        let log = pool.log();
        let says =
            |line: &str| line.contains("its result waits to be stored") && line.contains(limit);
        if log.lines().any(says) { Ok(()) } else { Err(log) }
    });
}

#[test]
fn jobs_that_fill_the_stream_with_bytes_are_busy_and_those_before_them_right() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", &format!("jobs_bytes_max = {LEAST}"));
    pool.stop("cpu0");
    let client = client(&servers);
    let taken = fill(&client, 400, (Limit::StreamJobBytes, "jobs_bytes_max"));
    // One that waits is accepted when there is room.
    let late = random_grids(98, 400);
    let waits = client.send(job(PROGRAM, &late).with_deadline(DEADLINE)).unwrap();
    pool.go_on("cpu0");
    for (grids, handle) in taken.into_iter().chain([(late, waits)]) {
        is_right(&answer(handle), PROGRAM, &grids);
    }
}

#[test]
fn batches_that_fill_their_stream_are_busy_and_hosts_wait_with_large_results() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", &format!("data_bytes_max = {LEAST}"));
    let client = client(&servers);
    let taken = fill(&client, 4_000, (Limit::StreamDataBytes, "data_bytes_max"));
    waits(&pool, "data_bytes_max");
    // Their batches make room for their results.
    let (runtime, streams) = streams(&servers);
    for (grids, _) in &taken {
        let Input::Inline(batch) = inline(1, grids).payload.input else { panic!("it is inline") };
        let removed = streams.data.remove(Store::digest(&batch.0), batch.0.len() as u64);
        runtime.block_on(removed).expect("they are removed");
    }
    for (grids, handle) in taken {
        is_right(&answer(handle), PROGRAM, &grids);
    }
}

#[test]
fn results_that_nobody_reads_let_hosts_wait_with_theirs() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", &format!("results_bytes_max = {LEAST}"));
    let (runtime, streams) = streams(&servers);
    let mut stored = 0;
    for bytes in [60_000, 1_000, 100] {
        let output = Some(Carried::Inline(Inline(vec![7; bytes])));
        loop {
            let key = JobKey(1_000 + stored);
            let outcome = Outcome::done(None, Receipt::default(), output.clone());
            let until = clock::now() + TIMEOUT;
            match runtime.block_on(streams.results.publish(key, "other.1", &outcome, until)) {
                Ok(Published::Stored(_)) => stored += 1,
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert!(error.to_string().contains("results_bytes_max"), "{error}");
                    break;
                }
            }
        }
    }
    let sender = client(&servers);
    let jobs = (0..300).map(|seed| small_job(seed).with_deadline(DEADLINE));
    let handles = sender.send_many(jobs).expect("they are sent");
    waits(&pool, "results_bytes_max");
    // It has 256 results, and as many jobs as it has places for. Others may have the rest.
    counts(&pool, "taken", |jobs| jobs == 264);
    let client = &streams.connection.client;
    let purged = client.request("$JS.API.STREAM.PURGE.gridpool-results", "".into());
    runtime.block_on(purged).expect("an answer");
    for handle in handles {
        assert_eq!(answer(handle).verdict(), Verdict::Ok);
    }
    until(&servers, "an empty stream", |status| status.jobs == 0);
}
