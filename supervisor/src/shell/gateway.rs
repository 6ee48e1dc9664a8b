//! The supervisor's side of `gridpool gateway`, a helper process that serves HTTP. The supervisor opens the socket,
//! so connections wait while there is no process.
//!
//! Its connections are a client's, but it names who each job is for.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use gridpool_core::HelperStatus;
use gridpool_core::action::HelperAction;
use gridpool_core::event::Helper;
use gridpool_protocol::log::FORMAT_VARIABLE;
use gridpool_protocol::status::HttpStatus;

use super::confinement::{Confinement, Inherits};
use super::helper::{Post, Processes, Program, Spawned};
use crate::logging;

/// Why the socket for HTTP cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "HTTP cannot be served at {address}: name an address of this machine and a free port with --http, \
     for instance 127.0.0.1:8000, or port 0 for any"
)]
pub struct HttpError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

impl HttpError {
    /// Whether another process listens there.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }
}

/// A socket for HTTP that the gateway does not accept from yet.
#[derive(Debug)]
pub struct Front {
    listener: TcpListener,
    address: SocketAddr,
}

impl Front {
    /// Opens the socket. Connections wait until a gateway accepts them.
    ///
    /// # Errors
    /// [`HttpError`] if the system does not let us listen there.
    pub fn open(address: SocketAddr) -> Result<Self, HttpError> {
        let failed = |source| HttpError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }
}

/// The gateway of a pool.
#[derive(Debug)]
pub(super) struct Gateway {
    address: SocketAddr,
    processes: Arc<Processes>,
}

impl Gateway {
    /// A gateway at `front` for the pool at `socket`, without a process yet.
    pub(super) fn new(
        front: Front,
        socket: &Path,
        confinement: Confinement,
        post: Post,
    ) -> io::Result<Self> {
        let address = front.address;
        let serving = Serving {
            listener: front.listener,
            program: std::env::current_exe()?,
            socket: socket.to_owned(),
            confinement,
        };
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "anyone who reaches this address can run jobs");
        }
        tracing::info!(%address, "HTTP");
        Ok(Self { address, processes: Processes::serve(Helper::Gateway, serving, post)? })
    }

    /// The process, and where it listens.
    pub(super) fn status(&self, core: HelperStatus) -> HttpStatus {
        HttpStatus {
            address: self.address.to_string(),
            pid: self.processes.pid().unwrap_or(0),
            up: core.is_up,
            restarts: core.restarts,
            ..HttpStatus::default()
        }
    }

    /// Whether it is the process of this number.
    pub(super) fn is(&self, pid: u32) -> bool {
        self.processes.is(pid)
    }

    pub(super) fn perform(&self, action: HelperAction) {
        self.processes.perform(action);
    }
}

/// How processes of the gateway are started.
struct Serving {
    listener: TcpListener,
    program: PathBuf,
    socket: PathBuf,
    confinement: Confinement,
}

impl Program for Serving {
    type Output = UnixStream;

    fn spawn(&mut self) -> io::Result<Spawned<UnixStream>> {
        let (ours, theirs) = UnixStream::pair()?;
        let listener: OwnedFd = self.listener.try_clone()?.into();
        let mut command = Command::new(&self.program);
        self.confinement.restrict(&mut command, Inherits::Gateway);
        command
            .arg("gateway")
            .arg("--socket")
            .arg(&self.socket)
            .args(["--supervisor-pid", &std::process::id().to_string()])
            .args(["--sandbox", self.confinement.mode.name()])
            .stdin(Stdio::from(listener))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .env(FORMAT_VARIABLE, logging::format().name())
            .process_group(0);
        let child = command.spawn()?;
        // Only the child holds its end of the link now, so we see it close.
        drop(command);
        Ok(Spawned { child, output: ours.try_clone()?, link: Some(ours) })
    }

    fn on_line(&mut self, line: &[u8]) -> Result<bool, String> {
        match line {
            [] => Ok(true),
            _ => Err(String::from_utf8_lossy(line).into_owned()),
        }
    }
}
