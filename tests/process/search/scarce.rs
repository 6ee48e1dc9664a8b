//! Searches that get little: few jobs under way, little shared memory, a full queue. A stop ends each wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use gridpool_client::{
    Candidate, GridBatch, Score, Search, SearchOutcome, SearchResult, SearchStream,
};
use gridpool_kernels::reference::search::SearchPairs;
use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::search::compile;
use gridpool_protocol::status::Status;
use nix::sys::signal::Signal;

use super::{STEPS, expected, search};
use crate::jobs::{answer, serves, small_job, submit};
use crate::pool::cpu;
use crate::wait::{SetAtEnd, eventually_so, within};

/// The smallest arena, in which one job of these tests fits.
const ARENA_BYTES: usize = 64 << 10;

/// Pairs that are too large for a message.
fn large_pairs() -> GridBatch {
    let grid = |seed: usize| {
        let cell = |at: usize| u8::try_from(at * (seed + at) % 7).expect("below 7");
        Grid::new(30, 30, (0..900).map(cell).collect()).expect("it is within the limits")
    };
    let grids: Vec<_> = (0..30).map(grid).collect();
    GridBatch::from_pairs(grids.iter().map(|grid| (grid, Some(grid)))).expect("pairs")
}

/// Programs that differ from each other.
fn programs(count: usize) -> Vec<Candidate> {
    let text = |at: usize| format!("O = replace(rot90(I), {}, {})", at % 10, at / 10);
    (0..count).map(|at| Candidate::new(at.to_string(), text(at))).collect()
}

/// Programs that take a while.
fn slow(count: usize) -> Vec<Candidate> {
    let text = |at: usize| format!("O = power(rot90, multiply(width(I), {}))(I)", 9_000 + at);
    (0..count).map(|at| Candidate::new(at.to_string(), text(at))).collect()
}

#[test]
fn no_more_jobs_are_under_way_than_the_search_says() {
    let pool = cpu(2).start();
    let observer = pool.observer().clone();
    let under_way = || {
        let rows = observer.status().unwrap().principals;
        rows.iter().map(|row| row.queued + row.running).sum::<u64>()
    };
    for jobs in [1, 2] {
        let search = Search { jobs, job_programs_max: 1, ..search(Score::Exact) };
        let mut stream = pool.client().search(search, slow(40)).unwrap();
        let has_ended = AtomicBool::new(false);
        let most = thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let mut most = 0;
                while !has_ended.load(Ordering::Relaxed) {
                    most = most.max(under_way());
                }
                most
            });
            let ends = SetAtEnd(&has_ended);
            assert_eq!(stream.by_ref().filter(Result::is_ok).count(), 40);
            drop(ends);
            sampler.join().unwrap()
        });
        assert_eq!((most, stream.summary().jobs), (jobs as u64, 40));
    }
}

#[test]
fn a_job_is_convicted_though_jobs_behind_it_hold_the_memory_of_its_parts() {
    let deadly = "O = replace(rot90(I), 7, 3)";
    let hash = compile(deadly, Ties::Cpython, STEPS).unwrap().hash();
    let quota = |arenas: usize| format!("[quota]\ndefault = 'bytes={}'\n", arenas * ARENA_BYTES);
    let pool = cpu(1).args(&["--allow-chaos"]).env("GRIDPOOL_TEST_DEADLY", &hash[..32]);
    let pool = pool.limits(&quota(3)).start();
    let programs = programs(64);
    // A wait for memory that nobody gives back ends in time to be seen.
    let search = Search {
        pairs: large_pairs(),
        jobs: 4,
        job_programs_max: 8,
        deadline: Duration::from_secs(25),
        ..search(Score::Exact)
    };
    pool.stop("cpu0");
    let stream = pool.client().search(search, programs.clone()).unwrap();
    let held = |arenas: usize| {
        move |status: &Status| {
            let held = (arenas * ARENA_BYTES) as u64;
            status.principals.iter().any(|row| row.arena_bytes == held)
        }
    };
    pool.until_status("three jobs to have memory", held(3));
    // From now on there is memory for two, which those behind the first have.
    pool.configure(&quota(2));
    pool.signal(Signal::SIGHUP);
    eventually_so("the quota to change", || pool.log().contains("changed=\"quota\""));
    pool.go_on("cpu0");
    let results: Vec<SearchResult> = stream.map(|result| result.expect("a result")).collect();
    let pairs = SearchPairs::of_batch(&large_pairs());
    assert_eq!(results.len(), 64);
    for (SearchResult { id, outcome }, program) in results.iter().zip(&programs) {
        let text = program.text().unwrap();
        match outcome {
            SearchOutcome::Done(verdicts) => {
                assert_eq!(verdicts.bytes(), expected(text, &pairs).unwrap().0, "{text}");
            }
            SearchOutcome::Failed { verdict, .. } => {
                assert_eq!((text, *verdict), (deadly, Verdict::Poison), "{id}");
            }
            SearchOutcome::Refused(why) => panic!("{why}"),
        }
    }
    let failed = |result: &&SearchResult| matches!(result.outcome, SearchOutcome::Failed { .. });
    assert_eq!(results.iter().filter(failed).count(), 1);
}

/// Stops a search that waits for what it does not get, once `waits` has seen that, and waits for its end.
fn is_stopped(mut stream: SearchStream, waits: impl FnOnce()) {
    let stopper = stream.stopper();
    let (ended, has_ended) = channel();
    let waiting = thread::spawn(move || ended.send(stream.next().is_none()));
    waits();
    stopper.stop();
    assert_eq!(within("the search to end", move || has_ended.recv()), Ok(true), "it has a result");
    waiting.join().expect("no panic").expect("it is heard");
}

#[test]
fn a_stop_ends_the_wait_for_shared_memory() {
    let quota = format!("[quota]\ndefault = 'bytes={ARENA_BYTES}'\n");
    let pool = cpu(1).limits(&quota).start();
    let other = pool.client();
    let loaded = other.load(&large_pairs()).unwrap();
    let search = Search { pairs: large_pairs(), ..search(Score::Exact) };
    let stream = pool.client().search(search, programs(8)).unwrap();
    is_stopped(stream, || {
        eventually_so("memory to be refused", || pool.log().contains("clients are refused"));
    });
    drop(loaded);
    serves(&other);
}

#[test]
fn a_stop_ends_the_wait_for_room_in_the_queue() {
    let pool = cpu(1).limits("client_jobs_max = 1\n").start();
    let client = pool.client();
    pool.stop("cpu0");
    let first = submit(&client, small_job(1));
    let stream = client.search(search(Score::Exact), programs(8)).unwrap();
    is_stopped(stream, || {
        // Whoever waits for it submits it again.
        pool.until_status("a job to be refused", |status| status.counters.refused_busy > 2);
    });
    pool.go_on("cpu0");
    answer(first);
    serves(&client);
}
