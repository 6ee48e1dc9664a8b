//! Accepts connections at the pool's socket, and serves a new one if its name is lost.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gridpool_ipc::account::Account;
use gridpool_ipc::frame;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::codec;
use gridpool_protocol::message::ServerMessage;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::Shared;
use super::claim::{self, Claim, ListenError, SocketName, failed};
use super::clients;
use super::process::lock_folders;
use super::refused::Refused;

/// How long to wait before accepting again when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the socket's name is looked at, besides when it is changed: a folder above it may be moved.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Holds the socket's name; gives it back when dropped.
#[derive(Debug)]
pub struct SocketLock(Arc<Mutex<Option<SocketName>>>);

impl Drop for SocketLock {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

/// Starts the thread that accepts connections.
pub(super) fn start(shared: &Arc<Shared>, claim: Claim) -> Result<SocketLock, ListenError> {
    let Claim { listener, name } = claim;
    let path = name.path.clone();
    let held = Arc::new(Mutex::new(Some(name)));
    let (shared, for_thread) = (Arc::clone(shared), Arc::clone(&held));
    let serve = move || Door { listener, held: for_thread, shared }.serve();
    let thread = thread::Builder::new().name("accept".into()).spawn(serve);
    thread.map_err(failed(&path, "no thread to accept connections"))?;
    Ok(SocketLock(held))
}

/// The listening socket.
struct Door {
    listener: UnixListener,
    /// Its name, until the pool ends.
    held: Arc<Mutex<Option<SocketName>>>,
    shared: Arc<Shared>,
}

impl Door {
    fn serve(mut self) {
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
            self.accept_until(watch.as_ref().ok());
        }
    }

    /// Accepts connections until something happens to the socket's name, or it is time to look.
    fn accept_until(&self, watch: Option<&Inotify>) {
        loop {
            let mut fds = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            fds.extend(watch.map(|watch| PollFd::new(watch.as_fd(), PollFlags::POLLIN)));
            let timeout = PollTimeout::try_from(LOOK_EVERY).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, timeout) {
                Ok(0) => return,
                Ok(_) => {}
                Err(errno) => {
                    tracing::debug!(%errno, "waiting for connections");
                    continue;
                }
            }
            let is_ready = |at: usize| fds.get(at).is_some_and(|fd| fd.any() == Some(true));
            if is_ready(1) {
                return;
            }
            let accepted = self.listener.accept().and_then(|(socket, _)| self.admit(socket));
            if let Err(error) = accepted
                && error.kind() != io::ErrorKind::WouldBlock
            {
                tracing::warn!(%error, "a connection could not be accepted");
                pause(&self.listener);
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
        if let Some(name) = &*self.held.lock() {
            for file in name.files() {
                watch.add_watch(file, gone)?;
            }
        }
        Ok(watch)
    }

    /// Opens the socket again if its name is lost; whether it was. The error: another pool has taken the
    /// name, or a socket cannot be made there.
    fn reopen(&mut self) -> Result<bool, ListenError> {
        // A process that clears its folder away at its end must not find it made again.
        let _folders = lock_folders();
        let mut held = self.held.lock();
        let Some(lost) = held.take_if(|name| !name.is_there()) else { return Ok(false) };
        let path = lost.path.clone();
        drop(lost);
        let Claim { listener, name } = claim::claim_again(&path)?;
        tracing::warn!(socket = %path.display(), "the socket was removed, and is served again");
        *held = Some(name);
        drop(held);
        let before = std::mem::replace(&mut self.listener, listener);
        // Whoever has connected already.
        for socket in before.incoming().map_while(Result::ok) {
            if let Err(error) = self.admit(socket) {
                tracing::warn!(%error, "a connection could not be accepted");
            }
        }
        Ok(true)
    }

    fn admit(&self, socket: UnixStream) -> io::Result<()> {
        let shared = &self.shared;
        let (them, me) = (Account::of_peer(&socket)?, Account::mine());
        if them != me {
            shared.users.refusals.note(Refused::User, &them);
            let reason = format!("it belongs to {me} and takes no connection of {them}");
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
    let body = codec::encode(&ServerMessage::Closing { reason }).map_err(io::Error::other)?;
    frame::send_some(socket, &frame::pack(&body, 0), &[]).map(drop)
}
