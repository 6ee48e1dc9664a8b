//! The name of the pool's socket. One supervisor serves it; other users cannot put a socket in its place; a
//! socket that a killed supervisor left is replaced. What is removed in the end is what was made, whoever has
//! taken the name since.

mod admit;
mod open;

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use gridpool_ipc::{socket, trust};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, access, geteuid};

use super::given::{Given, GivenError};
use open::open;

mod error;
#[cfg(test)]
mod tests;

pub use error::ListenError;
pub(super) use error::failed;

/// The folder of a socket, held open: its name may come to mean another folder.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    file: File,
}

/// A file in the folder that is this pool's. It is removed when dropped, if it still has its name.
#[derive(Debug)]
struct OwnFile {
    name: PathBuf,
    id: FileId,
    /// It is not removed: the service manager has made it, or it is another process's, before us or after us.
    is_kept: bool,
}

/// The open lock file. It is locked until this is dropped; if it is left to another process, until that ends.
#[derive(Debug)]
struct Lock {
    file: File,
    is_left: bool,
}

/// Tells a file from another that has its name.
pub(super) type FileId = (u64, u64);

/// What a process needs to take over a socket's name.
#[derive(Debug)]
pub(super) struct Inherited {
    pub(super) id: FileId,
    pub(super) is_kept: bool,
    /// The open lock file.
    pub(super) lock: OwnedFd,
}

/// A socket that this pool owns.
#[derive(Debug)]
pub struct Claim {
    // First: its inode has its number as long as the socket is open.
    pub(super) name: SocketName,
    pub(super) listener: UnixListener,
}

/// The socket's name. No other pool takes it as long as this is held; it is given back when this is dropped.
#[derive(Debug)]
pub(super) struct SocketName {
    pub(super) path: PathBuf,
    /// The service manager has made the socket.
    is_given: bool,
    socket: OwnFile,
    // In this order: a process that waits for the lock finds no socket.
    lock: OwnFile,
    locked: Lock,
    // Last: the names above are in it.
    folder: Folder,
}

impl Folder {
    /// Opens the folder, if no other user can put a socket in our place there: only we may write to it, or it
    /// is the system's and has the sticky bit, such as /tmp.
    fn open(path: &Path) -> Result<Self, ListenError> {
        let unmade = |source| ListenError::Unmade { path: path.to_owned(), source };
        ensure_runtime_folder(path).map_err(unmade)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
        let file = opened.map_err(|source| Self::refused(path, source))?;
        let meta = file.metadata().map_err(|source| Self::refused(path, source))?;
        check_private(path, meta.uid(), meta.mode(), geteuid().as_raw())?;
        let above = trust::open_folder(path);
        let above = above.map_err(failed(path, "the folders above it cannot be looked at"))?;
        if let Some(above) = above {
            return Err(ListenError::Movable { path: path.to_owned(), above });
        }
        Ok(Self { path: path.to_owned(), file })
    }

    fn refused(path: &Path, source: io::Error) -> ListenError {
        let is_link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
        let path = path.to_owned();
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => ListenError::Missing(path),
            Some(Errno::ENOTDIR | Errno::ELOOP) if is_link => ListenError::Link(path),
            Some(Errno::ENOTDIR) => ListenError::NotDirectory(path),
            Some(_) | None => failed(&path, "the directory cannot be looked at")(source),
        }
    }

    /// The path of a file in this very folder.
    fn entry(&self, name: &Path) -> PathBuf {
        Path::new("/proc/self/fd").join(self.file.as_raw_fd().to_string()).join(name)
    }
}

impl OwnFile {
    /// The file that has this name now.
    fn new(name: PathBuf) -> io::Result<Self> {
        let id = id(&fs::symlink_metadata(&name)?);
        Ok(Self { name, id, is_kept: false })
    }

    /// Whether it still has its name.
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.name).is_ok_and(|meta| id(&meta) == self.id)
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if !self.is_kept
            && self.is_there()
            && let Err(error) = fs::remove_file(&self.name)
        {
            tracing::debug!(%error, "a file of the socket stays");
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Not only closed: a child that is being started may have it open for a moment.
        if !self.is_left
            && let Err(error) = self.file.unlock()
        {
            tracing::debug!(%error, "the lock stays until this process ends");
        }
    }
}

fn id(meta: &Metadata) -> FileId {
    (meta.dev(), meta.ino())
}

impl SocketName {
    /// Whether clients still find the socket at its path, and other pools its lock.
    pub(super) fn is_there(&self) -> bool {
        self.has_socket() && self.lock.is_there()
    }

    /// Whether clients still find the socket at its path.
    pub(super) fn has_socket(&self) -> bool {
        let is_same =
            |meta: Metadata| self.folder.file.metadata().is_ok_and(|own| id(&own) == id(&meta));
        fs::symlink_metadata(&self.folder.path).is_ok_and(is_same) && self.socket.is_there()
    }

    /// Makes the lock file again if it alone is lost; whether it was. The error: another pool has the
    /// lock, if only until it finds the socket served, or the system refuses.
    pub(super) fn lock_again(&mut self) -> Result<bool, ListenError> {
        if self.lock.is_there() || !self.has_socket() {
            return Ok(false);
        }
        let (locked, own) = lock(&self.folder, &self.path)?;
        // In this order: the lost file has its number as long as it is open.
        self.lock = own;
        self.locked = locked;
        Ok(true)
    }

    /// What a successor needs to take the name over. Until it has, or until [`SocketName::leave`], both hold it.
    pub(super) fn pass(&self) -> io::Result<Inherited> {
        let Self { socket, locked, is_given, .. } = self;
        Ok(Inherited { id: socket.id, is_kept: *is_given, lock: locked.file.try_clone()?.into() })
    }

    /// Leaves the name to the process that has taken it over.
    pub(super) fn leave(mut self) {
        (self.socket.is_kept, self.lock.is_kept, self.locked.is_left) = (true, true, true);
    }

    /// Takes a name that is the predecessor's until [`SocketName::own`]: dropped before, it stays as it is.
    pub(super) fn inherit(path: &Path, inherited: Inherited) -> Result<Self, ListenError> {
        let Inherited { id: socket, is_kept, lock } = inherited;
        let folder = Folder::open(folder_of(path))?;
        let (name, lock_name) = names_of(path);
        let (name, lock_name) = (folder.entry(name), folder.entry(&lock_name));
        let locked = Lock { file: File::from(lock), is_left: true };
        let meta =
            locked.file.metadata().map_err(failed(path, "the lock file cannot be looked at"))?;
        Ok(Self {
            path: path.to_owned(),
            is_given: is_kept,
            socket: OwnFile { name, id: socket, is_kept: true },
            lock: OwnFile { name: lock_name, id: id(&meta), is_kept: true },
            locked,
            folder,
        })
    }

    /// The predecessor has left the name.
    pub(super) fn own(&mut self) {
        (self.socket.is_kept, self.lock.is_kept, self.locked.is_left) =
            (self.is_given, false, false);
    }

    /// What must be watched to learn that it is no longer there.
    pub(super) fn files(&self) -> [&Path; 3] {
        [&self.folder.path, &self.socket.name, &self.lock.name]
    }
}

/// Makes the default folder for sockets, if it is missing. A folder that the user named is not made: its name may
/// be misspelt.
fn ensure_runtime_folder(folder: &Path) -> io::Result<()> {
    if folder == socket::default_folder().0 { make(folder) } else { Ok(()) }
}

/// Makes a folder that may be there already. Not those above it: another user may have planted them.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Checks that no other user can exchange what this process makes in a folder. Makes the default folder.
pub(super) fn check_folder(folder: &Path) -> io::Result<()> {
    Folder::open(folder).map(drop).map_err(io::Error::other)
}

/// Whether a socket can have that name.
fn check_name(path: &Path) -> Result<(), ListenError> {
    if path.as_os_str().len() > socket::PATH_BYTES_MAX {
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

/// The name of a socket in its folder, and that of its lock file. The supervisor that serves the socket holds
/// the lock.
fn names_of(socket: &Path) -> (&Path, PathBuf) {
    let name = socket.file_name().map_or(socket, Path::new);
    let mut lock = name.as_os_str().to_owned();
    lock.push(".lock");
    (name, PathBuf::from(lock))
}

/// Opens a lock file that follows no link and waits for nothing, as opening a FIFO would.
fn open_lock(name: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(create).truncate(false).mode(0o600);
    options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(name)
}

/// Makes sure that no other pool serves `socket` as long as the lock is held.
fn lock(folder: &Folder, socket: &Path) -> Result<(Lock, OwnFile), ListenError> {
    let (_, name) = names_of(socket);
    let (shown, name) = (folder.path.join(&name), folder.entry(&name));
    let me = geteuid().as_raw();
    let is_foreign =
        || fs::symlink_metadata(&name).is_ok_and(|meta| meta.is_symlink() || meta.uid() != me);
    loop {
        let file = open_lock(&name, true).map_err(|source| {
            match source.raw_os_error().map(Errno::from_raw) {
                // A link, a folder or a FIFO.
                Some(Errno::EISDIR | Errno::ELOOP | Errno::ENXIO) => {
                    ListenError::NotLock(shown.clone())
                }
                Some(Errno::EACCES) if is_foreign() => ListenError::NotLock(shown.clone()),
                Some(_) | None => failed(&shown, "the lock file cannot be opened")(source),
            }
        })?;
        let meta = file.metadata().map_err(failed(&shown, "the lock file cannot be looked at"))?;
        // Another user who holds it says nothing of a pool.
        if meta.uid() != me {
            return Err(ListenError::NotLock(shown));
        }
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ListenError::Taken(socket.to_owned()),
            TryLockError::Error(error) => failed(&shown, "the lock file cannot be locked")(error),
        })?;
        let meta = file.metadata().map_err(failed(&shown, "the lock file cannot be looked at"))?;
        // A lock file is empty. With `--socket Cargo` this is a user's Cargo.lock: it must stay.
        if !meta.is_file() || meta.len() > 0 {
            return Err(ListenError::NotLock(shown));
        }
        let own = OwnFile { name: name.clone(), id: id(&meta), is_kept: false };
        if own.is_there() {
            return Ok((Lock { file, is_left: false }, own));
        }
        // The previous supervisor removed this file after we opened it and before we locked it.
    }
}

/// Whether a directory of that owner and mode is private enough for a socket of mine.
fn check_private(path: &Path, owner: u32, mode: u32, me: u32) -> Result<(), ListenError> {
    const ROOT: u32 = 0;
    let path = path.to_owned();
    let is_sticky = mode & 0o1000 != 0;
    match (owner == me, mode & 0o022 == 0) {
        (true, true) => Ok(()),
        // Its owner may put anything there.
        (_, _) if is_sticky && (owner == me || owner == ROOT) => Ok(()),
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
    let folder = Folder::open(directory)?;
    if let Ok(file) = open_lock(&folder.entry(&names_of(path).1), false)
        && let Err(TryLockError::WouldBlock) = file.try_lock()
    {
        return Err(ListenError::Taken(path.to_owned()));
    }
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(failed(path, "the socket cannot be opened"))
}

/// The same for a name that was lost. Its folder is made again; what removes the folder may be at it still.
pub(super) fn claim_again(path: &Path) -> Result<Claim, ListenError> {
    const TRIES_MAX: u32 = 10;
    let mut tries = 0;
    loop {
        tries += 1;
        match claim(path) {
            Err(ListenError::Missing(folder)) if tries <= TRIES_MAX => {
                make(&folder).map_err(failed(&folder, "the directory cannot be made again"))?;
            }
            Err(ListenError::Io { source, .. })
                if source.kind() == ErrorKind::NotFound && tries <= TRIES_MAX => {}
            claimed => return claimed,
        }
    }
}

/// Opens the socket, unless another supervisor has it. Connections wait until they are accepted.
pub(super) fn claim(path: &Path) -> Result<Claim, ListenError> {
    claim_with(path, open)
}

/// The same for a socket that the service manager has opened.
pub(super) fn claim_given(path: &Path, given: Given) -> Result<Claim, ListenError> {
    let seen = |path: &Path| match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(id(&meta))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(failed(path, "the socket cannot be looked at")(error)),
    };
    let elsewhere = || {
        let (given, wanted) = (given.path.clone(), path.to_owned());
        ListenError::from(GivenError::Elsewhere { given, wanted })
    };
    // First: without that socket there may be no folder either.
    let theirs = seen(&given.path)?;
    if theirs != seen(path)? || theirs.is_none() && given.path != path {
        return Err(elsewhere());
    }
    let theirs = given.reached_at(theirs)?;
    claim_with(path, |path, name| {
        let own = OwnFile::new(name).map_err(failed(path, "the socket cannot be looked at"));
        let mut socket = own?;
        socket.is_kept = true;
        if socket.id != theirs {
            return Err(elsewhere());
        }
        Ok((given.listener, socket))
    })
}

/// Takes the name of a socket, and the socket from `open`, which gets both the path and the name in the folder.
fn claim_with(
    path: &Path,
    open: impl FnOnce(&Path, PathBuf) -> Result<(UnixListener, OwnFile), ListenError>,
) -> Result<Claim, ListenError> {
    check_name(path)?;
    let folder = Folder::open(folder_of(path))?;
    // In this order: the file is removed while it is still locked.
    let (locked, lock) = lock(&folder, path)?;
    let (listener, socket) = open(path, folder.entry(names_of(path).0))?;
    // Another process may accept from it too, and be quicker.
    listener.set_nonblocking(true).map_err(failed(path, "the socket cannot be opened"))?;
    let (path, is_given) = (path.to_owned(), socket.is_kept);
    let name = SocketName { path, is_given, socket, lock, locked, folder };
    Ok(Claim { listener, name })
}
