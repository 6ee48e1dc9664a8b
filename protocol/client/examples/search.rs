//! Composes functions of the DSL, shorter compositions first, and says which tasks they solve.
//!
//! `cargo run --release -p gridpool-client --example search -- FOLDER [DEPTH] [BUDGET]` reads the ARC tasks of a
//! folder and uses the pool at `GRIDPOOL_SOCKET`, or at the default socket. Programs are made as the search needs
//! them; what is ill-typed is refused before it travels, and what equals an earlier program does not run again.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs;
use std::path::Path;

use gridpool_client::{Candidate, Client, Grid, GridBatch, Search, SearchOutcome};
use serde_json::Value;

/// Functions from a grid to a grid; holes stand for colours and numbers.
const FUNCTIONS: [&str; 22] = [
    "rot90(?)",
    "rot180(?)",
    "rot270(?)",
    "hmirror(?)",
    "vmirror(?)",
    "dmirror(?)",
    "cmirror(?)",
    "compress(?)",
    "trim(?)",
    "tophalf(?)",
    "bottomhalf(?)",
    "lefthalf(?)",
    "righthalf(?)",
    "upscale(?, TWO)",
    "hconcat(?, ?)",
    "vconcat(?, ?)",
    "subgrid(argmax(objects(?, T, F, T), size), ?)",
    "subgrid(argmin(objects(?, T, F, T), size), ?)",
    "subgrid(argmax(objects(?, F, T, T), size), ?)",
    "replace(?, A, B)",
    "fill(?, B, ofcolor(?, A))",
    "cover(?, ofcolor(?, A))",
];

/// A task's name, and its pairs among all pairs: those to learn from, then those of the test.
struct Task {
    name: String,
    train: std::ops::Range<usize>,
    test: std::ops::Range<usize>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("name a folder of ARC tasks")?;
    let depth: usize = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let budget: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let (tasks, pairs) = read(Path::new(&folder))?;
    let programs = (1..=depth).flat_map(compositions).enumerate();
    let programs = programs.map(|(at, text)| Candidate::new(at.to_string(), text)).take(budget);

    let client = Client::builder().connect()?;
    let mut stream = client.search(Search::new(pairs), programs)?;
    let mut solvers: Vec<Option<(String, bool)>> = vec![None; tasks.len()];
    for result in stream.by_ref() {
        let result = result?;
        let SearchOutcome::Done(verdicts) = result.outcome else { continue };
        for (task, solver) in tasks.iter().zip(&mut solvers) {
            let are_equal = |pairs: &std::ops::Range<usize>| {
                verdicts.bytes()[pairs.clone()].iter().all(|status| *status == 0)
            };
            // The test pairs decide nothing: they only say whether the program is right.
            if solver.is_none() && are_equal(&task.train) {
                *solver = Some((result.id.clone(), are_equal(&task.test)));
            }
        }
    }
    for (task, solver) in tasks.iter().zip(&solvers) {
        if let Some((program, is_right)) = solver {
            let word = if *is_right { "and its test" } else { "but not its test" };
            println!("{}: program {program} solves its training pairs {word}", task.name);
        }
    }
    let right = solvers.iter().flatten().filter(|(_, is_right)| *is_right).count();
    let summary = stream.summary();
    println!(
        "{right} of {} tasks solved; {} programs, {} refused, {} equal to earlier ones, {} evaluations",
        tasks.len(),
        summary.requested,
        summary.refused,
        summary.deduplicated,
        summary.evaluations.executed
    );
    Ok(())
}

/// Compositions of so many functions, with their holes for colours.
fn compositions(depth: usize) -> Box<dyn Iterator<Item = String> + Send> {
    let count = FUNCTIONS.len().pow(u32::try_from(depth).unwrap_or(u32::MAX));
    Box::new((0..count).map(move |number| {
        let (mut rest, mut text) = (number, String::new());
        for at in 1..=depth {
            let function = FUNCTIONS[rest % FUNCTIONS.len()];
            rest /= FUNCTIONS.len();
            let before = if at == 1 { "I".to_owned() } else { format!("x{}", at - 1) };
            let holes = function.replace('?', &before);
            let holes =
                holes.replace('A', &format!("?a{at}:color")).replace('B', &format!("?b{at}:color"));
            text.push_str(&format!("x{at} = {holes}\n"));
        }
        format!("{text}O = x{depth}")
    }))
}

/// The tasks of a folder, and all their pairs.
fn read(folder: &Path) -> Result<(Vec<Task>, GridBatch), Box<dyn Error>> {
    let mut paths: Vec<_> = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    paths.sort_by_key(fs::DirEntry::path);
    let (mut tasks, mut pairs) = (Vec::new(), GridBatch::of_items(2));
    for path in paths.iter().map(fs::DirEntry::path) {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let task: Value = serde_json::from_slice(&fs::read(&path)?)?;
        let mut add = |section: &str| -> Result<std::ops::Range<usize>, Box<dyn Error>> {
            let start = pairs.len();
            for pair in task[section].as_array().into_iter().flatten() {
                if pair["output"].is_array() {
                    pairs.push_pair(&grid(&pair["input"])?, Some(&grid(&pair["output"])?))?;
                }
            }
            Ok(start..pairs.len())
        };
        let (train, test) = (add("train")?, add("test")?);
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !train.is_empty() {
            tasks.push(Task { name, train, test });
        }
    }
    Ok((tasks, pairs))
}

fn grid(value: &Value) -> Result<Grid, Box<dyn Error>> {
    let rows: Vec<Vec<u8>> = serde_json::from_value(value.clone())?;
    Ok(Grid::from_rows(&rows)?)
}
