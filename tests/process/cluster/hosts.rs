//! Which pools are hosts of a cluster, and what is said of them: names, lost servers, drains.

use std::time::Duration;

use gridpool_client::{Handle, Outputs, Verdict};
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;
use serde_json::json;

use super::pieces::{api, api_with, streams};
use super::servers::{Servers, are_there};
use super::{client, host, serving, until};
use crate::http::metrics_of;
use crate::jobs::{PROGRAM, answer, is_right, job, small_job, submit};
use crate::pool::Pool;
use crate::processes::{go_on, signal, stop};
use crate::wait::{eventually, eventually_so};

/// Waits until a pool has accepted a job of the cluster: if it drains before, the job is given back. The gateway has a
/// job of its own.
fn runs(pool: &Pool) {
    eventually_so("the pool to accept it", || {
        let status = pool.status();
        let own = status.principals.iter().filter(|row| row.principal.starts_with("uid "));
        own.map(|row| row.queued + row.running).sum::<u64>() == 1
    });
}

#[test]
fn a_lost_server_is_a_warning_and_seen_at_once_and_a_drained_host_is_off_the_list() {
    if !are_there() {
        return;
    }
    let mut servers = Servers::start(1);
    let pool = host(&servers, "one", "").env("GRIDPOOL_HTTP", "127.0.0.1:0").start();
    until(&servers, "the host", |status| status.hosts.iter().any(|host| host.pool));
    let connected = |is: u8| {
        let sample = format!(r#"gridpool_cluster_connected{{host="one"}} {is}"#);
        eventually_so("the metric", || metrics_of(&pool).lines().any(|line| line == sample));
    };
    connected(1);
    servers.kill(0);
    let lost = eventually("the loss", || {
        let nats = pool.status().nats.expect("a bridge");
        if nats.server.is_empty() { Ok(nats) } else { Err(format!("{nats:?}")) }
    });
    assert!(!lost.why_not.is_empty(), "{lost:?}");
    connected(0);
    servers.restart(0);
    connected(1);
    // Questions that get no answer say so later, and otherwise.
    let lost = "the connection to the NATS server n0";
    for (level, words) in [("WARN", lost), ("INFO", "this host reaches the cluster again")] {
        let says = |line: &str| line.contains(level) && line.contains(words);
        eventually_so(words, || pool.log().lines().any(says));
    }
    // It waits for a job that does not end, and says that it drains.
    pool.stop("cpu0");
    let patient = small_job(1).with_deadline(Duration::from_secs(600));
    let job = submit(&client(&servers), patient);
    runs(&pool);
    pool.signal(Signal::SIGTERM);
    until(&servers, "a host that drains", |status| status.hosts.iter().any(|host| host.draining));
    pool.go_on("cpu0");
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    pool.ended();
    until(&servers, "no host", |status| status.hosts.is_empty());
}

#[test]
fn a_drained_host_has_published_the_results_of_all_jobs_that_its_pool_has_run() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = host(&servers, "one", "").env("GRIDPOOL_LOG", "debug").start();
    until(&servers, "the host", |status| status.hosts.iter().any(|host| host.pool));
    pool.stop("cpu0");
    let grids = random_grids(1, 12_000);
    let patient = job(PROGRAM, &grids).with_deadline(Duration::from_secs(600));
    let job: Handle<Outputs> = submit(&client(&servers), patient);
    runs(&pool);
    // It learns in one moment that the job is done, and that it is to end.
    let bridge = pool.status().nats.expect("a bridge").pid;
    stop(bridge);
    pool.signal(Signal::SIGTERM);
    pool.go_on("cpu0");
    eventually_so("the end", || pool.log().contains("the bridge is told to end"));
    go_on(bridge);
    is_right(&answer(job), PROGRAM, &grids);
    pool.ended();
    until(&servers, "an empty stream", |status| status.jobs == 0);
}

#[test]
fn a_bridge_that_dies_is_started_again_and_its_jobs_are_run() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "");
    let client = client(&servers);
    pool.stop("cpu0");
    let grids = random_grids(1, 3);
    let handle: Handle<Outputs> = submit(&client, job(PROGRAM, &grids));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    let pid = pool.status().nats.expect("a bridge").pid;
    signal(pid, Signal::SIGKILL);
    pool.go_on("cpu0");
    is_right(&answer(handle), PROGRAM, &grids);
    let nats = pool.status().nats.expect("a bridge");
    assert!(nats.up && nats.restarts == 1 && nats.pid != pid, "{nats:?}");
    // Another pool of its name is told, and takes no job.
    let twin = host(&servers, "one", "").start();
    let process = format!("process {} of the machine `", pool.status().supervisor.pid);
    eventually("the twin to be told", || {
        let nats = twin.status().nats.expect("a bridge");
        let is_told = nats.why_not.contains(&process) && nats.why_not.contains("--nats-host");
        if is_told && !nats.server.is_empty() { Ok(()) } else { Err(format!("{nats:?}")) }
    });
    assert!(twin.log().contains("another pool is the host `one`"), "{}", twin.log());
    for seed in 0..20 {
        assert_eq!(answer(submit(&client, small_job(seed))).verdict(), Verdict::Ok);
    }
    assert_eq!(twin.status().counters.accepted, 0);
    // Once the first has ended, and what it said is too old, the name is the other's. It gets old sooner here.
    drop(pool.killed());
    let there = streams(&servers);
    let mut config = api(&there, "STREAM.INFO.KV_gridpool-hosts")["config"].take();
    for age in ["max_age", "duplicate_window"] {
        config[age] = json!(1_000_000_000);
    }
    api_with(&there, "STREAM.UPDATE.KV_gridpool-hosts", &config);
    assert_eq!(answer(submit(&client, small_job(21))).verdict(), Verdict::Ok);
    assert_eq!(twin.status().counters.accepted, 1);
    assert!(twin.log().contains("the name is this pool's now"), "{}", twin.log());
}
