//! The examples of the client library, each against a pool of its own.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

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
fn compositions_solve_the_same_tasks_as_those_of_the_python_example() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("found.json").display().to_string();
    let tasks = crate::jobs::data("tasks").display().to_string();
    let pool = cpu(2).start();
    let said = run(env!("CARGO_BIN_EXE_example-search"), &pool, &[&tasks, "1500", &file]);
    let read = |path: &Path| -> Value {
        let text = std::fs::read_to_string(path).expect("a file");
        serde_json::from_str(&text).expect("JSON")
    };
    let (found, want) = (read(Path::new(&file)), read(&crate::jobs::data("solved.json")));
    let answers = found["answers"].as_array().expect("answers").iter();
    let answers: Vec<_> =
        answers.map(|of| json!([of["task"], of["right"], of["program"]])).collect();
    assert_eq!(json!(answers), want, "{said}");
    assert!(said.contains("quarter_turn  solved by  rot90(I)\n"), "{said}");
    let [tasks, solved, missed] = ["tasks", "solved", "missed"].map(|key| &found[key]);
    let counts = format!("{solved} of {tasks} tasks solved, {missed} missed:\n");
    assert!(said.contains(&counts), "{said}");
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
