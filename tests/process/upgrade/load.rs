//! Clients that work while pools take the place of each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gridpool_client::{Client, JobKey};
use gridpool_ipc::clock;
use gridpool_tests::oracle::samples::random_grids;

use crate::jobs::{PROGRAM, answer, is_right, job, submit};
use crate::pool::Pool;
use crate::wait::{eventually_so, within};

/// What the clients under load have seen.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    /// Jobs with a right answer.
    done: AtomicU64,
    /// The longest that a client had no answer.
    pause_us: AtomicU64,
}

/// What a client does again and again: jobs of two sizes, several at a time.
fn works(client: &Client, number: u64, seen: &Seen) {
    let Seen { stop, done, pause_us } = seen;
    let mut count = 0;
    let mut answered = clock::now();
    while !stop.load(Ordering::Relaxed) {
        let jobs: Vec<_> = (0..4)
            .map(|of| {
                count += 1;
                let items = if (number + of).is_multiple_of(3) { 300 } else { 3 };
                let grids = random_grids(number * 1_000_000 + count, items);
                let key = JobKey(u128::from(number * 1_000_000 + count));
                let job = job(PROGRAM, &grids).with_key(key);
                let job = if number == 1 { job.at_most_once() } else { job };
                (submit(client, job), grids)
            })
            .collect();
        for (handle, grids) in jobs {
            let answer = answer(handle);
            is_right(&answer, PROGRAM, &grids);
            assert_eq!(answer.receipt.attempts.len(), 1, "{:?}", answer.receipt);
            let pause = u64::try_from(answered.elapsed().as_micros()).expect("it is short");
            pause_us.fetch_max(pause, Ordering::Relaxed);
            answered = clock::now();
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A client that had no answer for so long has met no busy machine, but an upgrade that left it behind.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How many upgrades there are under load: `least`, or as many as `GRIDPOOL_TEST_UPGRADES` says.
pub(super) fn upgrades(least: usize) -> usize {
    let asked = std::env::var("GRIDPOOL_TEST_UPGRADES").ok();
    asked.map_or(least, |count| count.parse().expect("a number"))
}

/// Three clients that work all the time.
pub(super) struct Load {
    seen: Arc<Seen>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(super) fn on(pool: &Pool) -> Self {
        let seen = Arc::<Seen>::default();
        let clients = (1..=3).map(|number| {
            let (client, seen) = (pool.client(), Arc::clone(&seen));
            thread::spawn(move || works(&client, number, &seen))
        });
        Self { clients: clients.collect(), seen }
    }

    pub(super) fn more_jobs(&self) {
        let done = &self.seen.done;
        let before = done.load(Ordering::Relaxed);
        eventually_so("more jobs", || done.load(Ordering::Relaxed) > before + 12);
    }

    /// Each job was dispatched once, whichever pool did it: in no pool for nothing, and in no two.
    #[expect(clippy::print_stderr, reason = "what was measured")]
    pub(super) fn end(self, pool: &Pool, upgrades: &str) {
        self.seen.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            within("a client", move || client.join().expect("it saw no error"));
        }
        let jobs = self.seen.done.load(Ordering::Relaxed);
        let dispatched = pool.log().matches(" dispatch job=").count() as u64;
        let pause = Duration::from_micros(self.seen.pause_us.load(Ordering::Relaxed));
        eprintln!("{upgrades}: {jobs} jobs, {dispatched} dispatches, longest pause {pause:?}");
        assert_eq!(jobs, dispatched);
        assert!(pause < PAUSE_MAX, "a client had no answer for {pause:?}");
    }
}
