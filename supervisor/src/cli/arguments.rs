//! The command line. Flags with a setting also read an environment variable `GRIDPOOL_…` of the same name.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, Parser, Subcommand};
use gridpool_protocol::build;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::ids::WorkerSelector;
use gridpool_protocol::limits::STEPS_MAX;
use gridpool_protocol::log::{FORMAT_VARIABLE, LogFormat};
use gridpool_protocol::message::Release;
use gridpool_protocol::program::Ties;
use nix::sys::signal::Signal;

use super::flags::{
    ChaosFlag, ModelsFlags, PoolFlags, QueueFlags, Read, ServeFlags, SocketFlag, parse_seconds,
    parse_signal, whole,
};
use super::place::{OwnGiven, PlaceFlags};
use super::{
    bench, chaos, check, cluster, compile, config, diagnose, infer, jobs, model, ops, replay,
    report, search, solve, token, top, watch,
};
use crate::helper::HelperFlags;
use crate::traces::TracerFlags;

/// A pool of GPU workers that survives its workers.
#[derive(Debug, Parser)]
#[command(name = "gridpool", version = build::text(), max_term_width = 100, after_help = exit_codes())]
#[command(mut_args = taking_negative, mut_subcommands = all_taking_negative)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
    /// Format of the log on standard error, for this process and its child processes: human, or json
    /// (one object a line). `GRIDPOOL_LOG` sets the level: error, warn, info, debug.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "human")]
    #[arg(env = FORMAT_VARIABLE, hide_default_value = true)]
    pub(super) log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Measure this machine and pools on it: device limits, the CPU alone, rates and latencies.
    #[command(after_help = bench::COLUMNS)]
    Bench {
        #[command(flatten)]
        bench: bench::BenchFlags,
        #[command(flatten)]
        pool: PoolFlags,
    },
    /// Inject a fault into a worker of a running pool, and check that the job and the pool recover.
    #[command(after_help = chaos::help())]
    Chaos {
        #[command(flatten)]
        chaos: chaos::ChaosFlags,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Find out why gridpool does not work: check the machine, isolation, ops, models, memory, recovery.
    #[command(after_help = diagnose::GROUPS)]
    Diagnose {
        #[command(flatten)]
        diagnose: diagnose::DiagnoseFlags,
        #[command(flatten)]
        pool: PoolFlags,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Send one request to a model of a running pool, and print or write its outputs.
    #[command(after_help = infer::FORMATS)]
    Infer {
        #[command(flatten)]
        infer: infer::InferFlags,
        #[command(flatten)]
        place: PlaceFlags,
    },
    /// List, load, unload or resize the models of a running pool.
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// List the models of a running pool and their state on each device.
    Models(ModelsFlags),
    /// Check programs without a pool: the kind of every line, what a solver needs, which of a file compile.
    Check(check::CheckFlags),
    /// Compile programs to bytecode, which a search takes in place of their texts, without a pool. Prints a JSON line
    /// for each.
    Compile(compile::CompileFlags),
    /// Start a pool, run each task's own solver over its pairs, and say which results are the expected ones.
    Solve {
        #[command(flatten)]
        solve: solve::SolveFlags,
        #[command(flatten)]
        pool: PoolFlags,
    },
    /// Run many programs over the pairs of tasks, and say which solve what. With --socket in the pool that runs
    /// there, with --nats in a cluster, else in a pool of its own.
    Search {
        // First: a struct that reads a flag removes it.
        #[command(flatten)]
        own: Read<OwnGiven>,
        #[command(flatten)]
        search: search::SearchFlags,
        #[command(flatten)]
        pool: PoolFlags,
        #[command(flatten)]
        place: PlaceFlags,
    },
    /// Start a pool, run a program over inputs, print the results, stop the pool.
    #[command(after_help = ops::help())]
    Run {
        #[command(flatten)]
        work: ProgramFlags,
        #[command(flatten)]
        pool: PoolFlags,
        #[command(flatten)]
        chaos: ChaosFlag,
    },
    /// Run a capsule of a crash again in pools of its own: does it die again, where do results part, what of it is
    /// enough.
    #[command(after_help = replay::CODES)]
    Replay {
        #[command(flatten)]
        replay: replay::ReplayFlags,
        #[command(flatten)]
        pool: PoolFlags,
    },
    /// Serve HTTP for a pool; `serve --http` starts it.
    #[command(hide = true)]
    Gateway(HelperFlags),
    /// Take jobs of a cluster for a pool; `serve --nats` starts it.
    #[command(hide = true)]
    Bridge(HelperFlags),
    /// Send traces of a pool to their collector; `serve --trace` starts it.
    #[command(hide = true)]
    Tracer(TracerFlags),
    /// Start a pool and serve it until it is drained.
    Serve(Box<ServeFlags>),
    /// Check a config file, or show the settings that `serve` would use. Starts no pool.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Show the hosts of a cluster and what waits there, or let a convicted job run again.
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Print a completion script for a shell; the book says where to put it.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Run a program over inputs in a running pool, or with --nats in a cluster.
    #[command(after_help = ops::help())]
    Submit {
        #[command(flatten)]
        work: ProgramFlags,
        #[command(flatten)]
        place: PlaceFlags,
        #[command(flatten)]
        queue: QueueFlags,
    },
    /// List the ops: their syntax, what they take and what they give.
    Ops {
        /// Describe only these ops, in full: syntax, arguments, types, examples.
        #[arg(value_name = "OP", conflicts_with = "markdown")]
        op: Vec<String>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
        /// Print the table of the book.
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
    },
    /// Show what every worker is doing, or how the pool responds to each fault.
    Status {
        #[command(flatten)]
        socket: SocketFlag,
        /// Show the pool's response to every fault; if no pool runs, show the defaults.
        #[arg(long)]
        policy: bool,
        /// With --policy: show the responses that this config file sets, whether or not a pool runs.
        #[arg(long, value_name = "FILE", requires = "policy")]
        config: Option<PathBuf>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// List the last jobs that have ended, with their verdicts, whether or not a pool runs.
    ///
    /// `gridpool status` counts those that wait or run, and `gridpool watch JOB` follows one.
    Jobs(jobs::JobsFlags),
    /// Write one archive for a report of a fault: settings, status, verdicts, diagnosis and log, without secrets.
    Report {
        #[command(flatten)]
        report: report::ReportFlags,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Follow a job of a running pool to its verdict: whether it waits, who runs it, which attempts it has lost.
    Watch {
        #[command(flatten)]
        watch: watch::WatchFlags,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Make a token with which a client uses the pool over HTTP.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Watch a running pool: the work, rate and last fault of every worker. Keys kill, release and drain.
    /// Without a terminal, `top` prints one plain table. With --nats it watches a cluster: its hosts and their devices.
    Top {
        #[command(flatten)]
        top: top::TopFlags,
        #[command(flatten)]
        place: PlaceFlags,
    },
    /// Send a signal to a worker, to test that the pool recovers.
    Kill {
        /// The worker: `cpu0#3` for exactly that process, `cpu0/mlp` for the current process of a group on the device,
        /// or `cpu0` for that of programs, else for one of models.
        worker: WorkerSelector,
        /// The signal, such as KILL, SIGKILL or 9.
        #[arg(long, default_value = "KILL", value_parser = parse_signal)]
        signal: Signal,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Return a device to service, or unblock a denylisted job.
    Release {
        /// A device (`gpu0`), which the pool then tries at once; the content of a denylisted job, as its
        /// verdict names it; or `jobs` for the whole denylist.
        what: Release,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Replace a running pool by the binaries that are installed now. No job is lost, and the pool goes on if
    /// the new binaries do not come up.
    Upgrade {
        /// Replace workers one by one: no device ever holds those of both pools, and nothing runs on a device while its
        /// worker is replaced. For GPUs without room for both.
        #[arg(long)]
        one_by_one: bool,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Finish all accepted jobs, then stop the pool.
    Drain {
        #[command(flatten)]
        socket: SocketFlag,
    },
}

/// A program and its inputs.
#[derive(Debug, Args)]
pub(super) struct ProgramFlags {
    /// Ops joined by `|`, such as `rot90 | replace(0, 5) | objects(true, false, true)`; a solver's text; or
    /// `@FILE:NAME`, a definition of a file, such as `@solvers.py:solve_67a3c6ac`.
    #[arg(required_unless_present = "program_file")]
    pub(super) program: Option<String>,
    /// ARC task files, directories of them, JSON arrays or lines of grids or of pairs (`{"input": grid,
    /// "output": grid}`), `.npz`, `.npy` or `.arrow` files of integers, or `-` for standard input.
    #[arg(value_name = "INPUT")]
    pub(super) inputs: Vec<PathBuf>,
    /// Read the program from this file, one definition of it if written as FILE:NAME, or standard input if it is
    /// `-`; then all other arguments are inputs.
    #[arg(long = "program", value_name = "FILE")]
    pub(super) program_file: Option<PathBuf>,
    /// Give the value of this statement of a solver instead of its result: its name, such as x3, or its line.
    #[arg(long, value_name = "LINE")]
    pub(super) trace: Option<String>,
    /// Print what the program compiles to, and run nothing: the ops of a chain with their types, or a solver's
    /// instructions for the machine.
    #[arg(long, conflicts_with = "json")]
    pub(super) explain: bool,
    /// Steps that a solver may run on one item, instructions of loops each time anew. What runs longer ends with
    /// StepLimit, at the same step on every device.
    #[arg(long, value_name = "STEPS", value_parser = whole::<u32>(1..=u64::from(STEPS_MAX)))]
    pub(super) steps: Option<u32>,
    /// How to choose between equally common colours: cpython (as the reference does) or lowest.
    #[arg(long, default_value = "cpython", env = "GRIDPOOL_TIES")]
    pub(super) ties: Ties,
    /// Seconds from a job's submission to its verdict; a deadline of 0 has already passed.
    #[arg(long, value_name = "SECONDS", default_value = "30", env = "GRIDPOOL_DEADLINE")]
    #[arg(value_parser = parse_seconds)]
    pub(super) deadline: Duration,
    /// Items (grids or pairs) in one job; several jobs run at a time.
    #[arg(long, value_name = "ITEMS", default_value_t = 512, env = "GRIDPOOL_BATCH")]
    #[arg(value_parser = whole::<u32>(1..=1_000_000))]
    pub(super) batch: u32,
    /// Write the results to this file too: `.npz`, `.npy`, `.jsonl` (a line an item), `.arrow`, or `.json` (the
    /// document of --json).
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Print one JSON document: results and receipts.
    #[arg(long)]
    pub(super) json: bool,
    /// Show every input and every item, not only the first few.
    #[arg(long, conflicts_with = "json")]
    pub(super) all: bool,
    /// No progress bar.
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// A negative number is a value, not an unknown flag: what reads the value says what is wrong with it.
fn taking_negative(argument: Arg) -> Arg {
    match argument.get_action().takes_values() {
        true => argument.allow_negative_numbers(true),
        false => argument,
    }
}

/// All arguments of a command and of those below it.
fn all_taking_negative(command: clap::Command) -> clap::Command {
    command.mut_args(taking_negative).mut_subcommands(all_taking_negative)
}

/// The table of exit codes for `--help`.
fn exit_codes() -> String {
    let line = |(code, meaning): (u8, &str)| format!("\n  {code:<3} {meaning}");
    format!("Exit codes:{}", exit::TABLE.map(line).concat())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_negative_number_is_a_value_of_every_argument() {
        fn walk(command: &clap::Command, path: &[String]) {
            let takes =
                |arg: &&Arg| arg.get_action().takes_values() && !arg.is_require_equals_set();
            let (places, flags): (Vec<_>, Vec<_>) =
                command.get_arguments().filter(takes).partition(|arg| arg.is_positional());
            let flags = flags.into_iter().filter_map(Arg::get_long);
            let calls = flags.map(|flag| vec![format!("--{flag}"), "-1".to_owned()]);
            for call in calls.chain([vec!["-1".to_owned(); places.len()]]) {
                let call = [path, &call].concat();
                let Err(error) = Arguments::try_parse_from(&call) else { continue };
                assert_ne!(error.kind(), ErrorKind::UnknownArgument, "{call:?}: {error}");
            }
            for below in command.get_subcommands() {
                walk(below, &[path, &[below.get_name().to_owned()]].concat());
            }
        }
        walk(&Arguments::command(), &["gridpool".to_owned()]);
    }
}
