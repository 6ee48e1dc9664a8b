//! What a process of the pool gives up before it serves: privileges, core dumps, files and system calls.
//!
//! A process enters its sandbox before it reads anything of a client, and before it starts a thread: Linux
//! keeps most of this by thread, and threads inherit it. Nothing here can be taken back. What the sandbox
//! forbids fails with an error (EPERM or EACCES); it never kills.
//!
//! The parts: `calls` has the filter of system calls, `files` the rules for files, and this file the rest.

mod calls;
mod files;
pub mod trespass;

use std::io;
use std::path::PathBuf;

use gridpool_protocol::sandbox::SandboxMode;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

pub use calls::Calls;
pub use files::{landlock_version, nvidia_devices};

/// The number of the last capability that a kernel may ever have.
const CAPABILITY_MAX: u32 = 63;

/// Files and folders that a program needs for itself: its libraries, and what it may know of the machine.
pub const RUNTIME_FILES: [&str; 19] = [
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/lib",
    "/lib64",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",
    "/proc/stat",
    "/proc/sys",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/usr/lib",
    "/usr/share/zoneinfo",
];

/// What a process keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Which system calls it may make.
    pub calls: Calls,
    /// Files and folders that it may read. Those that do not exist are left out.
    pub reads: Vec<PathBuf>,
    /// Files and folders that it may also write, make and remove.
    pub writes: Vec<PathBuf>,
    /// A process of root keeps the right to read the files of other users.
    pub reads_as_root: bool,
    /// Other processes of its user may look into its memory, for a check of the pool.
    pub is_inspectable: bool,
}

/// Why a process is not confined.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox: {step}; --sandbox off starts the pool without one")]
pub struct SandboxError {
    step: &'static str,
    #[source]
    source: io::Error,
}

fn failed<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> SandboxError {
    move |source| SandboxError { step, source: source.into() }
}

/// Confines this process for the rest of its life. Call it while it has one thread.
///
/// # Errors
/// [`SandboxError`]: this process must not serve. A kernel without Landlock is no error.
pub fn enter(mode: SandboxMode, sandbox: &Sandbox) -> Result<(), SandboxError> {
    if mode == SandboxMode::Off {
        return Ok(());
    }
    prctl::set_no_new_privs().map_err(failed("no new privileges"))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(failed("no core dump"))?;
    // Also for the programs that the kernel starts for a core dump, which need not heed the limit.
    if !sandbox.is_inspectable {
        prctl::set_dumpable(false).map_err(failed("no core dump"))?;
    }
    drop_capabilities(sandbox.reads_as_root).map_err(failed("no capabilities"))?;
    if mode == SandboxMode::On {
        files::restrict(&sandbox.reads, &sandbox.writes, sandbox.calls).map_err(failed("files"))?;
    }
    calls::restrict(sandbox.calls, mode).map_err(failed("system calls"))
}

/// Drops every capability for good. Root is the owner of many files even without any.
fn drop_capabilities(keeps_reading: bool) -> rustix::io::Result<()> {
    let keep = match keeps_reading {
        true => thread::capabilities(None)?.permitted & CapabilitySet::DAC_READ_SEARCH,
        false => CapabilitySet::empty(),
    };
    thread::clear_ambient_capability_set()?;
    for number in 0..=CAPABILITY_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if keep.contains(capability) {
            continue;
        }
        match thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel has no more; or this process has none to drop any with, and with no new privileges it
            // can get none.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => break,
            Err(error) => return Err(error),
        }
    }
    let sets =
        CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    thread::set_capabilities(None, sets)
}
