//! What may be typed. Every flag has an environment variable `GRIDPOOL_…` of the same name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand};
use gridpool_protocol::build;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::limits::DEADLINE_MAX;
use gridpool_protocol::log::{FORMAT_VARIABLE, LogFormat};
use gridpool_protocol::program::Ties;
use nix::sys::signal::Signal;

use super::{bench, chaos, config, diagnose, infer, model, ops, top};
use crate::config::{ConfigError, Overrides, Settings};

/// A pool of GPU workers that survives its workers.
#[derive(Debug, Parser)]
#[command(name = "gridpool", version = build::text(), max_term_width = 100, after_help = exit_codes())]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
    /// How the log on standard error is written, by this process and by those that it starts: human, or
    /// json for one object a line. `GRIDPOOL_LOG` says what is written: error, warn, info, debug.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "human")]
    #[arg(env = FORMAT_VARIABLE, hide_default_value = true)]
    pub(super) log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Measure this machine and pools on it: their limits, the CPU alone, rates and latencies.
    #[command(after_help = bench::COLUMNS)]
    Bench {
        #[command(flatten)]
        bench: bench::BenchFlags,
        #[command(flatten)]
        pool: PoolFlags,
    },
    /// Have a worker of a running pool meet a fault, and see what becomes of the job and of the pool.
    #[command(after_help = chaos::help())]
    Chaos {
        #[command(flatten)]
        chaos: chaos::ChaosFlags,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Find out why it does not work: this machine, isolation, every op and model, memory, a fault.
    #[command(after_help = diagnose::GROUPS)]
    Diagnose {
        #[command(flatten)]
        diagnose: diagnose::DiagnoseFlags,
        #[command(flatten)]
        pool: PoolFlags,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Ask a model of a running pool once, and print or write its outputs.
    #[command(after_help = infer::FORMATS)]
    Infer {
        #[command(flatten)]
        infer: infer::InferFlags,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Change the models of a running pool: on all of its devices, or on none.
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// List the models of a running pool, on which devices they can be asked, and why not elsewhere.
    Models {
        #[command(flatten)]
        socket: SocketFlag,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Run a program over inputs in a pool of its own, print the results, stop the pool.
    #[command(after_help = ops::help())]
    Run {
        #[command(flatten)]
        work: Work,
        #[command(flatten)]
        pool: PoolFlags,
        #[command(flatten)]
        chaos: ChaosFlag,
    },
    /// Serve HTTP for a pool; `serve --http` starts it.
    #[command(hide = true)]
    Gateway {
        /// The pool's socket.
        #[arg(long)]
        socket: PathBuf,
        /// The supervisor, with which the gateway dies.
        #[arg(long)]
        supervisor_pid: u32,
    },
    /// Serve a pool until it is drained.
    Serve(ServeFlags),
    /// Look at settings without starting a pool: check a config file, or show what `serve` would use.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print what makes a shell complete this command line; the README says where to put it.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Run a program over inputs in a pool that is running.
    #[command(after_help = ops::help())]
    Submit {
        #[command(flatten)]
        work: Work,
        #[command(flatten)]
        socket: SocketFlag,
        /// Say BUSY at once where the pool is full, instead of trying again until the deadline.
        #[arg(long)]
        no_wait: bool,
    },
    /// List the ops: how they are written, what they work on, what comes of it.
    Ops {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
        /// Print the table of the README.
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
    },
    /// Show what every worker is doing, or what the pool does about which fault.
    Status {
        #[command(flatten)]
        socket: SocketFlag,
        /// Show every fault and the response to it: those of the pool, or the defaults if none runs.
        #[arg(long)]
        policy: bool,
        /// With --policy: what a pool with this config file would do, whether or not one is running.
        #[arg(long, value_name = "FILE", requires = "policy")]
        config: Option<PathBuf>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Watch a running pool: what every worker does, how fast, and what was the matter; with keys to
    /// kill, release and drain. Without a terminal it prints one plain table.
    Top {
        #[command(flatten)]
        top: top::TopFlags,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Send a signal to a worker, to see the pool recover.
    Kill {
        /// The worker: `cpu0`, or `cpu0#3` for that process and no later one.
        worker: String,
        /// The signal, as KILL, SIGKILL or 9.
        #[arg(long, default_value = "KILL", value_parser = parse_signal)]
        #[arg(allow_negative_numbers = true)]
        signal: Signal,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Take a decision of the pool back: a device out of service, a convicted job.
    Release {
        /// A device (`gpu0`), which is tried again now; the content of a convicted job, as its verdict
        /// names it; or `jobs` for all contents.
        what: String,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Finish what the pool has accepted, then stop it.
    Drain {
        #[command(flatten)]
        socket: SocketFlag,
    },
}

/// A program and what it works on.
#[derive(Debug, Args)]
pub(super) struct Work {
    /// Ops joined by `|`, for instance `rot90 | replace(0, 5) | objects(true, false, true)`.
    pub(super) program: String,
    /// ARC task files, directories of them, JSON arrays of grids or of pairs (`{"input": grid,
    /// "output": grid}`), `.npy` files (N, H, W, uint8), or `-` for standard input.
    #[arg(value_name = "INPUT")]
    pub(super) inputs: Vec<PathBuf>,
    /// Who wins when two colours are equally common: cpython or lowest.
    #[arg(long, default_value = "cpython", env = "GRIDPOOL_TIES")]
    pub(super) ties: Ties,
    /// Seconds from a job's submission to its verdict; 0 has passed already.
    #[arg(long, value_name = "SECONDS", default_value = "30", env = "GRIDPOOL_DEADLINE")]
    #[arg(value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(super) deadline: Duration,
    /// Items of one job, be they grids or pairs; several jobs run at a time.
    #[arg(long, value_name = "ITEMS", default_value_t = 512, env = "GRIDPOOL_BATCH")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) batch: u32,
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

/// Everything that `serve` takes.
#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    #[command(flatten)]
    pool: PoolFlags,
    #[command(flatten)]
    socket: SocketFlag,
    #[command(flatten)]
    http: HttpFlag,
    #[command(flatten)]
    chaos: ChaosFlag,
}

/// How a pool is made.
#[derive(Debug, Args)]
pub(super) struct PoolFlags {
    // Before all others, those of other structs included: whoever reads a flag takes it away.
    #[command(flatten)]
    environment: Environment,
    /// `all` GPUs (the default), `0,1`, a `GPU-…` UUID, or `cpu:N` for N workers on the CPU.
    #[arg(long, env = "GRIDPOOL_DEVICES")]
    devices: Option<String>,
    /// Processes that stand by on every device, ready to take over, up to 4; each holds a context.
    #[arg(long, value_name = "N", env = "GRIDPOOL_STANDBY")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=4))]
    standby: Option<u32>,
    /// A TOML file with settings.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_CONFIG")]
    pub(super) config: Option<PathBuf>,
    /// The worker's binary; without it, `gridpool-worker` beside this program.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_WORKER_BIN")]
    worker_bin: Option<PathBuf>,
    /// An ONNX model to serve, under this name; once for each. `[[model]]` in the config says more.
    #[arg(long = "model", value_name = "NAME=PATH")]
    models: Vec<String>,
    /// ONNX Runtime's library; without it, `ORT_DYLIB_PATH`, then the usual places.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_ONNXRUNTIME")]
    onnxruntime: Option<PathBuf>,
}

/// Whether jobs may bring faults.
#[derive(Debug, Args)]
pub(super) struct ChaosFlag {
    /// Take jobs that make a worker fault on purpose, as `gridpool chaos` sends them; any client of
    /// the pool may then kill its workers.
    #[arg(long, env = "GRIDPOOL_ALLOW_CHAOS", value_parser = BoolishValueParser::new())]
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    allow_chaos: Option<bool>,
}

/// Whether a pool serves HTTP.
#[derive(Debug, Args)]
pub(super) struct HttpFlag {
    /// Serve the Open Inference Protocol at this address and port too, for instance 127.0.0.1:8000.
    /// Whoever can reach it can run jobs.
    #[arg(long, value_name = "ADDR", env = "GRIDPOOL_HTTP")]
    http: Option<String>,
}

/// Where a pool is.
#[derive(Debug, Args)]
pub(super) struct SocketFlag {
    /// The pool's socket; without it, `$XDG_RUNTIME_DIR/gridpool/pool.sock`.
    #[arg(long, env = "GRIDPOOL_SOCKET")]
    pub(super) socket: Option<PathBuf>,
}

/// Those flags of a command whose value the environment gives, by their names.
#[derive(Debug)]
struct Environment(BTreeSet<&'static str>);

/// Flags that [`Overrides`] knows, by what `clap` calls them.
const FLAGS: [(&str, &str); 7] = [
    ("devices", "--devices"),
    ("socket", "--socket"),
    ("worker_bin", "--worker-bin"),
    ("http", "--http"),
    ("standby", "--standby"),
    ("allow_chaos", "--allow-chaos"),
    ("onnxruntime", "--onnxruntime"),
];

impl FromArgMatches for Environment {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |id: &str| {
            let is_there = matches.ids().any(|known| known == id);
            is_there && matches.value_source(id) == Some(ValueSource::EnvVariable)
        };
        let flags = FLAGS.iter().filter(|(id, _)| given(id)).map(|&(_, flag)| flag);
        Ok(Self(flags.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Environment {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl ServeFlags {
    /// What a pool with these flags uses.
    pub(super) fn settings(&self) -> Result<Settings, ConfigError> {
        let overrides = self.pool.overrides(self.socket.socket.clone());
        let overrides = self.chaos.over(self.http.over(overrides));
        Settings::resolve(overrides, self.pool.config.as_deref())
    }

    /// The config file, if one is named.
    pub(super) fn config(&self) -> Option<&Path> {
        self.pool.config.as_deref()
    }
}

impl PoolFlags {
    pub(super) fn overrides(&self, socket: Option<PathBuf>) -> Overrides {
        Overrides {
            devices: self.devices.clone(),
            socket,
            worker_bin: self.worker_bin.clone(),
            http: None,
            standbys: self.standby,
            allow_chaos: None,
            models: self.models.clone(),
            onnxruntime: self.onnxruntime.clone(),
            environment: self.environment.0.clone(),
        }
    }
}

impl ChaosFlag {
    /// The same flags, and this one where it was given.
    pub(super) fn over(&self, flags: Overrides) -> Overrides {
        Overrides { allow_chaos: self.allow_chaos, ..flags }
    }
}

impl HttpFlag {
    /// The same flags, and this one where it was given.
    pub(super) fn over(&self, flags: Overrides) -> Overrides {
        Overrides { http: self.http.clone(), ..flags }
    }
}

/// What every exit code says.
fn exit_codes() -> String {
    let line = |(code, meaning): (u8, &str)| format!("\n  {code:<3} {meaning}");
    format!("Exit codes:{}", exit::TABLE.map(line).concat())
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("write a number of seconds from 0 to {}, such as 30 or 0.5", DEADLINE_MAX.as_secs())
    };
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    let span = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if span > DEADLINE_MAX { Err(wrong()) } else { Ok(span) }
}

fn parse_signal(text: &str) -> Result<Signal, String> {
    let name = text.to_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    let by_number = || text.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let signal = name.parse().ok().or_else(by_number);
    signal.ok_or_else(|| format!("`{text}` is no signal: write KILL, TERM, STOP, SEGV or a number"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn signals_and_deadlines_are_read_or_refused_with_a_sentence() {
        for text in ["KILL", "sigkill", "9"] {
            assert_eq!(parse_signal(text), Ok(Signal::SIGKILL));
        }
        assert!(parse_signal("FOO").unwrap_err().contains("is no signal"));
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["-1", "x", "inf", "nan", "1e9"] {
            assert!(parse_seconds(text).unwrap_err().contains("a number of seconds"), "{text}");
        }
    }
}
