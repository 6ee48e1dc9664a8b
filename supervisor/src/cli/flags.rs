//! Flags that several commands take, and how their values are read.

use std::collections::BTreeSet;
use std::env;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches};
use gridpool_protocol::limits::DEADLINE_MAX;
use gridpool_protocol::message::{Priority, Secret};
use gridpool_protocol::sandbox::SandboxMode;
use gridpool_protocol::status::CapsuleMode;
use nix::sys::signal::Signal;

use super::place::NatsFlags;
use super::truth::Truth;
use crate::config::{ConfigError, HttpOptions, NatsKeys, Overrides, Settings};
use crate::repository::RepositoryMode;
use crate::traces::{HEADERS_VARIABLE, Sample};

/// Flags of `serve`.
#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    #[command(flatten)]
    pool: PoolFlags,
    #[command(flatten)]
    socket: SocketFlag,
    #[command(flatten)]
    http: HttpFlag,
    #[command(flatten)]
    trace: TraceFlags,
    #[command(flatten)]
    chaos: ChaosFlag,
    #[command(flatten)]
    users: UsersFlags,
    /// Serve the other models if one cannot be loaded; `status` and `/v2/health/ready` then say what is missing. By
    /// default the pool ends, with the reason.
    #[arg(long, env = "GRIDPOOL_KEEP_GOING", value_parser = Truth)]
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    pub(super) keep_going: Option<bool>,
    #[command(flatten)]
    nats: NatsFlags,
    /// This host's name in the cluster; the default is that of the machine. No two hosts may have the same.
    #[arg(long, value_name = "NAME", env = "GRIDPOOL_NATS_HOST")]
    nats_host: Option<String>,
    /// Take the place of the pool that has started this process.
    #[arg(long = "successor", hide = true)]
    pub(super) successor: bool,
    /// Drain when standard input ends, and so with the program that holds its other end.
    #[arg(long, hide = true, conflicts_with = "successor")]
    pub(super) until_stdin_ends: bool,
}

/// Who may use a pool, and how much.
#[derive(Debug, Args)]
pub(super) struct UsersFlags {
    /// The group whose members may use the pool, besides your user and root. Clients name the socket with
    /// --socket; they must be able to enter its folder.
    #[arg(long, value_name = "GROUP", env = "GRIDPOOL_SOCKET_GROUP")]
    socket_group: Option<String>,
    /// The mode of the socket: 0600, the default; 0660, the default with --socket-group; or 0666 for everybody.
    #[arg(long, value_name = "MODE", env = "GRIDPOOL_SOCKET_MODE")]
    socket_mode: Option<String>,
    /// Users who may give orders (drain, upgrade, kill, release, load and unload models), besides your user and root.
    #[arg(long, value_name = "USER", env = "GRIDPOOL_OPERATORS", value_delimiter = ',')]
    operators: Vec<String>,
    /// What a user may have at a time: jobs, bytes of their inputs and results, and device seconds. `default` is
    /// for all without one, token:NAME and address:IP are for HTTP clients; repeat for more. In the variable a
    /// semicolon separates them.
    #[arg(
        long = "quota",
        value_name = "USER:LIMITS",
        env = "GRIDPOOL_QUOTA",
        value_delimiter = ';'
    )]
    quotas: Vec<String>,
}

/// Flags of every command that starts a pool.
#[derive(Debug, Args)]
pub(super) struct PoolFlags {
    // First, before all other structs too: a struct that reads a flag removes it.
    #[command(flatten)]
    environment: Read<Environment>,
    /// Devices: `all` GPUs (the default), `0,1`, a `GPU-…` UUID, or `cpu:N` for N workers on the CPU.
    #[arg(long, env = "GRIDPOOL_DEVICES")]
    devices: Option<String>,
    /// Standby processes on every device, from 0 to 4; each holds a CUDA context.
    #[arg(long, value_name = "N", env = "GRIDPOOL_STANDBY")]
    #[arg(value_parser = whole::<u32>(0..=4))]
    standby: Option<u32>,
    /// The config file, in TOML.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_CONFIG")]
    pub(super) config: Option<PathBuf>,
    /// The worker's binary; the default is `gridpool-worker` beside this program.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_WORKER_BIN")]
    worker_bin: Option<PathBuf>,
    /// Serve this ONNX model under this name; repeat for more models. `[[model]]` in the config file has
    /// more options.
    #[arg(long = "model", value_name = "NAME=PATH")]
    models: Vec<String>,
    /// Serve the models of this folder, which is laid out as Triton's model repositories are: NAME/1/model.onnx and
    /// NAME/config.pbtxt.
    #[arg(long, value_name = "DIR", env = "GRIDPOOL_MODEL_REPOSITORY")]
    model_repository: Option<PathBuf>,
    /// When the model repository is followed: at the `start` (the default), also by `request` of clients of HTTP and
    /// gRPC, or `poll`: whenever something in it changes.
    #[arg(long, value_name = "MODE", env = "GRIDPOOL_REPOSITORY")]
    repository: Option<RepositoryMode>,
    /// ONNX Runtime's library; the default is `ORT_DYLIB_PATH`, then the usual places.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_ONNXRUNTIME")]
    onnxruntime: Option<PathBuf>,
    /// Whether workers and helpers are confined: `on` (the default), `log` to have the kernel log the system
    /// calls that `on` would refuse, or `off`, for debuggers and profilers.
    #[arg(long, value_name = "MODE", env = "GRIDPOOL_SANDBOX")]
    sandbox: Option<SandboxMode>,
    /// A folder or file that workers may write although they are confined, such as a profiler's; repeat for
    /// more. In the variable a colon separates them.
    #[arg(long, value_name = "PATH", env = "GRIDPOOL_SANDBOX_WRITE", value_delimiter = ':')]
    sandbox_write: Vec<PathBuf>,
    /// The folder of what outlives the pool, such as capsules of crashes; `none` keeps nothing. `serve` has
    /// systemd's `StateDirectory=`, `$XDG_STATE_HOME/gridpool`, `~/.local/state/gridpool`, or /var/lib/gridpool for
    /// root; `run`, `solve` and `search` keep nothing unless asked, `bench` and `diagnose` never.
    #[arg(long, value_name = "DIR", env = "GRIDPOOL_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// What is kept in the state folder of each death of a worker that its work may have caused: `on` (the default)
    /// keeps the work and its inputs for `gridpool replay`, `shapes` no cell and no element, `off` nothing.
    #[arg(long, value_name = "MODE", env = "GRIDPOOL_CAPSULES")]
    capsules: Option<CapsuleMode>,
}

/// Whether jobs may inject faults.
#[derive(Debug, Args)]
pub(super) struct ChaosFlag {
    /// Accept jobs that inject a fault into a worker, as `gridpool chaos` does. Every client of the pool
    /// can then kill its workers.
    #[arg(long, env = "GRIDPOOL_ALLOW_CHAOS", value_parser = Truth)]
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    allow_chaos: Option<bool>,
}

/// Whether a pool serves HTTP.
#[derive(Debug, Args)]
pub(super) struct HttpFlag {
    /// Also serve the Open Inference Protocol at this address and port, such as 127.0.0.1:8000, or at a Unix
    /// socket: unix:/run/gridpool/http.sock. An address that other machines reach needs --http-tokens.
    #[arg(long, value_name = "ADDR", env = "GRIDPOOL_HTTP")]
    http: Option<String>,
    /// Also serve the Open Inference Protocol over gRPC at this address and port, such as 127.0.0.1:8001, or at a
    /// Unix socket. All flags of HTTP about tokens, TLS, names, the group and --insecure are for gRPC too.
    #[arg(long, value_name = "ADDR", env = "GRIDPOOL_GRPC")]
    grpc: Option<String>,
    /// A name that a request's Host may have, besides the address and localhost; repeat for more names.
    #[arg(
        long = "http-host",
        value_name = "NAME",
        env = "GRIDPOOL_HTTP_HOST",
        value_delimiter = ','
    )]
    http_host: Vec<String>,
    /// An origin whose web pages may send requests, such as https://app.example.org; repeat for more.
    #[arg(long = "http-origin", value_name = "ORIGIN", env = "GRIDPOOL_HTTP_ORIGIN")]
    #[arg(value_delimiter = ',')]
    http_origin: Vec<String>,
    /// The file of hashed tokens, which `gridpool token new` makes. Every request then needs a token, except
    /// those for health.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_HTTP_TOKENS")]
    http_tokens: Option<PathBuf>,
    /// The PEM file of the server's certificates: HTTP is served over TLS. Needs --http-key.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_HTTP_CERT")]
    http_cert: Option<PathBuf>,
    /// The PEM file of the certificate's key, which others must not be able to read.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_HTTP_KEY")]
    http_key: Option<PathBuf>,
    /// The group whose members may use the Unix sockets of --http and --grpc; without it, only your user and root may.
    #[arg(long, value_name = "GROUP", env = "GRIDPOOL_HTTP_GROUP")]
    http_group: Option<String>,
    /// Serve HTTP without tokens at an address that other machines reach: everyone there can run jobs.
    #[arg(long, env = "GRIDPOOL_INSECURE", value_parser = Truth)]
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    insecure: Option<bool>,
    /// Write a line to the log for each request of HTTP and gRPC: what was asked, by whom, and how it ended.
    #[arg(long, env = "GRIDPOOL_ACCESS_LOG", value_parser = Truth)]
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    access_log: Option<bool>,
    /// Let clients of HTTP and gRPC on this host name tensors in their own shared memory, as Triton does. It needs
    /// tokens with the scope `memory`, or Unix sockets.
    #[arg(long, env = "GRIDPOOL_SHARED_MEMORY", value_parser = Truth)]
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    shared_memory: Option<bool>,
}

/// Whether a pool sends traces.
#[derive(Debug, Args)]
pub(super) struct TraceFlags {
    /// Send a trace of each job to this OpenTelemetry collector, with OTLP over HTTP: http://127.0.0.1:4318.
    #[arg(long, value_name = "URL", env = "GRIDPOOL_TRACE")]
    trace: Option<String>,
    /// The part of the traces that begin in the pool to send, from 0 to 1; the default is 1. What comes with a
    /// trace of its own (`traceparent`) is sent if that says so.
    #[arg(long, value_name = "RATIO", env = "GRIDPOOL_TRACE_SAMPLE")]
    trace_sample: Option<Sample>,
}

impl TraceFlags {
    /// Adds these flags to others.
    fn over(&self, flags: Overrides) -> Overrides {
        Overrides {
            trace: self.trace.clone(),
            trace_sample: self.trace_sample,
            trace_headers: env::var(HEADERS_VARIABLE).ok().map(Secret),
            ..flags
        }
    }
}

/// Flags of `models` and `model list`.
#[derive(Debug, Args)]
pub(super) struct ModelsFlags {
    #[command(flatten)]
    pub(super) socket: SocketFlag,
    /// Print one JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// The socket of a pool.
#[derive(Debug, Args)]
pub(super) struct SocketFlag {
    /// The pool's socket; the default is `$XDG_RUNTIME_DIR/gridpool/pool.sock`.
    #[arg(long, env = "GRIDPOOL_SOCKET")]
    pub(super) socket: Option<PathBuf>,
}

/// What is read off the flags of a command, and has none of its own.
pub(super) trait FromMatches: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// The flags do not go together.
    fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error>;
}

/// Reads it beside the flags. Write this first in a struct, since one that reads a flag removes it.
#[derive(Debug)]
pub(super) struct Read<T>(pub(super) T);

impl<T: FromMatches> FromArgMatches for Read<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: FromMatches> Args for Read<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

/// The flags whose value comes from the environment, with their dashes.
#[derive(Debug)]
struct Environment(BTreeSet<String>);

impl FromMatches for Environment {
    fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ids = matches.ids().map(clap::Id::as_str);
        let given = ids.filter(|id| matches.value_source(id) == Some(ValueSource::EnvVariable));
        Ok(Self(given.map(|id| format!("--{}", id.replace('_', "-"))).collect()))
    }
}

impl ServeFlags {
    /// The settings of a pool with these flags.
    pub(super) fn settings(&self) -> Result<Settings, ConfigError> {
        Settings::of_serve(self.overrides(), self.config())
    }

    pub(super) fn overrides(&self) -> Overrides {
        let overrides = self.pool.overrides(self.socket.socket.clone());
        let keep_going = self.keep_going.unwrap_or(false);
        let overrides = Overrides { keep_going, ..overrides };
        let nats = NatsKeys { host: self.nats_host.clone(), ..self.nats.keys() };
        let overrides = self.trace.over(self.http.over(overrides));
        Overrides { nats, ..self.users.over(self.chaos.over(overrides)) }
    }

    /// The config file, if the flag is there.
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
            grpc: None,
            http_options: HttpOptions::default(),
            trace: None,
            trace_sample: None,
            trace_headers: None,
            standbys: self.standby,
            allow_chaos: None,
            models: self.models.clone(),
            model_repository: self.model_repository.clone(),
            repository: self.repository,
            keep_going: false,
            onnxruntime: self.onnxruntime.clone(),
            sandbox: self.sandbox,
            sandbox_write: self.sandbox_write.clone(),
            socket_group: None,
            socket_mode: None,
            operators: Vec::new(),
            quotas: Vec::new(),
            state_dir: self.state_dir.clone(),
            capsules: self.capsules,
            nats: NatsKeys::default(),
            environment: self.environment.0.0.clone(),
        }
    }
}

impl UsersFlags {
    /// Adds these flags to others.
    fn over(&self, flags: Overrides) -> Overrides {
        Overrides {
            socket_group: self.socket_group.clone(),
            socket_mode: self.socket_mode.clone(),
            operators: self.operators.clone(),
            quotas: self.quotas.clone(),
            ..flags
        }
    }
}

impl ChaosFlag {
    /// Adds this flag to others.
    pub(super) fn over(&self, flags: Overrides) -> Overrides {
        Overrides { allow_chaos: self.allow_chaos, ..flags }
    }
}

impl HttpFlag {
    /// Adds this flag to others.
    pub(super) fn over(&self, flags: Overrides) -> Overrides {
        let http_options = HttpOptions {
            hosts: self.http_host.clone(),
            origins: self.http_origin.clone(),
            tokens: self.http_tokens.clone(),
            cert: self.http_cert.clone(),
            key: self.http_key.clone(),
            group: self.http_group.clone(),
            insecure: self.insecure,
            access_log: self.access_log,
            shared_memory: self.shared_memory,
        };
        Overrides { http: self.http.clone(), grpc: self.grpc.clone(), http_options, ..flags }
    }
}

/// How jobs wait in a pool that others use, too.
#[derive(Debug, Args)]
pub(super) struct QueueFlags {
    /// Which of this client's waiting jobs run first: high, normal or low. Hosts of a cluster take the high ones of all
    /// clients first.
    #[arg(long, value_name = "PRIORITY", default_value = "normal", value_parser = named_priority())]
    pub(super) priority: Priority,
    /// Fail at once if the pool is full or drains, or if there is none; without this flag, try again until the
    /// deadline, and for 10 s if there is none.
    #[arg(long)]
    pub(super) no_wait: bool,
}

/// Reads the name of a priority.
fn named_priority() -> impl TypedValueParser<Value = Priority> {
    let names = PossibleValuesParser::new(Priority::ALL.map(Priority::name));
    names.map(|name| Priority::from_name(&name).expect("one of the names"))
}

/// A parser of whole numbers in a range; its error names the range.
pub(super) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number: u64| T::try_from(number).ok());
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("write a whole number from {least} to {most}"))
    }
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("write a number of seconds from 0 to {}, such as 30 or 0.5", DEADLINE_MAX.as_secs())
    };
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    let span = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if span > DEADLINE_MAX { Err(wrong()) } else { Ok(span) }
}

pub(super) fn parse_signal(text: &str) -> Result<Signal, String> {
    let name = text.to_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    let by_number = || text.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let signal = name.parse().ok().or_else(by_number);
    signal.ok_or_else(|| {
        format!("`{text}` is not a signal: write KILL, TERM, STOP, SEGV or a number")
    })
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_deadlines_are_read_or_refused_with_a_sentence() {
        for text in ["KILL", "sigkill", "9"] {
            assert_eq!(parse_signal(text), Ok(Signal::SIGKILL));
        }
        assert!(parse_signal("FOO").unwrap_err().contains("is not a signal"));
        let up_to_4 = whole::<u32>(0..=4);
        assert_eq!(["0", "4"].map(&up_to_4), [Ok(0), Ok(4)]);
        for text in ["5", "x", "", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(up_to_4(text).unwrap_err(), "write a whole number from 0 to 4", "{text}");
        }
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["-1", "x", "inf", "nan", "1e9"] {
            assert!(parse_seconds(text).unwrap_err().contains("a number of seconds"), "{text}");
        }
    }
}
