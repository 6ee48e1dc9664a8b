//! An item's result does not depend on the size of its batch, its place in the batch, or the number of workers.

use gridpool_protocol::batch::Grid;
use gridpool_tests::oracle::samples::{SplitMix64, random_grids};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::gridpool;
use crate::documents::says;
use crate::jobs::{as_json, program};

const PROGRAM: &str = "rot90 | o_g(5)";
const GRIDS: usize = 4_096;

/// Every size with every number of workers would take minutes; each size and each number is here,
/// odd ones with odd and even ones.
const SIZES_AND_WORKERS: [(usize, usize); 8] =
    [(5, 2), (29, 1), (29, 4), (31, 2), (120, 1), (120, 4), (4_096, 1), (4_096, 4)];

#[test]
fn results_are_the_same_in_every_batch_size_on_any_number_of_workers() {
    let grids = random_grids(21, GRIDS);
    let file = Input::of(&grids);
    let want = file.results(4_096, 2);
    is_what_the_oracle_says(&want, &grids);
    for (batch, workers) in SIZES_AND_WORKERS {
        assert!(want == file.results(batch, workers), "--batch {batch}, cpu:{workers}");
    }
}

#[test]
fn an_item_alone_gives_what_it_gives_in_company() {
    let grids = random_grids(22, 300);
    let file = Input::of(&grids);
    let want = file.results(300, 1);
    is_what_the_oracle_says(&want, &grids);
    for workers in [1, 4] {
        assert!(want == file.results(1, workers), "alone, cpu:{workers}");
    }
}

#[test]
fn a_shuffled_batch_gives_shuffled_results() {
    let grids = random_grids(23, 1_000);
    let mut order: Vec<usize> = (0..grids.len()).collect();
    SplitMix64::new(24).shuffle(&mut order);
    let shuffled: Vec<Grid> = order.iter().map(|&from| grids[from].clone()).collect();
    let in_order = list(&Input::of(&grids).results(31, 2));
    let shuffled = list(&Input::of(&shuffled).results(120, 4));
    for (to, &from) in order.iter().enumerate() {
        assert_eq!(shuffled[to], in_order[from], "item {from} at place {to}");
    }
}

/// Grids in a file.
struct Input {
    folder: TempDir,
}

impl Input {
    fn of(grids: &[Grid]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        std::fs::write(folder.path().join("grids.json"), as_json(grids)).expect("a file");
        Self { folder }
    }

    /// The results as text, byte for byte, receipts apart.
    fn results(&self, batch: usize, workers: usize) -> String {
        let (batch, devices) = (batch.to_string(), format!("cpu:{workers}"));
        let arguments = ["run", PROGRAM, "--json", "--batch", &batch, "--devices", &devices];
        let call = gridpool(arguments).arg("grids.json").current_dir(self.folder.path());
        let text = call.run().output();
        let (results, receipts) = text.split_once(",\"receipts\":").expect("both are there");
        let jobs = receipts.matches("\"verdict\":\"OK\"").count();
        assert_eq!(jobs, results_in(results).div_ceil(batch.parse().expect("a number")));
        results.to_owned()
    }
}

fn results_in(results: &str) -> usize {
    list(results).len()
}

fn list(results: &str) -> Vec<Value> {
    let mut document: Value = serde_json::from_str(&format!("{results}}}")).expect("JSON");
    match document["results"][0]["output"].take() {
        Value::Array(list) => list,
        other => panic!("expected a list of results, got {other}"),
    }
}

fn is_what_the_oracle_says(results: &str, grids: &[Grid]) {
    let program = program(PROGRAM);
    let results = list(results);
    assert_eq!(results.len(), grids.len());
    for (item, (got, grid)) in results.iter().zip(grids).enumerate() {
        assert_eq!(got, &says(&program, grid), "item {item}");
    }
}
