//! The command line: parses it, runs the command, and reports the result. The only place that turns errors
//! into exit codes.

mod advice;
mod arguments;
mod bench;
mod chaos;
mod check;
mod child;
mod cluster;
mod columns;
mod compile;
mod completions;
mod config;
mod connect;
mod diagnose;
pub mod document;
mod error;
mod export;
pub(crate) mod faults;
mod flags;
mod given;
mod hints;
mod infer;
pub mod input;
mod interrupt;
mod jobs;
mod load;
mod misplaced;
mod model;
mod npy;
mod onnx;
mod operator;
mod ops;
mod output;
mod own_pool;
mod place;
mod policy;
#[cfg(test)]
mod primitives;
mod private;
mod program;
pub mod progress;
#[cfg(test)]
mod reference;
mod reload;
mod replay;
mod report;
pub mod results;
mod scratch;
mod search;
mod serve;
pub mod show;
mod solve;
mod state;
mod status;
mod text;
mod token;
mod top;
mod traceparent;
mod truth;
mod variables;
mod watch;
pub(crate) mod words;
mod work;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use gridpool_client::Client;
use gridpool_ipc::clock;
use gridpool_protocol::build;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::color::Colors;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::log::LogFormat;
use gridpool_protocol::message::Priority;
use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;

use crate::bridge;
use crate::config::Settings;
use crate::devices;
use crate::gateway;
use crate::logging;
use crate::shell;
use crate::traces;
use arguments::{Arguments, Command, ProgramFlags};
use connect::{connect, connect_for_job, socket_path};
use error::{CommandError, system};
use export::Export;
use flags::{ChaosFlag, PoolFlags, QueueFlags, Read};
use input::{Input, InputError, Inputs, Stdin};
use interrupt::Interrupt;
use operator::{drained, print_result};
use own_pool::{in_own_pool, start_pool};
use place::{OwnGiven, PlaceFlags};
use progress::Progress;
use results::Results;
use show::{Style, printable_lines};
use variables::UnreadVariable;
use work::JobPlan;

/// Columns of an unknown terminal.
const COLUMNS_DEFAULT: usize = 100;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    shell::survive_file_size_limit();
    shell::limit_heaps();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.kind() == ErrorKind::DisplayVersion => {
            return ExitCode::from(end_of(print_version(), LogFormat::Human));
        }
        Err(error) => {
            let typed: Vec<_> = std::env::args_os().collect();
            let error = given::as_given(error, &typed, |name| std::env::var_os(name));
            return ExitCode::from(end_of(
                print_parsed(&hints::with_hint(error)),
                LogFormat::Human,
            ));
        }
    };
    let (command, format) = (&arguments.command, arguments.log_format);
    let quiet = if is_helper(command) || matches!(command, Command::Serve(_)) {
        LevelFilter::INFO
    } else if matches!(command, Command::Diagnose { .. } | Command::Top { .. }) {
        // A log line would spoil the picture of `top`; `diagnose` injects faults on purpose.
        LevelFilter::OFF
    } else {
        LevelFilter::ERROR
    };
    let started = logging::start(arguments.log_format, quiet).map_err(CommandError::Filter);
    let done = started.and_then(|()| {
        warn_of_variables(&arguments);
        perform(arguments.command)
    });
    let code = end_of(done, format);
    logging::flush();
    ExitCode::from(code)
}

/// Prints help, or why the command line is wrong.
fn print_parsed(error: &clap::Error) -> Result<u8, CommandError> {
    // So may what was typed; the text of the error has no colours of its own.
    let steers = |typed: OsString| typed.to_string_lossy().contains(char::is_control);
    let printed = match error.use_stderr() && std::env::args_os().any(steers) {
        true => write!(io::stderr(), "{}", printable_lines(&error.render().to_string())),
        false => error.print().and_then(|()| io::stdout().flush()),
    };
    match error.use_stderr() {
        // If standard error is closed too, the exit code must do.
        true => Ok(exit::USAGE),
        false => printed.map_err(CommandError::Output).map(|()| exit::OK),
    }
}

/// Whether `serve` starts this process.
fn is_helper(command: &Command) -> bool {
    matches!(command, Command::Bridge(_) | Command::Gateway(_) | Command::Tracer(_))
}

/// Warns of unknown `GRIDPOOL_` variables, in commands that read any. It ignores the log filter: `run` logs
/// only errors, and would go on with other devices than the user meant.
fn warn_of_variables(arguments: &Arguments) {
    // `serve` warns before it starts the gateway; `config check` warns in its own list.
    let is_asked = !is_helper(&arguments.command)
        && !matches!(
            arguments.command,
            Command::Config(config::ConfigCommand::Check { .. })
                | Command::Completions { .. }
                | Command::Ops { .. }
        );
    for variable in unread().into_iter().filter(|_| is_asked) {
        let says = format!("warning: {}: {}", variable.name, variable.says());
        let field = ("variable", variable.name.into());
        say_in_log(arguments.log_format, tracing::Level::WARN, &says, field);
    }
}

/// Writes a line to the log, whatever its filter; JSON has the field too.
fn say_in_log(format: LogFormat, level: tracing::Level, says: &str, (name, value): (&str, Value)) {
    match format {
        // A path or a program in it may have characters that steer a terminal.
        LogFormat::Human => logging::write_line(&printable_lines(&format!("gridpool: {says}"))),
        LogFormat::Json => {
            let fields = Map::from_iter([(name.to_owned(), value)]);
            logging::write_json(level, "gridpool", says, fields);
        }
    }
}

/// Variables of the environment that look like ours and that no command reads.
fn unread() -> Vec<UnreadVariable> {
    UnreadVariable::here(&Arguments::command())
}

/// The exit code of a command; writes its error to the log.
fn end_of(done: Result<u8, CommandError>, log_format: LogFormat) -> u8 {
    match done {
        Ok(code) => code,
        // The reader of our output has closed it, as `head` does: not an error.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => exit::OK,
        Err(error) => {
            let code = error.exit_code();
            let said = Chain(&error).to_string();
            // If standard error is closed too, the exit code must do.
            say_in_log(log_format, tracing::Level::ERROR, &said, ("exit_code", code.into()));
            code
        }
    }
}

fn perform(command: Command) -> Result<u8, CommandError> {
    match command {
        Command::Bench { bench, pool } => {
            bench::run(&bench, &Settings::resolve(pool.overrides(None), pool.config.as_deref())?)
        }
        Command::Chaos { chaos, socket } => chaos::run(&chaos, socket.socket),
        Command::Diagnose { diagnose, pool, socket } => {
            diagnose::run(&diagnose, &pool, socket.socket)
        }
        Command::Infer { infer, place } => {
            let pool = |wait: Option<Duration>| match connect::cluster(&place, wait)? {
                Some(cluster) => Ok((cluster, true)),
                None => Ok((connect_for_job(place.socket(), wait.is_none())?, false)),
            };
            infer::run(&infer, pool)
        }
        Command::Model(command) => model::run(&command),
        Command::Models(flags) => model::list(&flags),
        Command::Run { work, pool, chaos } => run(&work, &pool, &chaos),
        Command::Gateway(flags) => {
            gateway::run(&flags)?;
            Ok(exit::OK)
        }
        Command::Bridge(flags) => {
            bridge::run(flags)?;
            Ok(exit::OK)
        }
        Command::Tracer(flags) => {
            traces::run(&flags)?;
            Ok(exit::OK)
        }
        Command::Serve(flags) => serve::serve(&flags),
        Command::Config(command) => config::run(&command, &unread()),
        Command::Check(flags) => check::run(&flags),
        Command::Compile(flags) => compile::run(&flags),
        Command::Search { own: Read(OwnGiven(is_own)), search, pool, place } => {
            search::command(&search, &pool, (!is_own).then_some(&place))
        }
        Command::Cluster(command) => cluster::run(&command),
        Command::Solve { solve, pool } => solve_tasks(&solve, &pool),
        Command::Completions { shell } => completions::print(shell),
        Command::Submit { work, place, queue } => submit(&work, &place, &queue),
        Command::Ops { op, json, markdown } => ops::print(&op, json, markdown),
        Command::Status { socket, policy: false, config: _, json } => {
            status::print(socket.socket, json)
        }
        Command::Status { socket, policy: true, config, json } => {
            policy::print(socket.socket, config.as_deref(), json)
        }
        Command::Jobs(flags) => jobs::run(&flags),
        Command::Replay { replay, pool } => replay::run(&replay, &pool),
        Command::Report { report, socket } => report::run(&report, &socket),
        Command::Watch { watch, socket } => watch::run(&watch, socket.socket),
        Command::Token(command) => token::run(&command),
        Command::Top { top, place } => top::run(&top, &place),
        Command::Kill { worker, signal, socket } => {
            print_result(connect(socket.socket)?.kill(worker, signal as i32))
        }
        Command::Release { what, socket } => print_result(connect(socket.socket)?.release(what)),
        Command::Upgrade { one_by_one, socket } => {
            let client = Client::builder().socket(socket_path(socket.socket)?);
            let client = client.reconnect_for(Duration::ZERO).connect()?;
            print_result(if one_by_one { client.upgrade_one_by_one() } else { client.upgrade() })
        }
        Command::Drain { socket } => {
            let client = connect(socket.socket)?;
            client.drain()?;
            drained(client.wait_closed()?)
        }
    }
}

// ---- commands ----

fn run(work: &ProgramFlags, flags: &PoolFlags, chaos: &ChaosFlag) -> Result<u8, CommandError> {
    if work.explain {
        return check::explain(work);
    }
    let prepared = prepare(work, true)?;
    let settings = Settings::resolve(chaos.over(flags.overrides(None)), flags.config.as_deref())?;
    in_own_pool(&settings, |client| run_plan(client, work, prepared))
}

fn solve_tasks(flags: &solve::SolveFlags, pool: &PoolFlags) -> Result<u8, CommandError> {
    let tasks = solve::prepare(flags, &inputs(&flags.tasks)?)?;
    let settings = Settings::resolve(pool.overrides(None), pool.config.as_deref())?;
    let interrupt = Interrupt::new()?;
    in_own_pool(&settings, |client| solve::run(client, flags, &tasks, &interrupt))
}

fn submit(
    work: &ProgramFlags,
    place: &PlaceFlags,
    &QueueFlags { priority, no_wait }: &QueueFlags,
) -> Result<u8, CommandError> {
    if work.explain {
        return check::explain(work);
    }
    let mut prepared = prepare(work, !no_wait)?;
    prepared.plan.priority = priority;
    let (deadline, started) = (work.deadline, clock::now());
    let client = match connect::cluster(place, (!no_wait).then_some(deadline))? {
        Some(cluster) => {
            prepared.plan.deadline = connect::left_of(deadline, started);
            cluster
        }
        None => connect_for_job(place.socket(), no_wait)?,
    };
    run_plan(&client, work, prepared)
}

/// Prints this build, and the build and kernels of the worker's binary, if it can be found.
fn print_version() -> Result<u8, CommandError> {
    let named = std::env::var_os("GRIDPOOL_WORKER_BIN").map(PathBuf::from);
    let worker = devices::worker_binary(named.as_deref()).ok();
    let worker = worker.and_then(|worker| devices::version_of(&worker).ok());
    let own = format!("gridpool {}\n", build::text());
    say((own + &worker.unwrap_or_default()).trim_end())
}

// ---- steps of the commands ----

/// A program and its inputs, and the file for the results.
struct Prepared {
    plan: JobPlan,
    inputs: Inputs,
    export: Option<Export>,
    interrupt: Interrupt,
}

/// Reads program and inputs, so that their errors come before the pool is touched.
fn prepare(work: &ProgramFlags, wait_if_busy: bool) -> Result<Prepared, CommandError> {
    let (program, text, paths) = program::compiled(work)?;
    let (text, paths) = (&text, &paths);
    let inputs = inputs(paths);
    let typed = work.program.as_deref().filter(|typed| text == typed);
    let inputs = inputs.map_err(|error| misplaced::input(typed, paths, error))?;
    let inputs = Inputs::new(inputs, &program)?;
    let export = work.output.as_deref().map(|path| Export::open(path, &program)).transpose()?;
    let batch_items = usize::try_from(work.batch).unwrap_or(usize::MAX);
    let priority = Priority::default();
    let plan = JobPlan { program, deadline: work.deadline, priority, batch_items, wait_if_busy };
    Ok(Prepared { plan, inputs, export, interrupt: Interrupt::new()? })
}

/// The inputs of a command line. Standard input is free then: programs may come from it, too.
fn inputs(paths: &[PathBuf]) -> Result<Vec<Input>, InputError> {
    let mut stdin = io::stdin().lock();
    let is_terminal = stdin.is_terminal();
    input::read(paths, Stdin { is_terminal, reader: &mut stdin })
}

/// Runs the plan, writes its results to the file, and prints them.
fn run_plan(client: &Client, work: &ProgramFlags, prepared: Prepared) -> Result<u8, CommandError> {
    let Prepared { plan, inputs, export, interrupt } = prepared;
    let started = clock::now();
    let progress = Progress::new(inputs.item_count() as u64, work.quiet || work.json);
    let (results, unfinished) = work::run(client, &plan, &inputs, &progress, &interrupt);
    progress.finish();
    let written = match &unfinished {
        // No job has a verdict: print the error alone and no empty document.
        Some(unfinished) if unfinished.is_bare() => Ok(exit::OK),
        Some(_) | None => {
            let elapsed = started.elapsed().saturating_sub(results.queued());
            let exported = export.map_or(Ok(()), |export| export.write(&inputs, &results));
            let printed = print(|out| write_results(out, work, &inputs, &results, elapsed));
            exported.and(printed)
        }
    };
    // Missing results are a worse error than closed output.
    unfinished.map_or(Ok(()), Err)?;
    written?;
    let all = inputs.item_count();
    match results.worst_receipt(0..all) {
        None => Ok(exit::OK),
        Some(worst) if results.has_partial() => {
            Err(CommandError::partial(worst, results.done(0..all), all))
        }
        Some(_) => Ok(exit::JOB),
    }
}

fn write_results(
    out: &mut dyn Write,
    work: &ProgramFlags,
    inputs: &Inputs,
    results: &Results,
    elapsed: Duration,
) -> io::Result<()> {
    if work.json {
        // Every cell is a write of its own: a buffer of a known type takes them without a virtual call.
        let mut out = io::BufWriter::new(out);
        document::write(&mut out, inputs, results)?;
        return out.flush();
    }
    let colors = Colors::of(io::stdout().is_terminal());
    let style = Style { all: work.all, colors, columns: columns() };
    show::write(out, inputs, results, elapsed, style)
}

/// Prints a JSON document on one line.
fn say_json(what: &impl serde::Serialize) -> Result<u8, CommandError> {
    let text = serde_json::to_string(what).map_err(|error| CommandError::Output(error.into()))?;
    say(&text)
}

fn say(what: &str) -> Result<u8, CommandError> {
    writeln!(io::stdout(), "{what}").map_err(CommandError::Output)?;
    Ok(exit::OK)
}

/// Prints what `write` writes.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, CommandError> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(CommandError::Output)?;
    Ok(exit::OK)
}

fn columns() -> usize {
    let terminal = terminal_size::terminal_size();
    terminal.map_or(COLUMNS_DEFAULT, |(terminal_size::Width(columns), _)| usize::from(columns))
}
