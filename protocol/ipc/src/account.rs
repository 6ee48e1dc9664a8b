//! Users of this machine, and the file that keeps a user from a socket.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Uid, User, geteuid};

/// The file or folder that keeps a user from a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The socket itself, or a folder above it that the user may not enter.
    pub path: PathBuf,
    /// Its owner.
    pub owner: Account,
}

impl Barrier {
    /// Its path and its owner.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} (of {})", self.path.display(), self.owner)
    }

    /// The deepest file on the way to `socket` that this user can see. It must be the barrier: a user who could
    /// enter it would see more.
    #[must_use]
    pub fn of(socket: &Path) -> Option<Self> {
        let seen = |path: &Path| Some((path.to_owned(), path.metadata().ok()?.uid()));
        let (path, owner) = std::path::absolute(socket).ok()?.ancestors().find_map(seen)?;
        Some(Self { path, owner: Account::new(owner) })
    }
}

/// A user of this machine, printed as `user 1000 (anna)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account(Uid);

impl Account {
    /// The user of that number.
    #[must_use]
    pub fn new(uid: u32) -> Self {
        Self(Uid::from_raw(uid))
    }

    /// The user of the process at the other end, when it connected or listened.
    ///
    /// # Errors
    /// The system's.
    pub fn of_peer(socket: &UnixStream) -> io::Result<Self> {
        Ok(Self::new(getsockopt(socket, PeerCredentials)?.uid()))
    }

    /// The same, and the number of that process, which may have ended since.
    ///
    /// # Errors
    /// The system's.
    pub fn and_pid_of_peer(socket: &UnixStream) -> io::Result<(Self, u32)> {
        let peer = getsockopt(socket, PeerCredentials)?;
        // No process has a negative number; 0 is one of another namespace.
        Ok((Self::new(peer.uid()), u32::try_from(peer.pid()).unwrap_or(0)))
    }

    /// The user's number.
    #[must_use]
    pub fn uid(self) -> u32 {
        self.0.as_raw()
    }

    /// The user without its name, which may take long to look up: `user 1000`.
    #[must_use]
    pub fn by_number(self) -> String {
        format!("user {}", self.0)
    }

    /// The user's name, if it has one. The system may ask a server for it.
    #[must_use]
    pub fn name(self) -> Option<String> {
        User::from_uid(self.0).ok().flatten().map(|user| user.name)
    }

    /// The user of this process.
    #[must_use]
    pub fn mine() -> Self {
        Self(geteuid())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.0)?;
        match self.name() {
            Some(name) => write!(f, " ({name})"),
            // A user may have a number without a name.
            None => Ok(()),
        }
    }
}
