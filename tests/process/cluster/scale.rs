//! How jobs spread over many hosts, what more hosts give, and what they would give where each has its own processors:
//! the last by a simulation on costs that the same run has measured.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::thread;
use std::time::Duration;

use gridpool_client::{Answer, Client, Outputs, Verdict};
use gridpool_ipc::clock;
use gridpool_protocol::batch::Grid;
use gridpool_tests::oracle::samples::random_grids;

use super::servers::{Servers, are_there};
use super::{client, serving};
use crate::jobs::{PROGRAM, heavy_work, is_right, job};
use crate::processes::{children, ticks};

/// Pools on this machine at a time.
const POOLS: usize = 24;
/// Clients that send side by side.
const CLIENTS: usize = 8;
/// Runs of each kind of jobs.
const REPEATS: usize = 3;

/// Jobs of one kind, each with its grids.
struct Work {
    name: &'static str,
    text: String,
    batches: Vec<Vec<Grid>>,
}

impl Work {
    /// So many jobs of a few random grids.
    fn small(jobs: u64, grids: usize) -> Self {
        let batches = (0..jobs).map(|seed| random_grids(seed, grids)).collect();
        Self { name: "small", text: PROGRAM.to_owned(), batches }
    }

    /// So many jobs that keep a worker busy, with so many of the largest grids each.
    fn heavy(name: &'static str, jobs: usize, grids: usize) -> Self {
        let (text, all) = heavy_work();
        let batch = |at: usize| all.iter().cycle().skip(at).take(grids).cloned().collect();
        Self { name, text, batches: (0..jobs).map(batch).collect() }
    }

    fn jobs(&self) -> u64 {
        self.batches.len() as u64
    }

    /// Runs them through these clients side by side. Gives the jobs in a second, and the answers with their numbers.
    fn run(&self, clients: &[Client]) -> (f64, Vec<(usize, Answer<Outputs>)>) {
        let send =
            |grids: &Vec<Grid>| job(&self.text, grids).with_deadline(Duration::from_secs(600));
        let through = |first: usize, client: &Client| {
            let share = self.batches.iter().enumerate().skip(first).step_by(clients.len());
            let sent = share.map(|(at, grids)| (at, client.send(send(grids)).expect("it is sent")));
            let sent: Vec<_> = sent.collect();
            sent.into_iter()
                .map(|(at, sent)| (at, sent.wait().expect("it ends")))
                .collect::<Vec<_>>()
        };
        let started = clock::now();
        let answers = thread::scope(|scope| {
            let through = &through;
            let begin = |(first, client)| scope.spawn(move || through(first, client));
            let threads: Vec<_> = clients.iter().enumerate().map(begin).collect();
            let ended = threads.into_iter().map(|thread| thread.join().expect("every job ends"));
            ended.flatten().collect()
        });
        (per_second(self.jobs(), started.elapsed()), answers)
    }

    /// Every answer is right.
    fn check(&self, answers: &[(usize, Answer<Outputs>)]) {
        answers.iter().for_each(|(at, answer)| is_right(answer, &self.text, &self.batches[*at]));
    }
}

fn per_second(jobs: u64, took: Duration) -> f64 {
    Duration::from_secs(jobs).as_secs_f64() / took.as_secs_f64()
}

/// Processor time in milliseconds that a process and its children have used.
fn busy_ms(pid: u32) -> u64 {
    10 * ticks(pid) + children(pid).into_iter().map(busy_ms).sum::<u64>()
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
    let work = Work::small(4_800, 3);
    let (rate, answers) = work.run(&[client(&servers)]);
    work.check(&answers);
    let mut by_host = BTreeMap::new();
    for (_, answer) in answers {
        *by_host.entry(answer.receipt.host).or_insert(0) += 1;
    }
    println!("24 pools: {rate:.0} jobs/s; {by_host:?}");
    assert_eq!(by_host.len(), POOLS, "every host took a part: {by_host:?}");
    // A fair share is 200.
    assert!(by_host.values().all(|&jobs| (20..=1_000).contains(&jobs)), "{by_host:?}");
}

/// `cargo test -p gridpool-tests --test process more_hosts -- --ignored --nocapture`; `GRIDPOOL_HOSTS` is how many
/// there are in turn, as 1,2,4,8.
#[test]
#[ignore = "it measures for minutes"]
#[expect(clippy::print_stdout, reason = "what was measured")]
fn more_hosts_measured_and_simulated() {
    if !are_there() {
        return;
    }
    let told = std::env::var("GRIDPOOL_HOSTS").unwrap_or_else(|_| "1,2,3".to_owned());
    let steps = told.split(',').map(|step| step.parse::<usize>().expect("a number of hosts"));
    let servers = Servers::start(1);
    // The first pool makes the streams.
    let mut pools = vec![serving(&servers, "host0", "")];
    let clients: Vec<_> = (0..CLIENTS).map(|_| client(&servers)).collect();
    let mut cost = f64::INFINITY;
    for hosts in steps {
        while pools.len() < hosts {
            pools.push(serving(&servers, &format!("host{}", pools.len()), ""));
        }
        let small = Work::small(2_000, 3);
        let middle = Work::heavy("middle", 100 * hosts.min(6), 60);
        let heavy = Work::heavy("heavy", 12.max(4 * hosts), 2_000);
        for (work, clients) in
            [(&small, &clients[..1]), (&small, &clients), (&middle, &clients), (&heavy, &clients)]
        {
            for _ in 0..REPEATS {
                let busy = || {
                    let pools = pools.iter().map(|pool| busy_ms(pool.supervisor.pid()));
                    [busy_ms(servers.pid(0)), 10 * ticks(std::process::id()), pools.sum()]
                };
                let before = busy();
                let (rate, answers) = work.run(clients);
                let after = busy();
                // The oracle takes many times as long as the hosts for the others.
                match work.name == small.name {
                    true => work.check(&answers),
                    false => assert!(answers.iter().all(|(_, it)| it.verdict() == Verdict::Ok)),
                }
                let per_job = |at: usize| (after[at] - before[at]) as f64 / work.jobs() as f64;
                println!(
                    "{hosts} hosts, {} clients: {rate:.2} {} jobs/s; a job keeps the server busy for {:.2} ms, clients \
                     for {:.2} ms, hosts for {:.2} ms",
                    clients.len(),
                    work.name,
                    per_job(0),
                    per_job(1),
                    per_job(2),
                );
                if work.name == small.name {
                    cost = cost.min(1.0 / rate);
                }
            }
        }
    }
    // All of clients, server and hosts on these processors: an upper bound of what a job costs the server.
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
