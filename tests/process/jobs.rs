//! Jobs and their expected results.

use std::path::PathBuf;

use gridpool_client::{Answer, Client, Handle, Job, Outputs};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::receipt::Verdict;
pub(crate) use gridpool_tests::harness::raw::{PROGRAM, program};
use gridpool_tests::oracle::samples::{SplitMix64, random_grids};
use gridpool_tests::oracle::tasks;
use serde_json::json;

use crate::documents::{self, says};
use crate::wait::within;

/// A job of a few grids, which travels inline.
pub(crate) fn small_job(seed: u64) -> Job<Outputs> {
    job(PROGRAM, &random_grids(seed, 5))
}

/// A job that travels in shared memory.
pub(crate) fn large_job(seed: u64) -> Job<Outputs> {
    job(PROGRAM, &random_grids(seed, 300))
}

/// A program that keeps a CPU worker busy for a second or two, and the grids for it.
pub(crate) fn heavy_work() -> (String, Vec<Grid>) {
    let text = format!("{} | numcolors", ["rot90"; 60].join(" | "));
    let mut rng = SplitMix64::new(60);
    let cells = |rng: &mut SplitMix64| (0..900).map(|_| rng.pick(&[0, 1, 2, 5, 9])).collect();
    let grid = |_| Grid::new(30, 30, cells(&mut rng)).expect("it is within the limits");
    (text, (0..2_000).map(grid).collect())
}

pub(crate) fn job(text: &str, grids: &[Grid]) -> Job<Outputs> {
    let batch = GridBatch::from_grids(grids).expect("the batch is within the limits");
    Job::program(program(text), batch).expect("the batch has a grid")
}

/// Submits a job, which must be accepted.
pub(crate) fn submit(client: &Client, job: Job<Outputs>) -> Handle<Outputs> {
    let client = client.clone();
    within("a job to be accepted", move || client.submit(job)).expect("the pool takes the job")
}

/// The answer to a job, which must come.
pub(crate) fn answer(handle: Handle<Outputs>) -> Answer<Outputs> {
    within("a verdict", move || handle.wait()).expect("the job gets its verdict")
}

/// Runs a small job, which must go well: the pool serves.
pub(crate) fn serves(client: &Client) {
    let grids = random_grids(7, 5);
    is_right(&answer(submit(client, job(PROGRAM, &grids))), PROGRAM, &grids);
}

/// Whether the verdict is OK and every item is what the oracle says.
#[track_caller]
pub(crate) fn is_right(answer: &Answer<Outputs>, text: &str, grids: &[Grid]) {
    assert_eq!(answer.verdict(), Verdict::Ok, "{:?}", answer.receipt);
    let outputs = answer.outputs().expect("OK comes with results");
    assert_eq!(outputs.len(), grids.len());
    let program = program(text);
    for (item, grid) in grids.iter().enumerate() {
        assert_eq!(documents::item(outputs, item), says(&program, grid), "item {item}: {grid:?}");
    }
}

// ---- as JSON ----

/// Grids as a JSON array.
pub(crate) fn as_json(grids: &[Grid]) -> String {
    json!(grids.iter().map(|grid| grid.rows().collect::<Vec<_>>()).collect::<Vec<_>>()).to_string()
}

/// Grids of one shape as a `.npy` array.
pub(crate) fn as_npy(grids: &[Grid]) -> Vec<u8> {
    let (h, w) = (grids[0].h(), grids[0].w());
    let shape = (grids.len(), h, w);
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape:?}, }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{header:<117}\n").bytes());
    grids.iter().for_each(|grid| bytes.extend(grid.cells()));
    bytes
}

/// A file of `tests/data`.
pub(crate) fn data(path: &str) -> PathBuf {
    tasks::data().join(path)
}
