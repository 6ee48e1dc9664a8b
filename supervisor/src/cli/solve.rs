//! `gridpool solve`: runs each task's own solver over its pairs, and says which outputs equal the expected ones.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gridpool_client::{Client, Handle, Job, Outputs};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::solver::Source;
use serde_json::json;

use super::document::Solved;
use super::error::CommandError;
use super::flags::parse_seconds;
use super::input::{Body, Input};
use super::program::{FileName, ProgramText, parse, read};
use super::text::fitted;
use super::{columns, say, say_json};

/// Jobs in flight; less than the pool allows one client.
const JOBS_IN_FLIGHT_MAX: usize = 32;

/// What to solve, and with which solvers.
#[derive(Debug, Args)]
pub(super) struct SolveFlags {
    /// A file with one `def solve_TASK(I):` for each task, written as `@solvers.py` or `solvers.py`; or
    /// `FILE:NAME`, one definition for all tasks.
    solvers: PathBuf,
    /// ARC task files, or directories of them.
    #[arg(value_name = "TASKS", required = true)]
    pub(super) tasks: Vec<PathBuf>,
    /// How to choose between equally common colours: cpython (as the reference does) or lowest.
    #[arg(long, default_value = "cpython", env = "GRIDPOOL_TIES")]
    ties: Ties,
    /// Seconds from a job's submission to its verdict.
    #[arg(long, value_name = "SECONDS", default_value = "30", env = "GRIDPOOL_DEADLINE")]
    #[arg(value_parser = parse_seconds)]
    deadline: Duration,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// The result of one pair.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pair {
    Equal,
    Differs,
    /// The pair has no expected output.
    Unknown,
    Error(String),
}

/// The result of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    NoSolver,
    Refused(String),
    Pairs(Vec<Pair>),
}

/// A task before it runs.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) inputs: Vec<Grid>,
    expected: Vec<Option<Grid>>,
    program: Result<Program, Ended>,
}

impl Task {
    /// Its solver, or why that does not compile; `None` if there is none.
    pub(super) fn solver(&self) -> Option<Result<&Program, &str>> {
        match &self.program {
            Ok(program) => Some(Ok(program)),
            Err(Ended::Refused(why)) => Some(Err(why)),
            Err(Ended::NoSolver | Ended::Pairs(_)) => None,
        }
    }
}

/// The tasks of the inputs, each with its solver.
pub(super) fn prepare(flags: &SolveFlags, inputs: &[Input]) -> Result<Vec<Task>, CommandError> {
    with_solvers(&flags.solvers, flags.ties, inputs)
}

/// The tasks of the inputs, each with its solver of a file; or with one definition of it.
pub(super) fn with_solvers(
    solvers: &Path,
    ties: Ties,
    inputs: &[Input],
) -> Result<Vec<Task>, CommandError> {
    let FileName { file, definition } = FileName::of(solvers);
    let text = read(&file)?;
    let source = parse(&file, &text)?;
    let one = definition.map(|name| ProgramText::definition(&file, &source, &name)).transpose()?;
    let one = one.map(|text| text.compile(ties)).transpose()?;
    let mut tasks = Vec::new();
    for input in inputs {
        let Body::Task(task) = &input.body else {
            let name = &input.name;
            return Err(CommandError::Usage(format!(
                "{name} is no ARC task: solvers take files with train and test"
            )));
        };
        let pairs = || task.train.iter().chain(&task.test);
        let short = input.name.rsplit('/').next().unwrap_or(&input.name);
        let name = short.strip_suffix(".json").unwrap_or(short).to_owned();
        let own = || match source.extract(&format!("solve_{name}")) {
            None => Err(Ended::NoSolver),
            Some((part, first_line)) => Program::compile(part.trim_end(), ties)
                .map_err(|error| Ended::Refused(error.from_line(first_line).to_string())),
        };
        let program = one.clone().map_or_else(own, Ok);
        tasks.push(Task {
            name,
            inputs: pairs().map(|pair| pair.input.clone()).collect(),
            expected: pairs().map(|pair| pair.output.clone()).collect(),
            program,
        });
    }
    if tasks.iter().all(|task| matches!(task.program, Err(Ended::NoSolver))) {
        return Err(CommandError::Usage(no_solver(&file, &source, &tasks)));
    }
    Ok(tasks)
}

/// Says that no task has a solver, and what the file has.
fn no_solver(file: &Path, source: &Source<'_>, tasks: &[Task]) -> String {
    let file = file.display();
    let wanted = tasks.first().map_or_else(String::new, |task| format!("solve_{}", task.name));
    let others = match tasks.len().saturating_sub(1) {
        0 => String::new(),
        others => format!(", nor for {others} other tasks"),
    };
    let mut names = source.definitions().map(|(name, _)| name);
    let help = match names.next() {
        None => "it has no functions".to_owned(),
        Some(name) => format!("to run one function over all tasks, write {file}:{name}"),
    };
    format!("{file} has no `def {wanted}(I):`{others}; {help}")
}

/// Runs all tasks in a pool and prints what came of them. Exit code 1 if a result is not the expected one.
pub(super) fn run(client: &Client, flags: &SolveFlags, tasks: &[Task]) -> Result<u8, CommandError> {
    let mut waiting: VecDeque<(usize, Handle<Outputs>)> = VecDeque::new();
    let mut results: Vec<Option<Ended>> = vec![None; tasks.len()];
    for (at, task) in tasks.iter().enumerate() {
        let program = match &task.program {
            Ok(program) => program.clone(),
            Err(refused) => {
                results[at] = Some(refused.clone());
                continue;
            }
        };
        if waiting.len() == JOBS_IN_FLIGHT_MAX
            && let Some((of, handle)) = waiting.pop_front()
        {
            results[of] = Some(ended(&tasks[of], handle)?);
        }
        let batch = GridBatch::from_grids(&task.inputs);
        let batch = batch.map_err(|error| CommandError::Usage(error.to_string()))?;
        let job =
            Job::program(program, batch).map_err(|error| CommandError::Usage(error.to_string()))?;
        waiting.push_back((at, client.submit(job.with_deadline(flags.deadline))?));
    }
    for (of, handle) in waiting {
        results[of] = Some(ended(&tasks[of], handle)?);
    }
    let results: Vec<Ended> = results.into_iter().flatten().collect();
    print(flags, tasks, &results)?;
    let right = |pair: &Pair| matches!(pair, Pair::Equal | Pair::Unknown);
    let all_right = results.iter().all(|result| match result {
        Ended::NoSolver => true,
        Ended::Refused(_) => false,
        Ended::Pairs(pairs) => pairs.iter().all(right),
    });
    Ok(if all_right { exit::OK } else { exit::JOB })
}

/// The results of a task whose job has been submitted.
fn ended(task: &Task, handle: Handle<Outputs>) -> Result<Ended, CommandError> {
    let answer = handle.wait()?;
    let Some(outputs) = answer.outputs() else {
        let (verdict, reason) = (answer.receipt.verdict, &answer.receipt.reason);
        return Ok(Ended::Refused(format!("{verdict}: {reason}")));
    };
    let mut pairs = Vec::new();
    for (item, expected) in task.expected.iter().enumerate() {
        pairs.push(match (outputs.item(item), expected) {
            (Err(malformed), _) => Pair::Error(malformed.to_string()),
            (Ok(Err(error)), _) => Pair::Error(format!("{} in {}", error.code.name(), error.op)),
            (Ok(Ok(_)), None) => Pair::Unknown,
            (Ok(Ok(output)), Some(expected)) if is_grid(&output, expected) => Pair::Equal,
            (Ok(Ok(_)), Some(_)) => Pair::Differs,
        });
    }
    Ok(Ended::Pairs(pairs))
}

/// Whether a result is the expected grid. Rows of numbers are a grid, whatever their kind.
fn is_grid(output: &Output, expected: &Grid) -> bool {
    match output {
        Output::Grid(grid) => grid == expected,
        Output::Value(kind, value) => {
            let rows: Vec<_> = expected.rows().collect();
            serde_json::to_value(Solved(kind, value)).is_ok_and(|value| value == json!(rows))
        }
        Output::Colors(_)
        | Output::Flag(_)
        | Output::Number(_)
        | Output::Object(_)
        | Output::Objects(_)
        | Output::Patch(_)
        | Output::Tuple(_)
        | Output::Vector { .. } => false,
    }
}

fn print(flags: &SolveFlags, tasks: &[Task], results: &[Ended]) -> Result<u8, CommandError> {
    let all = |is: fn(&Pair) -> bool| {
        let of = |result: &Ended| match result {
            Ended::Pairs(pairs) => pairs.iter().filter(|pair| is(pair)).count(),
            Ended::NoSolver | Ended::Refused(_) => 0,
        };
        results.iter().map(of).sum::<usize>()
    };
    let whole = results.iter().filter(|result| {
        let equal = |pair: &Pair| *pair == Pair::Equal || *pair == Pair::Unknown;
        matches!(result, Ended::Pairs(pairs) if pairs.iter().all(equal))
    });
    let (whole, equal, pairs) = (whole.count(), all(|pair| *pair == Pair::Equal), all(|_| true));
    if flags.json {
        let rows = tasks.iter().zip(results).map(|(task, result)| match result {
            Ended::NoSolver => json!({ "task": task.name, "error": "no solver" }),
            Ended::Refused(why) => json!({ "task": task.name, "error": why }),
            Ended::Pairs(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(word).collect();
                json!({ "task": task.name, "pairs": pairs })
            }
        });
        let rows: Vec<_> = rows.collect();
        return say_json(
            &json!({ "tasks": rows, "solved": whole, "equal": equal, "pairs": pairs }),
        );
    }
    let rows: Vec<[String; 2]> = tasks
        .iter()
        .zip(results)
        .map(|(task, result)| [task.name.clone(), sentence(result)])
        .collect();
    let text = fitted(&rows, columns());
    let count = tasks.len();
    let without = match results.iter().filter(|result| **result == Ended::NoSolver).count() {
        0 => String::new(),
        without => format!("; {without} without a solver"),
    };
    say(&format!(
        "{}\n{whole} of {count} tasks solved; {equal} of {pairs} pairs equal{without}",
        text.trim_end()
    ))
}

fn word(pair: &Pair) -> String {
    match pair {
        Pair::Equal => "equal".to_owned(),
        Pair::Differs => "differs".to_owned(),
        Pair::Unknown => "unknown".to_owned(),
        Pair::Error(why) => format!("error: {why}"),
    }
}

fn sentence(result: &Ended) -> String {
    match result {
        Ended::NoSolver => "no solver".to_owned(),
        Ended::Refused(why) => why.lines().next().unwrap_or("").to_owned(),
        Ended::Pairs(pairs) => {
            let right =
                pairs.iter().filter(|pair| matches!(pair, Pair::Equal | Pair::Unknown)).count();
            let wrong = pairs
                .iter()
                .enumerate()
                .find(|(_, pair)| !matches!(pair, Pair::Equal | Pair::Unknown));
            match wrong {
                None => format!("solved, {right} pairs"),
                Some((at, pair)) => {
                    format!("{right} of {} pairs; pair {at} {}", pairs.len(), word(pair))
                }
            }
        }
    }
}
