//! `gridpool search`: what it prints, and how it ends.

use std::io::Write;

use gridpool_client::SEARCH_STEPS_DEFAULT;
use gridpool_protocol::program::Ties;
use gridpool_protocol::search::compile;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::binaries;
use crate::command::{Cli, Dialogue, Finished, gridpool};
use crate::jobs::data;
use crate::pool::cpu;

/// Programs of the example tasks.
const LINES: &str = r#"{"id": "turn", "program": "rot90"}
{"id": "five", "program": "O = replace(I, ONE, FIVE)"}
{"id": "same", "program": "x = rot90(I)\nO = x"}
{"id": "odd", "program": "O = rot91(I)"}
not json
{"id": "t", "program": "replace(?a:color, 5)"}
"#;

fn tasks() -> String {
    data("tasks").display().to_string()
}

#[test]
fn it_says_which_programs_solve_what_and_what_is_wrong_with_the_others() {
    let tasks = tasks();
    let search = ["search", "--programs", "-", "--tasks", &tasks, "--devices", "cpu:2"];
    let ended = gridpool(search).args(&["--verify", "0.3"]).stdin(LINES).run();
    // A line was no program.
    assert_eq!(ended.code, Some(65), "{}", ended.stderr);
    for want in ["turn  quarter_turn  2 of 2 pairs", "five  one_becomes_five  2 of 2 pairs"] {
        assert!(ended.stdout.lines().any(|line| line == want), "{want}: {}", ended.stdout);
    }
    for want in
        ["15 programs, 2 refused, 2 equal to earlier ones", "verdicts equal the reference's"]
    {
        assert!(ended.stdout.contains(want), "{want}: {}", ended.stdout);
    }
    assert!(ended.stderr.contains("is refused: line 5: it is not JSON"), "{}", ended.stderr);
    assert!(ended.stderr.contains("odd is refused: line 1, column 5"), "{}", ended.stderr);
    let best = gridpool(search).args(&["--top", "2", "--score", "cells"]).stdin(LINES).run();
    assert!(best.stdout.contains("equal cells"), "{}", best.stdout);
}

#[test]
fn json_lines_are_one_for_each_program_and_task_and_one_with_the_counts() {
    let (pool, tasks) = (cpu(1).start(), tasks());
    let ended = pool
        .cli(&["search", "--programs", "-", "--tasks", &tasks, "--json", "--score", "cells"])
        .stdin(LINES)
        .run();
    let lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, lines) = lines.split_last().unwrap();
    let of = |id: &str| lines.iter().filter(|line| line["id"] == id).collect::<Vec<_>>();
    let turn = of("turn").into_iter().find(|line| line["task"] == "quarter_turn").unwrap();
    assert_eq!((&turn["equal"], &turn["pairs"]), (&2.into(), &["equal", "equal"].into()));
    assert_eq!(turn["equal_shape"], Value::from(vec![true, true]));
    assert!(of("odd")[0]["error"].as_str().unwrap().contains("rot91"));
    assert_eq!(of("turn").len(), of("five").len());
    let summary = &summary["summary"];
    for (key, want) in [("requested", 15), ("refused", 2), ("deduplicated", 2), ("failed", 0)] {
        assert_eq!(summary[key], want, "{summary}");
    }
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/reference/json.md");
    let book = std::fs::read_to_string(book).unwrap();
    let documents = lines.iter().chain([summary]).flat_map(|of| of.as_object().unwrap().keys());
    let unknown: Vec<_> =
        documents.filter(|key| !book.contains(&format!("\n| `{key}` | "))).collect();
    assert_eq!(unknown, [""; 0], "the book explains each field");
    let pairs = 18;
    assert_eq!(summary["executed"], 11 * pairs, "{summary}");
    assert_eq!(summary["devices"], Value::from(vec!["cpu0"]));
}

#[test]
fn a_search_of_which_nothing_compiles_ends_with_the_code_of_wrong_data() {
    let (pool, tasks) = (cpu(1).start(), tasks());
    let of = |programs: &[&str]| {
        let line = |text: &&str| format!("{}\n", serde_json::json!({ "program": text }));
        let lines: String = programs.iter().map(line).collect();
        pool.cli(&["search", "--programs", "-", "--tasks", &tasks]).stdin(lines).run()
    };
    let template = "replace(?a:colour, 5)";
    let refused = of(&[template]);
    assert_eq!(refused.code, Some(65), "{}", refused.stderr);
    let says = "`colour` is no kind of hole: write ?a:color, or ?a in [word, word]";
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
    let unknown = of(&["rot91"]);
    assert_eq!(unknown.code, Some(65));
    let caret = "gridpool: standard input: program 1 is refused: there is no op `rot91`\n  rot91\n  ^^^^^\n";
    assert!(unknown.stderr.starts_with(caret), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("gridpool: the program cannot run: see why above\n"));
    assert_eq!(of(&["replace(?a in [x, y], 5)"]).code, Some(65), "every choice of it is refused");
    assert_eq!(of(&[template, "rot90"]).code, Some(0), "one ran");
    let none = of(&[]);
    assert_eq!(none.code, Some(65), "{}", none.stderr);
    assert_eq!(none.stderr.lines().count(), 1, "{}", none.stderr);
}

#[test]
fn a_file_without_a_program_that_can_run_is_told_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let task = data("tasks/quarter_turn.json");
    let long = folder.path().join("long.json");
    let parsed: Value = serde_json::from_slice(&std::fs::read(&task).unwrap()).unwrap();
    std::fs::write(&long, serde_json::to_string_pretty(&parsed).unwrap()).unwrap();
    let of = |programs: &std::path::Path| {
        let (programs, task) = (programs.display().to_string(), task.display().to_string());
        gridpool(["search", "--programs", &programs, "--tasks", &task, "--devices", "cpu:1"]).run()
    };
    for path in [&task, &long] {
        let refused = of(path);
        let says = format!("gridpool: {} is a task, not programs: ", path.display());
        assert_eq!((refused.code, &*refused.stdout), (Some(65), ""), "{}", refused.stderr);
        assert!(refused.stderr.starts_with(&says), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    let array = folder.path().join("array.json");
    std::fs::write(&array, "[\n{\"program\": \"rot90\"},\n{\"program\": \"trim\"}\n]").unwrap();
    of(&array).complains(65, &["array.json is an array: name a file with a program on each line"]);
    let none = of(&data("models/mlp.onnx"));
    assert_eq!(none.code, Some(65), "{}", none.stderr);
    assert!(none.stderr.contains("36 programs can run: see why above"), "{}", none.stderr);
}

#[test]
fn one_mistake_in_a_large_template_is_told_once_and_its_other_programs_run() {
    let pool = cpu(1).start();
    let task = data("tasks/quarter_turn.json").display().to_string();
    let text = "x = replace(I, ?a:color, ?b:color)\ny = replace(x, ?c:color, ?d:color)\nO = ";
    let searched = |call: &str| {
        let line = json!({ "id": "t", "program": format!("{text}{call}") }).to_string();
        pool.cli(&["search", "--programs", "-", "--tasks", &task]).stdin(line).run()
    };
    let told = |stderr: &str| stderr.matches("is refused").count();
    let some = searched("?f in [rot90, rot91, 7](y)");
    assert_eq!((some.code, told(&some.stderr)), (Some(0), 2), "{}", some.stderr);
    for part in ["t[f=rot91]", "t[f=7]"] {
        let says = format!(
            "program {part} is refused: of its 10000 programs, none that was tried compiles; the first: line 3"
        );
        assert!(some.stderr.contains(&says), "{}", some.stderr);
    }
    assert!(
        some.stdout.contains("10,002 programs, 10,000 made of templates on devices, 2 refused")
    );
    let none = searched("upscale(y, ?e:direction)");
    assert_eq!((none.code, told(&none.stderr)), (Some(65), 1), "{}", none.stderr);
    assert!(none.stdout.contains("1 program, 1 refused"), "{}", none.stdout);
}

#[test]
fn attempts_that_were_lost_are_told() {
    let deadly = "O = replace(rot90(I), 7, 3)";
    let hash = compile(deadly, Ties::Cpython, SEARCH_STEPS_DEFAULT).unwrap().hash();
    let pool = cpu(1).args(&["--allow-chaos"]).env("GRIDPOOL_TEST_DEADLY", &hash[..32]).start();
    let search = |text: &str| {
        let line = json!({ "program": text }).to_string();
        pool.cli(&["search", "--programs", "-", "--tasks", &tasks()]).stdin(line).run()
    };
    let ended = search(deadly);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stdout.lines().any(|line| line == "attempts lost: 2"), "{}", ended.stdout);
    assert!(!search("rot90").stdout.contains("attempts"));
}

#[test]
fn results_are_printed_while_programs_are_still_read_and_a_signal_prints_what_is_known() {
    ends_by(Signal::SIGINT);
    ends_by(Signal::SIGTERM);
}

#[test]
fn the_counts_of_a_search_that_was_stopped_add_up_to_the_programs_that_were_read() {
    let text = "x = replace(I, ?a:color, ?b:color)\ny = replace(x, ?c:color, ?d:color)\n\
                O = replace(y, ?e:color, ?f:color)";
    let task = data("tasks/one_becomes_five.json").display().to_string();
    let args = ["search", "--programs", "-", "--tasks", &task, "--devices", "cpu:1", "--json"];
    // With the folders that it has for its variables.
    let Dialogue { mut process, mut stdin, mut lines, _folder } = gridpool(args).talk();
    writeln!(stdin, "no program\n{}", json!({ "id": "t", "program": text })).expect("it reads");
    let is_of_template =
        |line: &std::io::Result<String>| line.as_ref().is_ok_and(|line| line.contains("t["));
    lines.by_ref().find(is_of_template).expect("a result").expect("it is text");
    crate::processes::signal(process.pid(), Signal::SIGINT);
    let last = lines.map(|line| line.expect("it is text")).last().expect("a line");
    let summary = &serde_json::from_str::<Value>(&last).expect("JSON")["summary"];
    let count = |name: &str| summary[name].as_u64().expect("a number");
    assert_eq!(count("requested"), 1_000_001, "{summary}");
    assert!(count("undecided") > 0, "{summary}");
    let rest = count("refused") + count("deduplicated") + count("undecided");
    let ran = count("requested") - rest;
    assert_eq!((ran, count("refused")), (count("expanded"), 1), "{summary}");
    let verdicts = summary["statuses"].as_object().expect("an object").values();
    let verdicts: u64 = verdicts.filter_map(Value::as_u64).sum();
    assert_eq!(verdicts, 2 * ran, "{summary}");
    assert_eq!(process.exit().code(), Some(130));
    drop(stdin);
}

#[test]
fn flags_of_an_own_pool_do_not_go_with_the_place_of_another_and_win_over_its_variable() {
    let pool = cpu(1).start();
    let socket = pool.socket().display().to_string();
    let search = ["search", "--programs", "-", "--tasks", &tasks()];
    let own = ["--devices", "cpu:1"];
    let both = gridpool(search).args(&own).args(&["--socket", &socket]).run();
    both.complains(2, &["'--devices' cannot be used with '--socket <SOCKET>'", "leave one"]);
    let line = json!({ "program": "rot90" }).to_string();
    // The reference's binary is not of a pool.
    let worker = binaries::worker().display().to_string();
    let checks = ["--socket", &socket, "--verify", "1", "--worker-bin", &worker];
    let ended = gridpool(search).args(&checks).stdin(line.clone()).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let nowhere = gridpool(search).args(&own).env("GRIDPOOL_SOCKET", "/no/such/pool").stdin(line);
    let ended = nowhere.run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// Sends a signal to a search that waits for its next line.
fn ends_by(signal: Signal) {
    let args = ["search", "--programs", "-", "--tasks", &tasks(), "--devices", "cpu:1"];
    // With the folders that it has for its variables.
    let Dialogue { mut process, mut stdin, mut lines, _folder } = gridpool(args).talk();
    let programs = b"no program\n{\"id\": \"turn\\n\\u001b\", \"program\": \"rot90\"}\n";
    stdin.write_all(programs).expect("it reads");
    // No name takes two lines.
    let first = lines.next().expect("a line").expect("it is text");
    assert!(first.starts_with("turn\u{fffd}\u{fffd}  "), "{first:?}");
    // Standard input is still open.
    crate::processes::signal(process.pid(), signal);
    let rest: Vec<_> = lines.map(|line| line.expect("it is text")).collect();
    assert!(rest.iter().any(|line| line.starts_with("stopped early; 2 programs")), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.starts_with("quarter_turn  turn\u{fffd}\u{fffd}  ")),
        "{rest:?}"
    );
    // Also if a line was no program.
    assert_eq!(process.exit().code(), Some(130));
    drop(stdin);
}

#[test]
fn what_cannot_be_searched_is_refused_before_a_pool_starts() {
    let tasks = tasks();
    let grids = data("grids.json").display().to_string();
    let search = |programs: &str, tasks: &str| {
        gridpool(["search", "--programs", programs, "--tasks", tasks, "--devices", "cpu:1"]).run()
    };
    search("/no/such/file.jsonl", &tasks)
        .complains(65, &["/no/such/file.jsonl: cannot be read: No"]);
    search("/proc", &tasks).complains(65, &["/proc: cannot be read: is a directory"]);
    search("-", "-").complains(2, &["standard input can be read only once"]);
    search("-", &grids).complains(2, &["plain grids", "ARC task files"]);
    let nothing = search("-", &tasks);
    assert_eq!(nothing.code, Some(65), "{}", nothing.stdout);
    assert_eq!(nothing.stderr, "gridpool: standard input has no program\n");
    let solvers = data("solvers.py").display().to_string();
    let ended = search(&solvers, &tasks);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("5 programs"), "{}", ended.stdout);
}

/// What a search of all lines leaves behind, which `end` runs: how it ended, and the bitmap without its header.
fn bitmap(end: fn(Cli) -> Finished) -> (Finished, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bits.npy").display().to_string();
    let tasks = data("tasks/quarter_turn.json").display().to_string();
    let search = gridpool(["search", "--programs", "-", "--tasks", &tasks, "--bitmap", &path]);
    let ended = end(search.args(&["--devices", "cpu:1"]).stdin(LINES));
    let bytes = std::fs::read(&path).expect("the file is there");
    assert!(String::from_utf8_lossy(&bytes[..128]).contains("'shape': (15, 1)"));
    (ended, bytes[128..].to_vec())
}

#[test]
fn a_bitmap_is_a_numpy_file_of_a_row_for_each_program() {
    let (ended, bits) = bitmap(Cli::run);
    assert_eq!(ended.code, Some(65), "{}", ended.stderr);
    assert_eq!(bits[..5], [0b11, 0, 0b11, 0, 0]);
}

#[test]
fn a_bitmap_is_whole_though_standard_output_is_closed() {
    let (ended, bits) = bitmap(Cli::without_stdout);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(bits.len(), 15);
}
