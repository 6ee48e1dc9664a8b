//! A pool that takes the place of another: what it receives from that one (`upgrade`), which has started it and
//! holds the other end of its standard input.

mod error;
mod former;
mod sockets;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crossbeam_channel::Sender;
use gridpool_core::config::MODELS_MAX;
use gridpool_core::event::{Event, Predecessor as Said};
use gridpool_ipc::account::Account;
use gridpool_ipc::clock;
use gridpool_ipc::frame::{self, Frame, FrameReader};
use gridpool_protocol::build;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::codec;
use gridpool_protocol::handover::{FromPredecessor, FromSuccessor, Protocol, Welcome};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::tensor::model::ModelState;
use gridpool_protocol::tensor::options::ModelPlan;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, dup2_stdin, fork, getppid};

use super::claim::Claim;
use super::gateway::{Front, Gateway};
use super::{Shared, Shell};
use crate::config::{HttpAddress, HttpOptions};
use crate::timeline::Timeline;

pub use error::TakeOverError;
pub(super) use former::{FormerGateway, FormerPool};
use sockets::Sockets;

/// How long the predecessor may take for its next message, until it has sent everything.
const NEXT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may then take to accept no more connections. It ends this process before that, if it can do anything.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long it may take to end, beyond the time that its jobs have.
pub(super) const END_GRACE: Duration = Duration::from_secs(10);

/// A message, and the descriptor that came with it.
type Heard = (FromPredecessor, Option<OwnedFd>);

/// The link to the pool whose place this one takes.
#[derive(Debug)]
pub struct Predecessor {
    reader: FrameReader,
    process: FormerPool,
    /// What it has said of itself.
    pool: Welcome,
}

/// What it has handed over.
#[derive(Debug)]
pub struct TakenOver {
    /// The pool's socket.
    pub claim: Claim,
    /// Those of HTTP and gRPC that this pool serves at the same addresses.
    pub front: Option<Front>,
}

impl Predecessor {
    /// Greets the pool that has started this process, from a new process that goes on in this one's place and is not a
    /// child of that pool.
    ///
    /// # Errors
    /// [`TakeOverError`].
    ///
    /// # Safety
    /// The process has no other thread.
    #[expect(unsafe_code, reason = "a process forks safely only while it has one thread")]
    pub unsafe fn greet() -> Result<Self, TakeOverError> {
        let link = io::stdin().as_fd().try_clone_to_owned().map_err(TakeOverError::Link)?;
        let link = UnixStream::from(link);
        // The one that made the socket pair, and no other process, can be at its other end.
        let peer = Account::and_pid_of_peer(&link).map_err(|_| TakeOverError::Orphan)?;
        let parent = u32::try_from(getppid().as_raw()).unwrap_or(0);
        if peer != (Account::mine(), parent) {
            return Err(TakeOverError::Orphan);
        }
        let process = FormerPool::open(parent).map_err(TakeOverError::Link)?;
        let nothing = File::open("/dev/null").map_err(TakeOverError::Link)?;
        dup2_stdin(nothing).map_err(|errno| TakeOverError::Link(errno.into()))?;
        // SAFETY: the caller has no other thread.
        unsafe { detach() }.map_err(|errno| TakeOverError::Link(errno.into()))?;
        let reader = FrameReader::with_descriptors(link);
        let mut own = Self { reader, process, pool: Welcome::default() };
        own.say(&FromSuccessor::Hello {
            version: PROTOCOL_VERSION,
            build: build::text().to_owned(),
            pid: std::process::id(),
        });
        match own.hear(Some(NEXT_TIMEOUT))? {
            (FromPredecessor::Welcome(pool), _) => Ok(Self { pool, ..own }),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Whether its settings and ours name one socket.
    ///
    /// # Errors
    /// [`TakeOverError::Socket`] if not.
    pub fn check_socket(&self, ours: &Path) -> Result<(), TakeOverError> {
        let (theirs, ours) = (self.pool.socket.clone(), ours.to_owned());
        if theirs == ours { Ok(()) } else { Err(TakeOverError::Socket { theirs, ours }) }
    }

    /// Whether it serves a protocol where we shall.
    #[must_use]
    pub fn serves_at(&self, protocol: Protocol, address: &HttpAddress) -> bool {
        self.pool.served.contains(&(protocol, address.to_string()))
    }

    /// What each of its workers may have of the memory; 0 without a limit.
    pub(super) fn worker_bytes_max(&self) -> u64 {
        self.pool.worker_bytes_max
    }

    /// Its models, under settings that may have changed since.
    ///
    /// # Errors
    /// [`TakeOverError::Models`] if these are too many.
    pub fn models(&self, settings: &[ModelPlan]) -> Result<Vec<ModelPlan>, TakeOverError> {
        let models = self.pool.models.clone().under(settings);
        if models.len() > MODELS_MAX {
            return Err(TakeOverError::Models(models.len()));
        }
        Ok(models)
    }

    /// Checks that each model that the predecessor can run, this pool can run too, unless its settings have it no more.
    ///
    /// # Errors
    /// [`TakeOverError::Model`].
    pub fn check_models(&self, shell: &Shell) -> Result<(), TakeOverError> {
        let rows = shell.shared.lock().pool.models();
        for name in &self.pool.models.ready {
            let own = || rows.iter().filter(|row| row.model.name == *name);
            if own().any(|row| row.model.state == ModelState::Ready) {
                continue;
            }
            if let Some(DeviceModel { worker: at, model: row, .. }) = own().next() {
                let (name, why) = (name.clone(), format!("{at}: {}", row.reason));
                return Err(TakeOverError::Model { name, why });
            }
        }
        Ok(())
    }

    /// Whether it gives its devices one by one.
    pub(super) fn gives_one_by_one(&self) -> bool {
        self.pool.one_by_one
    }

    /// Hears, for some time, which devices are free for `shell`; it says nothing else before this process is ready.
    ///
    /// # Errors
    /// [`TakeOverError::GivenUp`] if it has ended, or given up.
    pub fn hear_of_devices(
        &mut self,
        shell: &Shell,
        within: Duration,
    ) -> Result<(), TakeOverError> {
        match self.hear_within(Some(within))? {
            Some((FromPredecessor::Freed { device }, _)) => {
                shell.shared.post(Event::Predecessor(Said::Freed(device)));
                Ok(())
            }
            Some((other, _)) => Err(unexpected(&other)),
            None => Ok(()),
        }
    }

    /// Tells it why this process does not take over.
    pub fn fail(&self, why: String) {
        self.say(&FromSuccessor::Failed { why });
    }

    /// The workers of `shell` serve: takes everything over. `places` are those of HTTP and gRPC where the predecessor
    /// serves them too.
    ///
    /// # Errors
    /// [`TakeOverError`].
    pub fn take_over(
        &mut self,
        shell: &Shell,
        (places, options): (&[(Protocol, &HttpAddress)], &HttpOptions),
    ) -> Result<TakenOver, TakeOverError> {
        let shared = &shell.shared;
        shared.budget.inherit(self.pool.arena_bytes_max);
        let former = self.process.try_clone().map_err(TakeOverError::Link)?;
        shared.former_pool.get_or_init(|| former);
        shared.lock().has_predecessor = true;
        self.say(&FromSuccessor::Ready);
        let (mut sockets, mut past) = (Sockets::default(), Timeline::default());
        // It may wait for the end of the pool before it. It ends us when that takes too long.
        let mut timeout = None;
        loop {
            let heard = self.hear(timeout)?;
            timeout = Some(NEXT_TIMEOUT);
            match heard {
                (FromPredecessor::Job(news), _) => {
                    shared.post(Event::Predecessor(Said::Told(news)));
                }
                (FromPredecessor::Freed { device }, _) => {
                    shared.post(Event::Predecessor(Said::Freed(device)));
                }
                (FromPredecessor::Passed(what), Some(fd)) => sockets.keep(what, fd),
                (FromPredecessor::Past(part), _) => past.take(*part),
                (FromPredecessor::Take { ids }, _) => {
                    shared.ids.fetch_max(ids, Ordering::Relaxed);
                    shared.timeline.inherit(past);
                    break;
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
        let claim = sockets.claim(&self.pool.socket)?;
        let front = sockets.front(places, options)?;
        Ok(TakenOver { claim, front })
    }

    /// This pool can accept connections. `released` is called, on a thread of its own, once the predecessor accepts
    /// none, and everything is heard that it had accepted. It tells its second argument why HTTP is not served yet, and
    /// returns once it is served, or with `false` if it never will be. Goes on hearing of the predecessor's jobs, to
    /// its end.
    ///
    /// # Errors
    /// The system's, if there is no thread or descriptor for that. The predecessor learns it, and goes on.
    pub fn serving(
        self,
        shell: &Shell,
        released: impl FnOnce(&Shell, &dyn Fn(String)) -> bool + Send + 'static,
    ) -> io::Result<()> {
        let link = self.reader.socket().try_clone()?;
        let started = self.start_following(shell, released);
        let said = match &started {
            Ok(()) => FromSuccessor::Serving,
            Err(error) => FromSuccessor::Failed { why: Chain(error).to_string() },
        };
        say(&link, &said);
        started
    }

    fn start_following(
        self,
        shell: &Shell,
        released: impl FnOnce(&Shell, &dyn Fn(String)) -> bool + Send + 'static,
    ) -> io::Result<()> {
        let link = self.reader.socket().try_clone()?;
        // Told when the predecessor says so, or ends before it could.
        let (until_released, is_released) = crossbeam_channel::bounded(1);
        let (for_take_over, for_jobs) = (shell.clone(), shell.clone());
        let take_over = move || {
            let failed = |why| say(&link, &FromSuccessor::Failed { why });
            if is_released.recv().is_ok() && released(&for_take_over, &failed) {
                for_take_over.shared.gateway.get().into_iter().for_each(Gateway::own);
                say(&link, &FromSuccessor::HttpServing);
            }
        };
        thread::Builder::new().name("take-over".into()).spawn(take_over)?;
        let follow = move || self.follow(&for_jobs.shared, &until_released);
        thread::Builder::new().name("predecessor".into()).spawn(follow)?;
        Ok(())
    }

    /// Hears of the predecessor's jobs until it ends. One that does not end in time is killed.
    fn follow(mut self, shared: &Shared, until_released: &Sender<()>) {
        // Full if it has been told, disconnected if it has gone on.
        let release = || until_released.try_send(()).unwrap_or_default();
        let mut until = Some((clock::now() + RELEASE_TIMEOUT, "it still accepts connections"));
        let why = loop {
            // One that still talks has no more time than one that is silent.
            if let Some((_, why)) = until.take_if(|(until, _)| clock::until(*until).is_zero()) {
                self.process.end(why);
            }
            let left = until.map(|(until, _)| clock::until(until));
            let message = match self.reader.read(left) {
                Ok(Some(frame)) => codec::decode(&frame.body),
                Ok(None) => continue,
                Err(error) => break Chain(&error).to_string(),
            };
            match message {
                Ok(FromPredecessor::Job(news)) => shared.post(Event::Predecessor(Said::Told(news))),
                Ok(FromPredecessor::Freed { device }) => {
                    shared.post(Event::Predecessor(Said::Freed(device)));
                }
                Ok(FromPredecessor::Released { gateway }) => {
                    let gateway = gateway.and_then(FormerGateway::open);
                    gateway.map(|gateway| shared.former_gateway.get_or_init(|| gateway));
                    release();
                    let within = *shared.drain_timeout.lock() + END_GRACE;
                    until = Some((clock::now() + within, "its jobs had their time"));
                }
                Ok(other) => break format!("it sent {other:?} out of order"),
                Err(error) => break Chain(&error).to_string(),
            }
        };
        tracing::debug!(why, "nothing more is heard of the pool before this one");
        if self.pool.one_by_one {
            // Its workers end with it, which may still have the devices.
            self.process.await_end();
        }
        shared.post(Event::Predecessor(Said::Gone));
        release();
        shared.lock().has_predecessor = false;
        // An upgrade may wait for that.
        shared.ended.notify_all();
    }

    /// The next message, with its descriptor.
    fn hear(&mut self, timeout: Option<Duration>) -> Result<Heard, TakeOverError> {
        let late = || TakeOverError::GivenUp(format!("it said nothing for {NEXT_TIMEOUT:?}"));
        self.hear_within(timeout)?.ok_or_else(late)
    }

    /// The same, or nothing if none comes in time.
    fn hear_within(&mut self, timeout: Option<Duration>) -> Result<Option<Heard>, TakeOverError> {
        let given_up = |why: String| TakeOverError::GivenUp(why);
        match self.reader.read(timeout) {
            Ok(Some(Frame { body, fds })) => {
                let message = codec::decode(&body);
                let message = message.map_err(|error| given_up(Chain(&error).to_string()))?;
                Ok(Some((message, fds.into_iter().next())))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(given_up(Chain(&error).to_string())),
        }
    }

    fn say(&self, message: &FromSuccessor) {
        say(self.reader.socket(), message);
    }
}

/// Goes on in a child process, and ends this one: the child then belongs to the service manager, or to init. systemd
/// waits for the end of its main process only if that is a child of its own.
///
/// # Safety
/// The process has no other thread.
#[expect(unsafe_code, reason = "fork and _exit")]
unsafe fn detach() -> Result<(), Errno> {
    // SAFETY: no other thread can hold a lock that the child needs.
    match unsafe { fork() }? {
        ForkResult::Child => Ok(()),
        // SAFETY: it ends the process, and nothing of it runs any more.
        ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
    }
}

/// Says something. If nobody listens, that is found out by reading.
fn say(link: &UnixStream, message: &FromSuccessor) {
    let sent = frame::of(message, 0)
        .map_err(io::Error::other)
        .and_then(|frame| frame::send_all(link, &frame, &[]));
    if let Err(error) = sent {
        tracing::debug!(%error, "the pool before this one does not listen");
    }
}

fn unexpected(message: &FromPredecessor) -> TakeOverError {
    TakeOverError::GivenUp(format!("it sent {message:?} out of order"))
}

impl Shell {
    /// Whether a gateway serves HTTP and gRPC; `None` if none is to. The error: how many have ended instead.
    #[must_use]
    pub fn serves_http(&self) -> Option<Result<(), u32>> {
        let shared: &Arc<Shared> = &self.shared;
        shared.gateway.get()?;
        let gateway = shared.lock().pool.helper(gridpool_core::event::Helper::Gateway);
        Some(if gateway.is_up { Ok(()) } else { Err(gateway.restarts) })
    }
}
