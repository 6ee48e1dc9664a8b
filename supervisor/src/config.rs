//! Settings: what the command line, the environment and the config file say, in this order of
//! precedence, over the defaults.
//!
//! Owns the names, defaults and bounds of all settings. May not look for devices or open sockets.
//!
//! A config file is TOML. Every key may be left out:
//!
//! ```toml
//! devices = "all"                  # as after --devices: all, 0,1, GPU-<uuid>, cpu:2
//! socket = "/run/gridpool.sock"    # paths are relative to the file's folder
//! worker_bin = "gridpool-worker"
//! http = "127.0.0.1:8000"          # serves the Open Inference Protocol there; nowhere without this
//! allow_chaos = false              # true takes jobs that make a worker fault on purpose
//! onnxruntime = "libonnxruntime.so" # if it is not in one of the usual places
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
//! ```

mod devices;
mod file;
mod limits;
mod models;
mod origins;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::tensor::options::ModelPlan;
use nix::unistd::{Uid, getuid};

use crate::gateway::is_taken;
use crate::pool::config::PoolConfig;
use crate::pool::policy::PolicyTable;

pub use devices::{CPU_WORKERS_MAX, DeviceError, DeviceSelection, parse_devices};
use file::Named;
#[cfg(test)]
pub(crate) use limits::INFER_WINDOW_MAX;
pub use limits::{LimitValue, list as list_limits};
pub use models::{MODELS_MAX, parse_model};
pub use origins::{Origin, Origins};

/// Longest path of a Unix socket, from `sun_path` of `sockaddr_un`.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The variable with the user's folder for sockets, where there is one.
const RUNTIME_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// Everything that a pool is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The devices to serve, in the order named, none twice.
    pub devices: Vec<DeviceSelection>,
    /// Where clients connect.
    pub socket: PathBuf,
    /// The worker's binary, if not the one beside `gridpool`.
    pub worker_bin: Option<PathBuf>,
    /// Where HTTP is served, if it is.
    pub http: Option<SocketAddr>,
    /// Whether jobs may make a worker fault on purpose.
    pub allow_chaos: bool,
    /// The limits of the core.
    pub limits: PoolConfig,
    /// What is done about which fault.
    pub policy: PolicyTable,
    /// The models that inference workers load; without any there are no such workers.
    pub models: Vec<ModelPlan>,
    /// ONNX Runtime's library, if it is named.
    pub onnxruntime: Option<PathBuf>,
    /// Who has set what.
    pub origins: Origins,
}

/// What flags, or the environment in their place, say.
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
    /// `--standby` or `GRIDPOOL_STANDBY`.
    pub standbys: Option<u32>,
    /// `--allow-chaos` or `GRIDPOOL_ALLOW_CHAOS`.
    pub allow_chaos: Option<bool>,
    /// Every `--model`.
    pub models: Vec<String>,
    /// `--onnxruntime` or `GRIDPOOL_ONNXRUNTIME`.
    pub onnxruntime: Option<PathBuf>,
    /// Those flags whose variable was taken in their place.
    pub environment: BTreeSet<&'static str>,
}

impl Overrides {
    /// Where the value of a flag comes from.
    fn origin(&self, flag: &'static str) -> Origin {
        match self.environment.contains(flag) {
            true => Origin::Environment { variable: variable(flag) },
            false => Origin::Flag { flag },
        }
    }

    /// What is wrong with the value of a flag.
    fn wrong(&self, flag: &'static str, reason: String) -> ConfigError {
        let from_environment = self.environment.contains(flag);
        let given = if from_environment { variable(flag) } else { flag.to_owned() };
        ConfigError::Flag { given, reason }
    }

    /// Remembers, over what the file says, what the flags have set.
    fn note(&self, origins: &mut Origins) {
        let given = [
            ("devices", "--devices", self.devices.is_some()),
            ("socket", "--socket", self.socket.is_some()),
            ("worker_bin", "--worker-bin", self.worker_bin.is_some()),
            ("http", "--http", self.http.is_some()),
            ("limits.standbys", "--standby", self.standbys.is_some()),
            ("allow_chaos", "--allow-chaos", self.allow_chaos.is_some()),
            ("onnxruntime", "--onnxruntime", self.onnxruntime.is_some()),
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

/// Why there are no settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The config file is wrong.
    #[error("{}, line {line}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there, and what to write instead.
        reason: String,
    },
    /// A flag, or its environment variable, is wrong.
    #[error("{given}: {reason}")]
    Flag {
        /// Which of the two was given.
        given: String,
        /// What is wrong with it, and what to write instead.
        reason: String,
    },
    /// The config file gave no text.
    #[error("{}: cannot read the config file: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the operating system says.
        reason: String,
    },
}

impl ConfigError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::File { .. } | Self::Unreadable { .. } => exit::CONFIG,
            Self::Flag { .. } => exit::USAGE,
        }
    }
}

impl Settings {
    /// Puts `flags` over the config file over the defaults.
    ///
    /// # Errors
    /// [`ConfigError`] for the first setting that is wrong, wherever it comes from: a bad config
    /// file is refused even where a flag takes its place.
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
        let models = models.map_err(|reason| flags.wrong("--model", reason))?;
        let http = match &flags.http {
            Some(text) => Some(parse_http(text).map_err(|reason| flags.wrong("--http", reason))?),
            None => file.http,
        };
        let mut limits = file.limits.unwrap_or(PoolConfig::DEFAULT);
        limits.standbys = flags.standbys.unwrap_or(limits.standbys);
        flags.note(&mut origins);
        Ok(Self {
            devices: devices.unwrap_or_else(|| vec![DeviceSelection::AllGpus]),
            socket: resolve_socket(&flags, file.socket, &mut origins)?,
            worker_bin: flags.worker_bin.or(file.worker_bin),
            http,
            allow_chaos: flags.allow_chaos.or(file.allow_chaos).unwrap_or(false),
            limits,
            policy: file.policy,
            models,
            onnxruntime: flags.onnxruntime.or(file.onnxruntime),
            origins,
        })
    }
}

/// A config file that a pool can be started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// How many settings it has.
    pub settings: usize,
    /// What may not be meant, in the order of the lines.
    pub warnings: Vec<String>,
}

/// Reads a config file for what is wrong with it, the files that it names among that.
///
/// # Errors
/// Every [`ConfigError`] in it, in the order of its lines; never none.
pub fn check_file(file: &Path) -> Result<Checked, Vec<ConfigError>> {
    let settings = file::read(file, Named::MustBeThere)?;
    let taken = settings.models.iter().filter(|model| is_taken(&model.name)).map(|model| {
        let name = &model.name;
        let reason = format!(
            "`{name}` is built into the HTTP gateway: a model of that name cannot be asked over HTTP"
        );
        (format!("model.{name}.name"), reason)
    });
    let unlisted = settings.policy.unlisted().into_iter().map(|rule| {
        let fault = &rule.fault;
        let reason = format!(
            "no table names the fault `{fault}`; the rule stands, but may be a slip: `gridpool \
             status --policy` lists the faults"
        );
        (format!("policy.{fault}"), reason)
    });
    let mut warnings = Vec::new();
    for (setting, reason) in taken.chain(unlisted) {
        if let Origin::File { file, line } = settings.origins.of(&setting) {
            let text = format!("{}, line {line}: warning: {reason}", file.display());
            warnings.push((*line, text));
        }
    }
    warnings.sort();
    let warnings = warnings.into_iter().map(|(_, text)| text).collect();
    Ok(Checked { settings: settings.origins.set_count(), warnings })
}

fn resolve_socket(
    flags: &Overrides,
    file: Option<PathBuf>,
    origins: &mut Origins,
) -> Result<PathBuf, ConfigError> {
    let Some(path) = &flags.socket else {
        return Ok(file.unwrap_or_else(|| {
            let (socket, origin) = default_socket(env::var_os(RUNTIME_VARIABLE), getuid());
            origins.set("socket", origin);
            socket
        }));
    };
    match check_socket(path) {
        Ok(()) => Ok(path.clone()),
        Err(reason) => Err(flags.wrong("--socket", reason)),
    }
}

/// `$XDG_RUNTIME_DIR/gridpool/pool.sock`, or a folder of the user's own under `/tmp`.
fn default_socket(runtime_dir: Option<OsString>, user: Uid) -> (PathBuf, Origin) {
    // The XDG specification: a path that is not absolute is to be ignored.
    let (folder, origin) = match runtime_dir.map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(runtime) => {
            let variable = RUNTIME_VARIABLE.to_owned();
            (runtime.join("gridpool"), Origin::Environment { variable })
        }
        None => (PathBuf::from(format!("/tmp/gridpool-{user}")), Origin::Default),
    };
    (folder.join("pool.sock"), origin)
}

/// `127.0.0.1:8000`, `[::1]:8000`, `localhost:8000`. Names are not looked up: that may hang.
fn parse_http(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.or_else(|| text.parse().ok()).ok_or_else(|| {
        format!(
            "`{text}` is no address and port: write 127.0.0.1:8000, 0.0.0.0:8000, [::1]:8000 or \
             localhost:8000; with port 0 the system chooses one"
        )
    })
}

fn check_socket(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(
            "the path of the socket is empty: name a file, as /tmp/pool/pool.sock".to_owned()
        );
    }
    if bytes.len() > SOCKET_PATH_BYTES_MAX {
        return Err(format!(
            "the path of the socket has {} bytes; a Unix socket takes at most \
             {SOCKET_PATH_BYTES_MAX}",
            bytes.len()
        ));
    }
    if bytes.ends_with(b"/") || path.is_dir() {
        let file = path.join("pool.sock");
        return Err(format!(
            "{} is a folder: name a file in it, as {}",
            path.display(),
            file.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
