//! The supervisor's side of `gridpool gateway`: opens the socket for HTTP, starts the process that serves
//! it, and starts it again when it ends or falls silent. The socket is ours, so connections that come
//! meanwhile wait.
//!
//! Nothing waits for the gateway under the core's lock, and nothing of the pool depends on it: to the
//! rest of the supervisor it is a client like any other.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gridpool_protocol::clock;
use gridpool_protocol::log::FORMAT_VARIABLE;
use gridpool_protocol::status::HttpStatus;

use super::monitor::lines::{Lines, Next};
use super::monitor::{Backoff, Patience};
use super::pidfd::PidFd;
use crate::logging;

/// How long a gateway that was told to stop may take to answer what is under way.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Why HTTP cannot be served where it should be.
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
    /// Whether somebody else listens there.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }
}

/// A socket for HTTP that nobody accepts from yet.
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
#[derive(Clone, Debug)]
pub(super) struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    front: Front,
    program: PathBuf,
    socket: PathBuf,
    patience: Patience,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    process: Option<Process>,
    /// Processes so far.
    starts: u32,
}

/// The gateway's process.
#[derive(Debug)]
struct Process {
    pid: u32,
    pidfd: PidFd,
    link: UnixStream,
    /// It has given a sign of life.
    is_up: bool,
}

impl Gateway {
    /// Has HTTP served at `front` for the pool at `socket` from now on.
    pub(super) fn start(front: Front, socket: &Path, patience: Patience) -> io::Result<Self> {
        let address = front.address;
        let inner = Arc::new(Inner {
            front,
            program: std::env::current_exe()?,
            socket: socket.to_owned(),
            patience,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "whoever reaches this address can run jobs");
        }
        tracing::info!(%address, "HTTP");
        let for_thread = Arc::clone(&inner);
        // It lives as long as the pool: the gateway's process dies with the thread that spawned it.
        thread::Builder::new().name("gateway".into()).spawn(move || for_thread.attend())?;
        Ok(Self(inner))
    }

    /// The process, and where it listens.
    pub(super) fn status(&self) -> HttpStatus {
        let state = self.0.lock();
        HttpStatus {
            address: self.0.front.address.to_string(),
            pid: state.process.as_ref().map_or(0, |process| process.pid),
            up: state.process.as_ref().is_some_and(|process| process.is_up),
            restarts: state.starts.saturating_sub(1),
        }
    }

    /// Has what is under way answered, ends the process and starts none again.
    pub(super) fn stop(&self) {
        let mut state = self.0.lock();
        state.stopping = true;
        self.0.changed.notify_all();
        if let Some(process) = &state.process
            && let Err(error) = process.link.shutdown(Shutdown::Write)
        {
            tracing::debug!(%error, "the gateway has ended already");
        }
        let is_there = |state: &mut State| state.process.is_some();
        let waited = self.0.changed.wait_timeout_while(state, STOP_PATIENCE, is_there);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = &state.process {
            tracing::warn!("the gateway does not stop: it is killed");
            process.pidfd.kill("the gateway");
        }
    }
}

/// Why a gateway is of no more use.
#[derive(Debug, thiserror::Error)]
enum Over {
    #[error("it ended")]
    Ended,
    #[error("it gives no sign of life")]
    Silent,
    #[error("it said what is no sign of life")]
    Garbled,
    #[error("its link cannot be read: {0}")]
    Unreadable(io::Error),
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of the thread: one process after the other until the pool is gone.
    fn attend(&self) {
        let mut backoff = Backoff::new(self.patience);
        while !self.lock().stopping {
            let began = clock::now();
            match self.spawn() {
                Ok((pidfd, mut child, lines)) => {
                    let over = self.listen(lines);
                    let stopping = self.lock().stopping;
                    pidfd.kill("the gateway");
                    // SIGKILL ends it: it talks to no device.
                    match child.wait() {
                        Ok(status) if !stopping => {
                            tracing::warn!(%over, %status, "the gateway is replaced");
                        }
                        Ok(_) => {}
                        Err(error) => tracing::error!(%error, "waiting for the gateway"),
                    }
                    self.lock().process = None;
                    self.changed.notify_all();
                }
                Err(error) => tracing::warn!(%error, "the gateway cannot be started"),
            }
            self.pause(backoff.after(began.elapsed()));
        }
    }

    fn spawn(&self) -> io::Result<(PidFd, Child, Lines<UnixStream>)> {
        let (ours, theirs) = UnixStream::pair()?;
        let listener: OwnedFd = self.front.listener.try_clone()?.into();
        let mut command = Command::new(&self.program);
        command
            .arg("gateway")
            .arg("--socket")
            .arg(&self.socket)
            .args(["--supervisor-pid", &std::process::id().to_string()])
            .stdin(Stdio::from(listener))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .env(FORMAT_VARIABLE, logging::format().name())
            .process_group(0);
        let mut child = command.spawn()?;
        // Its end of the link is the child's alone now, so that we see it close.
        drop(command);
        match self.take_up(&child, ours) {
            Ok((pidfd, lines)) => Ok((pidfd, child, lines)),
            Err(error) => {
                // It has not been reaped, so the number is still its own.
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// Makes a process known.
    fn take_up(&self, child: &Child, link: UnixStream) -> io::Result<(PidFd, Lines<UnixStream>)> {
        let pidfd = PidFd::open(child.id())?;
        let lines = Lines::new(link.try_clone()?);
        let process = Process { pid: child.id(), pidfd: pidfd.try_clone()?, link, is_up: false };
        let mut state = self.lock();
        if state.stopping {
            return Err(io::Error::other("the pool ends"));
        }
        state.process = Some(process);
        state.starts += 1;
        Ok((pidfd, lines))
    }

    /// Reads signs of life until there are no more.
    fn listen(&self, mut lines: Lines<UnixStream>) -> Over {
        let mut until = clock::now() + self.patience.start;
        loop {
            match lines.next(until) {
                Ok(Next::Line(line)) if line.is_empty() => {
                    until = clock::now() + self.patience.silence;
                    if let Some(process) = &mut self.lock().process {
                        process.is_up = true;
                    }
                }
                Ok(Next::Line(_) | Next::TooLong) => return Over::Garbled,
                Ok(Next::Closed) => return Over::Ended,
                Ok(Next::Silent) => return Over::Silent,
                Err(error) => return Over::Unreadable(error),
            }
        }
    }

    /// Waits for a while, or until the pool ends.
    fn pause(&self, span: Duration) {
        drop(self.changed.wait_timeout_while(self.lock(), span, |state| !state.stopping));
    }
}
