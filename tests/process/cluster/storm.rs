//! Three servers, three hosts, and something killed or stopped all the time: no job is lost, none is wrong, and none
//! has two results.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gridpool_client::{Client, Verdict};
use gridpool_ipc::clock;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;

use super::servers::{Servers, are_there};
use super::{client, host, until};
use crate::jobs::{PROGRAM, is_right, job};
use crate::pool::Pool;
use crate::processes::signal;
use crate::wait::{SetAtEnd, pause};

/// Jobs of the short run.
const JOBS: usize = 400;
/// Faults that there are at least: each kind once.
const KILLS_MIN: u64 = 6;
/// The hosts.
const HOSTS: usize = 3;
/// Jobs under way at a time.
const WINDOW: usize = 64;
/// How long a stopped process is left so: longer than the time after which its jobs are others'.
const STOPPED_FOR: Duration = Duration::from_secs(4);

/// A storm that has passed.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub(super) jobs: usize,
    pub(super) kills: u64,
    duplicates: u64,
    redelivered: u64,
    pub(super) by_host: BTreeSet<String>,
}

impl Passed {
    /// Sends so many jobs, or more until it was struck often enough and every host took a part, and strikes meanwhile.
    /// `over` says that one of the two has ended.
    pub(super) fn of(
        client: &Client,
        jobs: usize,
        strikes: RangeInclusive<u64>,
        over: &AtomicBool,
        mut strike: impl FnMut(usize),
    ) -> Self {
        let struck = AtomicU64::new(0);
        let count = || struck.load(Ordering::Relaxed);
        let is_over = || over.load(Ordering::Relaxed);
        let (jobs, by_host) = thread::scope(|scope| {
            let _ends = SetAtEnd(over);
            let sender = scope.spawn(|| {
                let _ends = SetAtEnd(over);
                // Whoever was struck takes a part when it is back.
                send(client, jobs..=jobs * 20, |hosts| {
                    count() >= *strikes.start() && hosts.len() == HOSTS || is_over()
                })
            });
            for turn in 0_usize.. {
                if is_over() || count() >= *strikes.end() {
                    break;
                }
                strike(turn);
                struck.fetch_add(1, Ordering::Relaxed);
            }
            sender.join().expect("no answer is missing or wrong")
        });
        Self { jobs, by_host, kills: count(), ..Self::default() }
    }

    /// Waits until the stream is empty, and adds what the hosts have counted.
    pub(super) fn count(&mut self, servers: &Servers) {
        let status = until(servers, "an empty stream", |status| status.jobs == 0);
        for host in &status.hosts {
            self.duplicates += host.counts.duplicates;
            self.redelivered += host.counts.redelivered;
        }
    }
}

/// Runs so many jobs while servers, pools and bridges are killed and stopped in turn.
fn storm(jobs: usize) -> Passed {
    let mut servers = Servers::start(3);
    let lines = "deliveries_max = 30";
    let names = ["one", "two", "three"];
    let mut pools: Vec<Option<Pool>> =
        names.iter().map(|name| Some(host(&servers, name, lines).start())).collect();
    until(&servers, "three hosts", |status| {
        status.hosts.iter().filter(|host| host.pool).count() == HOSTS && status.replicas == 3
    });
    let client = client(&servers);
    let over = AtomicBool::new(false);
    let mut passed = Passed::of(&client, jobs, KILLS_MIN..=u64::MAX, &over, |turn| {
        strike(turn, &mut servers, &mut pools, &over);
        pause(Duration::from_secs(1), &over);
    });
    assert!(passed.jobs >= jobs && passed.kills >= KILLS_MIN, "{passed:?}");
    assert_eq!(passed.by_host.len(), HOSTS, "every host took a part: {passed:?}");
    passed.count(&servers);
    passed
}

/// Sends so many jobs, a window at a time, until it is enough, and checks every answer. `is_enough` gets the hosts that
/// gave some. Returns how many jobs there were, and those hosts.
fn send(
    client: &Client,
    jobs: RangeInclusive<usize>,
    is_enough: impl Fn(&BTreeSet<String>) -> bool,
) -> (usize, BTreeSet<String>) {
    let mut by_host = BTreeSet::new();
    let mut under_way = std::collections::VecDeque::new();
    let mut next = 0;
    loop {
        while under_way.len() < WINDOW
            && (next < *jobs.start() || next < *jobs.end() && !is_enough(&by_host))
        {
            let grids = random_grids(next as u64, 1 + next % 5);
            let deadline = Duration::from_secs(600);
            let sent = client.send(job(PROGRAM, &grids).with_deadline(deadline));
            under_way.push_back((next, grids, sent.expect("it is sent")));
            next += 1;
        }
        let Some((number, grids, handle)) = under_way.pop_front() else { break };
        let answer = handle.wait().unwrap_or_else(|error| panic!("job {number}: {error}"));
        assert_eq!(answer.verdict(), Verdict::Ok, "job {number}: {:?}", answer.receipt);
        is_right(&answer, PROGRAM, &grids);
        by_host.insert(answer.receipt.host);
    }
    (next, by_host)
}

/// The bridge of a pool, if it runs.
pub(super) fn bridge(pool: &Pool) -> Option<u32> {
    pool.status().nats.map(|nats| nats.pid).filter(|&pid| pid > 0)
}

/// How many jobs the long tests have.
pub(super) fn many_jobs() -> usize {
    std::env::var("GRIDPOOL_JOBS").map_or(10_000, |text| text.parse().expect("a number"))
}

/// One fault after the other, each of another kind.
fn strike(turn: usize, servers: &mut Servers, pools: &mut [Option<Pool>], over: &AtomicBool) {
    let at = turn / 6 % 3;
    let stopped = |pid: u32| {
        signal(pid, Signal::SIGSTOP);
        pause(STOPPED_FOR, over);
        signal(pid, Signal::SIGCONT);
    };
    let bridge = |pool: &Option<Pool>| pool.as_ref().and_then(bridge);
    match turn % 6 {
        0 => servers.restart(at),
        1 => {
            let Some(pool) = pools[at].take() else { return };
            // At its socket, so it is the same host.
            pools[at] = Some(pool.killed().start());
        }
        2 => stopped(servers.pid(at)),
        3 => {
            if let Some(pid) = bridge(&pools[at]) {
                signal(pid, Signal::SIGKILL);
            }
        }
        4 => {
            let pid = pools[at].as_ref().map(|pool| pool.supervisor.pid());
            pid.into_iter().for_each(stopped);
        }
        _ => {
            if let Some(pid) = bridge(&pools[at]) {
                stopped(pid);
            }
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "what was measured")]
fn no_job_is_lost_while_servers_pools_and_bridges_are_killed_and_stopped() {
    if !are_there() {
        return;
    }
    let started = clock::now();
    let passed = storm(JOBS);
    println!("in {:?}: {passed:?}", started.elapsed());
}

/// `cargo test -p gridpool-tests --test process ten_thousand -- --ignored --nocapture`; `GRIDPOOL_JOBS` sets how many.
#[test]
#[ignore = "it takes several minutes"]
#[expect(clippy::print_stdout, reason = "what was measured")]
fn ten_thousand_jobs_in_a_storm() {
    if !are_there() {
        return;
    }
    let started = clock::now();
    let passed = storm(many_jobs());
    println!("in {:?}: {passed:?}", started.elapsed());
}
