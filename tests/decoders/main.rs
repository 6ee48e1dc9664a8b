//! Runs every decoder of bytes from another process or a user over the fuzzer's seeds, over inputs that once
//! failed, and over mutations of the seeds, `GRIDPOOL_CASES` of each target. `tests/fuzz` tests further; see
//! `shared/mod.rs` there.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

mod structured;

#[path = "../fuzz/shared/mod.rs"]
mod shared;

use shared::{TARGETS, target};

/// Mutations of each target's seeds, unless `GRIDPOOL_CASES` says otherwise.
const CASES: u32 = 2_000;
/// Most bytes of a mutated input.
const BYTES_MAX: usize = 16 * 1024;

/// Numbers that break decoders, in the widths that ours read.
const NUMBERS: [&[u8]; 12] = [
    &[0],
    &[250],
    &[251, 255, 255],
    &[252, 255, 255, 255, 255],
    &[253, 255, 255, 255, 255, 255, 255, 255, 255],
    &[254],
    &[255],
    &[0, 0, 0, 0],
    &[255, 255, 255, 255],
    &[255, 255, 255, 127],
    &[0, 0, 4, 0],
    b"-9223372036854775808",
];

/// One change of an input. Places are taken modulo its length.
#[derive(Clone, Debug)]
enum Change {
    Flip(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Repeat(usize, usize),
    Number(usize, usize),
    /// The rest of the input is replaced by the rest of another one.
    Cross(usize, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = || any::<usize>();
    prop_oneof![
        (place(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        place().prop_map(Change::Cut),
        (place(), 1..20_usize).prop_map(|(at, bytes)| Change::Remove(at, bytes)),
        (place(), 1..60_usize).prop_map(|(at, bytes)| Change::Repeat(at, bytes)),
        (place(), place()).prop_map(|(at, which)| Change::Number(at, which)),
        (place(), place(), place()).prop_map(|(at, other, from)| Change::Cross(at, other, from)),
    ]
}

fn apply(change: &Change, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.push(0);
    }
    let length = bytes.len();
    let range = |at: usize, bytes: usize| (at % length)..(at % length + bytes).min(length);
    match *change {
        Change::Flip(at, bit) => bytes[at % length] ^= 1 << bit,
        Change::Cut(at) => bytes.truncate(at % length),
        Change::Remove(at, count) => drop(bytes.drain(range(at, count))),
        Change::Repeat(at, count) => {
            let run = bytes[range(at, count)].to_vec();
            drop(bytes.splice(at % length..at % length, run));
        }
        Change::Number(at, which) => {
            let number = NUMBERS[which % NUMBERS.len()];
            drop(bytes.splice(range(at, number.len()), number.iter().copied()));
        }
        Change::Cross(at, other, from) => {
            let other = &corpus[other % corpus.len()];
            bytes.truncate(at % length);
            bytes.extend(&other[from % other.len().max(1)..]);
        }
    }
    bytes.truncate(BYTES_MAX);
}

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(kind).join(target)
}

/// Inputs on which a target once failed; none if there is no folder.
fn regressions(target: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder("regressions", target)) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths.map(|path| fs::read(path).expect("it can be read")).collect()
}

/// With GRIDPOOL_WRITE it also writes the seeds, from which the fuzzer starts.
#[test]
fn seeds_and_past_failures_of_every_target_are_decoded_or_refused() {
    let writes = std::env::var_os("GRIDPOOL_WRITE").is_some();
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        let corpus = folder("corpus", target.name);
        if writes {
            fs::create_dir_all(&corpus).expect("a folder can be made");
        }
        for (at, bytes) in seeds.iter().enumerate() {
            (target.run)(bytes);
            if writes {
                fs::write(corpus.join(format!("seed-{at}")), bytes).expect("a file can be written");
            }
        }
        regressions(target.name).iter().for_each(|bytes| (target.run)(bytes));
    }
}

#[test]
fn every_target_is_one_of_the_fuzzers() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("there is one");
    let named = manifest.split("[[bin]]").skip(1).map(|bin| bin.split('"').nth(1));
    let mut named: Vec<&str> = named.map(|name| name.expect("a binary has a name")).collect();
    named.sort_unstable();
    assert!(named.into_iter().eq(TARGETS.iter().map(|target| target.name)));
}

/// Runs a target over mutations of its seeds. A failure is shrunk to the fewest changes.
fn mutate(name: &str) {
    let target = target(name);
    let corpus = (target.seeds)();
    let cases = std::env::var("GRIDPOOL_CASES").ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().expect("GRIDPOOL_CASES is a number"));
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    let changes = prop::collection::vec(change(), 1..6);
    let cases = (any::<usize>(), changes);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let ran = runner.run(&cases, |(which, changes)| {
        let mut bytes = corpus[which % corpus.len()].clone();
        changes.iter().for_each(|change| apply(change, &mut bytes, &corpus));
        (target.run)(&bytes);
        Ok(())
    });
    assert!(ran.is_ok(), "{name}: {}", ran.expect_err("it is one"));
}

/// A test for each target, so that they run side by side and fail by name.
macro_rules! mutations {
    ($($target:ident)*) => {
        mod mutated_inputs_are_decoded_or_refused {
            $(
                #[test]
                fn $target() {
                    super::mutate(stringify!($target));
                }
            )*
        }
    };
}

shared::with_targets!(mutations);
