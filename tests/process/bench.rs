//! `gridpool bench`: every row is compared and proven before it has a number, and none is printed for
//! what is wrong. How large the numbers are is not tested.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::binaries;
use crate::command::{Finished, gridpool};
use crate::pool::stub_worker;

/// A bench of one program on a worker that has this fault; native rates are the true worker's.
fn on_stubs(fault: &str) -> Finished {
    gridpool(["bench", "--quick", "--devices", "cpu:1", "--batches", "1", "--ops", "rot90"])
        .arg("--worker-bin")
        .arg(stub_worker())
        .env("GRIDPOOL_STUB", fault)
        .env("GRIDPOOL_STUB_REAL", binaries::worker())
        .run()
}

#[test]
fn a_quick_bench_compares_and_proves_every_row() {
    let call = gridpool(["bench", "--quick", "--json", "--devices", "cpu:2"]);
    let call = call.arg("--batches=1,32").arg("--ops=identity,o_g(5)");
    let document = call.run().document();
    assert!(document["machine"]["cores"].as_u64() >= Some(1), "{}", document["machine"]);
    let rows = document["rows"].as_array().expect("a list of rows");
    let sections: BTreeSet<_> = rows.iter().filter_map(|row| row["section"].as_str()).collect();
    let want = ["end_to_end", "latency", "limits", "native", "scheduling"];
    assert_eq!(sections, want.into());
    for row in rows {
        assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
        let value = |key: &str| row["value"][key].as_f64().expect("a number");
        assert!(0.0 < value("min") && value("min") <= value("median"), "{row}");
        assert!(value("median") <= value("max"), "{row}");
        assert!(row["value"]["repetitions"].as_u64() >= Some(5), "{row}");
        if row["runner"] != "library" && row["section"] != "limits" {
            is_proven(row);
        }
        if row["section"] == "end_to_end" {
            assert!(row["to_native"].as_f64() > Some(0.0), "{row}");
        }
        if row["section"] == "latency" {
            assert!(row["latency"]["jobs"].as_u64() >= Some(100), "{row}");
            assert!(row["latency"]["hops"]["worker_us"].as_f64() >= Some(0.0), "{row}");
        }
    }
}

/// Its receipts name workers of the pool that called the program's functions.
fn is_proven(row: &Value) {
    let proof = &row["proof"];
    let workers = proof["workers"].as_array().expect("a list of workers");
    assert!(!workers.is_empty(), "{row}");
    assert!(workers.iter().all(|worker| worker == "cpu0#1" || worker == "cpu1#1"), "{row}");
    assert!(proof["jobs"].as_u64() >= Some(1), "{row}");
    let kernels = proof["kernels"].as_array().expect("a list of kernels");
    assert!(kernels.iter().all(|kernel| kernel["launches"].as_u64() >= Some(1)), "{row}");
    let names: Vec<_> = kernels.iter().filter_map(|kernel| kernel["name"].as_str()).collect();
    let program = row["program"].as_str().expect("a program");
    let first = program.split(['|', '(']).next().expect("a first op").trim();
    let first = if first == "o_g" { "objects" } else { first };
    assert!(names.contains(&first), "{first} is not among {names:?}");
}

#[test]
fn results_that_are_wrong_have_no_rate_and_the_exit_code_says_so() {
    let Finished { code, stdout, stderr } = on_stubs("gives-zeros");
    assert_eq!(code, Some(70), "{stdout}{stderr}");
    assert!(stderr.contains("rows are wrong"), "{stderr}");
    assert!(stdout.contains("WRONG: item 0 of a job (grid 0) from cpu0#1 differs"), "{stdout}");
    let (_, pools) = stdout.split_once("cpu:1 pool").expect("a section for the CPU's pool");
    let rates = pools.lines().filter(|line| line.starts_with("rot90"));
    // Its grids and the size of its jobs, and nothing after them.
    assert!(rates.clone().count() >= 3, "{pools}");
    for line in rates {
        assert!(line.split_whitespace().count() <= 4, "{line}");
    }
}

#[test]
fn a_worker_that_launches_nothing_is_not_believed() {
    let Finished { code, stdout, stderr } = on_stubs("launches-nothing");
    assert_eq!(code, Some(70), "{stdout}{stderr}");
    assert!(stdout.contains("cpu0#1 answered, and its launch counters did not move"), "{stdout}");
}

#[test]
fn a_table_fits_a_screen_and_a_picture_shows_its_rates() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let picture = folder.path().join("rates.svg");
    let call = gridpool(["bench", "--quick", "--devices", "cpu:1", "--ops", "rot90"]);
    let text = call.arg("--batches=1,2k").arg("--plot").arg(&picture).run().output();
    for words in ["NATIVE", "LATENCY", "END TO END", "x native", "   2k "] {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    let rows = text.lines().filter(|line| !line.starts_with("LIMITS") && !line.contains("cores, "));
    let widest = rows.map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{text}");
    let svg = fs::read_to_string(&picture).expect("a picture");
    assert_eq!(svg.matches("<circle").count(), 4, "two batches on two kinds of grids");
    assert!(svg.contains("rot90"), "{svg}");
}

#[test]
fn what_bench_does_not_know_is_a_usage_error() {
    let bench = || gridpool(["bench", "--quick", "--devices", "cpu:1"]);
    let unknown = bench().arg("--ops=no such").run();
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("there are identity, rot90"), "{}", unknown.stderr);
    bench().arg("--batches=2M").run().complains(2, &["from 1 to 1M"]);
    bench().arg("--repetitions=4").run().complains(2, &["5..=1000"]);
    bench().arg("--plot=/no/such/x.svg").run().complains(2, &["there is no folder /no/such"]);
}
