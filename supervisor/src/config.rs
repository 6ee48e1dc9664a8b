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

use std::env;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::tensor::options::ModelPlan;
use nix::unistd::{Uid, getuid};

use crate::pool::config::PoolConfig;
use crate::pool::policy::PolicyTable;

pub use devices::{CPU_WORKERS_MAX, DeviceError, DeviceSelection, parse_devices};
#[cfg(test)]
pub(crate) use limits::INFER_WINDOW_MAX;
pub use models::{MODELS_MAX, parse_model};

/// Longest path of a Unix socket, from `sun_path` of `sockaddr_un`.
const SOCKET_PATH_BYTES_MAX: usize = 107;

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
    #[error("{flag}: {reason}")]
    Flag {
        /// The flag.
        flag: &'static str,
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
        let file = file.map_or_else(|| Ok(file::FileSettings::default()), file::read)?;
        let devices = match flags.devices {
            Some(text) => Some(parse_devices(&text).map_err(|error| ConfigError::Flag {
                flag: "--devices",
                reason: error.to_string(),
            })?),
            None => file.devices,
        };
        let models = flags.models.iter().map(|text| models::parse_flag(text));
        let models = models.collect::<Result<Vec<_>, _>>();
        let models = models.and_then(|flags| models::merge(file.models, flags));
        let models = models.map_err(|reason| ConfigError::Flag { flag: "--model", reason })?;
        let http = match flags.http {
            Some(text) => Some(
                parse_http(&text).map_err(|reason| ConfigError::Flag { flag: "--http", reason })?,
            ),
            None => file.http,
        };
        let mut limits = file.limits.unwrap_or(PoolConfig::DEFAULT);
        limits.standbys = flags.standbys.unwrap_or(limits.standbys);
        Ok(Self {
            devices: devices.unwrap_or_else(|| vec![DeviceSelection::AllGpus]),
            socket: resolve_socket(flags.socket, file.socket)?,
            worker_bin: flags.worker_bin.or(file.worker_bin),
            http,
            allow_chaos: flags.allow_chaos.or(file.allow_chaos).unwrap_or(false),
            limits,
            policy: file.policy,
            models,
            onnxruntime: flags.onnxruntime.or(file.onnxruntime),
        })
    }
}

fn resolve_socket(flag: Option<PathBuf>, file: Option<PathBuf>) -> Result<PathBuf, ConfigError> {
    let Some(path) = flag else {
        return Ok(file.unwrap_or_else(|| default_socket(env::var_os("XDG_RUNTIME_DIR"), getuid())));
    };
    match check_socket(&path) {
        Ok(()) => Ok(path),
        Err(reason) => Err(ConfigError::Flag { flag: "--socket", reason }),
    }
}

/// `$XDG_RUNTIME_DIR/gridpool/pool.sock`, or a folder of the user's own under `/tmp`.
fn default_socket(runtime_dir: Option<OsString>, user: Uid) -> PathBuf {
    // The XDG specification: a path that is not absolute is to be ignored.
    let folder = match runtime_dir.map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(runtime) => runtime.join("gridpool"),
        None => PathBuf::from(format!("/tmp/gridpool-{user}")),
    };
    folder.join("pool.sock")
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
    match path.as_os_str().as_bytes().len() {
        0 => Err("the path of the socket is empty".to_owned()),
        length if length > SOCKET_PATH_BYTES_MAX => Err(format!(
            "the path of the socket has {length} bytes; a Unix socket takes at most \
             {SOCKET_PATH_BYTES_MAX}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.toml");
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_flag_beats_the_file_and_the_file_beats_the_default() {
        let (folder, path) = file("devices = 'cpu:3'\nsocket = 'a.sock'\nworker_bin = '/bin/w'");
        let settings = Settings::resolve(Overrides::default(), Some(&path)).unwrap();
        assert_eq!(settings.devices, [DeviceSelection::Cpu(3)]);
        assert_eq!(settings.socket, folder.path().join("a.sock"));
        assert_eq!(settings.worker_bin, Some(PathBuf::from("/bin/w")));
        let flags = Overrides {
            devices: Some("1".to_owned()),
            socket: Some(PathBuf::from("b.sock")),
            worker_bin: Some(PathBuf::from("w")),
            http: Some("localhost:1".to_owned()),
            standbys: Some(1),
            allow_chaos: None,
            models: Vec::new(),
            onnxruntime: None,
        };
        let settings = Settings::resolve(flags, Some(&path)).unwrap();
        assert_eq!(settings.devices, [DeviceSelection::GpuIndex(1)]);
        assert_eq!(settings.socket, PathBuf::from("b.sock"));
        assert_eq!(settings.worker_bin, Some(PathBuf::from("w")));
        assert_eq!(settings.limits.standbys, 1);
        assert_eq!(settings.http, Some(SocketAddr::from(([127, 0, 0, 1], 1))));
        let settings = Settings::resolve(Overrides::default(), None).unwrap();
        assert_eq!(settings.devices, [DeviceSelection::AllGpus]);
        assert_eq!(settings.limits, PoolConfig::DEFAULT);
    }

    #[test]
    fn chaos_is_allowed_only_where_a_flag_or_the_file_says_so() {
        let allowed = |flag, text| {
            let (_folder, path) = file(text);
            let flags = Overrides { allow_chaos: flag, ..Overrides::default() };
            Settings::resolve(flags, Some(&path)).unwrap().allow_chaos
        };
        assert!(!allowed(None, "") && !allowed(None, "allow_chaos = false"));
        assert!(allowed(None, "allow_chaos = true") && allowed(Some(true), ""));
    }

    #[test]
    fn http_is_served_where_a_flag_or_the_file_says_so_and_nowhere_else() {
        let at = |flag: Option<&str>, text: &str| {
            let (_folder, path) = file(text);
            let flags = Overrides { http: flag.map(str::to_owned), ..Overrides::default() };
            Settings::resolve(flags, Some(&path)).map(|settings| settings.http)
        };
        assert_eq!(at(None, ""), Ok(None));
        let file = "http = '127.0.0.1:8000'";
        assert_eq!(at(None, file), Ok(Some(SocketAddr::from(([127, 0, 0, 1], 8000)))));
        assert_eq!(at(Some("0.0.0.0:0"), file), Ok(Some(SocketAddr::from(([0, 0, 0, 0], 0)))));
        for wrong in ["8000", ":8000", "127.0.0.1", "example.org:80", "localhost:99999", ""] {
            let error = at(Some(wrong), "").unwrap_err();
            assert!(error.to_string().starts_with("--http: `"), "{error}");
            assert_eq!(error.exit_code(), 2);
            let error = at(None, &format!("\nhttp = '{wrong}'")).unwrap_err();
            assert!(error.to_string().contains("pool.toml, line 2: `"), "{error}");
            assert_eq!(error.exit_code(), 78);
        }
    }

    #[test]
    fn the_socket_lies_in_the_runtime_folder_or_in_one_of_the_users_own() {
        let user = Uid::from_raw(1000);
        let at = |runtime: &str| default_socket(Some(runtime.into()), user);
        assert_eq!(at("/run/user/1000"), Path::new("/run/user/1000/gridpool/pool.sock"));
        assert_eq!(at("relative"), Path::new("/tmp/gridpool-1000/pool.sock"));
        assert_eq!(at(""), Path::new("/tmp/gridpool-1000/pool.sock"));
        assert_eq!(default_socket(None, user), Path::new("/tmp/gridpool-1000/pool.sock"));
    }

    #[test]
    fn a_wrong_flag_is_a_usage_error_and_a_wrong_file_a_config_error() {
        let flags = |devices: &str, socket: &str| Overrides {
            devices: Some(devices.to_owned()),
            socket: Some(PathBuf::from(socket)),
            worker_bin: None,
            http: None,
            standbys: None,
            allow_chaos: None,
            models: Vec::new(),
            onnxruntime: None,
        };
        let error = Settings::resolve(flags("cpu:0", "s"), None).unwrap_err();
        assert_eq!(error.to_string(), "--devices: `cpu:0`: cpu:N needs N from 1 to 64");
        assert_eq!(error.exit_code(), 2);
        let error = Settings::resolve(flags("all", &"s".repeat(108)), None).unwrap_err();
        assert!(error.to_string().contains("at most 107"), "{error}");
        assert_eq!(error.exit_code(), 2);
        let (_folder, path) = file("# a comment\ndevices = 'cpu:0'");
        let error = Settings::resolve(flags("all", "s"), Some(&path)).unwrap_err();
        assert!(
            error.to_string().ends_with("pool.toml, line 2: `cpu:0`: cpu:N needs N from 1 to 64")
        );
        assert_eq!(error.exit_code(), 78);
        let error = Settings::resolve(Overrides::default(), Some(Path::new("/none"))).unwrap_err();
        assert!(error.to_string().starts_with("/none: cannot read the config file: No such file"));
        assert_eq!(error.exit_code(), 78);
    }
}
