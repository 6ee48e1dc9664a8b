//! `gridpool solve`: runs each task's own solver over its pairs, and says which outputs equal the expected ones.

use std::collections::VecDeque;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gridpool_client::{Answer, Canceller, Client, Handle, Job, Outputs};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::solver::Source;
use serde_json::json;

use super::document::Solved;
use super::error::CommandError;
use super::flags::parse_seconds;
use super::input::{Body, Input};
use super::interrupt::Interrupt;
use super::text::fitted;
use super::work::Unfinished;
use super::{columns, say, say_json};
use crate::programs::{FileName, ProgramText, name_of, parse, read};

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
        return Err(CommandError::NoPrograms(no_solver(&file, &source, &tasks)));
    }
    Ok(tasks)
}

/// Says that no task has a solver, and what the file has.
fn no_solver(file: &Path, source: &Source<'_>, tasks: &[Task]) -> String {
    let file = name_of(file);
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

/// Runs all tasks in a pool and prints what came of them, also of the first if Ctrl-C or an error ends the others. Exit
/// code 1 if a result is not the expected one.
pub(super) fn run(
    client: &Client,
    flags: &SolveFlags,
    tasks: &[Task],
    interrupt: &Interrupt,
) -> Result<u8, CommandError> {
    let results = tasks.iter().map(|task| task.program.as_ref().err().cloned()).collect();
    let mut jobs = Jobs { tasks, interrupt, in_flight: VecDeque::new(), results };
    interrupt.stops(|| ());
    let submitted = jobs.submit_all(client, flags.deadline);
    let taken = jobs.take_until(0);
    let ended = submitted.and(taken);
    interrupt.ends();
    let known = tasks.iter().zip(jobs.results);
    let known: Vec<_> = known.filter_map(|(task, result)| Some((task, result?))).collect();
    let (done, all) = (known.len(), tasks.len());
    let printed = if done > 0 { print(flags, all, &known) } else { Ok(exit::OK) };
    // Missing results are a worse error than closed output.
    if done < all && interrupt.has_come() {
        return Err(Unfinished::interrupted("tasks", done, all).into());
    }
    ended?;
    printed?;
    let right = |pair: &Pair| matches!(pair, Pair::Equal | Pair::Unknown);
    let all_right = known.iter().all(|(_, result)| match result {
        Ended::NoSolver => true,
        Ended::Refused(_) => false,
        Ended::Pairs(pairs) => pairs.iter().all(right),
    });
    Ok(if all_right { exit::OK } else { exit::JOB })
}

/// Jobs without an answer, in the order of their tasks, and what is known of each task.
struct Jobs<'a> {
    tasks: &'a [Task],
    interrupt: &'a Interrupt,
    in_flight: VecDeque<(usize, Handle<Outputs>)>,
    results: Vec<Option<Ended>>,
}

impl Jobs<'_> {
    fn submit_all(&mut self, client: &Client, deadline: Duration) -> Result<(), CommandError> {
        for (at, task) in self.tasks.iter().enumerate() {
            let Ok(program) = &task.program else { continue };
            self.take_until(JOBS_IN_FLIGHT_MAX - 1)?;
            if self.interrupt.has_come() {
                return Ok(());
            }
            let usage = |error: &dyn Error| CommandError::Usage(error.to_string());
            let batch = GridBatch::from_grids(&task.inputs).map_err(|error| usage(&error))?;
            let job = Job::program(program.clone(), batch).map_err(|error| usage(&error))?;
            self.in_flight.push_back((at, client.submit(job.with_deadline(deadline))?));
        }
        Ok(())
    }

    /// Takes the oldest answers until no more than `left` are missing. Ctrl-C cancels all jobs.
    fn take_until(&mut self, left: usize) -> Result<(), CommandError> {
        while self.in_flight.len() > left
            && let Some((at, handle)) = self.in_flight.pop_front()
        {
            let mut cancellers = vec![handle.canceller()];
            cancellers.extend(self.in_flight.iter().map(|(_, handle)| handle.canceller()));
            self.interrupt.stops(move || cancellers.iter().for_each(Canceller::cancel));
            let answer = handle.wait()?;
            if !self.interrupt.has_come() || answer.verdict() != Verdict::Cancelled {
                self.results[at] = Some(ended(&self.tasks[at], &answer));
            }
        }
        Ok(())
    }
}

/// The results of a task whose job has an answer.
fn ended(task: &Task, answer: &Answer<Outputs>) -> Ended {
    let Some(outputs) = answer.outputs() else {
        let (verdict, reason) = (answer.receipt.verdict, &answer.receipt.reason);
        return Ended::Refused(format!("{verdict}: {reason}"));
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
    Ended::Pairs(pairs)
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

/// Prints what is known of the tasks, and counts of it.
fn print(flags: &SolveFlags, tasks: usize, results: &[(&Task, Ended)]) -> Result<u8, CommandError> {
    let all = |is: fn(&Pair) -> bool| {
        let of = |(_, result): &(&Task, Ended)| match result {
            Ended::Pairs(pairs) => pairs.iter().filter(|pair| is(pair)).count(),
            Ended::NoSolver | Ended::Refused(_) => 0,
        };
        results.iter().map(of).sum::<usize>()
    };
    let whole = results.iter().filter(|(_, result)| {
        let equal = |pair: &Pair| *pair == Pair::Equal || *pair == Pair::Unknown;
        matches!(result, Ended::Pairs(pairs) if pairs.iter().all(equal))
    });
    let (whole, equal, pairs) = (whole.count(), all(|pair| *pair == Pair::Equal), all(|_| true));
    if flags.json {
        let rows = results.iter().map(|(task, result)| match result {
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
    let rows = results.iter().map(|(task, result)| [task.name.clone(), sentence(result)]);
    let rows: Vec<[String; 2]> = rows.collect();
    let text = fitted(&rows, columns());
    let without = match results.iter().filter(|(_, result)| *result == Ended::NoSolver).count() {
        0 => String::new(),
        without => format!("; {without} without a solver"),
    };
    say(&format!(
        "{}\n{whole} of {tasks} tasks solved; {equal} of {pairs} pairs equal{without}",
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
