//! One upgrade at a time. `gridpool upgrade` takes the place of a successor that takes long to come up: it may hang. A
//! signal never does, since nobody waits for its answer.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, PoisonError};
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;

use super::{END_TIMEOUT, UpgradeError};

/// Another command takes the place of a successor once this part of the time that it has has passed.
const REPLACEABLE_PART: u32 = 10;

/// What orders an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shell) enum By {
    /// `gridpool upgrade`.
    Command { one_by_one: bool },
    /// SIGUSR2.
    Signal,
}

/// Whether there is an upgrade, and how far it is.
#[derive(Debug, Default)]
pub(in crate::shell) struct Turn {
    stage: Mutex<Stage>,
    ended: Condvar,
}

#[derive(Debug, Default)]
enum Stage {
    /// There is none.
    #[default]
    Free,
    /// The successor is started, and has nothing yet. `link` is there once it runs.
    ComingUp { since: Instant, link: Option<UnixStream>, is_replaced: bool },
    /// The successor gets everything.
    HandingOver,
}

impl Stage {
    fn begin() -> Self {
        Self::ComingUp { since: clock::now(), link: None, is_replaced: false }
    }

    fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }
}

impl Turn {
    /// Whether a successor is on its way, or serves.
    pub(in crate::shell) fn is_taken(&self) -> bool {
        !self.stage.lock().is_free()
    }

    /// Takes the turn; a command if need be from a successor that has not come up in a part of `timeout`: waits for its
    /// end.
    pub(super) fn take(&self, by: By, timeout: Duration) -> Result<(), UpgradeError> {
        let replaceable = timeout / REPLACEABLE_PART;
        let taken = UpgradeError::InProgress { replaceable_s: replaceable.as_secs_f64() };
        let mut stage = self.stage.lock();
        match &mut *stage {
            Stage::Free => {}
            Stage::ComingUp { since, link: Some(link), is_replaced: is_replaced @ false }
                if by != By::Signal && since.elapsed() >= replaceable =>
            {
                *is_replaced = true;
                if let Err(error) = link.shutdown(Shutdown::Both) {
                    tracing::debug!(%error, "the successor has closed the link");
                }
                let is_there = |stage: &mut Stage| !stage.is_free();
                let waited = self.ended.wait_timeout_while(stage, END_TIMEOUT, is_there);
                (stage, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if !stage.is_free() {
                    return Err(taken);
                }
            }
            Stage::ComingUp { .. } | Stage::HandingOver => return Err(taken),
        }
        *stage = Stage::begin();
        Ok(())
    }

    /// The successor runs, and has the other end of this link.
    pub(super) fn runs(&self, own: UnixStream) {
        if let Stage::ComingUp { link, .. } = &mut *self.stage.lock() {
            *link = Some(own);
        }
    }

    /// Whether another order takes its place.
    pub(super) fn is_replaced(&self) -> bool {
        matches!(*self.stage.lock(), Stage::ComingUp { is_replaced: true, .. })
    }

    /// The successor gets everything, unless another order takes its place; none does from here on.
    pub(super) fn hands_over(&self) -> bool {
        let mut stage = self.stage.lock();
        let may = !matches!(*stage, Stage::ComingUp { is_replaced: true, .. });
        if may {
            *stage = Stage::HandingOver;
        }
        may
    }

    /// The upgrade has failed.
    pub(super) fn end(&self) {
        *self.stage.lock() = Stage::Free;
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_signal_takes_the_place_of_no_successor_however_long_that_takes() {
        let turn = Turn::default();
        turn.take(By::Command { one_by_one: false }, Duration::ZERO).unwrap();
        let (mut theirs, own) = UnixStream::pair().unwrap();
        turn.runs(own);
        let refused = turn.take(By::Signal, Duration::ZERO).unwrap_err().to_string();
        assert!(refused.contains("an upgrade is under way already"), "{refused}");
        assert!(!turn.is_replaced());
        theirs.set_nonblocking(true).unwrap();
        assert!(theirs.read(&mut [0]).is_err(), "the link is open");
    }
}
