//! Settings from the command line, the environment and the config file, in this order of precedence, then from
//! the defaults.
//!
//! Owns the names, defaults and bounds of all settings. May not search for devices or open sockets.
//!
//! A config file is TOML. Every key may be left out:
//!
//! ```toml
//! devices = "all"                  # as after --devices: all, 0,1, GPU-<uuid>, cpu:2
//! socket = "/run/gridpool.sock"    # paths are relative to the file's folder
//! worker_bin = "gridpool-worker"
//! http = "127.0.0.1:8000"          # serves the Open Inference Protocol there; nowhere without this
//! grpc = "127.0.0.1:8001"          # the same over gRPC
//! http_tokens = "tokens"           # and http_cert, http_key, http_host, http_origin, http_group, insecure
//! shared_memory = true             # clients of HTTP and gRPC may name tensors in their shared memory
//! access_log = true                # a line in the log for each request of HTTP and gRPC
//! trace = "http://127.0.0.1:4318"  # sends traces to this OpenTelemetry collector
//! trace_sample = 0.01              # of those that begin here, one in a hundred; 1 is the default
//! allow_chaos = false              # true takes jobs that make a worker fault on purpose
//! onnxruntime = "libonnxruntime.so" # if it is not in one of the usual places
//! sandbox = "on"                   # or log, off
//! sandbox_write = ["profiles"]     # what workers may write besides
//! socket_group = "gpu"             # whose members may use the pool; and socket_mode = "0660"
//! operators = ["alice"]            # who may give orders, besides your user and root
//! state_dir = "/var/lib/gridpool"  # what outlives the pool; "none" keeps nothing
//! capsules = "on"                  # what is kept there of crashes: on, shapes, off; or [capsules] with limits
//! traces.headers = { api-key = "KEY" } # what the collector of traces asks for
//!
//! [[model]]                        # once for each: what every inference worker loads
//! name = "resnet"
//! path = "resnet50.onnx"
//! contexts = 4                     # and all other fields of `ModelOptions`
//!
//! [limits]                         # the fields of `PoolConfig`; times end in _s, _ms or _us
//! queue_jobs_max = 1024
//! drain_timeout_s = 30
//! heartbeat_kill_ms = 5000
//! spin_us = 200
//!
//! [policy]                         # a fault and what is done about it: `gridpool status --policy`
//! "cuda 2" = "restart"
//! "xid 109" = "quarantine"
//!
//! [quota]                          # what each user may have at a time; `default` is for all others
//! default = "jobs=1000,bytes=4G"
//! alice = "jobs=100,bytes=1G,device-seconds=60/min"
//! ```

pub(crate) mod capsules;
mod check;
mod devices;
mod error;
mod file;
mod http;
mod idle;
mod limits;
mod models;
pub(crate) mod nats;
mod origins;
mod pipelines;
mod quotas;
mod sockets;
mod state;
mod traces;
mod users;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gridpool_protocol::message::Secret;
use gridpool_protocol::sandbox::SandboxMode;
use gridpool_protocol::status::CapsuleMode;
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::split;

use gridpool_bridge::BridgeSettings;

use crate::gateway::why_taken;
use crate::repository::{self, Repository, RepositoryError, RepositoryMode};
use crate::traces::Sample;
use gridpool_core::config::PoolConfig;
use gridpool_core::policy::PolicyTable;

pub use capsules::{CapsuleKeys, CapsuleOptions};
pub use check::{Checked, check_file};
pub use devices::{CPU_WORKERS_MAX, DeviceError, DeviceSelection, parse_devices};
pub use error::ConfigError;
use file::Named;
pub(crate) use file::open;
pub(crate) use http::UNIX;
pub use http::{HttpAddress, HttpOptions};
#[cfg(test)]
pub(crate) use limits::INFER_WINDOW_MAX;
pub use limits::{LimitValue, list as list_limits};
pub use models::parse_model;
pub(crate) use nats::HOST_NAME;
pub use nats::NatsKeys;
pub use origins::{Origin, Origins};
pub use pipelines::parse_pipeline;
pub use quotas::{WrittenQuota, quotas_of};
use sockets::{check_socket, resolve_socket};
pub use state::{StateDir, default_folder};
pub use traces::TraceOptions;
pub use users::UserOptions;

/// All settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The devices to serve, in the order named, without repetition.
    pub devices: Vec<DeviceSelection>,
    /// The socket for clients.
    pub socket: PathBuf,
    /// The worker's binary; `None` is the binary beside `gridpool`.
    pub worker_bin: Option<PathBuf>,
    /// The address of HTTP; `None` serves no HTTP.
    pub http: Option<HttpAddress>,
    /// The address of gRPC; `None` serves no gRPC.
    pub grpc: Option<HttpAddress>,
    /// Who may use both, and how they are encrypted.
    pub http_options: HttpOptions,
    /// Where traces are sent.
    pub trace: TraceOptions,
    /// Whether jobs may inject faults into a worker.
    pub allow_chaos: bool,
    /// The limits of the core.
    pub limits: PoolConfig,
    /// The response to each fault.
    pub policy: PolicyTable,
    /// The models of inference workers; a pool without models has no such workers.
    pub models: Vec<ModelPlan>,
    /// The model repository, if there is one.
    pub repository: Option<Repository>,
    /// ONNX Runtime's library; `None` searches for it.
    pub onnxruntime: Option<PathBuf>,
    /// Whether workers and helpers are confined.
    pub sandbox: SandboxMode,
    /// Files and folders that workers may write although they are confined.
    pub sandbox_write: Vec<PathBuf>,
    /// Who may use the pool beside its own user.
    pub users: UserOptions,
    /// What each principal may have.
    pub quotas: Vec<WrittenQuota>,
    /// Where it keeps what outlives it.
    pub state_dir: StateDir,
    /// What it keeps there of deaths.
    pub capsules: CapsuleOptions,
    /// The cluster from which the pool takes jobs, if there is one.
    pub nats: Option<BridgeSettings>,
    /// The origin of each setting.
    pub origins: Origins,
}

/// Values of flags, or of their variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--devices` or `GRIDPOOL_DEVICES`.
    pub devices: Option<String>,
    /// `--socket` or `GRIDPOOL_SOCKET`.
    pub socket: Option<PathBuf>,
    /// `--worker-bin` or `GRIDPOOL_WORKER_BIN`.
    pub worker_bin: Option<PathBuf>,
    /// `--http` or `GRIDPOOL_HTTP`.
    pub http: Option<String>,
    /// `--grpc` or `GRIDPOOL_GRPC`.
    pub grpc: Option<String>,
    /// `--http-host`, `--http-tokens`, … or their variables.
    pub http_options: HttpOptions,
    /// `--trace` or `GRIDPOOL_TRACE`.
    pub trace: Option<String>,
    /// `--trace-sample` or `GRIDPOOL_TRACE_SAMPLE`.
    pub trace_sample: Option<Sample>,
    /// `OTEL_EXPORTER_OTLP_HEADERS`.
    pub trace_headers: Option<Secret>,
    /// `--standby` or `GRIDPOOL_STANDBY`.
    pub standbys: Option<u32>,
    /// `--allow-chaos` or `GRIDPOOL_ALLOW_CHAOS`.
    pub allow_chaos: Option<bool>,
    /// Every `--model`.
    pub models: Vec<String>,
    /// `--model-repository` or `GRIDPOOL_MODEL_REPOSITORY`.
    pub model_repository: Option<PathBuf>,
    /// `--repository` or `GRIDPOOL_REPOSITORY`.
    pub repository: Option<RepositoryMode>,
    /// `--keep-going` or `GRIDPOOL_KEEP_GOING`: a model of the repository with which something is wrong is left out.
    pub keep_going: bool,
    /// `--onnxruntime` or `GRIDPOOL_ONNXRUNTIME`.
    pub onnxruntime: Option<PathBuf>,
    /// `--sandbox` or `GRIDPOOL_SANDBOX`.
    pub sandbox: Option<SandboxMode>,
    /// Every `--sandbox-write`, or `GRIDPOOL_SANDBOX_WRITE`.
    pub sandbox_write: Vec<PathBuf>,
    /// `--socket-group` or `GRIDPOOL_SOCKET_GROUP`.
    pub socket_group: Option<String>,
    /// `--socket-mode` or `GRIDPOOL_SOCKET_MODE`.
    pub socket_mode: Option<String>,
    /// `--operators` or `GRIDPOOL_OPERATORS`.
    pub operators: Vec<String>,
    /// Every `--quota`, or `GRIDPOOL_QUOTA`.
    pub quotas: Vec<String>,
    /// `--state-dir` or `GRIDPOOL_STATE_DIR`.
    pub state_dir: Option<PathBuf>,
    /// `--capsules` or `GRIDPOOL_CAPSULES`.
    pub capsules: Option<CapsuleMode>,
    /// `--nats`, `--nats-prefix`, … or their variables.
    pub nats: NatsKeys,
    /// The flags whose value comes from their variable.
    pub environment: BTreeSet<String>,
}

impl Overrides {
    /// The origin of a flag's value.
    fn origin(&self, flag: &'static str) -> Origin {
        match self.environment.contains(flag) {
            true => Origin::Environment { variable: variable(flag) },
            false => Origin::Flag { flag },
        }
    }

    /// The flag, or the variable that its value comes from.
    fn given(&self, flag: &'static str) -> String {
        let from_environment = self.environment.contains(flag);
        if from_environment { variable(flag) } else { flag.to_owned() }
    }

    /// The error of a flag's value.
    fn wrong(&self, flag: &'static str, reason: String) -> ConfigError {
        ConfigError::Flag { given: self.given(flag), reason }
    }

    /// Records the flags as origins; they replace the file's lines.
    fn note(&self, origins: &mut Origins) {
        let given = [
            ("devices", "--devices", self.devices.is_some()),
            ("socket", "--socket", self.socket.is_some()),
            ("worker_bin", "--worker-bin", self.worker_bin.is_some()),
            ("http", "--http", self.http.is_some()),
            ("grpc", "--grpc", self.grpc.is_some()),
            ("http_host", "--http-host", !self.http_options.hosts.is_empty()),
            ("http_origin", "--http-origin", !self.http_options.origins.is_empty()),
            ("http_tokens", "--http-tokens", self.http_options.tokens.is_some()),
            ("http_cert", "--http-cert", self.http_options.cert.is_some()),
            ("http_key", "--http-key", self.http_options.key.is_some()),
            ("http_group", "--http-group", self.http_options.group.is_some()),
            ("insecure", "--insecure", self.http_options.insecure.is_some()),
            ("access_log", "--access-log", self.http_options.access_log.is_some()),
            ("shared_memory", "--shared-memory", self.http_options.shared_memory.is_some()),
            ("trace", "--trace", self.trace.is_some()),
            ("trace_sample", "--trace-sample", self.trace_sample.is_some()),
            ("limits.standbys", "--standby", self.standbys.is_some()),
            ("allow_chaos", "--allow-chaos", self.allow_chaos.is_some()),
            ("model_repository", "--model-repository", self.model_repository.is_some()),
            ("repository", "--repository", self.repository.is_some()),
            ("onnxruntime", "--onnxruntime", self.onnxruntime.is_some()),
            ("sandbox", "--sandbox", self.sandbox.is_some()),
            ("sandbox_write", "--sandbox-write", !self.sandbox_write.is_empty()),
            ("socket_group", "--socket-group", self.socket_group.is_some()),
            ("socket_mode", "--socket-mode", self.socket_mode.is_some()),
            ("operators", "--operators", !self.operators.is_empty()),
            ("state_dir", "--state-dir", self.state_dir.is_some()),
            ("capsules", "--capsules", self.capsules.is_some()),
            ("nats.servers", "--nats", self.nats.servers.is_some()),
            ("nats.prefix", "--nats-prefix", self.nats.prefix.is_some()),
            ("nats.host", "--nats-host", self.nats.host.is_some()),
            ("nats.credentials", "--nats-credentials", self.nats.credentials.is_some()),
            ("nats.ca", "--nats-ca", self.nats.ca.is_some()),
            ("nats.cert", "--nats-cert", self.nats.cert.is_some()),
            ("nats.key", "--nats-key", self.nats.key.is_some()),
        ];
        for (setting, flag, _) in given.into_iter().filter(|&(_, _, is_given)| is_given) {
            origins.set(setting, self.origin(flag));
        }
    }
}

/// The variable of a flag.
fn variable(flag: &str) -> String {
    format!("GRIDPOOL_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase())
}

impl Settings {
    /// Puts `flags` over the config file over the defaults.
    ///
    /// # Errors
    /// [`ConfigError`] for the first wrong setting. A bad setting of the config file is an error even if a flag
    /// overrides it.
    pub fn resolve(flags: Overrides, file: Option<&Path>) -> Result<Self, ConfigError> {
        let first = |mut errors: Vec<ConfigError>| errors.swap_remove(0);
        let file = file.map_or_else(
            || Ok(file::FileSettings::default()),
            |file| file::read(file, Named::NeedNotBe),
        );
        let file = file.map_err(first)?;
        let devices = match &flags.devices {
            Some(text) => Some(
                parse_devices(text).map_err(|error| flags.wrong("--devices", error.to_string()))?,
            ),
            None => file.devices,
        };
        let models = flags.models.iter().map(|text| models::parse_flag(text));
        let models = models.collect::<Result<Vec<_>, _>>();
        let mut origins = file.origins;
        let models = models.and_then(|flags| models::merge(file.models, flags, &mut origins));
        let mut models = models.map_err(|reason| flags.wrong("--model", reason))?;
        pipelines::find_models(&mut models, &origins)?;
        let folder = flags.model_repository.clone().or(file.model_repository);
        let repository = match (folder, flags.repository.or(file.repository)) {
            (Some(folder), mode) => Some(Repository { folder, mode: mode.unwrap_or_default() }),
            (None, None) => None,
            (None, Some(_)) => return Err(no_repository(&flags, &origins)),
        };
        let models = match &repository {
            None => models,
            Some(repository) => repository::at_start(repository, &models, flags.keep_going)
                .map_err(|error| wrong_repository(&flags, &origins, &error))?,
        };
        let mut limits = file.limits.unwrap_or(PoolConfig::DEFAULT);
        limits.standbys = flags.standbys.unwrap_or(limits.standbys);
        check_models(&models, &limits, &flags, &origins)?;
        let quotas = flags.quotas.iter().map(|text| WrittenQuota::parse_flag(text));
        let quotas = quotas.collect::<Result<Vec<_>, _>>();
        let note = |quota: &WrittenQuota| (format!("quota.{}", quota.who), flags.origin("--quota"));
        let noted: Vec<_> = quotas.iter().flatten().map(note).collect();
        let quotas = quotas.and_then(|flags| quotas::merge(file.quotas, flags));
        let quotas = quotas.map_err(|reason| flags.wrong("--quota", reason))?;
        noted.into_iter().for_each(|(setting, origin)| origins.set(setting, origin));
        let users = users::parse_flags(&flags)?.over(file.users);
        let http = http::resolve_address(&flags, ("--http", &flags.http), file.http)?;
        let grpc = http::resolve_address(&flags, ("--grpc", &flags.grpc), file.grpc)?;
        let http_options = http::resolve(&flags, file.http_options, &origins)?;
        http::check_group(&flags, &http_options, (&http, &grpc), &origins)?;
        let trace = traces::resolve(&flags, file.trace, &mut origins)?;
        let nats = flags.nats.clone().over(file.nats).resolve();
        let nats = nats.map_err(|reason| flags.wrong("--nats", reason))?;
        flags.note(&mut origins);
        let writes = match flags.sandbox_write.is_empty() {
            true => &file.sandbox_write,
            false => &flags.sandbox_write,
        };
        // Workers have another working directory.
        let writes = writes.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>();
        let sandbox_write =
            writes.map_err(|error| flags.wrong("--sandbox-write", error.to_string()))?;
        let state_dir = flags.state_dir.as_deref().map(|at| StateDir::parse(at, Path::new("")));
        let state_dir =
            state_dir.transpose().map_err(|reason| flags.wrong("--state-dir", reason))?;
        let capsules = CapsuleKeys { mode: flags.capsules, ..CapsuleKeys::default() };
        Ok(Self {
            devices: devices.unwrap_or_else(|| vec![DeviceSelection::AllGpus]),
            socket: resolve_socket(&flags, file.socket, &mut origins)?,
            worker_bin: flags.worker_bin.or(file.worker_bin),
            http,
            grpc,
            http_options,
            trace,
            allow_chaos: flags.allow_chaos.or(file.allow_chaos).unwrap_or(false),
            limits,
            policy: file.policy,
            models,
            repository,
            onnxruntime: flags.onnxruntime.or(file.onnxruntime),
            sandbox: flags.sandbox.or(file.sandbox).unwrap_or_default(),
            sandbox_write,
            users,
            quotas,
            state_dir: state_dir.or(file.state_dir).unwrap_or_default(),
            capsules: capsules.over(file.capsules).resolve(),
            nats,
            origins,
        })
    }
}

/// Checks that HTTP can serve each model under its name, and that it says what memory it may take if that is planned.
fn check_models(
    models: &[ModelPlan],
    limits: &PoolConfig,
    flags: &Overrides,
    origins: &Origins,
) -> Result<(), ConfigError> {
    let wrong = |model: &ModelPlan| {
        let lacks = limits.model_bytes_max > 0 && model.options.device_bytes.is_none();
        let no_size = || {
            format!(
                "the model `{}` has no `device_bytes`: with the limit `model_bytes_max` each model says what it may \
                 take",
                model.name
            )
        };
        let why = why_taken(split(&model.name).0).or_else(|| lacks.then(no_size));
        Some((model.name.clone(), why?))
    };
    let Some((name, reason)) = models.iter().find_map(wrong) else { return Ok(()) };
    Err(match origins.of(&format!("model.{name}.name")) {
        Origin::File { file, line } => {
            ConfigError::File { file: file.clone(), line: *line, reason }
        }
        Origin::Environment { .. } | Origin::Flag { .. } => flags.wrong("--model", reason),
        // A folder of the repository.
        Origin::Default => {
            ConfigError::Content { given: flags.given("--model-repository"), reason }
        }
    })
}

/// The error of a way to follow a model repository, where it is named, if there is none.
fn no_repository(flags: &Overrides, origins: &Origins) -> ConfigError {
    let reason =
        "there is no model repository to follow: name its folder with --model-repository DIR"
            .to_owned();
    let in_file = origins.of("repository").wrong_in_file(&reason);
    in_file
        .filter(|_| flags.repository.is_none())
        .unwrap_or_else(|| flags.wrong("--repository", reason))
}

/// The error of a model repository, where it is named.
fn wrong_repository(flags: &Overrides, origins: &Origins, error: &RepositoryError) -> ConfigError {
    let reason = error.to_string();
    let in_file = origins.of("model_repository").wrong_in_file(&reason);
    in_file.filter(|_| flags.model_repository.is_none()).unwrap_or_else(|| {
        let given = flags.given("--model-repository");
        match error.is_of_content() {
            true => ConfigError::Content { given, reason },
            false => ConfigError::Flag { given, reason },
        }
    })
}

#[cfg(test)]
mod tests;
