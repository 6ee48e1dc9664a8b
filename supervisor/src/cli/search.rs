//! `gridpool search`: runs programs by the million over the pairs of tasks, and says which solve what.

mod bitmap;
pub(super) mod programs;
pub(super) mod report;
mod tally;
mod tasks;
#[cfg(test)]
mod tests;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gridpool_client::{
    Check, Client, SEARCH_STEPS_DEFAULT, Score, Search, SearchOutcome, SearchStream,
};
use gridpool_ipc::clock;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::limits::STEPS_MAX;
use gridpool_protocol::program::Ties;

use super::connect::{cluster, connect};
use super::error::CommandError;
use super::flags::{PoolFlags, parse_seconds, whole};
use super::input::Input;
use super::interrupt::Interrupt;
use super::place::PlaceFlags;
use super::{in_own_pool, inputs, traceparent};
use crate::config::Settings;
use crate::devices;
use crate::programs::{is_stdin, name_of};
use bitmap::Bitmap;
use programs::Programs;
use report::{Report, since_dispatch};
use tally::Tally;
use tasks::Tasks;

/// What to search for, and where.
#[derive(Debug, Args)]
pub(super) struct SearchFlags {
    /// The programs: JSON lines `{"id": …, "program": …}` of a file, or of standard input if it is `-`; or a file of
    /// definitions, `solvers.py`. A program is the text of a solver, a chain of ops, or a template with holes such as
    /// `replace(I, ?a:color, ?b:color)`. In its place, `"bytecode"` is what `gridpool compile` printed.
    #[arg(long, value_name = "FILE")]
    programs: PathBuf,
    /// ARC task files or directories of them.
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    tasks: Vec<PathBuf>,
    /// Which pairs of a task count: train, or all that have an output.
    #[arg(long, value_enum, default_value_t)]
    pairs: tasks::Which,
    /// Steps that a program may run on a pair, instructions of loops each time anew. What runs longer ends with
    /// StepLimit, at the same step on every device.
    #[arg(long, value_name = "STEPS", default_value_t = SEARCH_STEPS_DEFAULT)]
    #[arg(value_parser = whole::<u32>(1..=u64::from(STEPS_MAX)))]
    steps: u32,
    /// What a verdict says of a pair: exact, whether the result is the expected grid; or cells, also whether it has
    /// the expected shape, and how many cells are equal.
    #[arg(long, value_name = "SCORE", default_value = "exact")]
    score: Score,
    /// Print the best K programs of each task at the end, and no line for each program.
    #[arg(long, value_name = "K", value_parser = whole::<u32>(1..=10_000))]
    top: Option<u32>,
    /// Print a JSON line for each program and task, and one with all counts at the end. Seconds leave out the time
    /// that the first job waited in the pool.
    #[arg(long)]
    json: bool,
    /// Write a NumPy file (`.npy`) of bits: a row for each program, a bit for each pair that it solves, the lowest
    /// first.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    bitmap: Option<PathBuf>,
    /// Recompute this share of the verdicts, from 0 to 1, by the reference on this machine's processor. One that
    /// differs ends the search.
    #[arg(long, value_name = "FRACTION", default_value = "0", value_parser = verify::parse_fraction)]
    verify: f64,
    /// How to choose between equally common colours: cpython (as the reference does) or lowest.
    #[arg(long, default_value = "cpython", env = "GRIDPOOL_TIES")]
    ties: Ties,
    /// Seconds from the submission of a job to its verdict. A search is cut into jobs that take less than one.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = parse_seconds)]
    deadline: Duration,
    /// Most programs of one job.
    #[arg(long, value_name = "PROGRAMS", value_parser = whole::<u32>(1..=16_384))]
    batch: Option<u32>,
    /// Compute each program whole, also what it has in common with others, and expand templates here: for comparison.
    /// Verdicts are the same.
    #[arg(long)]
    no_sharing: bool,
    /// Fail at once if no server of the cluster answers, or its streams are not there; without this flag, try again
    /// for the deadline of a job.
    #[arg(long)]
    no_wait: bool,
    /// No progress on the terminal.
    #[arg(long, short)]
    quiet: bool,
}

/// A search whose inputs have been read.
struct Prepared {
    tasks: Tasks,
    programs: Programs,
    check: Option<Check>,
    interrupt: Interrupt,
}

/// Searches in the pool at a place or, without one, in a pool of its own.
pub(super) fn command(
    flags: &SearchFlags,
    pool: &PoolFlags,
    place: Option<&PlaceFlags>,
) -> Result<u8, CommandError> {
    if is_stdin(&flags.programs) && flags.tasks.iter().any(|path| is_stdin(path)) {
        let twice = "`-` stands for the programs and for the tasks, but standard input can be read only once";
        return Err(CommandError::Usage(twice.to_owned()));
    }
    let inputs = inputs(&flags.tasks)?;
    let settings = Settings::resolve(pool.overrides(None), pool.config.as_deref())?;
    let worker = || Ok(devices::worker_binary(settings.worker_bin.as_deref())?);
    let prepared = prepare(flags, &inputs, worker)?;
    let wait = (!flags.no_wait).then_some(flags.deadline);
    if let Some(cluster) = place.map_or(Ok(None), |place| cluster(place, wait))? {
        return run(&cluster, flags, prepared);
    }
    match place.and_then(PlaceFlags::socket) {
        Some(socket) => run(&connect(Some(socket))?, flags, prepared),
        None => in_own_pool(&settings, |client| run(client, flags, prepared)),
    }
}

/// Opens the programs and gathers the pairs, so that their errors come before a pool is touched. `worker` names the
/// binary with the reference.
fn prepare(
    flags: &SearchFlags,
    inputs: &[Input],
    worker: impl FnOnce() -> Result<PathBuf, CommandError>,
) -> Result<Prepared, CommandError> {
    let interrupt = Interrupt::new()?;
    let tasks = Tasks::of(inputs, flags.pairs)?;
    let programs = Programs::open(&flags.programs)?;
    let check = match flags.verify > 0.0 {
        true => Some(verify::check(flags.verify, &worker()?, &tasks)?),
        false => None,
    };
    Ok(Prepared { tasks, programs, check, interrupt })
}

/// Searches in a pool and prints what came of it.
fn run(client: &Client, flags: &SearchFlags, prepared: Prepared) -> Result<u8, CommandError> {
    let Prepared { tasks, programs, check, interrupt } = prepared;
    let mut search = Search::new(tasks.batch().clone());
    (search.score, search.steps, search.ties) = (flags.score, flags.steps, flags.ties);
    (search.deadline, search.check) = (flags.deadline, check);
    (search.trace, search.trace_state) = traceparent::of_environment();
    if let Some(batch) = flags.batch {
        search.job_programs_max = batch as usize;
    }
    search.sharing = !flags.no_sharing;
    // A result that solves no pair has a line or a row, or a rank if cells count.
    search.only_solving = flags.bitmap.is_none()
        && if flags.top.is_some() { flags.score == Score::Exact } else { !flags.json };
    let bad_lines = programs.bad_lines();
    let mut bitmap =
        flags.bitmap.as_deref().map(|path| Bitmap::create(path, tasks.pairs())).transpose()?;
    let started = clock::now();
    let mut stream = client.search(search, programs)?;
    let stopper = stream.stopper();
    interrupt.stops(move || stopper.stop());
    let mut tally = Tally::new(&tasks, flags.top);
    let from = name_of(&flags.programs);
    let mut report = Report::new(from, flags.json, flags.quiet, flags.top.is_some());
    let ended = take_all(&mut stream, &tasks, &mut tally, &mut report, bitmap.as_mut());
    let summary = stream.summary().clone();
    drop(stream);
    let written = bitmap.map_or(Ok(()), Bitmap::finish);
    let was_stopped = interrupt.has_come();
    let elapsed = since_dispatch(started, &summary);
    let reported = report.end(&tasks, &tally, &summary, elapsed, was_stopped);
    interrupt.ends();
    // A short file is a worse error than closed output.
    let printed = ended?;
    written?;
    printed.and(reported)?;
    // Nothing ran: there is no result that a program could go on with.
    if !was_stopped {
        some_can_run(&name_of(&flags.programs), summary.requested, summary.refused)?;
    }
    Ok(match (summary.failed, bad_lines.count()) {
        (1.., _) => exit::JOB,
        _ if was_stopped => exit::INTERRUPTED,
        (0, 1..) => exit::DATA,
        (0, 0) => exit::OK,
    })
}

/// The error of programs of which none can run, and where they come from.
pub(super) fn some_can_run(from: &str, requested: u64, refused: u64) -> Result<(), CommandError> {
    let why = match requested {
        0 => format!("{from} has no program"),
        _ if refused < requested => return Ok(()),
        1 => "the program cannot run: see why above".to_owned(),
        all => format!("none of the {all} programs can run: see why above"),
    };
    Err(CommandError::NoPrograms(why))
}

/// Takes all results of a stream. The inner error: they could not be printed, and all are in the bitmap.
fn take_all(
    stream: &mut SearchStream,
    tasks: &Tasks,
    tally: &mut Tally,
    report: &mut Report,
    mut bitmap: Option<&mut Bitmap>,
) -> Result<Result<(), CommandError>, CommandError> {
    let mut printed = Ok(());
    while let Some(step) = stream.step() {
        report.progress(stream.summary());
        let Some(result) = step? else { continue };
        tally.add(tasks, &result);
        if let Some(bitmap) = bitmap.as_deref_mut() {
            match &result.outcome {
                SearchOutcome::Done(verdicts) => bitmap.row(verdicts.bytes())?,
                SearchOutcome::Refused(_) | SearchOutcome::Failed { .. } => bitmap.row(&[])?,
            }
        }
        if printed.is_ok() {
            printed = report.result(tasks, &result);
        }
        if printed.is_err() && bitmap.is_none() {
            break;
        }
    }
    Ok(printed)
}
