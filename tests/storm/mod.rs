//! Storms over real processes: many clients submit while workers are killed without pause and hostile
//! clients do what they can, and every history is checked.
//!
//! [`run`] is all of it. `cargo test --test storm` runs a short storm. The binary `storm` runs one of any
//! length against given binaries, on CPU devices or GPUs. [`server`] is the pool, [`chaos`] the signals,
//! [`hostile`] the hostile clients. [`wire_client`], [`library_client`] and [`client_processes`] are the honest
//! ones. [`workload`] makes their requests and the right results, [`history`] is what they saw, [`checker`]
//! judges it. [`proxy`] tampers with replies to show that the checker sees it.

pub mod board;
pub mod chaos;
pub mod checker;
pub mod client_processes;
pub mod history;
pub mod hostile;
pub mod ledger;
pub mod library_client;
pub mod proxy;
pub mod report;
pub mod server;
pub mod wire_client;
pub mod workload;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use gridpool_ipc::clock;

use self::board::Board;
use self::chaos::{Deeds, SignalMix};
use self::ledger::Ledger;
use self::library_client::LibraryClient;
use self::report::Report;
use self::server::{Gauge, RULES, Server, Setup};
use self::wire_client::{JobMix, WireClient};
use self::workload::Workload;
use crate::harness::wait::pause;
use crate::oracle::samples::SplitMix64;

/// Jobs of a round, after which a history is checked and forgotten.
const ROUND: usize = 400;
/// Between two looks at what the supervisor holds, and at how far the storm has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Who takes part in a storm, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pool.
    pub setup: Setup,
    /// The binary `storm`, for clients that are processes.
    pub program: PathBuf,
    /// Decides what is done, though not when.
    pub seed: u64,
    /// Deaths of workers before the first gauge is taken.
    pub warm_up: u64,
    /// Deaths of workers after it.
    pub kills: u64,
    /// The storm ends after this even with fewer.
    pub time_max: Duration,
    /// Clients that speak the wire format.
    pub wire_clients: usize,
    /// Clients that use the library.
    pub library_clients: usize,
    /// Clients that are processes.
    pub processes: usize,
    /// Hostile clients.
    pub hostiles: usize,
    /// Least time between two deeds of one.
    pub hostile_every: Duration,
    /// What happens to workers.
    pub signals: SignalMix,
}

/// All that the threads of a storm share.
struct Storm<'a> {
    options: &'a Options,
    server: &'a Server,
    workload: &'a Workload,
    board: Board,
    ledger: Ledger,
    deeds: Deeds,
    harassed: AtomicU64,
    zombies: AtomicU64,
    stop: AtomicBool,
}

/// Runs a storm and says how it was.
///
/// # Errors
/// A sentence, if the pool cannot be started.
///
/// # Panics
/// If the pool does not come to rest in time.
pub fn run(options: &Options) -> Result<Report, String> {
    let server = Server::start(&options.setup)?;
    let workload = Workload::new(options.seed, true);
    let mut storm = Storm {
        options,
        server: &server,
        workload: &workload,
        board: Board::default(),
        ledger: Ledger::default(),
        deeds: Deeds::default(),
        harassed: AtomicU64::new(0),
        zombies: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    storm.run_until(options.warm_up, options.seed ^ 1);
    let first = server.settled();
    storm.board.forget_times();
    let before = storm.deeds.deaths();
    let began = clock::now();
    storm.run_until(options.kills, options.seed);
    let span = began.elapsed();
    let last = storm.last(&first);
    let Storm { board, ledger, deeds, harassed, zombies, .. } = storm;
    let deaths = deeds.deaths() - before;
    let (harassed, zombies) = (harassed.into_inner(), zombies.into_inner());
    let left = server.stop();
    let (found, times) = (ledger.found(), board.times());
    let options = options.clone();
    Ok(Report { options, deaths, span, deeds, harassed, zombies, found, times, first, last, left })
}

impl Storm<'_> {
    /// Runs all threads at once until `deaths` more workers have died.
    fn run_until(&mut self, deaths: u64, seed: u64) {
        *self.stop.get_mut() = false;
        let target = self.deeds.deaths() + deaths;
        let mut rng = SplitMix64::new(seed);
        let mut next = || rng.number();
        let storm = &*self;
        thread::scope(|scope| {
            let Options { wire_clients, library_clients, hostiles, .. } = *storm.options;
            let mut threads: Vec<ScopedJoinHandle<'_, Result<(), String>>> = Vec::new();
            for name in (0..wire_clients).map(|_| next()).collect::<Vec<_>>() {
                threads.push(scope.spawn(move || storm.wire_client(name)));
            }
            for name in (0..library_clients).map(|_| next()).collect::<Vec<_>>() {
                threads.push(scope.spawn(move || storm.library_client(name)));
            }
            for seed in (0..hostiles).map(|_| next()).collect::<Vec<_>>() {
                threads.push(scope.spawn(move || storm.harass(seed)));
            }
            let (clients, chaos) = (next(), next());
            threads.push(scope.spawn(move || storm.keep_running(clients)));
            threads.push(scope.spawn(move || storm.send_signals(chaos)));
            storm.watch(target, || threads.iter().any(ScopedJoinHandle::is_finished));
            for thread in threads {
                match thread.join() {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => storm.ledger.complain(error),
                    Err(_) => storm.ledger.complain("a thread of the storm panicked".to_owned()),
                }
            }
        });
    }

    /// Waits until so many workers have died, or time is over, or a thread has ended before it was
    /// told to: that is a failure, and waiting longer is useless.
    fn watch(&self, target: u64, has_failed: impl Fn() -> bool) {
        let end = clock::now() + self.options.time_max;
        while self.deeds.deaths() < target && !clock::until(end).is_zero() && !has_failed() {
            pause(LOOK_EVERY, &self.stop);
            let zombies = crate::harness::processes::zombies(self.server.pid());
            self.zombies.fetch_max(zombies as u64, Ordering::Relaxed);
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn wire_client(&self, name: u64) -> Result<(), String> {
        let socket = self.server.socket();
        let mut wire_client =
            WireClient::enter(&socket, self.workload, JobMix::MIXED, &self.board, name)?;
        while !self.is_over() {
            let history = wire_client.round(ROUND, || self.is_over());
            self.ledger.judge(&history, RULES);
            if WireClient::is_broken(&history) {
                return Err("a wire_client lost its connection".to_owned());
            }
        }
        Ok(())
    }

    fn library_client(&self, name: u64) -> Result<(), String> {
        let mut library_client =
            LibraryClient::enter(&self.server.socket(), self.workload, &self.board, name)?;
        while !self.is_over() {
            self.ledger.judge(&library_client.round(ROUND, || self.is_over()), RULES);
        }
        Ok(())
    }

    fn harass(&self, seed: u64) -> Result<(), String> {
        let (socket, every) = (self.server.socket(), self.options.hostile_every);
        hostile::harass(&socket, seed, every, &self.harassed, &self.stop);
        Ok(())
    }

    fn keep_running(&self, seed: u64) -> Result<(), String> {
        let Options { program, processes, .. } = self.options;
        client_processes::keep_running(
            program,
            &self.server.socket(),
            *processes,
            seed,
            &self.ledger,
            &self.stop,
        )
    }

    fn send_signals(&self, seed: u64) -> Result<(), String> {
        let (observer, pid) = (self.server.observer(), self.server.pid());
        let with = (&self.deeds, &self.stop);
        chaos::send_signals(observer, pid, &self.board, self.options.signals, seed, with)
    }

    /// What the supervisor holds at the end, once that is no more than `first`; what it holds when
    /// time is up, if it comes to that.
    fn last(&self, first: &Gauge) -> Gauge {
        let mut last = self.server.settled();
        for _ in 0..LOOKS_AT_THE_END {
            if last.growth(first).is_empty() {
                break;
            }
            pause(LOOK_EVERY, &AtomicBool::new(false));
            last = self.server.gauge();
        }
        last
    }
}

/// How often the supervisor is looked at before it is said to hold too much.
const LOOKS_AT_THE_END: usize = 50;
