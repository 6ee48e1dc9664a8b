//! The command line: reads what was typed, does it, and says what came of it. The one place that
//! turns errors into exit codes.

mod arguments;
mod bench;
mod chaos;
mod child;
mod completions;
mod config;
mod diagnose;
pub mod document;
mod error;
mod given;
mod infer;
pub mod input;
mod model;
mod ops;
mod policy;
mod private;
pub mod progress;
pub mod results;
pub mod show;
mod status;
mod text;
mod top;
mod work;

use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError};
use gridpool_protocol::clock;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::log::LogFormat;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::Verdict;
use nix::sys::signal::{SigSet, Signal};
use serde_json::Map;
use tracing::level_filters::LevelFilter;

use crate::config::{Overrides, Settings};
use crate::devices;
use crate::gateway;
use crate::logging;
use crate::shell::{Ended, Front, Notifier, Shell};
use arguments::{Arguments, ChaosFlag, Command, PoolFlags, ServeFlags, Work};
use error::{CommandError, system};
use input::{Inputs, Stdin};
use policy::Source;
use progress::Progress;
use results::Results;
use show::Look;
use work::Plan;

/// Columns where the terminal does not say.
const COLUMNS_DEFAULT: usize = 100;

/// Does what was typed.
#[must_use]
pub fn main() -> ExitCode {
    crate::shell::survive_file_size_limit();
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        let typed: Vec<_> = std::env::args_os().collect();
        given::as_given(error, &typed, |name| std::env::var_os(name)).exit()
    });
    let command = &arguments.command;
    let quiet = if matches!(command, Command::Gateway { .. } | Command::Serve(_)) {
        LevelFilter::INFO
    } else {
        LevelFilter::ERROR
    };
    // A line in between would spoil the picture; a fault on purpose is no news.
    let quiet = if matches!(command, Command::Diagnose { .. } | Command::Top { .. }) {
        LevelFilter::OFF
    } else {
        quiet
    };
    logging::start(arguments.log_format, quiet);
    let code = end_of(perform(arguments.command), arguments.log_format);
    logging::flush();
    ExitCode::from(code)
}

/// The exit code of what was done; says what went wrong.
fn end_of(done: Result<u8, CommandError>, log_format: LogFormat) -> u8 {
    match done {
        Ok(code) => code,
        // Whoever read our output has had enough, as `head` does: not an error.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => exit::OK,
        Err(error) => {
            let code = error.exit_code();
            let said = Chain(&error).to_string();
            match log_format {
                // If standard error is closed too, the exit code has to do.
                LogFormat::Human => logging::write_line(&format!("gridpool: {said}")),
                LogFormat::Json => {
                    let fields = Map::from_iter([("exit_code".to_owned(), code.into())]);
                    logging::write_json(tracing::Level::ERROR, "gridpool", &said, fields);
                }
            }
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
        Command::Infer { infer, socket } => infer::run(&infer, || connect(socket.socket)),
        Command::Model(command) => model::run(&command),
        Command::Models { socket, json } => {
            infer::print_models(&connect(socket.socket)?.models()?, json)
        }
        Command::Run { work, pool, chaos } => run(&work, &pool, &chaos),
        Command::Gateway { socket, supervisor_pid } => {
            gateway::run(&gateway::Options { socket, supervisor_pid })?;
            Ok(exit::OK)
        }
        Command::Serve(flags) => serve(&flags),
        Command::Config(command) => config::run(&command),
        Command::Completions { shell } => completions::print(shell),
        Command::Submit { work, socket, no_wait } => submit(&work, socket.socket, !no_wait),
        Command::Ops { json, markdown } => print_ops(json, markdown),
        Command::Status { socket, policy: false, config: _, json } => {
            print_status(socket.socket, json)
        }
        Command::Status { socket, policy: true, config, json } => {
            print_policy(socket.socket, config.as_deref(), json)
        }
        Command::Top { top, socket } => top::run(&top, socket_path(socket.socket)?),
        Command::Kill { worker, signal, socket } => {
            order(connect(socket.socket)?.kill(&worker, signal as i32))
        }
        Command::Release { what, socket } => order(connect(socket.socket)?.release(&what)),
        Command::Drain { socket } => {
            let client = connect(socket.socket)?;
            client.drain()?;
            drained(client.wait_closed()?)
        }
    }
}

// ---- commands ----

fn run(work: &Work, flags: &PoolFlags, chaos: &ChaosFlag) -> Result<u8, CommandError> {
    let (plan, inputs) = prepare(work, true)?;
    let settings = Settings::resolve(chaos.over(flags.overrides(None)), flags.config.as_deref())?;
    let shell = start_pool(&settings)?;
    let (ours, theirs) = UnixStream::pair().map_err(system("a socket pair"))?;
    shell.connect(theirs).map_err(system("a thread for the client"))?;
    let client = Client::from_socket(ours)?;
    let code = run_plan(&client, work, &plan, &inputs);
    let misconfigured = shell.misconfigured();
    shell.drain();
    shell.wait();
    match (code, misconfigured) {
        (Ok(exit::JOB), Some(faults)) => Err(CommandError::Misconfigured(faults)),
        (code, _) => code,
    }
}

fn submit(work: &Work, socket: Option<PathBuf>, wait_if_busy: bool) -> Result<u8, CommandError> {
    let (plan, inputs) = prepare(work, wait_if_busy)?;
    run_plan(&connect(socket)?, work, &plan, &inputs)
}

fn serve(flags: &ServeFlags) -> Result<u8, CommandError> {
    #[expect(unsafe_code, reason = "the environment is changed, before there are threads")]
    // SAFETY: `main` has come here by itself and has started no thread.
    let notifier = unsafe { Notifier::take_from_environment() };
    // Before any thread is started, so that all inherit it: the signals are for `obey_signals`.
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block().map_err(|errno| system("blocking signals")(errno.into()))?;
    let settings = flags.settings()?;
    let claim = Shell::claim(&settings.socket)?;
    let front = settings.http.map(Front::open).transpose()?;
    let shell = start_pool(&settings)?;
    let held = shell.listen(claim)?;
    if let Some(front) = front {
        shell.serve_http(front).map_err(system("the HTTP gateway"))?;
    }
    if let Some(notifier) = notifier {
        shell.report_to(notifier, &settings.limits);
    }
    tracing::info!(socket = %settings.socket.display(), "serving");
    obey_signals(&shell, signals).map_err(system("a thread for signals"))?;
    let ended = shell.wait();
    drop(held);
    match ended {
        Ended::Left => Ok(exit::OK),
        Ended::Misconfigured(faults) => Err(CommandError::Misconfigured(faults)),
    }
}

fn print_ops(json: bool, markdown: bool) -> Result<u8, CommandError> {
    if json {
        return say_json(&ops::document());
    }
    let text = if markdown { ops::markdown() } else { ops::screen(columns()) };
    say(text.trim_end())
}

fn print_status(socket: Option<PathBuf>, json: bool) -> Result<u8, CommandError> {
    let status = connect(socket)?.status()?;
    if json {
        return say_json(&status);
    }
    status::write(&mut io::stdout().lock(), &status).map_err(CommandError::Output)?;
    Ok(exit::OK)
}

fn print_policy(
    socket: Option<PathBuf>,
    config: Option<&Path>,
    json: bool,
) -> Result<u8, CommandError> {
    let overrides = Overrides { socket, ..Overrides::default() };
    let Settings { socket, policy, .. } = Settings::resolve(overrides, config)?;
    let (source, rules) = match config {
        // Whoever names a file asks about the file, whatever pool is running.
        Some(file) => (Source::Config(file.display().to_string()), policy.rules()),
        None => match Client::connect(&socket) {
            Ok(client) => (Source::Pool(socket.display().to_string()), client.policy()?),
            Err(ClientError::NoPool { .. }) => (Source::Defaults, policy.rules()),
            Err(error) => return Err(error.into()),
        },
    };
    let document = policy::Document { source, rules };
    if json {
        return say_json(&document);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = policy::write(&mut out, &document, columns()).and_then(|()| out.flush());
    written.map_err(CommandError::Output)?;
    Ok(exit::OK)
}

/// Says what an order has done. One that the pool refuses named something that it has not.
fn order(done: Result<String, ClientError>) -> Result<u8, CommandError> {
    match done {
        Ok(done) => say(&done),
        Err(ClientError::Refused(Refusal::Invalid(why))) => Err(CommandError::Order(why)),
        Err(error) => Err(error.into()),
    }
}

/// Says what became of the jobs that a drained pool still had.
fn drained(ended: Option<Vec<(Verdict, u64)>>) -> Result<u8, CommandError> {
    let verdicts = ended.ok_or(ClientError::Lost)?;
    let jobs: u64 = verdicts.iter().map(|(_, count)| count).sum();
    if jobs == 0 {
        return say("the pool had no job left and has stopped");
    }
    let cancelled = verdicts.iter().find(|(verdict, _)| *verdict == Verdict::Cancelled);
    let words: Vec<_> = verdicts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
    let words = words.join(", ");
    let jobs = if jobs == 1 { "job".to_owned() } else { format!("{jobs} jobs") };
    say(&match cancelled {
        None => format!("the pool has finished its last {jobs} ({words}) and stopped"),
        Some(_) => format!("the pool has stopped, but not finished its last {jobs}: {words}"),
    })
}

// ---- their parts ----

/// Everything that can be wrong before a pool is touched.
fn prepare(work: &Work, wait_if_busy: bool) -> Result<(Plan, Inputs), CommandError> {
    let program = Program::compile(&work.program, work.ties).map_err(CommandError::Program)?;
    let mut stdin = io::stdin().lock();
    let is_terminal = stdin.is_terminal();
    let inputs = input::read(&work.inputs, Stdin { is_terminal, reader: &mut stdin })?;
    let inputs = Inputs::new(inputs, &program)?;
    let batch_items = usize::try_from(work.batch).unwrap_or(usize::MAX);
    Ok((Plan { program, deadline: work.deadline, batch_items, wait_if_busy }, inputs))
}

/// Runs the plan and prints its results.
fn run_plan(
    client: &Client,
    work: &Work,
    plan: &Plan,
    inputs: &Inputs,
) -> Result<u8, CommandError> {
    let started = clock::now();
    let progress = Progress::new(inputs.item_count() as u64, work.quiet || work.json);
    let (results, unfinished) = work::run(client, plan, inputs, &progress);
    progress.finish();
    let written = match &unfinished {
        // What has nothing but a complaint to print prints no empty document.
        Some(unfinished) if unfinished.is_bare() => Ok(()),
        Some(_) | None => print_results(work, inputs, &results, started.elapsed()),
    };
    // That it is not all is worse than that nobody reads it.
    unfinished.map_or(Ok(()), Err)?;
    written.map_err(CommandError::Output)?;
    Ok(if results.worst_verdict() == Verdict::Ok { exit::OK } else { exit::JOB })
}

fn print_results(
    work: &Work,
    inputs: &Inputs,
    results: &Results,
    elapsed: Duration,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if work.json {
        document::write(&mut out, inputs, results)?;
    } else {
        let is_terminal = io::stdout().is_terminal();
        let color = show::wants_color(is_terminal, std::env::var_os("NO_COLOR").as_deref());
        let look = Look { all: work.all, color, columns: columns() };
        show::write(&mut out, inputs, results, elapsed, look)?;
    }
    out.flush()
}

/// Starts a pool with its workers; it has no client yet.
fn start_pool(settings: &Settings) -> Result<Shell, CommandError> {
    let program = devices::worker_binary(settings.worker_bin.as_deref())?;
    let pool_devices = devices::resolve(&settings.devices, &program)?;
    crate::shell::raise_descriptor_limit();
    for rule in settings.policy.unlisted() {
        let (fault, response, says) = (&rule.fault, rule.response, &rule.meaning);
        tracing::warn!(fault, %response, says, "[policy] names a fault that no table does");
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cpu_devices = pool_devices.iter().filter(|device| device.uuid.is_empty()).count();
    let threads = (cores / cpu_devices.max(1)).max(1);
    let command = private::worker_command(settings, program, threads);
    let limits = settings.limits.clone();
    let shell = Shell::start(limits, command, pool_devices, settings.socket.clone())
        .map_err(system("the pool's threads"))?;
    if settings.allow_chaos {
        shell.allow_chaos();
    }
    Ok(shell)
}

fn connect(socket: Option<PathBuf>) -> Result<Client, CommandError> {
    Ok(Client::connect(socket_path(socket)?)?)
}

fn socket_path(socket: Option<PathBuf>) -> Result<PathBuf, CommandError> {
    let overrides = Overrides { socket, ..Overrides::default() };
    let none: Option<&Path> = None;
    Ok(Settings::resolve(overrides, none)?.socket)
}

/// The first signal drains the pool, the second stops it at once.
fn obey_signals(shell: &Shell, signals: SigSet) -> io::Result<()> {
    let shell = shell.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            match signals.wait() {
                Ok(signal) => {
                    tracing::info!(%signal, "draining; a second signal stops at once");
                    shell.drain();
                }
                Err(errno) => tracing::error!(%errno, "waiting for signals"),
            }
        }
    })?;
    Ok(())
}

/// One document on one line.
fn say_json(what: &impl serde::Serialize) -> Result<u8, CommandError> {
    let text = serde_json::to_string(what).map_err(|error| CommandError::Output(error.into()))?;
    say(&text)
}

fn say(what: &str) -> Result<u8, CommandError> {
    writeln!(io::stdout(), "{what}").map_err(CommandError::Output)?;
    Ok(exit::OK)
}

fn columns() -> usize {
    let terminal = terminal_size::terminal_size();
    terminal.map_or(COLUMNS_DEFAULT, |(terminal_size::Width(columns), _)| usize::from(columns))
}
