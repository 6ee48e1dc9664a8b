//! Accepts connections at the pool's socket, and serves a new one if its name is lost.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use gridpool_ipc::account::Account;
use gridpool_ipc::frame;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::handover::Passed;
use gridpool_protocol::message::{NOT_SHARED, ServerMessage};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::bound;
use super::claim::{self, Claim, Inherited, ListenError, SocketName, failed};
use super::clients;
use super::given::Given;
use super::process::lock_folders;
use super::refused::Refused;
use super::{Shared, Shell};
use crate::refusals::Seldom;

/// How long to wait before accepting again when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the socket's name is looked at, besides when it is changed: a folder above it may be moved.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Holds the socket's name; gives it back when dropped, unless a successor has it.
#[derive(Debug)]
pub struct SocketLock(Arc<Door>);

impl Drop for SocketLock {
    fn drop(&mut self) {
        self.0.name.lock().take();
    }
}

/// Has a socket accept connections that the predecessor has accepted until now. Dropped, it never does.
#[derive(Debug)]
pub struct Opener(Sender<()>);

impl Opener {
    /// The predecessor has left the socket.
    pub fn open(self) {
        if self.0.send(()).is_err() {
            tracing::debug!("the pool has ended already");
        }
    }
}

/// The listening socket.
#[derive(Debug)]
pub(super) struct Door {
    /// Its name, until the pool ends or a successor has it.
    name: Mutex<Option<SocketName>>,
    /// Until a successor accepts: it must be closed once no process does. Locked after the name.
    listener: Mutex<Option<Arc<UnixListener>>>,
    /// Readable once a successor accepts the connections.
    is_left: EventFd,
}

/// Starts the thread that accepts connections, from when `opens` says so.
fn start(
    shared: &Arc<Shared>,
    claim: Claim,
    opens: Receiver<()>,
) -> Result<SocketLock, ListenError> {
    let Claim { listener, name } = claim;
    shared.users.admit(&name)?;
    let path = name.path.clone();
    let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
    let is_left = event.map_err(failed(&path, "no descriptor to stop the accepting"))?;
    let (name, listener) = (Mutex::new(Some(name)), Mutex::new(Some(Arc::new(listener))));
    let door = Arc::new(Door { name, listener, is_left });
    let me = Account::mine().to_string();
    let warned = Seldom::default();
    let (for_keeper, shared_too) = (Arc::clone(&door), Arc::clone(shared));
    let mut keeper =
        Keeper { door: for_keeper, shared: shared_too, me, warned, is_lock_warned: false };
    let serve = move || {
        if opens.recv().is_ok() {
            keeper.door.own();
            keeper.serve();
        }
    };
    let thread = thread::Builder::new().name("accept".into()).spawn(serve);
    thread.map_err(failed(&path, "no thread to accept connections"))?;
    shared.door.get_or_init(|| Arc::clone(&door));
    Ok(SocketLock(door))
}

impl Door {
    /// What a successor needs to serve the socket, each with its descriptor.
    pub(super) fn pass(&self) -> io::Result<[(Passed, OwnedFd); 2]> {
        let name = self.name.lock();
        let name = name.as_ref().ok_or_else(|| io::Error::other("its name is lost"))?;
        let Inherited { id, is_kept, lock } = name.pass()?;
        let none = || io::Error::other("a successor has it already");
        let listener = self.listener.lock().as_ref().ok_or_else(none)?.try_clone()?;
        Ok([(Passed::Socket { id, is_kept }, listener.into()), (Passed::Lock, lock)])
    }

    /// The name is this pool's alone.
    fn own(&self) {
        self.name.lock().iter_mut().for_each(SocketName::own);
    }

    /// Leaves the socket to the successor: nothing more is accepted here.
    pub(super) fn leave(&self) {
        let mut name = self.name.lock();
        name.take().into_iter().for_each(SocketName::leave);
        self.listener.lock().take();
        drop(name);
        if let Err(errno) = self.is_left.write(1) {
            tracing::error!(%errno, "the accepting goes on beside the successor's");
        }
    }
}

impl Shell {
    /// Opens the socket of a pool before the pool starts, or takes the one that the service manager gives. A pool
    /// whose socket is taken then never starts a worker.
    ///
    /// # Errors
    /// [`ListenError`] if the socket is taken or cannot be made.
    pub fn claim(socket: &Path, given: Option<Given>) -> Result<Claim, ListenError> {
        match given {
            Some(given) => claim::claim_given(socket, given),
            None => claim::claim(socket),
        }
    }

    /// Whether [`claim`](Self::claim) would succeed. Makes and removes no file.
    ///
    /// # Errors
    /// [`ListenError`] as for that.
    pub fn could_claim(socket: &Path) -> Result<(), ListenError> {
        claim::look(socket)
    }

    /// Accepts connections from the pool's socket from now on.
    ///
    /// # Errors
    /// [`ListenError`] if there is no thread for that.
    pub fn listen(&self, claim: Claim) -> Result<SocketLock, ListenError> {
        let (held, opener) = self.listen_later(claim)?;
        opener.open();
        Ok(held)
    }

    /// The same from when the [`Opener`] is told that the predecessor accepts none. Until then connections wait.
    ///
    /// # Errors
    /// As for that.
    pub fn listen_later(&self, claim: Claim) -> Result<(SocketLock, Opener), ListenError> {
        let (opener, opens) = crossbeam_channel::bounded(1);
        Ok((start(&self.shared, claim, opens)?, Opener(opener)))
    }
}

/// Why waiting for connections ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// The socket's name may be lost.
    ToLook,
    /// A successor accepts.
    ToLeave,
}

/// The thread that accepts. It looks up no names: that may take long.
struct Keeper {
    door: Arc<Door>,
    shared: Arc<Shared>,
    /// The user of this pool.
    me: String,
    /// That connections cannot be accepted.
    warned: Seldom,
    /// That the lock file is lost, and cannot be made again yet.
    is_lock_warned: bool,
}

impl Keeper {
    fn serve(&mut self) {
        let mut is_warned = false;
        loop {
            let watch = self.watch();
            match self.reopen() {
                Ok(false) => {}
                Ok(true) => continue,
                Err(error) => return self.shared.displaced(&error),
            }
            if let Err(errno) = &watch
                && !std::mem::replace(&mut is_warned, true)
            {
                let every = LOOK_EVERY.as_secs();
                tracing::warn!(%errno, "the removal of the socket is noticed only every {every} s");
            }
            if self.accept_until(watch.as_ref().ok()) == Woken::ToLeave {
                return;
            }
        }
    }

    /// Accepts connections until something happens to the socket's name, or it is time to look.
    fn accept_until(&self, watch: Option<&Inotify>) -> Woken {
        let Some(listener) = self.door.listener.lock().clone() else { return Woken::ToLeave };
        loop {
            let is_left = self.door.is_left.as_fd();
            let mut fds =
                [listener.as_fd(), is_left].map(|fd| PollFd::new(fd, PollFlags::POLLIN)).to_vec();
            fds.extend(watch.map(|watch| PollFd::new(watch.as_fd(), PollFlags::POLLIN)));
            let timeout = PollTimeout::try_from(LOOK_EVERY).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, timeout) {
                Ok(0) => return Woken::ToLook,
                Ok(_) => {}
                Err(errno) => {
                    tracing::debug!(%errno, "waiting for connections");
                    continue;
                }
            }
            let is_ready = |at: usize| fds.get(at).is_some_and(|fd| fd.any() == Some(true));
            if is_ready(1) {
                return Woken::ToLeave;
            }
            if is_ready(2) {
                return Woken::ToLook;
            }
            let accepted = listener.accept().and_then(|(socket, _)| self.admit(socket));
            let Err(error) = accepted else { continue };
            if self.is_shut_down() {
                return Woken::ToLook;
            }
            // Another process may have been quicker.
            if error.kind() != io::ErrorKind::WouldBlock {
                self.note(&error);
                pause(&listener);
            }
        }
    }

    /// Watches the socket's name, its lock and its folder.
    fn watch(&self) -> Result<Inotify, Errno> {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let gone = AddWatchFlags::IN_ATTRIB // A name less.
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_DONT_FOLLOW;
        if let Some(name) = &*self.door.name.lock() {
            for file in name.files() {
                watch.add_watch(file, gone)?;
            }
        }
        Ok(watch)
    }

    /// Opens the socket again if its name is lost, or only locks it again if that is enough; whether it was lost.
    /// The error: another pool has taken the name, or a socket cannot be made there.
    fn reopen(&mut self) -> Result<bool, ListenError> {
        // A process that clears its folder away at its end must not find it made again.
        let _folders = lock_folders();
        let mut held = self.door.name.lock();
        match held.as_mut().map_or(Ok(false), SocketName::lock_again) {
            Ok(false) => {}
            Ok(true) => {
                self.is_lock_warned = false;
                tracing::warn!("the lock file of the socket was removed, and is there again");
                return Ok(true);
            }
            // Another pool that has the lock finds the socket served, and ends.
            Err(error) if !std::mem::replace(&mut self.is_lock_warned, true) => {
                let error = Chain(&error);
                tracing::warn!(%error, "the lock file of the socket was removed, and cannot be made again yet");
            }
            Err(error) => tracing::debug!(%error, "the lock file still cannot be made again"),
        }
        let is_shut_down = self.is_shut_down();
        let is_lost = |name: &mut SocketName| is_shut_down || !name.has_socket();
        let Some(lost) = held.take_if(is_lost) else { return Ok(false) };
        let path = lost.path.clone();
        drop(lost);
        let Claim { listener, name } = claim::claim_again(&path)?;
        self.shared.users.admit(&name)?;
        let what = if is_shut_down { "shut down" } else { "removed" };
        tracing::warn!(socket = %path.display(), "the socket was {what}, and is served again");
        *held = Some(name);
        let before = self.door.listener.lock().replace(Arc::new(listener));
        drop(held);
        // Whoever has connected already.
        for socket in before.iter().flat_map(|before| before.incoming()).map_while(Result::ok) {
            if let Err(error) = self.admit(socket) {
                self.note(&error);
            }
        }
        Ok(true)
    }

    fn is_shut_down(&self) -> bool {
        let listener = self.door.listener.lock();
        listener.as_ref().is_some_and(|listener| bound::is_shut_down(listener).unwrap_or(false))
    }

    fn note(&self, error: &io::Error) {
        if self.warned.is_due() {
            tracing::warn!(%error, "a connection could not be accepted");
        }
    }

    fn admit(&self, socket: UnixStream) -> io::Result<()> {
        let shared = &self.shared;
        let them = Account::of_peer(&socket)?;
        if !shared.users.may_connect(them) {
            let (them, me) = (them.by_number(), &self.me);
            shared.users.refusals.note(Refused::User, &them);
            let reason = format!("{NOT_SHARED}{me} and takes no connection of {them}");
            return turn_away(&socket, reason);
        }
        clients::start(shared, socket)
    }
}

/// Pauses after a failure, for instance without free descriptors. The connection waits in the socket's backlog.
fn pause(listener: &UnixListener) {
    let timeout = PollTimeout::try_from(ACCEPT_PAUSE).unwrap_or(PollTimeout::MAX);
    // No events are asked for, so only time ends this wait.
    let mut fds = [PollFd::new(listener.as_fd(), PollFlags::empty())];
    if let Err(errno) = poll(&mut fds, timeout) {
        tracing::debug!(%errno, "the pause was cut short");
    }
}

/// Tells a client why its connection is refused, and ends it.
fn turn_away(socket: &UnixStream, reason: String) -> io::Result<()> {
    let frame = frame::of(&ServerMessage::Closing { reason }, 0).map_err(io::Error::other)?;
    frame::send_some(socket, &frame, &[]).map(drop)
}
