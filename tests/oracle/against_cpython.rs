//! The oracle against real CPython, as `tests/data/make_cpython_fixture.py` wrote it down.

use std::fs;
use std::io::{self, Write};

use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::{Object, Output};
use gridpool_protocol::program::{Program, Ties, hex};
use gridpool_tests::oracle::{self, colors, picture::Picture, python_set::PythonSet, tasks};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

#[test]
fn a_set_lists_its_colours_as_cpython_does() {
    let fixture = fixture();
    let lines = strings(&fixture["sequence_order_most_least"]);
    // Every order of first appearance of one to four colours, and 1,500 longer sequences.
    assert_eq!(lines.len(), 10 + 90 + 720 + 5_040 + 1_500);
    for line in lines {
        let fields: Vec<Vec<u8>> = line.split(' ').map(colors_of).collect();
        let [sequence, order, most, least] = fields.try_into().expect("four fields");
        let picture = Picture::of(&Grid::from_rows(&[&sequence]).unwrap());
        let set: PythonSet = sequence.into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), order, "{line}");
        assert_eq!(colors::most_common(&picture, Ties::Cpython), most[0], "{line}");
        assert_eq!(colors::least_common(&picture, Ties::Cpython), least[0], "{line}");
    }
}

#[test]
fn every_op_gives_what_cpython_gives() {
    let fixture = fixture();
    let cases = fixture["grids"].as_array().expect("a list of grids");
    assert!(cases.len() >= 40, "the fixture has been cut short");
    for case in cases {
        let grid = tasks::grid(&case["grid"]);
        for (text, result) in object(&case["cpython"]) {
            let lowest = object(&case["lowest_where_it_differs"]).get(text).unwrap_or(result);
            for (ties, want) in [(Ties::Cpython, result), (Ties::Lowest, lowest)] {
                let got = as_the_script_writes_it(&oracle::run(&compile(text, ties), &grid));
                assert_eq!(&got, want, "{text}, ties {ties}, on {}", case["grid"]);
            }
        }
    }
}

#[test]
fn every_arc_grid_gives_what_cpython_gave() {
    let Some(tasks) = tasks::arc_training() else {
        return say("the ARC training tasks are absent: not compared with CPython");
    };
    let fixture = fixture();
    let texts = strings(&fixture["arc_programs"]);
    let programs: Vec<Program> = texts.iter().map(|text| compile(text, Ties::Cpython)).collect();
    let digests = object(&fixture["arc"]);
    assert_eq!(tasks.len(), digests.len());
    for task in &tasks {
        let mut digest = Sha256::new();
        for grid in &task.grids {
            for program in &programs {
                let result = as_the_script_writes_it(&oracle::run(program, grid));
                digest.update(format!("{result}\n"));
            }
        }
        assert_eq!(hex(&digest.finalize()[..8]), digests[&task.name], "task {}", task.name);
    }
    let grids: usize = tasks.iter().map(|task| task.grids.len()).sum();
    say(&format!("{} ARC tasks, {grids} grids, {} programs", tasks.len(), programs.len()));
}

fn fixture() -> Value {
    let text = fs::read_to_string(tasks::data().join("cpython.json")).expect("the file is there");
    serde_json::from_str(&text).expect("the file is JSON")
}

fn compile(text: &str, ties: Ties) -> Program {
    Program::compile(text, ties).expect("the fixture's programs compile")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a JSON object")
}

fn strings(value: &Value) -> Vec<&str> {
    let list = value.as_array().expect("a JSON array");
    list.iter().map(|item| item.as_str().expect("a string")).collect()
}

fn colors_of(digits: &str) -> Vec<u8> {
    digits.bytes().map(|digit| digit - b'0').collect()
}

/// Rows as strings of digits, an object as one flat list: color, row, col, color, row, …
fn as_the_script_writes_it(output: &Output) -> Value {
    let digits = |row: &[u8]| row.iter().map(u8::to_string).collect::<String>();
    let flat = |object: &Object| -> Vec<u8> {
        object.iter().flat_map(|cell| [cell.color, cell.row, cell.col]).collect()
    };
    match output {
        Output::Colors(colors) => json!(colors),
        Output::Grid(grid) => grid.rows().map(digits).collect(),
        Output::Number(number) => json!(number),
        Output::Objects(objects) => objects.iter().map(flat).collect(),
    }
}

/// Past libtest's capture, so that a run without the ARC tasks says so.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").expect("standard error is open");
}
