//! `gridpool bridge`, the helper process that takes jobs of a cluster: what a helper of the supervisor does before it
//! serves. `gridpool-bridge` is the rest.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use gridpool_bridge::{BridgeError, BridgeSettings};
use gridpool_ipc::sandbox::{self, Calls, RUNTIME_FILES, Sandbox, SandboxError, trespass};
use gridpool_protocol::sandbox::SandboxMode;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getppid};

use crate::logging;

/// What the log may take of a minute.
const LOG_BYTES_PER_MINUTE: usize = 64 * 1_024;

/// Where the system says how names of machines are looked up, and keeps the authorities of certificates.
const NETWORK_FILES: [&str; 11] = [
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/ssl",
    "/run/systemd/resolve",
    "/usr/lib/ssl",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
];

/// What the bridge gets as flags. Its settings come over standard input.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pool's socket.
    pub socket: PathBuf,
    /// The supervisor, with which it dies.
    pub supervisor_pid: u32,
    /// Whether it confines itself.
    pub sandbox: SandboxMode,
}

/// Why the bridge does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeModeError {
    /// No supervisor has started it.
    #[error("`gridpool bridge` is started by `gridpool serve --nats`, and not by hand")]
    Orphan,
    /// It could not confine itself.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// It has served, and cannot go on.
    #[error(transparent)]
    Serving(#[from] BridgeError),
    /// A system call failed.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error.
        #[source]
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> BridgeModeError {
    move |source| BridgeModeError::System { what, source }
}

/// Serves until the supervisor closes the link or dies.
///
/// # Errors
/// [`BridgeModeError`]; the supervisor then starts another bridge.
pub fn run(options: Options) -> Result<(), BridgeModeError> {
    let parent = i32::try_from(options.supervisor_pid).ok().map(Pid::from_raw);
    // It was started by a descriptor, and its name would be that number.
    prctl::set_name(c"gridpool").map_err(|errno| system("its name")(errno.into()))?;
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|errno| system("dying with a parent")(errno.into()))?;
    if parent != Some(getppid()) {
        return Err(BridgeModeError::Orphan);
    }
    // The supervisor blocks some signals, and a child inherits that.
    SigSet::empty()
        .thread_set_mask()
        .map_err(|errno| system("unblocking signals")(errno.into()))?;
    let link =
        io::stdout().as_fd().try_clone_to_owned().map_err(system("the supervisor's link"))?;
    let link = UnixStream::from(link);
    link.peer_addr().map_err(|_| BridgeModeError::Orphan)?;
    let settings: BridgeSettings =
        serde_json::from_reader(io::stdin().lock()).map_err(|_| BridgeModeError::Orphan)?;
    confine(&options, &settings)?;
    // The log is a pipe of the supervisor. A slow reader must not delay jobs.
    logging::write_aside().map_err(system("a thread for the log"))?;
    logging::limit(LOG_BYTES_PER_MINUTE);
    gridpool_bridge::serve(options.socket, settings, link)?;
    Ok(())
}

/// Confines this process before it starts a thread: it may connect, and reads its credentials.
fn confine(options: &Options, settings: &BridgeSettings) -> Result<(), SandboxError> {
    let own = settings.nats.credentials.iter().chain(&settings.nats.ca).cloned();
    let system = RUNTIME_FILES.iter().chain(&NETWORK_FILES).map(PathBuf::from);
    let reads = system.chain(own).collect();
    let writes = vec![PathBuf::from("/dev/null")];
    let (calls, reads_as_root) = (Calls::Network, false);
    let is_inspectable = std::env::var_os(trespass::INSPECTABLE).is_some();
    sandbox::enter(
        options.sandbox,
        &Sandbox { calls, reads, writes, reads_as_root, is_inspectable },
    )
}
