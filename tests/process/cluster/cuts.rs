//! Three servers, three hosts and a client, each with a network of its own, which is cut in every way: no job is lost,
//! and none is wrong.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gridpool_ipc::clock;
use nix::sys::signal::Signal;

use super::network::Network;
use super::servers::{Servers, are_there};
use super::storm::{Passed, bridge, many_jobs};
use super::{client, host, until};
use crate::pool::Pool;
use crate::processes::signal;
use crate::wait::pause;

/// Jobs of the short run.
const JOBS: usize = 200;
/// The kinds of cuts.
const KINDS: u64 = 11;
/// The place of the first host; the servers are before it.
const HOSTS: usize = 3;
/// The place of the client.
const CLIENT: usize = 6;
const NAMES: [&str; 3] = ["one", "two", "three"];
const LINES: &str = "deliveries_max = 30";

/// Servers, hosts and their networks.
struct Land<'a> {
    network: &'a Network,
    servers: Servers,
    pools: Vec<Pool>,
    over: &'a AtomicBool,
    /// How long a cut lasts: longer than the time after which a host's jobs are others'.
    span: Duration,
}

/// Runs so many jobs while networks are cut for so long, each kind of cut once at least, and so many in all at most.
fn storm(network: &Network, jobs: usize, span: Duration, cuts_max: u64) -> Passed {
    let places = |server: usize| (Network::address(server), network.at(server).clone());
    let servers = Servers::across(&(0..HOSTS).map(places).collect::<Vec<_>>());
    let pools = (0..3).map(|at| start(network, &servers, at)).collect();
    until(&servers, "three hosts", |status| {
        status.hosts.iter().filter(|host| host.pool).count() == 3 && status.replicas == 3
    });
    let client = client(&servers);
    let over = AtomicBool::new(false);
    let mut land = Land { network, servers, pools, over: &over, span };
    let mut passed = Passed::of(&client, jobs, KINDS..=cuts_max, &over, |turn| {
        land.strike(turn);
        pause(span / 5, &over);
    });
    // Whoever was cut off is back.
    until(&land.servers, "three hosts again", |status| {
        status.hosts.iter().filter(|host| host.pool).count() == 3
    });
    passed.count(&land.servers);
    passed
}

/// Starts a host in its network.
fn start(network: &Network, servers: &Servers, at: usize) -> Pool {
    network.at(HOSTS + at).inside(|| host(servers, NAMES[at], LINES).start())
}

impl Land<'_> {
    /// One cut after the other, each of another kind.
    fn strike(&mut self, turn: usize) {
        let (kind, at) = (turn % 11, (turn + turn / 11) % 3);
        let (other, network) = ((at + 1) % 3, self.network);
        match kind {
            // One at a time.
            0 => self.without(&[HOSTS + at]),
            1 => self.without(&[at]),
            2 => self.without(&[CLIENT]),
            3 => {
                network.pull(HOSTS + at);
                self.wait_and_join(&[HOSTS + at]);
            }
            // A server and a host apart from the others.
            4 => {
                network.part(&[at, HOSTS + other]);
                self.wait_and_join(&[at, HOSTS + other]);
            }
            // What they send is lost.
            5 => self.muted(at),
            6 => self.muted(HOSTS + at),
            // Together with other faults.
            7 => {
                if let Some(pid) = bridge(&self.pools[other]) {
                    signal(pid, Signal::SIGKILL);
                }
                self.without(&[HOSTS + at]);
            }
            8 => {
                network.cut(at);
                // At its socket, so it is the same host.
                let again = self.pools.remove(other).killed();
                let again = network.at(HOSTS + other).inside(|| again.start());
                self.pools.insert(other, again);
                self.wait_and_join(&[at]);
            }
            9 => {
                let pid = self.pools[other].supervisor.pid();
                signal(pid, Signal::SIGSTOP);
                self.without(&[at]);
                signal(pid, Signal::SIGCONT);
            }
            // Two of three servers.
            _ => {
                let pid = self.servers.pid(other);
                signal(pid, Signal::SIGSTOP);
                self.without(&[at]);
                signal(pid, Signal::SIGCONT);
            }
        }
    }

    /// Cuts places off for a while.
    fn without(&self, places: &[usize]) {
        places.iter().for_each(|&place| self.network.cut(place));
        self.wait_and_join(places);
    }

    fn wait_and_join(&self, places: &[usize]) {
        pause(self.span, self.over);
        places.iter().for_each(|&place| self.network.join(place));
    }

    fn muted(&self, place: usize) {
        self.network.mute(place);
        pause(self.span, self.over);
        self.network.unmute(place);
    }
}

/// A test in the client's network; nothing if there are no networks.
#[expect(clippy::print_stdout, reason = "what was measured")]
fn storm_of(jobs: usize, span: Duration, cuts_max: u64) {
    let Some(network) = Network::start(CLIENT + 1).filter(|_| are_there()) else { return };
    let started = clock::now();
    let passed = network.at(CLIENT).inside(|| storm(&network, jobs, span, cuts_max));
    println!("in {:?}: {passed:?}", started.elapsed());
}

#[test]
fn no_job_is_lost_while_networks_are_cut() {
    storm_of(JOBS, Duration::from_millis(2_500), KINDS);
}

/// `cargo test -p gridpool-tests --test process jobs_in_cut -- --ignored --nocapture`; `GRIDPOOL_JOBS` sets how many.
#[test]
#[ignore = "it takes many minutes"]
fn ten_thousand_jobs_in_cut_networks() {
    storm_of(many_jobs(), Duration::from_secs(8), u64::MAX);
}
