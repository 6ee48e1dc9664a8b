//! Which job a host takes, and how many.

use gridpool_client::{Priority, Verdict};
use gridpool_tests::oracle::samples::random_grids;

use super::servers::{Servers, are_there};
use super::{client, host, serving, until};
use crate::http::metrics_of;
use crate::jobs::{PROGRAM, answer, is_right, job, small_job, submit};
use crate::wait::eventually_so;

#[test]
fn jobs_of_high_priority_are_taken_before_those_that_came_earlier() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 1");
    pool.stop("cpu0");
    let client = client(&servers);
    let first = submit(&client, small_job(0));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    let order = [Priority::Low, Priority::Normal, Priority::High];
    let sent = (1..).zip([order, order].concat());
    let sent: Vec<_> = sent
        .map(|(seed, priority)| {
            (priority, submit(&client, small_job(seed).with_priority(priority)))
        })
        .collect();
    pool.go_on("cpu0");
    assert_eq!(answer(first).verdict(), Verdict::Ok);
    // The pool numbers its jobs as they come.
    let number = |job: &str| job.trim_start_matches("job").parse::<u64>().expect("a number");
    let mut ran: Vec<_> = sent
        .into_iter()
        .map(|(priority, handle)| (number(&answer(handle).receipt.job), priority))
        .collect();
    ran.sort_by_key(|(number, _)| *number);
    let priorities: Vec<_> = ran.into_iter().map(|(_, priority)| priority).collect();
    let [low, normal, high] = order;
    assert_eq!(priorities, [high, high, normal, normal, low, low]);
}

#[test]
fn a_slow_host_takes_no_more_than_it_has_places_for() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let slow = serving(&servers, "slow", "");
    let _fast = serving(&servers, "fast", "");
    slow.stop("cpu0");
    let client = client(&servers);
    // A device has 8 places.
    let sent: Vec<_> = (0..60).map(|seed| submit(&client, small_job(seed))).collect();
    until(&servers, "the others to be done", |status| status.jobs <= 8);
    slow.go_on("cpu0");
    let hosts: Vec<_> = sent.into_iter().map(|handle| answer(handle).receipt.host).collect();
    let by_fast = hosts.iter().filter(|host| *host == "fast").count();
    assert!((52..=60).contains(&by_fast), "{by_fast} of 60");
}

#[test]
fn servers_that_take_only_small_messages_carry_large_batches_and_results() {
    if !are_there() {
        return;
    }
    let servers = Servers::with(1, "nats://", "max_payload: 32768");
    let _pool = serving(&servers, "one", "");
    let client = client(&servers);
    for grids in [random_grids(1, 3), random_grids(2, 60), random_grids(3, 4_000)] {
        is_right(&answer(submit(&client, job(PROGRAM, &grids))), PROGRAM, &grids);
    }
}

#[test]
fn metrics_tell_what_became_of_jobs_of_the_cluster() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = host(&servers, "one", "").env("GRIDPOOL_HTTP", "127.0.0.1:0").start();
    until(&servers, "the host", |status| status.hosts.iter().any(|host| host.pool));
    let client = client(&servers);
    for seed in 0..3 {
        assert_eq!(answer(submit(&client, small_job(seed))).verdict(), Verdict::Ok);
    }
    let sample = r#"gridpool_cluster_jobs_total{event="published"} 3"#;
    // The bridge says what it has counted once a second.
    eventually_so("the metric", || metrics_of(&pool).lines().any(|line| line.starts_with(sample)));
}
