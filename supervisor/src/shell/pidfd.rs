//! A process by descriptor: a signal sent through it never reaches another process that has since
//! got the same number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gridpool_core::event::Helper;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};

/// One process.
#[derive(Debug)]
pub(super) struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the descriptor of a process that has not been reaped.
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "pidfd_open has no wrapper in std or nix")]
        // SAFETY: the call takes two plain numbers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_ulong::from(pid), 0) };
        let fd = i32::try_from(Errno::result(fd)?).expect("descriptors fit i32");
        #[expect(unsafe_code, reason = "taking over the descriptor of pidfd_open")]
        // SAFETY: the kernel has just made it for this call alone; nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The process that connected to this socket, whose number was `pid` then.
    pub(super) fn of_peer(socket: &UnixStream, pid: u32) -> io::Result<Self> {
        match getsockopt(socket, PeerPidfd) {
            Ok(fd) => Ok(Self(fd)),
            // Linux before 6.5.
            Err(Errno::ENOPROTOOPT) => Self::open(pid),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Another handle on the same process.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a signal; `Ok` also if the process has ended already.
    pub(super) fn send_signal(&self, signal: i32) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        let info = std::ptr::null::<libc::siginfo_t>();
        #[expect(unsafe_code, reason = "pidfd_send_signal has no wrapper in std or nix")]
        // SAFETY: a null siginfo means an ordinary signal; the descriptor is open.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, info, 0) };
        match Errno::result(sent) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends SIGKILL to a helper. A failure is logged: there is nothing else to do about it.
    pub(super) fn kill(&self, helper: Helper) {
        if let Err(error) = self.send_signal(libc::SIGKILL) {
            tracing::error!(%error, "SIGKILL could not be sent to {helper}");
        }
    }

    /// Waits until the process has ended; `false` if it has not in time.
    pub(super) fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        let timeout = limit.map_or(PollTimeout::NONE, |limit| {
            PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
        });
        loop {
            let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
