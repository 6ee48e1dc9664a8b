//! The pool's core under random schedules: a seed draws the limits, the size and the rate of every fault; a
//! simulated world of workers, clients and a network runs against the pool; a model that sees only events
//! and actions checks the rules. Then the faults stop, and all must settle.
//!
//! `SIM_SEED=n` replays one seed, with `SIM_LOG=1` it prints every event and action. `SIM_SEEDS=n` runs `n`
//! seeds, `SIM_FIRST=n` begins there, `SIM_COVERAGE=1` prints what they reached.

mod coverage;
mod log;
mod model;
mod rates;
mod rng;
mod run;
mod swarm;
mod world;

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};

use coverage::Coverage;
use log::Log;
use rayon::prelude::*;

/// Seeds of an ordinary run.
const SEEDS: u64 = 2_000;

/// From this many seeds on, every situation must have been reached.
const COVERAGE_FROM: u64 = 2_000;

/// Seeds that a core runs one after the other.
const CHUNK: usize = 20;

/// One seed in this many is run twice.
const TWICE_EVERY: u64 = 16;

#[test]
fn every_rule_holds_under_random_schedules_and_all_settles_when_the_faults_stop() {
    if let Some(seed) = number("SIM_SEED") {
        let log = if env::var_os("SIM_LOG").is_some() { Log::complete() } else { Log::default() };
        let run = run::run(seed, log, Coverage::default());
        assert!(run.broken.is_none(), "{}", run.report());
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let first = number("SIM_FIRST").unwrap_or(0);
    let all: Vec<u64> = (first..first + seeds).collect();
    let mut coverage = Coverage::default();
    let mut events = 0;
    let lowest = AtomicU64::new(u64::MAX);
    let chunks: Vec<_> = all.par_chunks(CHUNK).map(|seeds| some(seeds, &lowest)).collect();
    for chunk in chunks {
        let (reached, count) = chunk.unwrap_or_else(|report| panic!("{report}"));
        coverage.add(reached);
        events += count;
    }
    print_coverage(&coverage, seeds, events);
    if seeds >= COVERAGE_FROM {
        assert_eq!(coverage.missed(), [] as [&str; 0], "{seeds} seeds did not reach these");
    }
}

#[test]
fn a_seed_gives_the_same_events_and_actions_every_time() {
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let step = usize::try_from(TWICE_EVERY).expect("it is small");
    (0..seeds).collect::<Vec<_>>().par_iter().step_by(step).for_each(|&seed| {
        let [one, two] = [(), ()].map(|()| run::run(seed, Log::complete(), Coverage::default()));
        assert!(one.log == two.log, "SIM_SEED={seed} gave two different runs");
    });
}

/// Runs some seeds: what they reached, and their events; or what the first to fail broke. No seed above the lowest that
/// has failed begins.
fn some(seeds: &[u64], lowest: &AtomicU64) -> Result<(Coverage, u64), String> {
    let (mut coverage, mut events) = (Coverage::default(), 0);
    for &seed in seeds.iter().take_while(|&&seed| seed < lowest.load(Ordering::Relaxed)) {
        let run = run::run(seed, Log::default(), coverage);
        if run.broken.is_some() {
            lowest.fetch_min(seed, Ordering::Relaxed);
            return Err(run.report());
        }
        coverage = run.coverage;
        events += run.events;
    }
    Ok((coverage, events))
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().expect("SIM_… variables are numbers"))
}

#[expect(clippy::print_stdout, reason = "the user of the test asked for it")]
fn print_coverage(coverage: &Coverage, seeds: u64, events: u64) {
    if env::var_os("SIM_COVERAGE").is_some() {
        println!("{seeds} seeds, {events} events\n{coverage}");
    }
}
