//! How this process was started, so that a successor can be started likewise.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gridpool_protocol::tensor::options::ModelPlan;

/// The flag that makes a process of `serve` a successor.
const SUCCESSOR_FLAG: &str = "--successor";

/// How this process was started.
#[derive(Clone, Debug)]
pub struct Origin {
    pub(super) program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// As its settings name them.
    pub(super) models: Vec<ModelPlan>,
}

impl Origin {
    /// This process's. Call it before variables are removed that a successor needs.
    #[must_use]
    pub fn of_this_process() -> Self {
        let mut arguments = env::args_os();
        let program = program(arguments.next().as_deref());
        let arguments = arguments.filter(|argument| argument != SUCCESSOR_FLAG).collect();
        // Its sockets come from us, and the watchdog's number was ours.
        let is_own = |name: &OsStr| {
            name.as_encoded_bytes().starts_with(b"LISTEN_") || name == "WATCHDOG_PID"
        };
        let environment = env::vars_os().filter(|(name, _)| !is_own(name)).collect();
        Self { program, arguments, environment, models: Vec::new() }
    }

    /// The models that its settings name.
    #[must_use]
    pub fn with_models(self, models: Vec<ModelPlan>) -> Self {
        Self { models, ..self }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(SUCCESSOR_FLAG);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The path by which this program was called: what is installed there next may be another file, behind another
/// link.
fn program(called: Option<&OsStr>) -> PathBuf {
    let own = || env::current_exe().unwrap_or_default();
    let id = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let Some(called) = called.map(Path::new) else { return own() };
    let found = match called.components().count() {
        1 => {
            let folders = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&folders).map(|folder| folder.join(called)).find(|path| path.is_file())
        }
        _ => std::path::absolute(called).ok(),
    };
    found.filter(|path| id(path) == id(Path::new("/proc/self/exe"))).unwrap_or_else(own)
}
