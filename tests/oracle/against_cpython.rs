//! Compares the oracle with real CPython, whose results `tests/data/make_cpython_fixture.py` recorded.

use std::fs;
use std::io::{self, Write};

use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::{Program, Ties, hex};
use gridpool_tests::oracle::tasks::{self, Task};
use gridpool_tests::oracle::{Item, cells, colors, python_set::PythonSet, text};
use rayon::prelude::*;
use serde_json::{Map, Value};
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
        let cells = cells::of_grid(&Grid::from_rows(&[&sequence]).unwrap());
        let set: PythonSet = sequence.into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), order, "{line}");
        assert_eq!(colors::most_common(&cells, Ties::Cpython), Some(most[0]), "{line}");
        assert_eq!(colors::least_common(&cells, Ties::Cpython), Some(least[0]), "{line}");
    }
}

#[test]
fn every_op_gives_what_cpython_gives() {
    let fixture = fixture();
    let programs = strings(&fixture["grid_programs"]);
    let cases = list(&fixture["grids"]);
    assert!(cases.len() >= 33 && programs.len() >= 854, "the fixture has been cut short");
    for case in cases {
        check(&programs, &OwnedItem::read(&case["grid"]), case);
    }
}

#[test]
fn every_op_on_pairs_gives_what_cpython_gives() {
    let fixture = fixture();
    let programs = strings(&fixture["pair_programs"]);
    let cases = list(&fixture["pairs"]);
    assert!(cases.len() >= 25 && programs.len() >= 44, "the fixture has been cut short");
    for case in cases {
        check(&programs, &OwnedItem::read(&case["pair"]), case);
    }
}

#[test]
fn random_chains_give_what_cpython_gives() {
    let fixture = fixture();
    let cases = list(&fixture["random"]);
    assert!(cases.len() >= 500, "the fixture has been cut short");
    for case in cases {
        let program = case["program"].as_str().expect("a program");
        check(&[program], &OwnedItem::read(&case["item"]), case);
    }
}

#[test]
fn every_arc_grid_and_pair_gives_what_cpython_gave() {
    let Some(tasks) = tasks::arc_tasks() else {
        return say("GRIDPOOL_ARC is not set: not compared with CPython");
    };
    let fixture = fixture();
    let compiled = |name: &str| -> Vec<Program> {
        strings(&fixture[name]).iter().map(|text| compile(text, Ties::Cpython)).collect()
    };
    let (of_grids, of_pairs) = (compiled("arc_grid_programs"), compiled("arc_pair_programs"));
    let programs = [of_grids, of_pairs].concat();
    // A row of digests for every task, one for every program.
    let row = |task| programs.iter().map(|program| digest(program, task)).collect();
    let rows: Vec<Vec<[u8; 32]>> = tasks.par_iter().map(row).collect();
    let of_tasks = object(&fixture["arc"]);
    assert_eq!(tasks.len(), of_tasks.len());
    let wrong_task = |(task, row): &(&Task, &Vec<_>)| joint(row.iter()) != of_tasks[&task.name];
    let wrong_tasks = tasks.iter().zip(&rows).filter(wrong_task).map(|(task, _)| &task.name);
    let of_programs = object(&fixture["arc_by_program"]);
    let texts = [strings(&fixture["arc_grid_programs"]), strings(&fixture["arc_pair_programs"])];
    let texts = texts.concat().into_iter().enumerate();
    let wrong_programs = texts.filter_map(|(at, text)| {
        (joint(rows.iter().map(|row| &row[at])) != of_programs[text]).then_some(text)
    });
    let (wrong_programs, wrong_tasks) =
        (wrong_programs.collect::<Vec<_>>(), wrong_tasks.collect::<Vec<_>>());
    assert!(wrong_programs.is_empty(), "{wrong_programs:?} on {wrong_tasks:?}");
    assert!(wrong_tasks.is_empty(), "{wrong_tasks:?}");
    let grids: usize = tasks.iter().map(|task| task.grids.len()).sum();
    say(&format!("{} ARC tasks, {grids} grids, {} programs", tasks.len(), programs.len()));
}

/// The digest of a program's results for all grids, or all pairs, of a task.
fn digest(program: &Program, task: &Task) -> [u8; 32] {
    let items: Vec<Item<'_>> = if program.grids_per_item() == 1 {
        task.grids.iter().map(Item::from).collect()
    } else {
        task.items().map(Item::from).collect()
    };
    let lines = items.into_iter().map(|item| text::line(program, item) + "\n");
    Sha256::digest(lines.collect::<String>()).into()
}

/// One short digest of several.
fn joint<'a>(digests: impl Iterator<Item = &'a [u8; 32]>) -> String {
    let digests: Vec<[u8; 32]> = digests.copied().collect();
    hex(&Sha256::digest(digests.as_flattened())[..8])
}

/// An item of the fixture.
enum OwnedItem {
    Grid(Grid),
    Pair(Grid, Option<Grid>),
}

impl OwnedItem {
    /// A grid is a list of strings; a pair is two grids or a grid and null.
    fn read(value: &Value) -> Self {
        let parts = list(value);
        if parts[0].is_string() {
            return Self::Grid(tasks::grid(value));
        }
        Self::Pair(tasks::grid(&parts[0]), (!parts[1].is_null()).then(|| tasks::grid(&parts[1])))
    }

    fn item(&self) -> Item<'_> {
        match self {
            Self::Grid(grid) => Item::Grid(grid),
            Self::Pair(input, output) => Item::Pair(input, output.as_ref()),
        }
    }
}

/// Compares every program on one item, under both tie modes, with the case's lines.
fn check(programs: &[&str], item: &OwnedItem, case: &Value) {
    let lines = strings(&case["cpython"]);
    assert_eq!(lines.len(), programs.len());
    let differ = object(&case["lowest_where_it_differs"]);
    for (&text, cpython) in programs.iter().zip(lines) {
        let lowest = differ.get(text).map_or(cpython, |line| line.as_str().expect("a line"));
        for (ties, want) in [(Ties::Cpython, cpython), (Ties::Lowest, lowest)] {
            let got = text::line(&compile(text, ties), item.item());
            assert_eq!(got, want, "`{text}`, ties {ties}, on {:?}", item.item());
        }
    }
}

fn fixture() -> Value {
    let text = fs::read_to_string(tasks::data().join("cpython.json")).expect("the file is there");
    serde_json::from_str(&text).expect("the file is JSON")
}

fn compile(text: &str, ties: Ties) -> Program {
    Program::compile(text, ties).expect(text)
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a JSON object")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a JSON array")
}

fn strings(value: &Value) -> Vec<&str> {
    list(value).iter().map(|item| item.as_str().expect("a string")).collect()
}

fn colors_of(digits: &str) -> Vec<u8> {
    digits.bytes().map(|digit| digit - b'0').collect()
}

/// Prints past libtest's capture, so that a run without the ARC tasks says so.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").expect("standard error is open");
}
