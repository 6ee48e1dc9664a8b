//! What a worker or the monitor gives up, by its role and device.
//!
//! A worker on the CPU may make listed system calls only. Processes that load the NVIDIA driver are refused
//! the dangerous calls alone, and may read every file: what a driver needs differs from version to version.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;
use gridpool_ipc::sandbox::{self, Calls, RUNTIME_FILES, Sandbox, SandboxError};
use gridpool_protocol::ids::{DeviceKind, Role};
use gridpool_protocol::sandbox::SandboxMode;

/// Files beside the devices that the NVIDIA driver writes: memory that its processes share, and the names of this
/// process's threads.
const DRIVER_WRITES: [&str; 2] = ["/dev/shm", "/proc/self"];
/// Folders that the driver writes if they are there: what names the folder, and its default.
const DRIVER_FOLDERS: [(&str, Option<&str>); 3] = [
    ("CUDA_CACHE_PATH", None),
    ("CUDA_MPS_PIPE_DIRECTORY", Some("/tmp/nvidia-mps")),
    ("CUDA_MPS_LOG_DIRECTORY", Some("/var/log/nvidia-mps")),
];
/// The driver's cache of kernels in the home folder, if `CUDA_CACHE_PATH` does not name another.
const DRIVER_CACHE: &str = ".nv";

/// How the pool confines its workers.
#[derive(Clone, Debug, Default, Args)]
pub struct ConfinementArguments {
    /// Whether this process confines itself: on, log or off.
    #[arg(long, default_value_t)]
    sandbox: SandboxMode,
    /// A folder or file that this process may write; repeat the option for each.
    #[arg(long)]
    sandbox_write: Vec<PathBuf>,
    /// Lets other processes of this user look into this one.
    #[arg(long)]
    inspectable: bool,
}

/// The sandbox of one process.
#[derive(Clone, Debug)]
pub struct Confinement {
    mode: SandboxMode,
    sandbox: Sandbox,
}

impl Confinement {
    /// The sandbox of a serving worker.
    #[must_use]
    pub fn of_worker(arguments: ConfinementArguments, role: Role, kind: DeviceKind) -> Self {
        let reads = match role {
            // A model that is loaded later may lie anywhere.
            Role::Infer => vec![PathBuf::from("/")],
            Role::Grid => RUNTIME_FILES.map(PathBuf::from).to_vec(),
        };
        Self::new(arguments, role == Role::Infer, |write| match kind {
            DeviceKind::Cpu => (Calls::Listed, reads),
            DeviceKind::Gpu => {
                write.extend(driver_writes());
                (Calls::Unlisted, vec![PathBuf::from("/")])
            }
        })
    }

    /// The sandbox of the monitor, which loads NVML.
    #[must_use]
    pub fn of_monitor(arguments: ConfinementArguments) -> Self {
        Self::new(arguments, false, |write| {
            write.extend(driver_writes());
            (Calls::Unlisted, vec![PathBuf::from("/")])
        })
    }

    fn new(
        arguments: ConfinementArguments,
        reads_as_root: bool,
        rest: impl FnOnce(&mut Vec<PathBuf>) -> (Calls, Vec<PathBuf>),
    ) -> Self {
        let mut writes = arguments.sandbox_write;
        writes.push(PathBuf::from("/dev/null"));
        let (calls, reads) = rest(&mut writes);
        let is_inspectable = arguments.inspectable;
        let sandbox = Sandbox { calls, reads, writes, reads_as_root, is_inspectable };
        Self { mode: arguments.sandbox, sandbox }
    }

    /// Confines this process. Call it while it has one thread.
    ///
    /// # Errors
    /// [`SandboxError`]: this process must not serve.
    pub fn enter(&self) -> Result<(), SandboxError> {
        sandbox::enter(self.mode, &self.sandbox)
    }
}

/// What the NVIDIA driver writes.
fn driver_writes() -> Vec<PathBuf> {
    let named = DRIVER_FOLDERS.into_iter().filter_map(|(variable, default)| {
        let named = env::var_os(variable).filter(|path| !path.is_empty());
        named.map(PathBuf::from).or_else(|| default.map(PathBuf::from))
    });
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(DRIVER_CACHE));
    let fixed = DRIVER_WRITES.map(PathBuf::from);
    sandbox::nvidia_devices().into_iter().chain(fixed).chain(named).chain(home).collect()
}
