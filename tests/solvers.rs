//! arc-dsl's 400 solvers against arc-dsl itself, run by Python with sets in canonical order: every statement of every
//! solver, on every pair of its task.
//!
//! It needs the folder with arc-dsl, `GRIDPOOL_ARC_DSL`, the ARC tasks, `GRIDPOOL_ARC`, and python3. Without the first
//! two it says so and passes.

#![expect(clippy::print_stdout, reason = "it says what it compared, or why it did not")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use gridpool_kernels::reference::machine::{Failed, Machine};
use gridpool_protocol::limits::STEPS_DEFAULT;
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::{Ties, hex};
use gridpool_protocol::solver::value::{Grid, NO_VECTOR, NOTHING, Value};
use gridpool_protocol::solver::{Solver, Source, traced};
use gridpool_tests::oracle::tasks;
use rayon::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Statements whose values cannot be compared: a branch between a set and a tuple, which are one kind here, and the
/// values of a set of functions, which Python orders by their addresses.
const APART: &[(&str, &str)] = &[("53b68214", "x17"), ("36d67576", "x24"), ("36d67576", "x25")];

/// What the oracle says of one pair.
#[derive(Debug, Deserialize)]
struct Oracle {
    task: String,
    pair: usize,
    /// Name and digest of each statement's value; no digest for a function, and `!` with the exception at the end.
    lines: Vec<(String, Option<String>)>,
}

/// A value as the oracle writes it.
fn written(value: &Value, text: &mut String) {
    let mut all = |open: char, values: &[Value], close: char| {
        text.push(open);
        for value in values {
            written(value, text);
            text.push(',');
        }
        text.push(close);
    };
    let number = |half: i16| Value::Number(i32::from(half));
    match value {
        Value::Vector(NO_VECTOR) => text.push_str("()"),
        Value::Number(NOTHING) => text.push_str("nothing"),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::Vector(halves) => all('(', &halves.map(number), ')'),
        Value::Cell(color, place) => all('(', &[number(*color), Value::Vector(*place)], ')'),
        Value::Pair(halves) => all('(', &[halves.0.clone(), halves.1.clone()], ')'),
        Value::Set(_) => all('{', value.elements(), '}'),
        Value::Tuple(_) => all('(', value.elements(), ')'),
        Value::Grid(grid) => {
            text.push('(');
            for row in grid.rows() {
                text.push('(');
                row.iter().for_each(|cell| text.push_str(&format!("{cell},")));
                text.push_str("),");
            }
            text.push(')');
        }
    }
}

fn digest(value: &Value) -> String {
    let mut text = String::new();
    written(value, &mut text);
    hex(&Sha256::digest(text))
}

fn folders() -> Option<(PathBuf, PathBuf)> {
    let dsl = env::var_os("GRIDPOOL_ARC_DSL").map(PathBuf::from);
    dsl.zip(tasks::arc_folder())
}

/// The inputs of each task's pairs.
fn inputs() -> BTreeMap<String, Vec<Value>> {
    let all = tasks::arc_tasks().unwrap_or_default();
    let value = |grid: &gridpool_protocol::batch::Grid| {
        let cells = grid.cells().iter().map(|cell| cell.cast_signed()).collect();
        Value::Grid(Grid::new(grid.h(), grid.w(), cells).expect("a task has grids").into())
    };
    let of_task = |task: &tasks::Task| task.pairs.iter().map(|(input, _)| value(input)).collect();
    all.iter().map(|task| (task.name.clone(), of_task(task))).collect()
}

/// What was compared of some tasks.
#[derive(Default)]
struct Compared {
    solvers: usize,
    values: usize,
    differences: Vec<String>,
    /// The most steps of a value.
    most: u32,
}

/// Tasks of one run of Python.
const CHUNK: usize = 40;

#[test]
fn every_statement_of_every_solver_equals_arc_dsl() {
    let Some(folders) = folders() else {
        return println!("GRIDPOOL_ARC_DSL or GRIDPOOL_ARC is not set: not compared with arc-dsl");
    };
    let text = fs::read_to_string(folders.0.join("solvers.py")).unwrap();
    let inputs = inputs();
    let names: Vec<&String> = inputs.keys().collect();
    let chunks = names.par_chunks(CHUNK).map(|names| compared(&folders, &text, &inputs, names));
    let mut all = Compared::default();
    for some in chunks.collect::<Vec<_>>() {
        all.solvers += some.solvers;
        all.values += some.values;
        all.differences.extend(some.differences);
        all.most = all.most.max(some.most);
    }
    let Compared { solvers, values, differences, most } = all;
    println!(
        "{solvers} solvers, {values} values compared, {} differ, at most {most} steps",
        differences.len()
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(solvers, 400);
}

/// Compares the solvers of these tasks with Python's.
fn compared(
    (dsl, arc): &(PathBuf, PathBuf),
    text: &str,
    inputs: &BTreeMap<String, Vec<Value>>,
    names: &[&String],
) -> Compared {
    let source = Source::parse(text).expect("arc-dsl's solvers are definitions");
    let mut python = Command::new("python3")
        .arg(tasks::data().join("solver_oracle.py"))
        .args([dsl, arc])
        .arg("--digest")
        .args(names)
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is python3");
    let lines = BufReader::new(python.stdout.take().expect("it is piped")).lines();
    let mut known: Option<(String, BTreeMap<String, Solver>)> = None;
    let mut done = Compared::default();
    let mut machine = Machine::default();
    for line in lines {
        let oracle: Oracle =
            serde_json::from_str(&line.expect("it is text")).expect("a line of the oracle");
        let Oracle { task, pair, lines } = oracle;
        if known.as_ref().is_none_or(|(of, _)| *of != task) {
            let (part, _) =
                source.extract(&format!("solve_{task}")).expect("each task has a solver");
            let whole =
                Solver::compile(&part, Ties::Cpython).map_err(|error| format!("{task}: {error}"));
            let whole = whole.expect("arc-dsl's solvers compile");
            let named = whole.lines().iter().filter(|line| !line.kinds.is_empty());
            let names = named.filter_map(|line| line.name.clone());
            let until = |name: String| {
                let solver =
                    Solver::compile(&traced(&part, &name).expect("a statement"), Ties::Cpython)
                        .expect("it compiles");
                (name, solver)
            };
            known = Some((task.clone(), names.map(until).collect()));
            done.solvers += 1;
        }
        let Some((_, compiled)) = &known else { continue };
        for (name, want) in lines {
            if APART.contains(&(task.as_str(), name.as_str())) {
                continue;
            }
            let Some(solver) = compiled.get(&name) else {
                if let Some(want) = want {
                    done.differences
                        .push(format!("{task} pair {pair} {name}: no value; arc-dsl has {want}"));
                }
                continue;
            };
            let got = machine.run(solver.code(), inputs[&task][pair].clone(), STEPS_DEFAULT);
            done.values += 1;
            let got = match got {
                Ok(finished) => {
                    done.most = done.most.max(finished.steps);
                    digest(&finished.value)
                }
                Err(failed) => format!("!{:?} {:?}", failed.code, solver.place(failed.instruction)),
            };
            if want.as_ref() != Some(&got) {
                done.differences
                    .push(format!("{task} pair {pair} {name}: {got}; arc-dsl has {want:?}"));
                break;
            }
        }
    }
    assert!(python.wait().expect("it was started").success());
    done
}

/// A changed solver, and what arc-dsl gives for it on a grid.
#[derive(Debug, Deserialize)]
struct Mutant {
    task: String,
    text: String,
    input: Vec<Vec<i8>>,
    /// The digest of the result, or `!` and the name of an exception; none for a function.
    value: Option<String>,
}

/// How many mutants are run, unless `GRIDPOOL_MUTANTS` says otherwise.
const MUTANTS: &str = "400";

#[test]
fn changed_solvers_give_what_arc_dsl_gives_or_an_error_where_it_has_one() {
    let Some((dsl, arc)) = folders() else {
        return println!("GRIDPOOL_ARC_DSL or GRIDPOOL_ARC is not set: no solvers are changed");
    };
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let (count, seed) = (setting("GRIDPOOL_MUTANTS", MUTANTS), setting("GRIDPOOL_SEED", "1"));
    let mut python = Command::new("python3")
        .arg(tasks::data().join("solver_oracle.py"))
        .args([&dsl, &arc])
        .args(["--mutants", &count, &seed])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let mut machine = Machine::default();
    let (mut equal, mut errors, mut refused, mut unlike) = (0, 0, 0, 0);
    let (mut bounds, mut wrong) = (0, Vec::new());
    for line in lines {
        let mutant: Mutant = serde_json::from_str(&line.unwrap()).unwrap();
        let Mutant { task, text, input, value } = &mutant;
        let failed = value.as_ref().is_none_or(|value| value.starts_with('!'));
        let solver = match Solver::compile(text, Ties::Cpython) {
            Ok(solver) => solver,
            // Kinds are checked before anything runs, whether or not the place is reached.
            Err(mistakes) => {
                refused += 1;
                unlike += usize::from(!failed);
                if !failed && env::var_os("GRIDPOOL_SAY").is_some() {
                    println!("{task}: {mistakes}");
                }
                continue;
            }
        };
        let width = input.first().map_or(0, Vec::len);
        let grid = Grid::new(input.len(), width, input.concat()).unwrap();
        match machine.run(solver.code(), Value::Grid(grid.into()), STEPS_DEFAULT) {
            Ok(finished) if Some(digest(&finished.value)) == *value => equal += 1,
            Err(_) if failed => errors += 1,
            Ok(finished) => {
                let mut got = String::new();
                written(&finished.value, &mut got);
                got.truncate(400);
                wrong.push(format!("{task}: {value:?}, not {got}\n{text}\n"));
            }
            // Here numbers, colours and grids have bounds, a grid's rows have one length, and a vector two numbers.
            Err(Failed { code: ItemErrorCode::Overflow | ItemErrorCode::BadShape, .. }) => {
                bounds += 1
            }
            Err(Failed { instruction, .. })
                if solver.place(instruction).is_some_and(|(op, _)| op == "convert") =>
            {
                bounds += 1;
            }
            Err(failed) => wrong.push(format!("{task}: {value:?}, not {failed:?}\n{text}\n")),
        }
    }
    assert!(python.wait().unwrap().success());
    println!(
        "{equal} equal, {errors} errors on both sides, {bounds} over a bound, {refused} refused ({unlike} of them run \
         in Python), {} differ",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
