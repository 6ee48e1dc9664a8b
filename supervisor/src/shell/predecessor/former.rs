//! The processes of the pool before this one, by descriptor.

use std::io;
use std::time::Duration;

use nix::libc;

use super::super::pidfd::PidFd;

/// How long a process may take to end that is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The pool before this one. Its workers and its gateway end with it.
#[derive(Debug)]
pub(in super::super) struct FormerPool {
    pub(in super::super) pid: u32,
    process: PidFd,
}

impl FormerPool {
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, process: PidFd::open(pid)? })
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { pid: self.pid, process: self.process.try_clone()? })
    }

    /// Whether it has not ended yet.
    pub(in super::super) fn lives(&self) -> bool {
        matches!(self.process.wait(Some(Duration::ZERO)), Ok(false))
    }

    /// Waits until it has ended. Its link ends a moment earlier, and its workers with it.
    pub(super) fn await_end(&self) {
        let pid = self.pid;
        match self.process.wait(Some(KILL_TIMEOUT)) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(pid, "the pool before this one says nothing, and goes on"),
            Err(error) => tracing::error!(pid, %error, "the end of the pool before this one"),
        }
    }

    /// Kills it, since it has not ended by itself in time.
    pub(in super::super) fn end(&self, why: &str) {
        let pid = self.pid;
        tracing::error!(pid, "the pool before this one does not end, and {why}: it is killed");
        let killed = self
            .process
            .send_signal(libc::SIGKILL)
            .and_then(|()| self.process.wait(Some(KILL_TIMEOUT)));
        match killed {
            Ok(true) => tracing::info!(pid, "the pool before this one has ended"),
            Ok(false) => tracing::error!(pid, "the pool before this one goes on after SIGKILL"),
            Err(error) => {
                tracing::error!(pid, %error, "the pool before this one could not be killed");
            }
        }
    }
}

/// The gateway of the pool before this one. It finishes its requests, and may still ask this pool.
#[derive(Debug)]
pub(in super::super) struct FormerGateway {
    pid: u32,
    process: PidFd,
}

impl FormerGateway {
    /// `None` if it has ended.
    pub(super) fn open(pid: u32) -> Option<Self> {
        let process = PidFd::open(pid)
            .inspect_err(|error| tracing::debug!(%error, "the gateway of the pool before"));
        process.ok().map(|process| Self { pid, process })
    }

    /// Whether it is the process of this number. Once it has ended, none is.
    pub(in super::super) fn is(&self, pid: u32) -> bool {
        self.pid == pid && matches!(self.process.wait(Some(Duration::ZERO)), Ok(false))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_the_former_gateway_only_until_it_has_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let gateway = FormerGateway::open(child.id()).unwrap();
        assert!(gateway.is(child.id()));
        assert!(!gateway.is(std::process::id()));
        child.kill().unwrap();
        gateway.process.wait(None).unwrap();
        assert!(!gateway.is(child.id()), "another process may have its number soon");
        child.wait().unwrap();
        assert!(FormerGateway::open(child.id()).is_none());
    }
}
