//! The supervisor's side of `gridpool gateway`, a helper process that serves HTTP. The supervisor opens the socket,
//! so connections wait while there is no process.
//!
//! Its connections are a client's, but it names who each job is for.

mod admission;
mod files;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridpool_core::HelperStatus;
use gridpool_core::action::HelperAction;
use gridpool_core::event::Helper;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::handover::Passed;
use gridpool_protocol::log::FORMAT_VARIABLE;
use gridpool_protocol::status::HttpStatus;

use super::Shell;
use super::claim::{self, ListenError, SocketName};
use super::confinement::{Confinement, Inherits};
use super::helper::{Post, Processes, Program, Spawned};
use super::pinned::Pinned;
use crate::config::{HttpAddress, HttpOptions};
use crate::gateway::DoorPlan;
use crate::logging;
use admission::Admission;

pub use files::FileError;

/// How long the gateway may take to read whom to admit.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The system does not let us listen there.
    #[error(
        "HTTP cannot be served at {address}: name an address of this machine and a free port with --http, \
         for instance 127.0.0.1:8000, or port 0 for any"
    )]
    Address {
        /// The address.
        address: HttpAddress,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The Unix socket cannot be made.
    #[error("HTTP cannot be served: {}", OfHttp(.0))]
    Socket(ListenError),
    /// The members of the group cannot be let in.
    #[error("HTTP cannot be served to the group `{group}`: {why}")]
    Group {
        /// The group.
        group: String,
        /// Why.
        why: String,
    },
    /// A file of tokens, certificates or a key cannot be used.
    #[error("HTTP cannot be served: {flag}")]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// Why.
        #[source]
        source: FileError,
    },
    /// Anyone could use the pool.
    #[error(
        "everyone who reaches {0} could run jobs: make a token with `gridpool token new NAME`, put its line \
         into a file with the mode 600, and name the file with --http-tokens; or serve only this machine with \
         --http 127.0.0.1:8000. --insecure serves everyone"
    )]
    Open(HttpAddress),
}

/// An error about a Unix socket, for the flag of HTTP.
struct OfHttp<'a>(&'a ListenError);

impl fmt::Display for OfHttp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Chain(self.0).to_string();
        f.write_str(&said.replace("with --socket", "with --http unix:PATH"))
    }
}

impl HttpError {
    /// Whether another process listens there.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Address { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            Self::Socket(error) => {
                matches!(error, ListenError::Taken(_) | ListenError::Served(_))
            }
            Self::File { .. } | Self::Group { .. } | Self::Open(_) => false,
        }
    }
}

/// A socket for HTTP that the gateway does not accept from yet.
#[derive(Debug)]
pub struct Front {
    listener: OwnedFd,
    /// As the settings name it.
    asked: HttpAddress,
    address: HttpAddress,
    /// The Unix socket's name, which is removed with this.
    name: Option<SocketName>,
    options: HttpOptions,
    plan: DoorPlan,
    /// The files before they were read.
    stamps: files::Stamps,
}

impl Front {
    /// Opens the socket, and reads whom to admit. Connections wait until a gateway accepts them.
    ///
    /// # Errors
    /// [`HttpError`].
    pub fn open(address: &HttpAddress, options: &HttpOptions) -> Result<Self, HttpError> {
        check_open(address, options)?;
        let stamps = files::stamps(options);
        let plan = read(options)?;
        let (listener, bound, name) = match address {
            HttpAddress::Tcp(at) => {
                let failed = |source| HttpError::Address { address: address.clone(), source };
                let listener = TcpListener::bind(at).map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                (OwnedFd::from(listener), HttpAddress::Tcp(bound), None)
            }
            HttpAddress::Unix(path) => {
                let claim = claim::claim(path).map_err(HttpError::Socket)?;
                if let Some(group) = &options.group {
                    let admitted = claim.name.admit_group(group);
                    admitted.map_err(|why| HttpError::Group { group: group.clone(), why })?;
                }
                (OwnedFd::from(claim.listener), address.clone(), Some(claim.name))
            }
        };
        let (asked, options) = (address.clone(), options.clone());
        Ok(Self { listener, asked, address: bound, name, options, plan, stamps })
    }

    /// Whether [`open`](Self::open) would succeed if the address were free.
    ///
    /// # Errors
    /// [`HttpError`].
    pub fn check(address: &HttpAddress, options: &HttpOptions) -> Result<(), HttpError> {
        check_open(address, options).and_then(|()| read(options).map(drop))
    }

    /// The socket of another pool, whose place this one takes.
    pub(super) fn inherit(
        asked: &HttpAddress,
        options: &HttpOptions,
        (listener, address): (OwnedFd, HttpAddress),
        name: Option<SocketName>,
    ) -> Result<Self, HttpError> {
        let (asked, options) = (asked.clone(), options.clone());
        let (stamps, plan) = (files::stamps(&options), read(&options)?);
        Ok(Self { listener, asked, address, name, options, plan, stamps })
    }
}

/// Whether everyone may use the pool who should not.
fn check_open(address: &HttpAddress, options: &HttpOptions) -> Result<(), HttpError> {
    match options.tokens.is_none() && !address.is_local() && !options.is_insecure() {
        true => Err(HttpError::Open(address.clone())),
        false => Ok(()),
    }
}

/// Reads whom to admit.
fn read(options: &HttpOptions) -> Result<DoorPlan, HttpError> {
    files::plan(options).map_err(|source| {
        let path = source.path();
        let is = |named: &Option<PathBuf>| named.as_deref() == Some(path);
        let flag = match (is(&options.tokens), is(&options.key)) {
            (true, _) => "--http-tokens",
            (_, true) => "--http-key",
            (false, false) => "--http-cert",
        };
        HttpError::File { flag, source }
    })
}

/// The gateway of a pool.
#[derive(Debug)]
pub(super) struct Gateway {
    /// As the settings name it.
    asked: HttpAddress,
    address: HttpAddress,
    /// Until a successor serves.
    listener: Arc<Mutex<Option<OwnedFd>>>,
    /// Not locked under the core's lock: whoever holds it may wait for the gateway.
    admission: Arc<Mutex<Admission>>,
    has_tls: AtomicBool,
    name: Mutex<Option<SocketName>>,
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
        let Front { listener, asked, address, name, options, plan, stamps } = front;
        let (has_tokens, has_tls) = (plan.tokens.is_some(), plan.pem.is_some());
        let admission = Arc::new(Mutex::new(Admission { options, plan, stamps, link: None }));
        let listener = Arc::new(Mutex::new(Some(listener)));
        let serving = Serving {
            listener: Arc::clone(&listener),
            program: Pinned::own(),
            socket: socket.to_owned(),
            confinement,
            admission: Arc::clone(&admission),
        };
        match address.is_local() {
            false if !has_tokens => {
                tracing::warn!(%address, "anyone who reaches this address can run jobs");
            }
            false if !has_tls => {
                tracing::warn!(
                    %address,
                    "tokens travel in clear, and who sees one can use it: add --http-cert and --http-key, or \
                     put a proxy with TLS before this address"
                );
            }
            true | false => {}
        }
        tracing::info!(%address, tokens = has_tokens, tls = has_tls, "HTTP");
        let processes = Processes::serve(Helper::Gateway, serving, post)?;
        let (has_tls, name) = (has_tls.into(), Mutex::new(name));
        Ok(Self { asked, address, listener, admission, has_tls, name, processes })
    }

    /// The address as the settings name it.
    pub(super) fn asked(&self) -> String {
        self.asked.to_string()
    }

    /// What a successor needs to serve the socket, each with its descriptor.
    pub(super) fn pass(&self) -> io::Result<Vec<(Passed, OwnedFd)>> {
        let address = self.address.to_string();
        let name = self.name.lock().as_ref().map(SocketName::pass).transpose()?;
        let id = name.as_ref().map(|name| name.id);
        let socket = (Passed::Http { address, id }, copy(&self.listener)?);
        let lock = name.map(|name| (Passed::HttpLock, name.lock));
        Ok([socket].into_iter().chain(lock).collect())
    }

    /// Removes the Unix socket, unless a successor has it.
    pub(super) fn close(&self) {
        self.name.lock().take();
    }

    /// The Unix socket is this pool's alone.
    pub(super) fn own(&self) {
        self.name.lock().iter_mut().for_each(SocketName::own);
    }

    /// The successor serves: no process is started here any more. Gives the number of the one that goes on. Waits
    /// while one is being started.
    pub(super) fn start_no_more(&self) -> Option<u32> {
        self.listener.lock().take();
        self.processes.pid_once_started()
    }

    /// Leaves the socket to the successor. The process answers the requests that it has, and those that come on
    /// open connections, and closes each connection with its next answer.
    pub(super) fn leave(&self) {
        self.name.lock().take().into_iter().for_each(SocketName::leave);
        let mut admission = self.admission.lock();
        admission.plan.is_leaving = true;
        if let Err(error) = admission.tell() {
            tracing::warn!(%error, "the gateway cannot be told of the successor");
        }
    }

    /// Reads the files of tokens and certificates again, perhaps others than before. Returns whether anything
    /// is new. What was in use stays in use if they cannot be used.
    pub(super) fn reload(&self, options: &HttpOptions) -> Result<bool, HttpError> {
        check_open(&self.address, options)?;
        let reloaded = self.admission.lock().reload(options)?;
        self.has_tls.store(options.cert.is_some(), Ordering::Relaxed);
        Ok(reloaded)
    }

    /// The process, and where it listens.
    pub(super) fn status(&self, core: HelperStatus) -> HttpStatus {
        HttpStatus {
            address: self.address.to_string(),
            tls: self.has_tls.load(Ordering::Relaxed),
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

impl Shell {
    /// Reads the files of tokens and certificates of HTTP again, and admits whom they name from now on. Returns
    /// whether anything is new. Nothing happens without HTTP.
    ///
    /// # Errors
    /// [`HttpError`]; what was in use stays in use.
    pub fn reload_http(&self, options: &HttpOptions) -> Result<bool, HttpError> {
        self.shared.gateway.get().map_or(Ok(false), |gateway| gateway.reload(options))
    }
}

fn copy(listener: &Mutex<Option<OwnedFd>>) -> io::Result<OwnedFd> {
    let none = || io::Error::other("a successor has the socket");
    listener.lock().as_ref().ok_or_else(none)?.try_clone()
}

/// How processes of the gateway are started.
struct Serving {
    listener: Arc<Mutex<Option<OwnedFd>>>,
    program: Pinned,
    socket: PathBuf,
    confinement: Confinement,
    admission: Arc<Mutex<Admission>>,
}

impl Program for Serving {
    type Output = UnixStream;

    fn spawn(&mut self) -> io::Result<Spawned<UnixStream>> {
        let (ours, theirs) = UnixStream::pair()?;
        let listener = copy(&self.listener)?;
        let mut command = self.program.command();
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
        let mut child = command.spawn()?;
        // Only the child holds its end of the link now, so we see it close.
        drop(command);
        let mut admission = self.admission.lock();
        let told = ours.set_write_timeout(Some(WRITE_TIMEOUT)).and_then(|()| {
            admission.link = Some(ours.try_clone()?);
            admission.tell()
        });
        if let Err(error) = told {
            admission.link = None;
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        Ok(Spawned { child, output: ours.try_clone()?, link: Some(ours) })
    }

    fn on_line(&mut self, line: &[u8]) -> Result<bool, String> {
        match line {
            [] => {
                self.look();
                Ok(true)
            }
            _ => Err(String::from_utf8_lossy(line).into_owned()),
        }
    }
}

impl Serving {
    /// Tells the gateway of files that have changed. The gateway writes a line each second, so this looks at
    /// them each second.
    fn look(&self) {
        let mut admission = self.admission.lock();
        let options = admission.options.clone();
        if files::stamps(&options) == admission.stamps {
            return;
        }
        match admission.reload(&options) {
            Ok(false) => {}
            Ok(true) => tracing::info!("HTTP: a file of tokens or certificates has changed"),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "HTTP: what was read before stays in use");
            }
        }
    }
}
