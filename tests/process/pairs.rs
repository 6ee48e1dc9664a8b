//! Programs over pairs: their inputs, their results, and refused inputs.

use std::fs;
use std::path::Path;

use gridpool_protocol::program::Type;
use serde_json::{Value, json};

use crate::command::gridpool;
use crate::documents::{by_oracle, entry, read};
use crate::jobs::{data, program};

/// Every op on pairs, and what may follow it. On the examples some give `MissingOutput` or `BadShape`.
const PROGRAMS: [&str; 13] = [
    "first",
    "second | o_g(5)",
    "nth(-1)",
    "last | palette",
    "get_nth_t(0) | numcolors",
    "hconcat",
    "vconcat | compress",
    "cellwise(0)",
    "apply(rot90)",
    "mapply(rot90 | o_g(1) | argmax(size) | subgrid)",
    "mapply(ofcolor(0)) | apply(ulcorner)",
    "apply(mostcolor)",
    "apply(vmirror) | hconcat | objects(true, true, true)",
];

fn run(program: &str, arguments: &[&str]) -> crate::command::Cli {
    gridpool(["run", program, "--json"].iter().chain(arguments))
}

#[test]
fn each_pair_gives_one_result_in_its_place_in_every_kind_of_input() {
    let tasks = gridpool_tests::oracle::tasks::examples();
    let list = data("pairs.json").display().to_string();
    for text in PROGRAMS {
        let program = program(text);
        assert_eq!(program.takes(), Type::PAIR);
        // Jobs that end within a task and hold pairs of several.
        let call = run(text, &["--devices", "cpu:2", "--batch", "4"]);
        let document = call.arg(data("tasks")).arg(&list).run().document();
        let of_task = |name: &str| read(&data(&format!("tasks/{name}.json")));
        let mut want: Vec<Value> = tasks
            .iter()
            .map(|task| entry(&task.name, by_oracle(&program, &of_task(&task.name))))
            .collect();
        want.push(entry(&list, by_oracle(&program, &read(&data("pairs.json")))));
        assert_eq!(document["results"], Value::Array(want), "{text}");
        let pairs: usize = tasks.iter().map(|task| task.pairs.len()).sum();
        let receipts = document["receipts"].as_array().expect("a list of receipts");
        let items: u64 = receipts.iter().filter_map(|receipt| receipt["items"].as_u64()).sum();
        assert_eq!((items, receipts.len()), (pairs as u64 + 5, (pairs + 5).div_ceil(4)));
    }
}

#[test]
fn pairs_are_read_from_standard_input() {
    let text = r#"[{"input": [[1, 2]], "output": [[3]], "note": "a remark"}, {"input": [[4]]}]"#;
    let document = run("apply(dmirror)", &["--devices", "cpu:1", "-"]).stdin(text).run().document();
    let output = &document["results"][0]["output"];
    assert_eq!(output[0], json!([[[1], [2]], [[3]]]));
    assert_eq!(output[1]["error"]["code"], "MissingOutput");
    assert_eq!(document["results"][0]["input"], "-");
    let task = r#"{"test": [{"input": [[1, 2]]}]}"#;
    let document = run("first", &["--devices", "cpu:1"]).stdin(task).run().document();
    assert_eq!(document["results"][0]["output"], json!({"train": [], "test": [[[1, 2]]]}));
}

#[test]
fn a_program_over_grids_works_on_both_sides_of_each_pair() {
    let program = program("rot90");
    let call = run("rot90", &["--devices", "cpu:1"]).arg(data("pairs.json"));
    let output = &call.run().document()["results"][0]["output"];
    assert_eq!(output, &by_oracle(&program, &read(&data("pairs.json"))));
    assert_eq!(output[1], json!({"input": [[0, 7], [7, 0]]}), "no output came of none");
}

#[test]
fn a_program_over_pairs_refuses_plain_grids_and_names_a_program_for_them() {
    let lists = [("grids.json", "8 plain grids"), ("grids.npy", "5 plain grids")];
    for (file, holds) in lists {
        let path = data(file).display().to_string();
        let sentence = format!(
            "gridpool: {path}: the program takes pairs, and this holds {holds}: give a task, a \
             directory of tasks or an array of pairs, [{{\"input\": grid, \"output\": grid}}]"
        );
        for (text, instead) in [
            ("apply(rot90) | second", ", or run `rot90` on it\n"),
            ("first", ", or run `identity` on it\n"),
            ("hconcat", "]\n"),
        ] {
            // One input of several is enough.
            let call = run(text, &["--devices", "cpu:1"]).arg(data("tasks")).arg(data(file));
            call.run().complains(65, &[&sentence, instead]);
        }
    }
    let call = run("first", &[]).stdin("[[[1]]]").run();
    call.complains(
        65,
        &["gridpool: standard input: the program takes pairs, and this holds 1 plain"],
    );
}

#[test]
fn wrong_pairs_are_refused_with_the_place_of_the_error() {
    let cases = [
        (r#"[{"input": [[1]]}, [[1]]]"#, "grid 1: this is a grid in a list of pairs"),
        (r#"[[[1]], {"input": [[1]]}]"#, "pair 1: this is a pair in a list of grids"),
        (r#"[{"input": [[1]], "output": [[1, 2], [3]]}]"#, "pair 0, output: row 1 has 1 cells"),
        (r#"[{"input": [[1]]}, {"input": [[12]]}]"#, "pair 1, input, row 0, column 0: 12 is not"),
        (r#"[{"input": [[1]], "input": [[1]]}]"#, "pair 0: the key `input` is there twice"),
        (r#"[{"input": null}]"#, "pair 0, input: expected a grid, a list of rows, found null"),
        (r#"[{"input": [[1]], "output": null}]"#, "pair 0, output: expected a grid"),
        (r#"[{"input": []}]"#, "pair 0, input: the grid is empty"),
        (r#"[{"input": [[1]]}, {}]"#, "pair 1: the key `input` is missing"),
        (r#"[{"input": [[1]]}, 7]"#, "grid 1: expected a grid (a list of rows) or a pair"),
        (r#"[{"train": [{"input": [[1]]}]}]"#, "pair 0: there is no key `train` here"),
        (r#"{"input": [[1]], "output": [[1]]}"#, "this is one pair, not a list of pairs"),
        (r#"[{"input": [[1]]"#, "line 1, column 16: not JSON"),
        ("[]", "it holds no grid"),
        (r#"{"train": [], "test": []}"#, "it has no pair in `train` or `test`"),
    ];
    for (text, words) in cases {
        for program in ["first", "rot90"] {
            let finished = run(program, &["--devices", "cpu:1"]).stdin(text).run();
            finished.complains(65, &[&format!("gridpool: standard input: {words}")]);
        }
    }
}

#[test]
fn files_of_one_name_in_two_directories_get_different_names() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let write = |path: &str, color: u8| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
        let task = json!({"train": [{"input": [[color]]}], "test": []});
        fs::write(path, task.to_string()).expect("a file can be written");
    };
    write("one/same.json", 1);
    write("two/same.json", 2);
    write("two/other.json", 3);
    let names = |arguments: &[&str]| -> Vec<Value> {
        let call =
            gridpool(["run", "first", "--json", "--devices", "cpu:1"].iter().chain(arguments));
        let document = call.current_dir(folder.path()).run().document();
        let results = document["results"].as_array().expect("a list of results").clone();
        results.into_iter().map(|mut result| result["input"].take()).collect()
    };
    assert_eq!(names(&["two"]), ["other", "same"]);
    assert_eq!(names(&["one", "two"]), ["one/same", "other", "two/same"]);
    assert_eq!(names(&["two", "two/same.json"]), ["other", "same", "two/same.json"]);
}

#[test]
fn pairs_are_shown_side_by_side() {
    let call = gridpool(["run", "apply(rot90)", "--devices", "cpu:1"]).arg(data("pairs.json"));
    let text = call.run().output();
    let path: &Path = &data("pairs.json");
    let want = format!(
        "{}  OK
pair 0         pair 1: MissingOutput in input: the pair has no output grid  pair 2
first  second                                                               first  second
 4 1    6 5 4                                                                0 8    0 8
 5 2    3 2 1                                                                8 0    9 0
 6 3

",
        path.display()
    );
    assert!(text.starts_with(&want), "{text}");
    assert!(text.contains("\n1 input, 5 pairs: 1 OK; 1 item error: 1 MissingOutput; "), "{text}");
    assert!(text.contains("\ncpu0#1  5 pairs  validate x1, rot90 x1\n"), "{text}");
}
