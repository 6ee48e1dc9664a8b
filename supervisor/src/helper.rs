//! What a helper process that is made of this binary (`gridpool gateway`, `gridpool bridge`, `gridpool tracer`) does
//! before it serves: it ties itself to its supervisor, and confines itself.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use gridpool_client::Client;
use gridpool_ipc::memory;
use gridpool_ipc::sandbox::{self, Calls, RUNTIME_FILES, Sandbox, SandboxError, trespass};
use gridpool_protocol::ids::{DeviceId, DeviceKind};
use gridpool_protocol::sandbox::SandboxMode;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getppid};

/// Where the system says how names of machines are looked up, and keeps the authorities of certificates.
pub(crate) const NETWORK_FILES: [&str; 11] = [
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

/// What the supervisor passes to a helper.
#[derive(Clone, Debug, clap::Args)]
pub struct HelperFlags {
    /// The pool's socket.
    #[arg(long)]
    pub socket: PathBuf,
    /// The supervisor. When it dies, the kernel kills this process.
    #[arg(long)]
    pub supervisor_pid: u32,
    /// Whether it confines itself.
    #[arg(long, default_value_t)]
    pub sandbox: SandboxMode,
}

/// Why a helper does not begin to serve.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// No supervisor started this process; says what does.
    #[error("{0}")]
    Orphan(&'static str),
    /// It cannot confine itself.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
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

/// The error of a system call.
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> HelperError {
    move |source| HelperError::System { what, source }
}

impl HelperFlags {
    /// Ties this process to its supervisor, and returns the link to it, which is standard output. `by_hand` is the
    /// error if no supervisor started it.
    ///
    /// # Errors
    /// [`HelperError`].
    pub(crate) fn attach(&self, by_hand: &'static str) -> Result<UnixStream, HelperError> {
        let parent = i32::try_from(self.supervisor_pid).ok().map(Pid::from_raw);
        // It was started by a descriptor, and its name would be that number.
        prctl::set_name(c"gridpool").map_err(|e| system("its name")(e.into()))?;
        prctl::set_pdeathsig(Signal::SIGKILL)
            .map_err(|e| system("dying with a parent")(e.into()))?;
        if parent != Some(getppid()) {
            return Err(HelperError::Orphan(by_hand));
        }
        if let Err(error) = memory::volunteer_for_the_oom_killer() {
            tracing::warn!(%error, "the kernel may kill the supervisor before this process");
        }
        // The supervisor blocks some signals, and a child inherits that.
        SigSet::empty().thread_set_mask().map_err(|e| system("unblocking signals")(e.into()))?;
        let link = io::stdout().as_fd().try_clone_to_owned();
        let link = UnixStream::from(link.map_err(system("the supervisor's link"))?);
        link.peer_addr().map_err(|_| HelperError::Orphan(by_hand))?;
        Ok(link)
    }

    /// Confines this process before it starts a thread: of files it needs its libraries and `reads`.
    pub(crate) fn confine(
        &self,
        calls: Calls,
        reads: impl Iterator<Item = PathBuf>,
    ) -> Result<(), SandboxError> {
        let reads = RUNTIME_FILES.map(PathBuf::from).into_iter().chain(reads).collect();
        let (writes, reads_as_root) = (vec![PathBuf::from("/dev/null")], false);
        let is_inspectable = std::env::var_os(trespass::INSPECTABLE).is_some();
        let sandbox = Sandbox { calls, reads, writes, reads_as_root, is_inspectable };
        sandbox::enter(self.sandbox, &sandbox)?;
        for (what, came) in trespass::of_this_process() {
            tracing::warn!(what, refused = trespass::is_refused(&came), ?came, "trespass");
            if what == trespass::LAST {
                give_orders(&self.socket);
            }
        }
        Ok(())
    }
}

/// For tests: gives the pool orders, which it must refuse.
fn give_orders(socket: &Path) {
    let orders = |pool: &Client| {
        let first = DeviceId { kind: DeviceKind::Cpu, index: 0 };
        [pool.drain(), pool.kill(first, 9), pool.release(first), pool.unload_model("none")]
    };
    match Client::connect(socket) {
        Ok(pool) => {
            for came in orders(&pool) {
                tracing::warn!(refused = came.is_err(), ?came, "trespass what=an order");
            }
        }
        Err(error) => tracing::warn!(%error, "trespass"),
    }
}
