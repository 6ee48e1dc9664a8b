//! Large batches and results in the stream: what was read is removed, and what is missing is waited for.

use std::time::Duration;

use gridpool_nats::{Store, Streams, connect};
use gridpool_protocol::message::Input;
use gridpool_tests::oracle::samples::random_grids;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::servers::{Servers, are_there};
use super::{client, counts, serving, until};
use crate::jobs::{PROGRAM, answer, is_right, job, small_job, submit};
use crate::raw::inline;
use crate::wait::eventually;

/// The size of a piece.
const PIECE_BYTES: usize = 256 * 1_024;

fn streams(servers: &Servers) -> (Runtime, Streams) {
    let runtime = Runtime::new().expect("a runtime");
    let options = servers.options();
    let streams = runtime.block_on(async {
        let connection = connect(&options, "test").await.expect("a server");
        Streams::open(&connection, &options.prefix, None).await.expect("streams")
    });
    (runtime, streams)
}

#[test]
fn the_pieces_of_a_result_are_removed_once_it_was_read() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let _pool = serving(&servers, "one", "");
    let grids = random_grids(9, 4_000);
    let client = client(&servers);
    let handles = [1, 2].map(|_| submit(&client, job(PROGRAM, &grids)));
    for handle in handles {
        is_right(&answer(handle), PROGRAM, &grids);
    }
    let Input::Inline(batch) = inline(1, &grids).payload.input else { panic!("it is inline") };
    let of_batch = batch.0.len().div_ceil(PIECE_BYTES) + 1;
    let (runtime, streams) = streams(&servers);
    eventually("the results' pieces to be gone", || {
        let info = runtime.block_on(async {
            let client = &streams.connection.client;
            let info = client.request("$JS.API.STREAM.INFO.gridpool-data", "".into()).await;
            info.expect("an answer").payload
        });
        let info: Value = serde_json::from_slice(&info).expect("JSON");
        let messages = info["state"]["messages"].as_u64();
        if messages == Some(of_batch as u64) { Ok(()) } else { Err(format!("{messages:?} pieces")) }
    });
}

#[test]
fn a_batch_that_is_missing_is_waited_for_and_comes_with_the_next_job() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 1");
    let (client, grids) = (client(&servers), random_grids(9, 4_000));
    pool.stop("cpu0");
    let first = submit(&client, small_job(1));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    let deadline = Duration::from_secs(120);
    let waits = submit(&client, job(PROGRAM, &grids).with_deadline(deadline));
    // Its pieces vanish before a host has read them.
    let Input::Inline(batch) = inline(1, &grids).payload.input else { panic!("it is inline") };
    let (runtime, streams) = streams(&servers);
    let removed = runtime.block_on(streams.data.remove(Store::digest(&batch.0)));
    removed.expect("they are removed");
    pool.go_on("cpu0");
    eventually("the bridge to miss it", || {
        let log = pool.log();
        if log.contains("a batch is looked for again") { Ok(()) } else { Err(log) }
    });
    let again = submit(&client, job(PROGRAM, &grids).with_deadline(deadline));
    for handle in [waits, again] {
        is_right(&answer(handle), PROGRAM, &grids);
    }
    assert_eq!(answer(first).verdict(), gridpool_client::Verdict::Ok);
    counts(&pool, "published", |jobs| jobs == 3);
}
