//! The pool's socket. One supervisor serves a path; other users cannot put a socket in its place; a socket that a
//! killed supervisor left is replaced.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use gridpool_ipc::account::Account;
use gridpool_ipc::frame;
use gridpool_ipc::socket;
use gridpool_protocol::codec;
use gridpool_protocol::message::ServerMessage;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{AccessFlags, access, geteuid};

use super::Shared;
use super::clients::{self, DESCRIPTORS_PER_CLIENT};
use super::process::ensure_runtime_folder;

/// Connections open at a time: each takes a thread and descriptors.
const CLIENTS_MAX: usize = 256;
/// How long to wait before accepting again when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the pool has no socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another supervisor serves it.
    #[error(
        "another supervisor is running at {}: use it, stop it with `gridpool drain`, or name \
         another socket with --socket", .0.display()
    )]
    Taken(PathBuf),
    /// Other users may write to the directory.
    #[error(
        "{path} is not a directory that only you may write to: mend it with `chmod 700 {path}`, or \
         name another socket with --socket", path = .0.display()
    )]
    Directory(PathBuf),
    /// The directory belongs to someone else.
    #[error(
        "{0} belongs to the user {owner} and not to you ({me}), who could put another socket in place \
         of yours: name a socket in a directory of your own with --socket, or have root type `chown \
         {me} {0}`", path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        me: u32,
    },
    /// The path of the directory is not a directory.
    #[error("{} is not a directory: name a socket in one with --socket", .0.display())]
    NotDirectory(PathBuf),
    /// The directory does not exist, and the caller named it.
    #[error(
        "there is no folder {path}: make it with `mkdir -p -m 700 {path}`, or name a socket elsewhere \
         with --socket", path = .0.display()
    )]
    Missing(PathBuf),
    /// The user's own directory is missing and cannot be made.
    #[error(
        "the directory {0} cannot be made: make it with `mkdir -p {0}` as a user who may, or name a \
         socket elsewhere with --socket", path.display()
    )]
    Unmade {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The path of the socket is a directory.
    #[error(
        "{path} is a folder: name a file in it, such as --socket {file}", path = .0.display(),
        file = .0.join("pool.sock").display()
    )]
    Folder(PathBuf),
    /// The path is longer than a socket's may be.
    #[error("{} is too long for a socket path (at most 107 bytes): name a shorter one with --socket", .0.display())]
    TooLong(PathBuf),
    /// The path of the socket is another kind of file.
    #[error("{} exists and is not a socket: name another path with --socket, or move it away", .0.display())]
    NotSocket(PathBuf),
    /// The lock file is not empty.
    #[error(
        "{lock} is in use by something else, and a pool locks the file of that name: name another socket \
         with --socket", lock = .0.display()
    )]
    NotLock(PathBuf),
    /// The system refused.
    #[error("{}: {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The error.
        #[source]
        source: io::Error,
    },
}

/// The error for a call of the system that failed.
fn failed<E: Into<io::Error>>(path: &Path, what: &'static str) -> impl FnOnce(E) -> ListenError {
    move |source| ListenError::Io { path: path.to_owned(), what, source: source.into() }
}

/// A socket that this pool owns and does not accept from yet.
#[derive(Debug)]
pub struct Claim {
    listener: UnixListener,
    held: SocketLock,
}

/// Holds the socket's name; gives it back when dropped.
#[derive(Debug)]
pub struct SocketLock {
    socket: PathBuf,
    _lock: NameLock,
}

/// Makes sure that no other pool serves a socket. When dropped it leaves no file.
#[derive(Debug)]
struct NameLock {
    path: PathBuf,
    _file: Flock<File>,
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // While it is still locked: a process that waits for this name makes a new file.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the lock file was gone already");
        }
    }
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.socket) {
            tracing::debug!(%error, "the socket's name was gone already");
        }
    }
}

/// Whether a socket can have that name.
fn check_name(path: &Path) -> Result<(), ListenError> {
    if path.as_os_str().len() > 107 {
        return Err(ListenError::TooLong(path.to_owned()));
    }
    // Checked first, because `folder/` has a last component too.
    if path.is_dir() {
        return Err(ListenError::Folder(path.to_owned()));
    }
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => Err(ListenError::NotSocket(path.to_owned())),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The folder that a file is in.
pub(crate) fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}

/// The lock file of a socket. The supervisor that serves the socket holds the lock.
fn lock_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

/// Makes sure that no other pool serves `socket` as long as the lock is held.
fn lock(socket: &Path) -> Result<NameLock, ListenError> {
    make_private(folder_of(socket))?;
    let path = lock_of(socket);
    loop {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(&path);
        let file = file.map_err(failed(&path, "the lock file cannot be opened"))?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
            if errno == Errno::EWOULDBLOCK {
                ListenError::Taken(socket.to_owned())
            } else {
                failed(&path, "the lock file cannot be locked")(errno)
            }
        })?;
        let meta = file.metadata().map_err(failed(&path, "the lock file cannot be looked at"))?;
        // A lock file is empty. With `--socket Cargo` this is a user's Cargo.lock: it must stay.
        if !meta.is_file() || meta.len() > 0 {
            return Err(ListenError::NotLock(path));
        }
        let id = |meta: Metadata| (meta.dev(), meta.ino());
        if fs::symlink_metadata(&path).map(id).ok() == Some(id(meta)) {
            return Ok(NameLock { path, _file: file });
        }
        // The previous supervisor removed this file after we opened it and before we locked it.
    }
}

/// Checks that no other user can put a socket in our place: only we may write to the directory, or it is shared
/// and has the sticky bit, such as /tmp.
fn make_private(directory: &Path) -> Result<(), ListenError> {
    let unmade = |source| ListenError::Unmade { path: directory.to_owned(), source };
    ensure_runtime_folder(directory).map_err(unmade)?;
    let meta = fs::metadata(directory).map_err(|source| {
        let path = directory.to_owned();
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => ListenError::Missing(path),
            Some(Errno::ENOTDIR) => ListenError::NotDirectory(path),
            Some(_) | None => {
                ListenError::Io { path, what: "the directory cannot be looked at", source }
            }
        }
    })?;
    match meta.is_dir() {
        true => check_private(directory, meta.uid(), meta.mode(), geteuid().as_raw()),
        false => Err(ListenError::NotDirectory(directory.to_owned())),
    }
}

/// Whether a directory of that owner and mode is private enough for a socket of mine.
fn check_private(path: &Path, owner: u32, mode: u32, me: u32) -> Result<(), ListenError> {
    let path = path.to_owned();
    let is_sticky = mode & 0o1000 != 0;
    match (owner == me, mode & 0o022 == 0) {
        (true, true) => Ok(()),
        (_, _) if is_sticky => Ok(()),
        (true, false) => Err(ListenError::Directory(path)),
        (false, _) => Err(ListenError::Foreign { path, owner, me }),
    }
}

/// Whether [`claim`] would succeed, as far as that can be seen without making a file.
pub(super) fn look(path: &Path) -> Result<(), ListenError> {
    check_name(path)?;
    let directory = folder_of(path);
    if directory == socket::default_folder().0 && !directory.exists() {
        let may = access(folder_of(directory), AccessFlags::W_OK | AccessFlags::X_OK);
        return may.map_err(failed(directory, "the directory cannot be made"));
    }
    make_private(directory)?;
    if let Ok(file) = File::open(lock_of(path))
        && let Err((_, Errno::EWOULDBLOCK)) = Flock::lock(file, FlockArg::LockExclusiveNonblock)
    {
        return Err(ListenError::Taken(path.to_owned()));
    }
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(failed(path, "the socket cannot be opened"))
}

/// Opens the socket, unless another supervisor has it. Connections wait until [`start`].
pub(super) fn claim(path: &Path) -> Result<Claim, ListenError> {
    check_name(path)?;
    let lock = lock(path)?;
    // We hold the lock, so a socket that is there was left by a supervisor that was killed.
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            fs::remove_file(path).map_err(failed(path, "the old socket cannot be removed"))?;
        }
        Ok(_) => return Err(ListenError::NotSocket(path.to_owned())),
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(failed(path, "the socket cannot be opened"))?;
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, private)
        .map_err(failed(path, "the socket cannot be made private"))?;
    Ok(Claim { listener, held: SocketLock { socket: path.to_owned(), _lock: lock } })
}

/// Starts the thread that accepts connections.
pub(super) fn start(shared: &Arc<Shared>, claim: Claim) -> Result<SocketLock, ListenError> {
    let Claim { listener, held } = claim;
    let shared = Arc::clone(shared);
    thread::Builder::new()
        .name("accept".into())
        .spawn(move || accept(&listener, &shared))
        .map_err(failed(&held.socket, "no thread to accept connections"))?;
    Ok(held)
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for connection in listener.incoming() {
        let taken = connection.and_then(|socket| admit(socket, shared));
        if let Err(error) = taken {
            tracing::warn!(%error, "a connection could not be accepted");
            pause(listener);
        }
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

fn admit(socket: UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    let peer = getsockopt(&socket, PeerCredentials)?;
    let (them, me) = (Account::new(peer.uid()), Account::mine());
    if them != me {
        tracing::warn!(uid = peer.uid(), pid = peer.pid(), "another user's connection refused");
        let reason = format!("it belongs to {me} and takes no connection of {them}");
        return turn_away(&socket, reason);
    }
    if shared.connections.load(Ordering::Relaxed) >= CLIENTS_MAX {
        return turn_away(&socket, format!("BUSY: the pool has {CLIENTS_MAX} connections already"));
    }
    if !shared.has_descriptors_for(DESCRIPTORS_PER_CLIENT) {
        return turn_away(&socket, "BUSY: the pool may open no more files".to_owned());
    }
    clients::start(shared, socket)
}

/// Tells a client why its connection is refused, and ends it.
fn turn_away(socket: &UnixStream, reason: String) -> io::Result<()> {
    let body = codec::encode(&ServerMessage::Closing { reason }).map_err(io::Error::other)?;
    frame::send_some(socket, &frame::pack(&body, 0), &[]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_the_name_of_the_socket_is_never_to_be_removed_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("")] {
            let said = claim(&path).unwrap_err().to_string();
            assert!(said.contains("is a folder: name a file in it, such as --socket "), "{said}");
            assert!(said.ends_with("/pool.sock") && !said.contains("remove"), "{said}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no lock file either");
    }

    #[test]
    fn a_directory_that_is_not_private_is_refused_with_the_command_that_mends_it() {
        let check = |owner, mode: u32| {
            let said = check_private(Path::new("/srv/pool"), owner, mode, 7);
            said.map_err(|error| error.to_string())
        };
        assert_eq!([check(7, 0o700), check(7, 0o755), check(0, 0o1777)], [Ok(()), Ok(()), Ok(())]);
        let mode = check(7, 0o775).unwrap_err();
        assert!(
            mode.contains("only you may write to: mend it with `chmod 700 /srv/pool`"),
            "{mode}"
        );
        for mode in [0o700, 0o755, 0o777] {
            let owner = check(33, mode).unwrap_err();
            assert!(owner.starts_with("/srv/pool belongs to the user 33 and not to you (7)"));
            assert!(owner.contains("`chown 7 /srv/pool`") && !owner.contains("chmod"), "{owner}");
        }
    }

    #[test]
    fn a_folder_that_is_missing_or_none_is_named_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.join("deeper"), file.clone()] {
            let said = make_private(&path).unwrap_err().to_string();
            assert!(said.ends_with(" is not a directory: name a socket in one with --socket"));
        }
        let missing = folder.path().join("a/b");
        let [claimed, seen] = [claim(&missing.join("s")).map(drop), look(&missing.join("s"))];
        let type_this = format!("mkdir -p -m 700 {}", missing.display());
        for said in [claimed, seen].map(|result| result.unwrap_err().to_string()) {
            assert!(said.starts_with("there is no folder ") && said.contains(&type_this), "{said}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_claim_leaves_no_lock_and_ignores_files_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        let socket = folder.path().join("Cargo");
        let claimed = claim(&socket).unwrap();
        assert_eq!(names().len(), 2);
        assert!(matches!(claim(&socket), Err(ListenError::Taken(_))));
        drop(claimed);
        assert_eq!(names(), [""; 0]);
        // The files of a killed supervisor are taken over.
        fs::write(lock_of(&socket), "").unwrap();
        drop(claim(&socket).unwrap());
        assert_eq!(names(), [""; 0]);
        fs::write(lock_of(&socket), "[[package]]").unwrap();
        let said = claim(&socket).unwrap_err().to_string();
        assert!(said.contains("Cargo.lock is in use by something else"), "{said}");
        assert_eq!(fs::read_to_string(lock_of(&socket)).unwrap(), "[[package]]");
    }
}
