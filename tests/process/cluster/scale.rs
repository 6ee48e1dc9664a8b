//! How jobs spread over many hosts, what more hosts give, and what they would give where each has its own processors:
//! the last by a simulation on costs that the same run has measured.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use gridpool_client::{Client, Verdict};
use gridpool_ipc::clock;
use gridpool_tests::oracle::samples::random_grids;

use super::servers::{Servers, are_there};
use super::{client, serving};
use crate::jobs::{PROGRAM, heavy_work, is_right, job};

/// Pools on this machine at a time.
const POOLS: usize = 24;

/// Runs jobs, checks them, and gives the jobs in a second and how many each host ran.
fn run(client: &Client, jobs: u64, grids: usize) -> (f64, BTreeMap<String, u64>) {
    let batches: Vec<_> = (0..jobs).map(|seed| random_grids(seed, grids)).collect();
    let started = clock::now();
    let send = |grids: &Vec<_>| {
        let job = job(PROGRAM, grids).with_deadline(Duration::from_secs(600));
        client.send(job).expect("it is sent")
    };
    let handles: Vec<_> = batches.iter().map(send).collect();
    let answers: Vec<_> =
        handles.into_iter().map(|handle| handle.wait().expect("it ends")).collect();
    let rate = per_second(jobs, started.elapsed());
    let mut by_host = BTreeMap::new();
    for (answer, grids) in answers.into_iter().zip(&batches) {
        is_right(&answer, PROGRAM, grids);
        *by_host.entry(answer.receipt.host).or_insert(0) += 1;
    }
    (rate, by_host)
}

/// Jobs that keep a worker busy for a second or so; gives the jobs in a second.
fn run_heavy(client: &Client, jobs: usize) -> f64 {
    let (text, grids) = heavy_work();
    let started = clock::now();
    let handles: Vec<_> = (0..jobs)
        .map(|at| {
            let job = job(&text, &grids[at..]).with_deadline(Duration::from_secs(600));
            client.send(job).expect("it is sent")
        })
        .collect();
    for handle in handles {
        assert_eq!(handle.wait().expect("it ends").verdict(), Verdict::Ok);
    }
    per_second(jobs as u64, started.elapsed())
}

fn per_second(jobs: u64, took: Duration) -> f64 {
    Duration::from_secs(jobs).as_secs_f64() / took.as_secs_f64()
}

/// `cargo test -p gridpool-tests --test process pools_share -- --ignored --nocapture`
#[test]
#[ignore = "it starts 24 pools"]
#[expect(clippy::print_stdout, reason = "what was measured")]
fn twenty_four_pools_share_the_jobs_and_lose_none() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let names: Vec<_> = (0..POOLS).map(|at| format!("host{at:02}")).collect();
    let _pools: Vec<_> = names.iter().map(|name| serving(&servers, name, "")).collect();
    let (rate, by_host) = run(&client(&servers), 4_800, 3);
    println!("24 pools: {rate:.0} jobs/s; {by_host:?}");
    assert_eq!(by_host.len(), POOLS, "every host took a part: {by_host:?}");
    // A fair share is 200.
    assert!(by_host.values().all(|&jobs| (20..=1_000).contains(&jobs)), "{by_host:?}");
}

/// `cargo test -p gridpool-tests --test process more_hosts -- --ignored --nocapture`
#[test]
#[ignore = "it measures for minutes"]
#[expect(clippy::print_stdout, reason = "what was measured")]
fn more_hosts_measured_and_simulated() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let mut pools = Vec::new();
    let mut cost = f64::INFINITY;
    for hosts in 1..=3 {
        pools.push(serving(&servers, &format!("host{hosts}"), ""));
        let client = client(&servers);
        for _ in 0..3 {
            let small = run(&client, 2_000, 3).0;
            println!(
                "{hosts} hosts: {small:.0} small jobs/s, {:.2} heavy jobs/s",
                run_heavy(&client, 12)
            );
            // All of client, server and hosts on these processors: an upper bound of what a job costs the server.
            cost = cost.min(1.0 / small);
        }
    }
    println!("a job through the stream costs at most {:.2} ms", cost * 1_000.0);
    for work_ms in [10.0, 100.0, 1_000.0] {
        for hosts in [1, 3, 10, 30, 100] {
            let rate = simulated(hosts, work_ms / 1_000.0, cost);
            println!("jobs of {work_ms} ms, {hosts} hosts of one device: {rate:.0} jobs/s");
        }
    }
}

/// Jobs in a second of so many hosts of one device and 8 places, whose jobs take `work` seconds, with servers that need
/// `cost` seconds for each job: half to hand it out, half to take its result. There are always jobs. Times are in
/// nanoseconds.
fn simulated(hosts: usize, work: f64, cost: f64) -> f64 {
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Event {
        /// The server has handed a job out.
        Taken(usize),
        /// A device has run one.
        Ran(usize),
        /// The server has a result.
        Stored(usize),
    }
    const PLACES: usize = 8;
    const JOBS: u64 = 20_000;
    let ns = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos();
    let (work, half) = (ns(work), ns(cost / 2.0));
    let mut events = BinaryHeap::new();
    let mut asks: VecDeque<Event> = VecDeque::new();
    let (mut free_at, mut now, mut done) = (0, 0, 0);
    let mut waiting = vec![0_u64; hosts];
    let mut busy = vec![false; hosts];
    for _ in 0..PLACES {
        asks.extend((0..hosts).map(Event::Taken));
    }
    while done < JOBS {
        // The server does one thing after the other.
        while let Some(next) = asks.pop_front() {
            free_at = now.max(free_at) + half;
            events.push(Reverse((free_at, next)));
        }
        let Some(Reverse((at, event))) = events.pop() else { break };
        now = at;
        match event {
            Event::Taken(host) => waiting[host] += 1,
            Event::Ran(host) => {
                busy[host] = false;
                asks.push_back(Event::Stored(host));
            }
            Event::Stored(host) => {
                done += 1;
                asks.push_back(Event::Taken(host));
            }
        }
        let (Event::Taken(host) | Event::Ran(host) | Event::Stored(host)) = event;
        if !busy[host] && waiting[host] > 0 {
            (busy[host], waiting[host]) = (true, waiting[host] - 1);
            events.push(Reverse((now + work, Event::Ran(host))));
        }
    }
    let took = Duration::from_nanos(u64::try_from(now).unwrap_or(u64::MAX));
    per_second(done, took)
}

#[test]
fn simulated_hosts_work_side_by_side_until_the_servers_are_busy() {
    let is_near = |hosts, work, cost, want: f64| {
        let rate = simulated(hosts, work, cost);
        assert!((rate / want - 1.0).abs() < 0.05, "{hosts} hosts: {rate}, not {want}");
    };
    is_near(1, 0.1, 0.000_5, 10.0);
    is_near(100, 0.1, 0.000_5, 1_000.0);
    // The servers take 2,000 in a second.
    is_near(100, 0.01, 0.000_5, 2_000.0);
}
