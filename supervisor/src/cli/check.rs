//! `gridpool check`: compiles programs and says what they are, without a pool.

use std::path::PathBuf;

use clap::Args;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::program::{Program, Step, Ties};
use gridpool_protocol::solver::{Kind, Line, Solver};
use serde_json::{Value, json};

use super::arguments::ProgramFlags;
use super::error::CommandError;
use super::program::compiled;
use super::show::{counted, printable};
use super::text::fitted;
use super::{columns, say, say_json};
use crate::programs::{FileName, ProgramText, parse, read};

/// What to check.
#[derive(Debug, Args)]
pub(super) struct CheckFlags {
    /// A file with programs, `FILE:NAME` for one of them, or `-` for standard input; `@FILE` and `@FILE:NAME` as
    /// for run.
    file: PathBuf,
    /// Check every definition of the file and say which compile.
    #[arg(long, conflicts_with = "explain")]
    all: bool,
    /// Print the program of the machine.
    #[arg(long)]
    explain: bool,
    /// How to choose between equally common colours: cpython (as the reference does) or lowest.
    #[arg(long, default_value = "cpython", env = "GRIDPOOL_TIES")]
    ties: Ties,
    /// Print one JSON document.
    #[arg(long, conflicts_with = "explain")]
    json: bool,
}

/// Checks one program, or all of a file. Exit code 65 if one does not compile.
pub(super) fn run(flags: &CheckFlags) -> Result<u8, CommandError> {
    if flags.all {
        return all(flags);
    }
    let program = ProgramText::file(&flags.file)?.compile(flags.ties)?;
    match program.solver() {
        None if flags.json => {
            say_json(&json!({ "gives": program.gives().to_string(), "hash": program.hash() }))
        }
        None if flags.explain => say(explained(&program).trim_end()),
        None => say(&format!(
            "a chain of {} ops from {} to {}",
            program.steps().len(),
            program.takes(),
            program.gives()
        )),
        Some(solver) if flags.json => say_json(&document(solver)),
        Some(_) if flags.explain => say(explained(&program).trim_end()),
        Some(solver) => say(&description(solver)),
    }
}

/// Prints what the program of a command line compiles to.
pub(super) fn explain(work: &ProgramFlags) -> Result<u8, CommandError> {
    let (program, ..) = compiled(work)?;
    say(explained(&program).trim_end())
}

/// What a program compiles to: one line for each op of a chain with its types, or for each instruction of a solver.
fn explained(program: &Program) -> String {
    let Some(solver) = program.solver() else {
        let steps = program.steps().iter().enumerate();
        let row = |(at, step): (usize, &Step)| {
            [at.to_string(), step.to_string(), format!("{} -> {}", step.takes, step.gives)]
        };
        return fitted(&steps.map(row).collect::<Vec<_>>(), columns());
    };
    let code = solver.code();
    format!(
        "{solver}gives {}; {} instructions, {} registers; at most {} steps on an item",
        code.gives(),
        code.instructions().len(),
        code.registers(),
        code.step_limit(),
    )
}

/// The lines of a solver with their kinds, and what it needs.
fn description(solver: &Solver) -> String {
    let rows: Vec<[String; 3]> = solver
        .lines()
        .iter()
        .map(|line| {
            let name = line.name.clone().unwrap_or_else(|| "return".to_owned());
            [line.line.to_string(), name, kind(line).unwrap_or_else(|| "a function".to_owned())]
        })
        .collect();
    let code = solver.code();
    let mut text = fitted(&rows, columns());
    text.push_str(&format!(
        "\ngives {}; {}, {}, {}, {}; hash {}",
        code.gives(),
        counted(code.instructions().len() as u64, "instruction"),
        counted(code.registers() as u64, "register"),
        counted(code.constants().len() as u64, "constant"),
        counted(code.kinds().len() as u64, "kind"),
        &solver.hash()[..12],
    ));
    text
}

/// The kind of a line's value, or those of which it has one, in words.
fn kind(line: &Line) -> Option<String> {
    let kinds: Vec<_> = line.kinds.iter().map(Kind::to_string).collect();
    (!kinds.is_empty()).then(|| kinds.join(" or "))
}

fn document(solver: &Solver) -> Value {
    let code = solver.code();
    let lines = solver
        .lines()
        .iter()
        .map(|line| json!({ "line": line.line, "name": line.name, "kind": kind(line) }));
    json!({
        "gives": code.gives().to_string(),
        "instructions": code.instructions().len(),
        "registers": code.registers(),
        "constants": code.constants().len(),
        "hash": &**solver.hash(),
        "lines": lines.collect::<Vec<_>>(),
    })
}

/// Whether the text of a program that compiles has this function, which does not compile alone: then it calls it.
fn defines(part: &str, name: &str) -> bool {
    let words = part.lines().filter_map(|line| line.strip_prefix("def "));
    words.filter_map(|head| head.split('(').next()).any(|own| own.trim() == name)
}

/// Checks every definition of a file. A function that works on something else than a grid is no program, and no
/// mistake if a program calls it.
fn all(flags: &CheckFlags) -> Result<u8, CommandError> {
    let FileName { file, definition } = FileName::of(&flags.file);
    if let Some(name) = definition {
        let file = file.display();
        return Err(CommandError::Usage(format!(
            "--all checks every definition: write {file} --all, or {file}:{name} without --all"
        )));
    }
    let text = read(&file)?;
    let source = parse(&file, &text)?;
    let compiled = source.definitions().filter_map(|(name, line)| {
        let (part, first_line) = source.extract(name)?;
        let program = Program::compile(part.trim_end(), flags.ties);
        Some((name, line, part, program.map_err(|error| error.from_line(first_line))))
    });
    let compiled: Vec<_> = compiled.collect();
    let (mut rows, mut documents, mut failed, mut called) = (Vec::new(), Vec::new(), 0, 0);
    for (name, line, _, program) in &compiled {
        let calls = |of: &&(_, _, String, Result<_, _>)| of.3.is_ok() && defines(&of.2, name);
        let (says, document) = match (program, compiled.iter().find(calls)) {
            (Ok(program), _) => match program.solver() {
                Some(solver) => (solver.code().gives().to_string(), document(solver)),
                None => {
                    (program.gives().to_string(), json!({ "gives": program.gives().to_string() }))
                }
            },
            (Err(_), Some((caller, ..))) => {
                called += 1;
                let says = format!("is no program by itself: {caller} calls it");
                (says, json!({ "called_by": caller }))
            }
            (Err(error), None) => {
                failed += 1;
                let error = error.to_string();
                let first = printable(error.lines().next().unwrap_or(""));
                (format!("does not compile: {first}"), json!({ "error": error }))
            }
        };
        rows.push([line.to_string(), (*name).to_owned(), says]);
        documents.push(json!({ "name": name, "line": line, "program": document }));
    }
    let count = rows.len() - called;
    if flags.json {
        say_json(&json!({ "definitions": documents, "compiled": count - failed }))?;
    } else {
        let text = fitted(&rows, columns());
        say(&format!("{}\n{} of {count} compile", text.trim_end(), count - failed))?;
    }
    Ok(if failed == 0 { exit::OK } else { exit::DATA })
}
