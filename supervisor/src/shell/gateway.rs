//! The supervisor's side of `gridpool gateway`, a helper process that serves HTTP. The supervisor opens the socket,
//! so connections wait while there is no process.
//!
//! Its connections are a client's, but it names who each job is for.

mod admission;
mod error;
mod files;
mod listening;
mod name;

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
use super::claim::{self, SocketName};
use super::confinement::{Confinement, Inherits};
use super::helper::{Post, Processes, Program, Spawned};
use super::pinned::Pinned;
use super::process::lock_folders;
use crate::config::{HttpAddress, HttpOptions};
use crate::gateway::DoorPlan;
use crate::logging;
use crate::refusals::Seldom;
use admission::Admission;

use name::Name;

pub use error::HttpError;
pub use files::FileError;

/// How long the gateway may take to read whom to admit.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

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
                let claim = name::claim(claim::claim, path, options.group.as_deref())?;
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
    /// Locked before the listener.
    name: Arc<Mutex<Name>>,
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
        let name = Arc::new(Mutex::new(Name::new(name)));
        let serving = Serving {
            address: address.clone(),
            listener: Arc::clone(&listener),
            name: Arc::clone(&name),
            warned: Seldom::default(),
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
        Ok(Self { asked, address, listener, admission, has_tls: has_tls.into(), name, processes })
    }

    /// The address as the settings name it.
    pub(super) fn asked(&self) -> String {
        self.asked.to_string()
    }

    /// What a successor needs to serve the socket, each with its descriptor.
    pub(super) fn pass(&self) -> io::Result<Vec<(Passed, OwnedFd)>> {
        let address = self.address.to_string();
        let mut name = self.name.lock();
        if matches!(*name, Name::Lost(_)) {
            return Err(io::Error::other("the name of HTTP's socket is lost"));
        }
        let name = name.held().map(|name| name.pass()).transpose()?;
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
        self.name.lock().held().into_iter().for_each(SocketName::own);
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
    address: HttpAddress,
    listener: Arc<Mutex<Option<OwnedFd>>>,
    name: Arc<Mutex<Name>>,
    /// That the socket cannot be had again.
    warned: Seldom,
    program: Pinned,
    socket: PathBuf,
    confinement: Confinement,
    admission: Arc<Mutex<Admission>>,
}

impl Program for Serving {
    type Output = UnixStream;

    fn spawn(&mut self) -> io::Result<Spawned<UnixStream>> {
        // The gateway before may have ended with it.
        self.look_for_socket();
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
                self.look_for_socket();
                Ok(true)
            }
            _ => Err(String::from_utf8_lossy(line).into_owned()),
        }
    }
}

impl Serving {
    /// Serves a new socket if the old one was shut down, or the name of the Unix socket was lost.
    fn look_for_socket(&self) {
        // A process that clears its folder away at its end must not find it made again.
        let _folders = lock_folders();
        let group = self.admission.lock().options.group.clone();
        let (mut name, mut serves) = (self.name.lock(), self.listener.lock());
        let Some(listener) = serves.as_ref() else { return };
        match listening::restored(listener, (&self.address, &mut name), group.as_deref()) {
            Ok(None) => {}
            Ok(Some((listener, lost))) => {
                *serves = Some(listener);
                drop((name, serves));
                tracing::warn!("HTTP: the socket was {}, and is served again", lost.what());
                self.admission.lock().replace_gateway();
            }
            Err((lost, error)) if self.warned.is_due() => {
                let (error, lost) = (Chain(&error), lost.what());
                tracing::error!(%error, "HTTP: the socket was {lost}, and cannot be served again yet");
            }
            Err(_) => {}
        }
    }

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
