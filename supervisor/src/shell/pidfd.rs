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
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

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

impl PidFd {
    /// How a child of ours has ended, if it has within `limit`. It is not reaped.
    pub(super) fn ended(&self, limit: Duration) -> io::Result<Option<String>> {
        if !self.wait(Some(limit))? {
            return Ok(None);
        }
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(match waitid(Id::PIDFd(self.as_fd()), flags)? {
            WaitStatus::Exited(_, code) => Some(format!("it exited with status {code}")),
            WaitStatus::Signaled(_, signal, _) => {
                let number = signal as i32;
                Some(format!("it was ended by signal {number} ({signal})"))
            }
            WaitStatus::Continued(_)
            | WaitStatus::PtraceEvent(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::StillAlive
            | WaitStatus::Stopped(..) => None,
        })
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn how_a_child_ended_is_said_before_it_is_reaped() {
        for (text, want) in [
            ("exit 70", "it exited with status 70"),
            ("kill -KILL $$", "it was ended by signal 9 (SIGKILL)"),
            ("kill -SEGV $$", "it was ended by signal 11 (SIGSEGV)"),
        ] {
            let mut child = Command::new("sh").args(["-c", text]).spawn().unwrap();
            let process = PidFd::open(child.id()).unwrap();
            process.wait(None).unwrap();
            let ended = process.ended(Duration::ZERO).unwrap();
            assert_eq!(ended.as_deref(), Some(want));
            child.wait().unwrap();
        }
        let own = PidFd::open(std::process::id()).unwrap();
        assert_eq!(own.ended(Duration::ZERO).unwrap(), None, "it lives");
    }
}
