//! Streams that are full, by each of their limits: clients hear BUSY, hosts wait with results, and nothing is lost. And
//! results that nobody reads, which make room in the end.

use std::time::Duration;

use gridpool_client::{Client, ClientError, Handle, JobKey, Limit, Outputs, Refusal, Verdict};
use gridpool_ipc::clock;
use gridpool_nats::{Carried, Outcome, Published, Store, StreamLimits};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::message::{Inline, Input};
use gridpool_protocol::receipt::Receipt;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::pieces::{api, api_with, opened, pass_over, pieces_of, streams};
use super::servers::{STORE_BYTES_MAX, Servers, are_there};
use super::{
    client, counts, host, of_a_client_that_vanishes, of_a_client_that_vanishes_within, serving,
    until,
};
use crate::command::gridpool;
use crate::jobs::{PROGRAM, answer, as_json, is_right, job, small_job, submit};
use crate::pool::Pool;
use crate::raw::inline;
use crate::wait::{TIMEOUT, eventually, eventually_so};

/// Long enough that no test waits for it.
const DEADLINE: Duration = Duration::from_secs(600);
/// The least that each limit of bytes may be.
const LEAST: usize = 1 << 20;
/// Results that a host keeps while the streams have no room for them.
const KEPT: u64 = 256;

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

/// Fills the stream of results, to the last 100 bytes.
fn fill_results(servers: &Servers) {
    let (runtime, streams) = streams(servers);
    let mut stored = 0;
    for bytes in [60_000, 1_000, 100] {
        let output = Some(Carried::Inline(Inline(vec![7; bytes])));
        loop {
            let key = JobKey(1_000 + stored);
            let outcome = Outcome::done(None, Receipt::default(), output.clone());
            let until = clock::now() + TIMEOUT;
            let publish = streams.results.publish(key, None, &outcome, until);
            match runtime.block_on(publish) {
                Ok(Published::Stored(_)) => stored += 1,
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert!(error.to_string().contains("results_bytes_max"), "{error}");
                    break;
                }
            }
        }
    }
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
fn a_full_stream_is_busy_and_names_its_limit() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "jobs_max = 3\nunder_way_max = 1");
    pool.stop("cpu0");
    let client = client(&servers);
    let held: Vec<_> = (0..3).map(|seed| submit(&client, small_job(seed))).collect();
    match client.submit(small_job(3).refuse_if_busy()) {
        Err(ClientError::Refused(Refusal::Busy(Limit::StreamJobs))) => {}
        other => panic!("{other:?}"),
    }
    // One that waits is accepted when there is room.
    let waits = client.send(small_job(4)).unwrap();
    pool.go_on("cpu0");
    for handle in held.into_iter().chain([waits]) {
        assert_eq!(answer(handle).verdict(), Verdict::Ok);
    }
    until(&servers, "an empty stream", |status| status.jobs == 0);
    // Without a host nobody takes jobs that are late. They make room, and no other does.
    drop(pool.killed());
    let run = ["submit", "rot90", "-", "--batch", "1", "--deadline", "1", "--json", "--nats"];
    let run = gridpool(run).arg(servers.url()).stdin(as_json(&random_grids(1, 5))).run();
    assert_eq!(run.code, Some(1), "{run:?}");
    let document: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let verdicts = document["receipts"].as_array().expect("receipts").iter();
    let verdicts: Vec<_> = verdicts.map(|receipt| &receipt["verdict"]).collect();
    // The others find it full for all of that deadline, and get no second one; on a busy machine late ones make room.
    assert!((3..=5).contains(&verdicts.len()), "{run:?}");
    assert!(verdicts.iter().all(|&verdict| verdict == "DEADLINE"), "{run:?}");
    assert!(verdicts.len() == 5 || run.stderr.contains("(jobs_max); "), "{run:?}");
    let late = |seed| submit(&client, small_job(seed).with_deadline(Duration::from_millis(100)));
    let there = streams(&servers);
    api(&there, "STREAM.PURGE.gridpool-jobs");
    let lives = submit(&client, small_job(7).with_deadline(DEADLINE));
    // Behind it, more numbers without jobs than a look takes in jobs.
    pass_over(&there, 100);
    let [first, second] = [5, 6].map(late);
    for handle in [first, second] {
        assert_eq!(answer(handle).verdict(), Verdict::Deadline);
    }
    let patient = |seed| submit(&client, small_job(seed).with_deadline(DEADLINE));
    let new = patient(8);
    // One of a client that is gone has no verdict yet.
    let key = JobKey(77);
    of_a_client_that_vanishes_within(&servers, key, &random_grids(1, 5), 1_000);
    let last = patient(9);
    let (runtime, streams) = &there;
    let verdict = runtime.block_on(streams.results.find_surely(key)).expect("it is looked up");
    let Some(Outcome::Done { receipt, .. }) = verdict.map(|found| found.outcome) else {
        panic!("it has a verdict")
    };
    assert_eq!((receipt.verdict, receipt.items), (Verdict::Deadline, 5));
    assert!(matches!(
        client.submit(small_job(10).refuse_if_busy()),
        Err(ClientError::Refused(Refusal::Busy(Limit::StreamJobs)))
    ));
    let _host = serving(&servers, "two", "");
    for handle in [lives, new, last] {
        assert_eq!(answer(handle).verdict(), Verdict::Ok);
    }
}

#[test]
fn what_three_servers_have_refused_is_stored_once_there_is_room() {
    if !are_there() {
        return;
    }
    // Servers 2.10 with copies keep the identity of what they refuse.
    let servers = Servers::start(3);
    let lines = format!("jobs_max = 2\nresults_bytes_max = {LEAST}");
    let pool = serving(&servers, "one", &lines);
    fill_results(&servers);
    let client = client(&servers);
    let patient = |seed| small_job(seed).with_deadline(DEADLINE);
    let held = [0, 1].map(|seed| submit(&client, patient(seed)));
    waits(&pool, "results_bytes_max");
    let refused = patient(2).with_key(JobKey(2));
    for _ in 0..2 {
        match client.submit(refused.clone().refuse_if_busy()) {
            Err(ClientError::Refused(Refusal::Busy(Limit::StreamJobs))) => {}
            other => panic!("{other:?}"),
        }
    }
    let refused = client.send(refused).expect("it is sent");
    api(&streams(&servers), "STREAM.PURGE.gridpool-results");
    for handle in held.into_iter().chain([refused]) {
        assert_eq!(answer(handle).verdict(), Verdict::Ok);
    }
}

#[test]
fn a_command_with_jobs_in_a_full_stream_finds_the_room_that_others_leave() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    drop(serving(&servers, "one", "jobs_max = 3").killed());
    let there = streams(&servers);
    // Without a host, none of them gets a result.
    let key = JobKey(77);
    of_a_client_that_vanishes(&servers, key, &random_grids(1, 5));
    let run = "submit rot90 - --batch 1 --deadline 600 --priority high --nats".split(' ');
    let run = gridpool(run).arg(servers.url()).stdin(as_json(&random_grids(1, 3))).start();
    // Its third has found no room: it has looked for jobs that have ended, and asked the servers for their time.
    let data = || api(&there, "STREAM.INFO.gridpool-data")["state"]["last_seq"].as_u64();
    eventually_so("a look through the full stream", || data().is_some_and(|last| last > 0));
    assert!(there.0.block_on(there.1.remove_job(1)).expect("it is removed"), "it was the first");
    until(&servers, "the third job", |status| {
        status.lanes.iter().any(|lane| lane.name == "grid-high" && lane.waiting == 3)
    });
    let _host = serving(&servers, "two", "");
    let said = run.finish();
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn a_host_that_takes_no_jobs_removes_those_that_are_late() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "");
    pool.stop("cpu0");
    let client = client(&servers);
    let runs = submit(&client, small_job(1).with_deadline(DEADLINE));
    // Until then it is the bridge's, which gives it back to the cluster when the pool drains.
    pool.until_busy("cpu0");
    pool.signal(Signal::SIGTERM);
    until(&servers, "a host that drains", |status| status.hosts.iter().any(|host| host.draining));
    // Behind the one that runs. Nobody waits for its verdict, and no client finds the stream full.
    let key = JobKey(77);
    of_a_client_that_vanishes_within(&servers, key, &random_grids(1, 5), 1_000);
    until(&servers, "the late one to be removed", |status| status.jobs == 1);
    let (runtime, streams) = streams(&servers);
    let verdict = runtime.block_on(streams.results.find_surely(key)).expect("it is looked up");
    let Some(Outcome::Done { receipt, .. }) = verdict.map(|found| found.outcome) else {
        panic!("it has a verdict")
    };
    assert_eq!(receipt.verdict, Verdict::Deadline);
    pool.go_on("cpu0");
    assert_eq!(answer(runs).verdict(), Verdict::Ok);
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
    pool.stop("cpu0");
    let client = client(&servers);
    let taken = fill(&client, 4_000, (Limit::StreamDataBytes, "data_bytes_max"));
    // What was refused takes no room.
    let streams = streams(&servers);
    let batch = |grids: &[Grid]| {
        let Input::Inline(batch) = inline(1, grids).payload.input else { panic!("it is inline") };
        batch.0
    };
    let batches: Vec<_> = taken.iter().map(|(grids, _)| batch(grids)).collect();
    let pieces: usize = batches.iter().map(|batch| pieces_of(batch)).sum();
    let there = || api(&streams, "STREAM.INFO.gridpool-data")["state"]["messages"].as_u64();
    // A host that looks for late jobs puts a message there, and removes it.
    let only_these = || eventually_so("these pieces alone", || there() == Some(pieces as u64));
    only_these();
    // Nor does what many jobs have, all of which are refused.
    let large = random_grids(99, 12_000);
    let jobs = [(); 4].map(|()| job(PROGRAM, &large).with_deadline(DEADLINE).refuse_if_busy());
    for refused in client.send_many(jobs).unwrap() {
        assert!(matches!(
            refused.wait(),
            Err(ClientError::Refused(Refusal::Busy(Limit::StreamDataBytes)))
        ));
    }
    only_these();
    // What could never fit is refused at once, and says so.
    let huge = job(PROGRAM, &random_grids(98, 40_000)).with_deadline(DEADLINE);
    match client.submit(huge) {
        Err(ClientError::Refused(Refusal::Invalid(why))) if why.contains("data_bytes_max") => {}
        other => panic!("{other:?}"),
    }
    let bytes: usize = batches.iter().map(Vec::len).sum();
    counts(&pool, "fetched_bytes", |fetched| fetched == bytes as u64);
    pool.go_on("cpu0");
    waits(&pool, "data_bytes_max");
    // Their batches make room for their results.
    for batch in &batches {
        let (runtime, streams) = &streams;
        let removed = streams.data.remove(Store::digest(batch), batch.len() as u64);
        runtime.block_on(removed).expect("they are removed");
    }
    for (grids, handle) in taken {
        is_right(&answer(handle), PROGRAM, &grids);
    }
}

#[test]
fn a_host_keeps_so_many_results_that_find_no_room_and_takes_no_more_jobs() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let lines = format!("under_way_max = 4\nresults_bytes_max = {LEAST}");
    let pool = serving(&servers, "one", &lines);
    let streams = streams(&servers);
    fill_results(&servers);
    let sender = client(&servers);
    let jobs = (0..KEPT + 10).map(|seed| small_job(seed).with_deadline(DEADLINE));
    let handles = sender.send_many(jobs).expect("they are sent");
    waits(&pool, "results_bytes_max");
    let accepted = |pool: &Pool, count: u64| {
        eventually("its jobs", || match pool.status().counters.accepted {
            accepted if accepted >= count => Ok(()),
            accepted => Err(format!("{accepted} of {count}")),
        });
    };
    // It keeps the places of four more. The others are left to another host.
    accepted(&pool, KEPT + 4);
    let other = serving(&servers, "two", "");
    accepted(&other, 6);
    assert_eq!(pool.status().counters.accepted, KEPT + 4);
    api(&streams, "STREAM.PURGE.gridpool-results");
    for handle in handles {
        assert_eq!(answer(handle).verdict(), Verdict::Ok);
    }
}

#[test]
fn a_result_that_nobody_reads_expires_and_its_job_runs_anew_for_who_asks_then() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let bytes = 1 << 24;
    let limits = StreamLimits {
        jobs_bytes_max: bytes,
        data_bytes_max: bytes,
        results_bytes_max: bytes,
        // A file may set an hour at least.
        results_age: Duration::from_secs(1),
        ..StreamLimits::new(1)
    };
    let made = opened(&servers, Some(&limits));
    // In the hour of a real one, the stream of jobs forgets the keys that it has had.
    let mut config = api(&made, "STREAM.INFO.gridpool-jobs")["config"].take();
    config["duplicate_window"] = json!(1_000_000_000);
    api_with(&made, "STREAM.UPDATE.gridpool-jobs", &config);
    let pool = serving(&servers, "one", "");
    let (grids, key) = (random_grids(1, 5), JobKey(77));
    of_a_client_that_vanishes(&servers, key, &grids);
    counts(&pool, "published", |jobs| jobs == 1);
    eventually("the result to expire", || match made.0.block_on(made.1.results.find_surely(key)) {
        Ok(None) => Ok(()),
        there => Err(format!("{there:?}")),
    });
    let client = client(&servers);
    let again = eventually("the key to be free", || {
        let again = job(PROGRAM, &grids).with_key(key).with_deadline(Duration::from_secs(5));
        let again = answer(submit(&client, again));
        if again.verdict() == Verdict::Ok { Ok(again) } else { Err(format!("{again:?}")) }
    });
    is_right(&again, PROGRAM, &grids);
    assert!(pool.status().counters.accepted >= 2, "it has run anew");
}

/// Servers keep room for all that a stream may have. The pool says which setting asks for too much.
#[test]
fn servers_with_too_little_storage_are_told_with_the_setting_that_asks_for_less() {
    if !are_there() {
        return;
    }
    for count in [1, 3] {
        let servers = Servers::start(count);
        let bytes = STORE_BYTES_MAX + 1;
        let pool = host(&servers, "one", &format!("data_bytes_max = {bytes}")).start();
        let said = |line: &str| {
            line.contains(&format!("which may have {bytes} bytes: free some disk"))
                && line.contains("set a smaller `data_bytes_max` under [nats]")
        };
        eventually_so("its log", || pool.log().lines().any(said));
    }
}
