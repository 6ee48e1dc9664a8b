//! Jobs whose hosts vanish, jobs that hosts give back, and keys that are used twice.

use std::time::Duration;

use gridpool_client::{ClientError, Handle, JobKey, Refusal, Verdict};
use gridpool_ipc::clock;
use gridpool_nats::Left;
use gridpool_protocol::chaos::{Chaos, ChaosFault, HostFault};
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;

use super::pieces::streams;
use super::servers::{Servers, are_there};
use super::{client, counts, host, serving, until};
use crate::jobs::{PROGRAM, answer, is_right, job, submit};
use crate::processes::signal;
use crate::wait::{eventually, eventually_so};

/// Long enough that no test waits for it.
const DEADLINE: Duration = Duration::from_secs(600);

#[test]
fn a_job_whose_host_vanished_runs_alone_and_one_that_was_only_watched_is_no_suspect() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let first = serving(&servers, "first", "deliveries_max = 1");
    let client = client(&servers);
    let batches: Vec<_> = (0..8).map(|seed| random_grids(seed, 3)).collect();
    for grids in &batches[..2] {
        is_right(&answer(submit(&client, job(PROGRAM, grids))), PROGRAM, grids);
    }
    first.stop("cpu0");
    let handles: Vec<_> =
        batches.iter().map(|grids| submit(&client, job(PROGRAM, grids))).collect();
    until(&servers, "jobs that run", |status| status.lanes.iter().any(|lane| lane.running == 8));
    drop(first.killed());
    let _second = serving(&servers, "second", "deliveries_max = 1");
    for (handle, grids) in handles.into_iter().zip(&batches) {
        let answer = answer(handle);
        is_right(&answer, PROGRAM, grids);
        assert_eq!(answer.receipt.host, "second");
    }
    let status = until(&servers, "an empty stream", |status| status.jobs == 0);
    assert_eq!(status.convicted, []);
}

#[test]
fn a_job_that_was_alone_on_two_hosts_that_vanished_is_poison_and_others_come_through() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let watched = "deliveries_max = 1";
    let first = serving(&servers, "first", watched);
    let client = client(&servers);
    // Where it runs, nothing else of that worker ends any more.
    let stops = Chaos { fault: ChaosFault::Host(HostFault::Stop), attempts: 9 };
    let (key, grids) = (JobKey(77), random_grids(77, 3));
    let suspect = || job(PROGRAM, &grids).with_chaos(stops).with_deadline(DEADLINE);
    let handle = submit(&client, suspect().with_key(key));
    let (runtime, streams) = streams(&servers);
    let left = |what: &str, is_so: &dyn Fn(&Left) -> bool| {
        eventually(what, || match runtime.block_on(streams.runs.left(key)) {
            Ok(left) if is_so(&left) => Ok(()),
            left => Err(format!("{left:?}")),
        });
    };
    let batches: Vec<_> = (0..6).map(|seed| random_grids(seed, 3)).collect();
    let mut sent = Vec::new();
    let mut send = |at: usize| {
        for grids in &batches[2 * at..2 * at + 2] {
            let job = job(PROGRAM, grids).with_deadline(DEADLINE);
            sent.push((grids, submit(&client, job)));
        }
    };
    left("a run beside others", &|left| left.vanished == 1 && left.alone.is_empty());
    send(0);
    drop(first.killed());
    for (at, name) in ["second", "third"].into_iter().enumerate() {
        let host = serving(&servers, name, watched);
        left("a run alone", &|left| left.alone.contains(name));
        send(1 + at);
        drop(host.killed());
    }
    let _last = serving(&servers, "last", watched);
    let convicted = answer(handle);
    let said = &convicted.receipt.reason;
    assert_eq!(convicted.verdict(), Verdict::Poison, "{:?}", convicted.receipt);
    assert!(said.starts_with("the hosts second and third vanished while it ran there"), "{said}");
    for (grids, handle) in sent {
        is_right(&answer(handle), PROGRAM, grids);
    }
    let status = until(&servers, "an empty stream", |status| status.jobs == 0);
    let [(content, why)] = &status.convicted[..] else { panic!("{status:?}") };
    assert_eq!((&why.host[..], &why.job[..]), ("last", &key.to_string()[..]));
    assert!(said.contains(content), "{said}");
    // Under another key, too.
    eventually("a refusal", || match client.submit(suspect()) {
        Err(ClientError::Refused(Refusal::Invalid(why))) if why.contains("on last: the hosts") => {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    });
    left("no note to stay", &|left| *left == Left::default());
}

#[test]
fn a_host_that_gives_jobs_back_is_no_evidence_against_them() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let grids = random_grids(1, 3);
    let first = serving(&servers, "one", "deliveries_max = 1");
    first.stop("cpu0");
    let client = client(&servers);
    let handle = submit(&client, job(PROGRAM, &grids).with_deadline(Duration::from_secs(120)));
    // Each has it, and gives it back as it ends.
    let mut pool = first;
    for name in ["two", "three", "four"] {
        counts(&pool, "running", |jobs| jobs >= 1);
        pool.signal_twice();
        pool.ended();
        pool = host(&servers, name, "deliveries_max = 1").start();
        pool.stop("cpu0");
    }
    drop(pool.killed());
    let _last = serving(&servers, "last", "deliveries_max = 1");
    is_right(&answer(handle), PROGRAM, &grids);
}

#[test]
fn a_key_that_was_used_for_another_job_is_refused() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let _pool = serving(&servers, "one", "");
    let (client, key) = (client(&servers), JobKey(0x77 << 64 | 1));
    let named = |seed| job(PROGRAM, &random_grids(seed, 3)).with_key(key);
    assert_eq!(answer(submit(&client, named(1))).verdict(), Verdict::Ok);
    match client.submit(named(2)).and_then(Handle::wait) {
        Err(ClientError::Refused(Refusal::Invalid(why))) => {
            assert!(why.contains("was used for another job"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_that_is_delivered_again_to_the_host_that_runs_it_runs_once() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 4");
    let client = client(&servers);
    pool.stop("cpu0");
    let grids = random_grids(1, 3);
    let handle = submit(&client, job(PROGRAM, &grids).with_deadline(Duration::from_secs(120)));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    // The stream hears nothing of it for longer than `ack_wait_s`.
    let bridge = pool.status().nats.expect("a bridge").pid;
    signal(bridge, Signal::SIGSTOP);
    let later = clock::now() + Duration::from_secs(3);
    eventually_so("longer than the stream waits", || clock::now() >= later);
    signal(bridge, Signal::SIGCONT);
    counts(&pool, "redelivered", |jobs| jobs >= 1);
    pool.go_on("cpu0");
    is_right(&answer(handle), PROGRAM, &grids);
    until(&servers, "an empty stream", |status| status.jobs == 0);
    assert_eq!(pool.status().counters.accepted, 1, "it ran once");
    counts(&pool, "duplicates", |jobs| jobs == 0);
}
