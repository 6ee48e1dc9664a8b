//! Why a socket cannot be had, in words that say what to type instead.

use std::io;
use std::path::{Path, PathBuf};

use gridpool_ipc::socket::PATH_BYTES_MAX;

use crate::shell::given::GivenError;

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
        "{} belongs to the user {owner} and not to you ({me}), who could put another socket in place \
         of yours: name a socket in a directory of your own with --socket{}",
        path.display(), made_there(path, *owner, *me)
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        me: u32,
    },
    /// Everybody may write to a folder above the directory.
    #[error(
        "everybody may write to {above}, and so put another folder in the place of {}: mend it with \
         `chmod o-w {above}` or `chmod +t {above}`, or name a socket elsewhere with --socket",
        path.display(), above = above.display()
    )]
    Movable {
        /// The directory.
        path: PathBuf,
        /// The folder above it.
        above: PathBuf,
    },
    /// The path of the directory is a link, which another user may have made.
    #[error(
        "{} is a symbolic link, which another user may have made: name the folder that it points to with \
         --socket", .0.display()
    )]
    Link(PathBuf),
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
    #[error(
        "{} is too long for a socket path (at most {} bytes): name a shorter one with --socket",
        .0.display(),
        PATH_BYTES_MAX
    )]
    TooLong(PathBuf),
    /// The name of its file is longer than a socket's may be while it is made.
    #[error(
        "{path}: the name of the file has {bytes} bytes, and that of a socket at most {most}: name a shorter one with \
         --socket",
        path = path.display()
    )]
    LongName {
        /// The path of the socket.
        path: PathBuf,
        /// Of its last component.
        bytes: usize,
        /// The most that it may have.
        most: usize,
    },
    /// The socket that the service manager gives cannot be served.
    #[error(transparent)]
    Given(#[from] GivenError),
    /// Another program serves the socket, or it belongs to another user.
    #[error("{} is the socket of another program: name another path with --socket", .0.display())]
    Served(PathBuf),
    /// The path of the socket is another kind of file.
    #[error("{} exists and is not a socket: name another path with --socket, or move it away", .0.display())]
    NotSocket(PathBuf),
    /// The lock file is not an empty file of this user.
    #[error(
        "{lock} is no lock of yours, and the pool needs that name for its lock: move the file away, or name \
         another socket with --socket", lock = .0.display()
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
pub(in crate::shell) fn failed<E: Into<io::Error>>(
    path: &Path,
    what: &'static str,
) -> impl FnOnce(E) -> ListenError {
    move |source| ListenError::Io { path: path.to_owned(), what, source: source.into() }
}

/// How to get a directory in a folder of the system. One in another user's folder would be at that user's mercy.
fn made_there(folder: &Path, owner: u32, me: u32) -> String {
    const ROOT: u32 = 0;
    if owner != ROOT {
        return String::new();
    }
    let own = folder.join("gridpool");
    format!(
        ", such as one that root makes there with `install -d -m 700 -o {me} {}`",
        own.display()
    )
}
