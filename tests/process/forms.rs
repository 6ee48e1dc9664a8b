//! The 13 program forms of the ARC reports' benchmark ([`FORMS`]) on real pairs, by `submit` to a pool of
//! processes: the results are right, and the receipt names the op that was launched.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::program::Program;
use gridpool_tests::oracle::programs::FORMS;
use gridpool_tests::oracle::tasks::arc_folder;
use serde_json::Value;

use crate::documents::{self, Item, batch, by_oracle, entry, items, placed, read};
use crate::jobs::{data, program};
use crate::pool::{Pool, cpu};

#[test]
fn the_reports_forms_run_on_the_example_tasks_as_the_oracle_says() {
    let pool = cpu(2).start();
    let names: Vec<PathBuf> = json_files(&data("tasks"));
    for (form, ops) in FORMS {
        let program = program(form);
        let want = names.iter().map(|path| entry(&stem(path), by_oracle(&program, &read(path))));
        runs(&pool, &data("tasks"), &program, ops, &want.collect::<Vec<_>>());
    }
}

#[test]
fn the_reports_forms_run_on_every_arc_task_as_the_reference_says() {
    let Some(folder) = arc_folder() else {
        return say("GRIDPOOL_ARC is not set: the forms ran on the examples alone");
    };
    let pool = cpu(2).start();
    let paths = json_files(&folder);
    let tasks: Vec<Value> = paths.iter().map(|path| read(path)).collect();
    for (form, ops) in FORMS {
        let program = program(form);
        let pairs: Vec<Item> = tasks.iter().flat_map(|task| items(&program, task)).collect();
        let outputs = run_batch(&program, &batch(&program, &pairs)).expect("the batch has pairs");
        let mut results = (0..outputs.len()).map(|item| documents::item(&outputs, item));
        let want = paths.iter().zip(&tasks);
        let want =
            want.map(|(path, task)| entry(&stem(path), placed(&program, task, &mut results)));
        runs(&pool, &folder, &program, ops, &want.collect::<Vec<_>>());
    }
    say(&format!("{} ARC tasks, {} forms", tasks.len(), FORMS.len()));
}

/// Submits all tasks of a folder, and compares results and receipts.
fn runs(pool: &Pool, folder: &Path, program: &Program, ops: &[&str], want: &[Value]) {
    let text = program.text();
    let document = pool.cli(&["submit", text, "--json"]).arg(folder).run().document();
    let got = document["results"].as_array().expect("a list of results");
    assert_eq!(got.len(), want.len(), "{text}");
    for (got, want) in got.iter().zip(want) {
        assert!(
            got == want,
            "`{text}` of {}:\n{}\n{}",
            want["input"],
            got["output"],
            want["output"]
        );
    }
    let pairs = |task: &Value| ["train", "test"].map(|part| task["output"][part].clone());
    let pairs = want.iter().flat_map(pairs).filter_map(|pairs| Some(pairs.as_array()?.len()));
    let receipts = document["receipts"].as_array().expect("a list of receipts");
    let items = receipts.iter().filter_map(|receipt| receipt["items"].as_u64());
    assert_eq!(items.sum::<u64>(), pairs.sum::<usize>() as u64, "{text}");
    let steps = program.steps().iter();
    for receipt in receipts {
        let kernels = receipt["attempts"][0]["kernels"].as_array().expect("a list of kernels");
        for op in ops {
            let launches = kernels.iter().filter(|kernel| kernel["name"] == *op);
            let launches: u64 = launches.filter_map(|kernel| kernel["launches"].as_u64()).sum();
            let times = steps.clone().filter(|step| step.op.name() == *op).count() as u64;
            assert!(launches >= times.max(1), "`{text}` did not launch {op}: {receipt}");
        }
    }
}

/// The tasks of a folder in the order of their names.
fn json_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder can be listed");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let mut paths: Vec<PathBuf> = paths.filter(is_json).collect();
    paths.sort();
    paths
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a file has a name").to_string_lossy().into_owned()
}

/// Prints a line past the test runner's capture.
fn say(what: &str) {
    drop(writeln!(io::stderr(), "{what}"));
}
