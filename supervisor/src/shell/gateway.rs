//! The supervisor's side of `gridpool gateway`, a helper process that serves HTTP and gRPC. The supervisor opens the
//! sockets, so connections wait while there is no process.
//!
//! Its connections are a client's, but it names who each job is for.

mod admission;
mod desk;
mod error;
mod files;
mod listening;
mod memory;
mod name;
mod place;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridpool_core::HelperStatus;
use gridpool_core::action::HelperAction;
use gridpool_core::event::{Event, Helper, HelperEvent};
use gridpool_ipc::frame;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::handover::{Passed, Protocol};
use gridpool_protocol::message::Secret;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::status::HttpStatus;

use super::Shell;
use super::confinement::Confinement;
use super::groups::{self, Groups};
use super::helper::{OwnProgram, Post, Processes, Program, Spawned};
use super::tracer::Tracer;
use crate::config::{HttpAddress, HttpOptions};
use crate::gateway::{DoorPlan, Holders, Scope, TokenMark, memory_max};
use crate::repository::{self, Listing, Repository};
use crate::traces::{Handed, Sample};
use admission::Admission;
use place::Place;

pub(super) use place::FrontSocket;

pub use error::HttpError;
pub use files::FileError;

/// How long the gateway may take to read whom to admit.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The sockets for HTTP and gRPC that the gateway does not accept from yet.
#[derive(Debug)]
pub struct Front {
    sockets: Vec<FrontSocket>,
    options: HttpOptions,
    plan: DoorPlan,
    /// The files before they were read.
    stamps: files::Stamps,
    /// The pool's model repository.
    repository: Option<PathBuf>,
}

impl Front {
    /// Opens the sockets, and reads whom to admit. Connections wait until a gateway accepts them. `None` without
    /// places.
    ///
    /// # Errors
    /// [`HttpError`].
    pub fn open(
        places: &[(Protocol, &HttpAddress)],
        options: &HttpOptions,
    ) -> Result<Option<Self>, HttpError> {
        if places.is_empty() {
            return Ok(None);
        }
        check_open(places, options)?;
        let stamps = files::stamps(options);
        let plan = read(options)?;
        let open = |&(protocol, at)| FrontSocket::open(protocol, at, options);
        let sockets = places.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Some(Self { sockets, options: options.clone(), plan, stamps, repository: None }))
    }

    /// Whether [`open`](Self::open) would succeed if the addresses were free.
    ///
    /// # Errors
    /// [`HttpError`].
    pub fn check(
        places: &[(Protocol, &HttpAddress)],
        options: &HttpOptions,
    ) -> Result<(), HttpError> {
        check_open(places, options).and_then(|()| read(options).map(drop))
    }

    /// The sockets of another pool, whose place this one takes.
    pub(super) fn inherit(
        sockets: Vec<FrontSocket>,
        options: &HttpOptions,
    ) -> Result<Self, HttpError> {
        let options = options.clone();
        let (stamps, plan) = (files::stamps(&options), read(&options)?);
        Ok(Self { sockets, options, plan, stamps, repository: None })
    }

    /// The same, for a pool with this model repository.
    #[must_use]
    pub fn with_repository(self, repository: Option<&Repository>) -> Self {
        Self { repository: repository.map(|own| own.folder.clone()), ..self }
    }

    /// Both. What was read of the same files last counts.
    #[must_use]
    pub fn join(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(mut one), Some(other)) => {
                one.sockets.extend(other.sockets);
                Some(one)
            }
            (one, other) => one.or(other),
        }
    }
}

/// Whether everyone may use the pool who should not.
fn check_open(places: &[(Protocol, &HttpAddress)], options: &HttpOptions) -> Result<(), HttpError> {
    let mut places = places.iter();
    let open = places.find(|(_, address)| !address.is_local());
    match open.filter(|_| options.tokens.is_none() && !options.is_insecure()) {
        Some(&(protocol, address)) => Err(HttpError::Open { protocol, address: address.clone() }),
        None => Ok(()),
    }
}

/// Reads whom to admit.
fn read(options: &HttpOptions) -> Result<DoorPlan, HttpError> {
    let plan = files::plan(options).inspect(|plan| {
        if plan.holders().let_nobody_in() {
            tracing::warn!(
                "the file of tokens has no token, so nobody may use HTTP and gRPC: add the line that `gridpool token \
                 new` prints"
            );
        }
    });
    plan.map_err(|source| {
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
    places: Arc<[Place]>,
    /// Not locked under the core's lock: whoever holds it may wait for the gateway.
    admission: Arc<Mutex<Admission>>,
    /// The tokens of the plan. Locked for a moment alone, so that no client waits for a gateway that starts.
    holders: Arc<Mutex<Arc<Holders>>>,
    has_tls: AtomicBool,
    processes: Arc<Processes>,
}

impl Gateway {
    /// A gateway at `front` for the pool at `socket`, without a process yet.
    pub(super) fn new(
        (front, traces): (Front, Option<(Sample, OwnedFd)>),
        socket: &Path,
        (confinement, groups): (Confinement, Option<Arc<Groups>>),
        post: Post,
    ) -> io::Result<Self> {
        let Front { sockets, options, plan, stamps, repository } = front;
        let (has_tokens, has_tls) = (plan.tokens.is_some(), plan.pem.is_some());
        let holders = Arc::new(Mutex::new(Arc::new(plan.holders())));
        let admission =
            Admission { options, plan, holders: Arc::clone(&holders), stamps, link: None };
        let admission = Arc::new(Mutex::new(admission));
        let places: Arc<[Place]> = sockets.into_iter().map(Place::new).collect();
        let serving = Serving {
            places: Arc::clone(&places),
            traces,
            repository,
            own: OwnProgram::new(socket.to_owned(), confinement),
            groups,
            admission: Arc::clone(&admission),
        };
        for Place { protocol, address, .. } in &*places {
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
            tracing::info!(%address, tokens = has_tokens, tls = has_tls, "{}", protocol.name());
        }
        let processes = Processes::serve(Helper::Gateway, serving, post)?;
        Ok(Self { places, admission, holders, has_tls: has_tls.into(), processes })
    }

    /// The protocols, and the addresses as the settings name them.
    pub(super) fn asked(&self) -> Vec<(Protocol, String)> {
        self.places.iter().map(Place::asked).collect()
    }

    /// What a successor needs to serve the sockets, each with its descriptor.
    pub(super) fn pass(&self) -> io::Result<Vec<(Passed, OwnedFd)>> {
        let mut passed = Vec::new();
        for place in &*self.places {
            passed.extend(place.pass()?);
        }
        Ok(passed)
    }

    /// Removes Unix sockets, unless a successor has them.
    pub(super) fn close(&self) {
        self.places.iter().for_each(Place::close);
    }

    /// Unix sockets are this pool's alone.
    pub(super) fn own(&self) {
        self.places.iter().for_each(Place::own);
    }

    /// The successor serves: no process is started here any more. Gives the number of the one that goes on. Waits
    /// while one is being started.
    pub(super) fn start_no_more(&self) -> Option<u32> {
        self.places.iter().for_each(Place::give_up);
        self.processes.pid_once_started()
    }

    /// Leaves the sockets to the successor. The process answers the requests that it has, and those that come on
    /// open connections, and closes each connection with its next answer.
    pub(super) fn leave(&self) {
        self.places.iter().for_each(Place::leave);
        let mut admission = self.admission.lock();
        admission.plan.is_leaving = true;
        if let Err(error) = admission.tell() {
            tracing::warn!(%error, "the gateway cannot be told of the successor");
        }
    }

    /// Reads the files of tokens and certificates again, perhaps others than before. Returns whether anything
    /// is new. What was in use stays in use if they cannot be used.
    pub(super) fn reload(&self, options: &HttpOptions) -> Result<bool, HttpError> {
        let places: Vec<_> = self.places.iter().map(|p| (p.protocol, &p.address)).collect();
        check_open(&places, options)?;
        let reloaded = self.admission.lock().reload(options)?;
        self.has_tls.store(options.cert.is_some(), Ordering::Relaxed);
        Ok(reloaded)
    }

    /// The process, and where it listens.
    pub(super) fn status(&self, core: HelperStatus) -> HttpStatus {
        let at = |protocol| {
            let place = self.places.iter().find(|place| place.protocol == protocol);
            place.map_or_else(String::new, |place| place.address.to_string())
        };
        HttpStatus {
            address: at(Protocol::Http),
            grpc: at(Protocol::Grpc),
            tls: self.has_tls.load(Ordering::Relaxed),
            pid: self.processes.pid().unwrap_or(0),
            up: core.is_up,
            restarts: core.restarts,
            ..HttpStatus::default()
        }
    }

    /// The name of a token that has one of these scopes, by the file as it was read last.
    pub(super) fn holder_of(&self, token: &Secret, any: &[Scope]) -> Option<String> {
        self.holders().find(&token.0, any)
    }

    /// Whether requests need tokens.
    pub(super) fn asks_for_tokens(&self) -> bool {
        self.holders().are_asked_for()
    }

    /// The mark of a principal's token, as the file has it now.
    pub(super) fn mark_of(&self, principal: &Principal) -> Option<TokenMark> {
        self.holders().mark_of(principal)
    }

    /// The tokens of the file as it was read last.
    pub(super) fn holders(&self) -> Arc<Holders> {
        Arc::clone(&self.holders.lock())
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

/// How processes of the gateway are started.
struct Serving {
    places: Arc<[Place]>,
    /// The socket for packets of traces, and how many of those that begin there are recorded.
    traces: Option<(Sample, OwnedFd)>,
    repository: Option<PathBuf>,
    own: OwnProgram,
    /// Where the process gets a limit of memory, if it does.
    groups: Option<Arc<Groups>>,
    admission: Arc<Mutex<Admission>>,
}

impl Serving {
    /// A socket from which a process reads what it is handed, each with its descriptor.
    fn descriptors(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let hand = |handed: Handed, descriptor: BorrowedFd<'_>| {
            let frame = frame::of(&handed, 1).map_err(io::Error::other)?;
            // Few bytes, which the socket takes before they are read.
            frame::send_all(&ours, &frame, &[descriptor])
        };
        for place in &*self.places {
            hand(Handed::Listens(place.protocol), place.copy()?.as_fd())?;
        }
        if let Some((sample, packets)) = &self.traces {
            hand(Handed::Traces(*sample), packets.as_fd())?;
        }
        if self.admission.lock().options.has_shared_memory() {
            let is_unix = |place: &Place| matches!(place.address, HttpAddress::Unix(_));
            let has_unix = self.places.iter().any(is_unix);
            hand(Handed::Memory, memory::serve(Arc::clone(&self.admission), has_unix)?.as_fd())?;
        }
        if let Some(folder) = self.repository.clone() {
            let list = move |()| -> (Listing, _) { (repository::listed(&folder), None) };
            hand(Handed::Repository, desk::serve("index", list)?.as_fd())?;
        }
        Ok(theirs)
    }
}

impl Program for Serving {
    type Output = UnixStream;

    fn spawn(&mut self) -> io::Result<Spawned<UnixStream>> {
        // The gateway before may have ended with it.
        self.look_for_sockets();
        let (ours, theirs) = UnixStream::pair()?;
        let mut child = self.own.command("gateway", self.descriptors()?, theirs).spawn()?;
        let mut admission = self.admission.lock();
        let has_shared_memory = admission.options.has_shared_memory();
        let bytes_max = memory_max(has_shared_memory, groups::bytes_of_socket());
        if let (Some(groups), Some(bytes_max)) = (&self.groups, bytes_max) {
            groups.admit_gateway(child.id(), bytes_max);
        }
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
                self.look_for_sockets();
                Ok(true)
            }
            _ => Err(String::from_utf8_lossy(line).into_owned()),
        }
    }

    fn on_ended(&mut self) {
        self.groups.iter().for_each(|groups| groups.remove_gateway());
    }
}

impl Serving {
    /// Serves new sockets in the place of those that were lost.
    fn look_for_sockets(&self) {
        let group = self.admission.lock().options.group.clone();
        for place in &*self.places {
            if place.look(group.as_deref()) {
                self.admission.lock().replace_gateway();
            }
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

impl Shell {
    /// Serves HTTP from now on, in a process of its own. Only the first call has an effect.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started.
    pub fn serve_http(&self, front: Front) -> io::Result<()> {
        let post = self.shared.helper_post(Helper::Gateway);
        let traces = self.shared.tracer.get().map(Tracer::for_gateway).transpose()?;
        let confined = (self.shared.confinement.clone(), self.shared.groups.clone());
        let gateway = Gateway::new((front, traces), &self.shared.socket, confined, post)?;
        self.shared.gateway.get_or_init(|| gateway);
        self.shared.post(Event::Helper(Helper::Gateway, HelperEvent::Wanted));
        Ok(())
    }
}
