//! The examples of the client library, each against a pool of its own.

use std::path::Path;
use std::process::Command;

use crate::pool::{Pool, cpu};

/// Runs an example against a pool; gives what it prints.
#[track_caller]
fn run(example: &str, pool: &Pool, arguments: &[&str]) -> String {
    let mut command = Command::new(example);
    command.args(arguments).env("GRIDPOOL_SOCKET", pool.socket());
    let output = command.output().expect("the example can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", Path::new(example).display());
    String::from_utf8(output.stdout).expect("an example prints text")
}

#[test]
fn grids_are_submitted_and_their_results_printed() {
    let said = run(env!("CARGO_BIN_EXE_example-grids"), &cpu(1).start(), &[]);
    assert!(said.starts_with("cpu0#1 on "), "{said}");
    assert!(said.contains("0: Grid(") && said.contains("1: Grid("), "{said}");
}

#[test]
fn a_batch_is_loaded_once_for_many_programs() {
    let said = run(env!("CARGO_BIN_EXE_example-load-once"), &cpu(2).start(), &[]);
    assert!(said.starts_with("10000 grids in "), "{said}");
    assert_eq!(said.matches(": 10000 results after ").count(), 4, "{said}");
    assert!(said.ends_with("the last Ok(Number(2))\n"), "{said}");
}

#[test]
fn a_model_is_asked() {
    let Some(pool) = crate::infer::pool(&["mlp"]) else { return };
    let said = run(env!("CARGO_BIN_EXE_example-model"), &pool, &["mlp"]);
    assert!(said.contains("FP32 [") && said.contains("\n  ["), "{said}");
}

#[test]
fn functions_are_composed_and_some_tasks_are_solved() {
    let tasks = crate::jobs::data("tasks").display().to_string();
    let said = run(env!("CARGO_BIN_EXE_example-search"), &cpu(2).start(), &[&tasks, "2", "1500"]);
    assert!(
        said.contains("quarter_turn: program 0 solves its training pairs and its test"),
        "{said}"
    );
    assert!(said.contains(" of 8 tasks solved; "), "{said}");
}

#[test]
fn the_status_is_watched() {
    let said = run(env!("CARGO_BIN_EXE_example-status"), &cpu(1).start(), &["2"]);
    assert_eq!(said.matches("cpu0#1 Ready, 0 jobs\n").count(), 2, "{said}");
    assert!(said.ends_with("0 jobs accepted, 0 waiting\n"), "{said}");
}

#[test]
fn many_jobs_are_awaited() {
    let said = run(env!("CARGO_BIN_EXE_example-futures"), &cpu(1).start(), &[]);
    assert_eq!(said.matches("Ok(Grid(").count(), 10, "{said}");
}
