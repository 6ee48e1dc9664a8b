//! The pool's listening socket, if the service manager has opened it: the protocol of sd_listen_fds(3).
//!
//! Owns the variables `LISTEN_FDS`, `LISTEN_PID` and `LISTEN_FDNAMES`, and descriptor 3 if they give it to this
//! process.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{Backlog, SockType, getsockopt, listen, sockopt};

use super::bound;
use super::claim::FileId;

const COUNT: &str = "LISTEN_FDS";
const PID: &str = "LISTEN_PID";
const NAMES: &str = "LISTEN_FDNAMES";

/// The first descriptor that a service manager passes.
const FIRST: RawFd = 3;

/// A socket at which this process was told to listen.
#[derive(Debug)]
pub struct Given {
    pub(super) listener: UnixListener,
    /// Where the service manager says that clients find it.
    pub(super) path: PathBuf,
}

/// Why the service manager's socket cannot be the pool's.
#[derive(Debug, thiserror::Error)]
pub enum GivenError {
    /// It passes none, or several.
    #[error(
        "{COUNT} is {0:?}: a pool takes one socket, so write one ListenStream= into its .socket unit"
    )]
    Count(OsString),
    /// What it passes is something else.
    #[error(
        "descriptor {FIRST}, which {COUNT} gives to this pool, is no Unix stream socket that listens at a path: \
         write ListenStream= and the path of the pool's socket into its .socket unit"
    )]
    NotSocket,
    /// Its path is not that of the pool.
    #[error(
        "the service manager listens at {}, and the pool's socket is {}: name one path in ListenStream= and in \
         GRIDPOOL_SOCKET or --socket", given.display(), wanted.display()
    )]
    Elsewhere {
        /// The service manager's.
        given: PathBuf,
        /// The pool's.
        wanted: PathBuf,
    },
    /// Its file is gone or another's, or it was shut down.
    #[error(
        "who connects to {} does not reach the socket that the service manager gives: its file was removed or \
         replaced, or the socket was shut down: restart the .socket unit", .0.display()
    )]
    Unreached(PathBuf),
    /// The system refused.
    #[error("the service manager's socket cannot be used")]
    Io(#[from] io::Error),
}

impl Given {
    /// The socket that the environment gives to this process, if any. Removes the variables, because child
    /// processes must not inherit them.
    ///
    /// # Safety
    /// No other thread of this process may run, and nothing may own descriptor 3 that was open when it started.
    ///
    /// # Errors
    /// [`GivenError`].
    #[expect(unsafe_code, reason = "the environment is changed, before there are threads")]
    pub unsafe fn take_from_environment() -> Result<Option<Self>, GivenError> {
        let [count, pid, _] = [COUNT, PID, NAMES].map(|name| {
            let value = env::var_os(name);
            // SAFETY: the caller promises that no other thread runs, so none reads the environment.
            unsafe { env::remove_var(name) };
            value
        });
        // Without its number, or with another, they are for another process, such as the shell that started us.
        let is_ours = pid.is_some_and(|pid| pid == *std::process::id().to_string());
        let Some(count) = count.filter(|_| is_ours) else { return Ok(None) };
        if count != "1" {
            return Err(GivenError::Count(count));
        }
        // SAFETY: the descriptor is only asked what it is, and whoever has closed it gets an error.
        let shown = unsafe { BorrowedFd::borrow_raw(FIRST) };
        if !listens(shown) {
            return Err(GivenError::NotSocket);
        }
        // SAFETY: it was open when this process started, and the caller promises that nothing owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(FIRST) };
        Self::new(owned).map(Some)
    }

    fn new(socket: OwnedFd) -> Result<Self, GivenError> {
        // No worker inherits it.
        fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(io::Error::from)?;
        let listener = UnixListener::from(socket);
        // The error: it has the address of another family.
        let address = listener.local_addr().map_err(|_| GivenError::NotSocket)?;
        let path = address.as_pathname().map(Path::to_owned).ok_or(GivenError::NotSocket)?;
        listen_anew(&listener)?;
        Ok(Self { listener, path })
    }

    /// The file at its path, if who connects there reaches it.
    pub(super) fn reached_at(&self, file: Option<FileId>) -> Result<FileId, GivenError> {
        let is_own = |(_, inode): FileId| match bound::inode_of_file(&self.listener) {
            Ok(own) => u64::from(own) == inode & u64::from(u32::MAX),
            Err(error) => {
                tracing::info!(%error, "the kernel does not tell which file the given socket has");
                true
            }
        };
        let is_shut_down = bound::is_shut_down(&self.listener)?;
        let own = file.filter(|file| !is_shut_down && is_own(*file));
        own.ok_or_else(|| GivenError::Unreached(self.path.clone()))
    }
}

/// Whether a descriptor is a stream socket that listens.
fn listens(fd: BorrowedFd<'_>) -> bool {
    getsockopt(&fd, sockopt::SockType) == Ok(SockType::Stream)
        && getsockopt(&fd, sockopt::AcceptConn) == Ok(true)
}

/// Calls listen(2), again for a socket that another process has opened: the kernel shows clients who called it last. As
/// many connections may wait as the system allows.
pub(super) fn listen_anew(listener: &impl AsFd) -> io::Result<()> {
    Ok(listen(listener, Backlog::MAXALLOWABLE)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

    use super::*;

    fn refused(socket: impl Into<OwnedFd>) -> bool {
        let socket = socket.into();
        !listens(socket.as_fd()) || matches!(Given::new(socket), Err(GivenError::NotSocket))
    }

    #[test]
    fn only_a_unix_socket_that_listens_at_a_path_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.sock");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(Given::new(listener.into()).unwrap().path, path);
        assert!(refused(UnixStream::pair().unwrap().0));
        assert!(refused(UnixDatagram::unbound().unwrap()));
        assert!(refused(TcpListener::bind("127.0.0.1:0").unwrap()));
        let name = format!("gridpool-given-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        assert!(refused(UnixListener::bind_addr(&address).unwrap()));
        assert!(refused(std::fs::File::open("/dev/null").unwrap()));
    }
}
