//! Every decoder that reads what another process, or a user, wrote: over the corpus of the fuzzer, over
//! what it once found, and over mutations of both. `tests/fuzz` goes further; see `shared/mod.rs` there.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

mod structured;

#[path = "../fuzz/shared/mod.rs"]
mod shared;

use shared::seeds::seeds;
use shared::{TARGETS, Target};

/// Mutations of each target's corpus.
const CASES: u32 = 2_000;
/// A mutated input is cut to this.
const BYTES_MAX: usize = 16 * 1024;
/// A corpus stays small enough to be committed.
const CORPUS_BYTES_MAX: u64 = 64 * 1024;

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
    /// From here on it is another input, from there on.
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

/// Every file of a folder, in the order of their names; none if there is no folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .map(|path| (path.display().to_string(), fs::read(&path).expect("it can be read")))
        .collect();
    files.sort();
    files
}

#[test]
fn the_committed_seeds_are_those_of_this_protocol() {
    let writes = std::env::var_os("FUZZ_WRITE_SEEDS").is_some();
    for seed in seeds() {
        let folder = folder("corpus", seed.target);
        let path = folder.join(&seed.name);
        if writes {
            fs::create_dir_all(&folder).expect("a folder can be made");
            fs::write(&path, &seed.bytes).expect("a file can be written");
        }
        let committed = fs::read(&path).unwrap_or_default();
        assert!(
            committed == seed.bytes,
            "{} is not what this protocol writes: FUZZ_WRITE_SEEDS=1 cargo test -p gridpool-tests \
             --test decoders",
            path.display()
        );
    }
}

#[test]
fn every_target_has_a_corpus_that_is_small_and_replays() {
    for (target, run) in TARGETS {
        let corpus = files(&folder("corpus", target));
        assert!(!corpus.is_empty(), "{target} has no corpus");
        let bytes: u64 = corpus.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        assert!(bytes <= CORPUS_BYTES_MAX, "{target}: {bytes} bytes");
        corpus.iter().for_each(|(_, bytes)| run(bytes));
        files(&folder("regressions", target)).iter().for_each(|(_, bytes)| run(bytes));
    }
}

#[test]
fn every_target_is_one_of_the_fuzzers() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("there is one");
    let named = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
    let mut named: Vec<&str> = named.filter_map(|rest| rest.strip_suffix(".rs\"")).collect();
    named.sort_unstable();
    assert_eq!(named, TARGETS.map(|(name, _)| name));
}

/// Runs a target over mutations of its seeds. What fails is shrunk to the fewest changes.
fn mutate((name, run): Target) {
    let corpus: Vec<Vec<u8>> =
        files(&folder("corpus", name)).into_iter().map(|(_, bytes)| bytes).collect();
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..Default::default() };
    let changes = prop::collection::vec(change(), 1..6);
    let cases = (any::<usize>(), changes);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let ran = runner.run(&cases, |(which, changes)| {
        let mut bytes = corpus[which % corpus.len()].clone();
        changes.iter().for_each(|change| apply(change, &mut bytes, &corpus));
        run(&bytes);
        Ok(())
    });
    assert!(ran.is_ok(), "{name}: {}", ran.expect_err("it is one"));
}

/// A test for each target, so that they run side by side and fail by name.
macro_rules! mutations {
    ($($test:ident: $target:literal),+ $(,)?) => {$(
        #[test]
        fn $test() {
            let target = TARGETS.into_iter().find(|(name, _)| *name == $target);
            mutate(target.expect("it is a target"));
        }
    )+};
}

mutations! {
    mutated_json_lines_decode_or_are_refused: "json_line",
    mutated_frames_are_what_the_model_says: "client_frame",
    mutated_client_messages_decode_or_are_refused: "client_message",
    mutated_configs_are_read_or_refused: "config",
    mutated_words_of_workers_decode_or_are_refused: "from_worker",
    mutated_inference_requests_are_read_or_refused: "infer_request",
    mutated_json_is_read_or_refused: "input_json",
    mutated_arrays_are_read_or_refused: "input_npy",
    mutated_lifelines_decode_or_are_refused: "lifeline",
    mutated_names_are_read_or_refused: "names",
    mutated_results_decode_or_are_errors: "outputs",
    mutated_programs_compile_and_run_or_are_refused: "program",
    mutated_server_messages_decode_or_are_refused: "server_message",
    mutated_tables_are_what_the_model_says: "tables",
    mutated_sets_of_tensors_are_read_or_refused: "tensors",
    mutated_orders_to_workers_decode_or_are_refused: "to_worker",
}
