//! When a run may be captured as a CUDA graph. `seam.rs` says why a capture is alone in its process.
//!
//! A capture takes both locks, first that of changes. It waits for runs, which take milliseconds, but while requests
//! are waiting it does not wait for a change: making a session may take a minute.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

static CHANGES: RwLock<()> = RwLock::new(());
static RUNS: RwLock<()> = RwLock::new(());

/// A session is being made or freed.
#[derive(Debug)]
pub(crate) struct Changing(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

/// A run is under way.
#[derive(Debug)]
pub(crate) struct Running(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

/// A run is being captured.
#[derive(Debug)]
pub(crate) struct Alone {
    _runs: RwLockWriteGuard<'static, ()>,
    _changes: RwLockWriteGuard<'static, ()>,
}

/// To be held while a session is made or freed.
pub(crate) fn changing() -> Changing {
    Changing(CHANGES.read().unwrap_or_else(PoisonError::into_inner))
}

/// To be held during a run.
pub(crate) fn running() -> Running {
    Running(RUNS.read().unwrap_or_else(PoisonError::into_inner))
}

/// To be held during a capture, by a thread that holds nothing else of this module.
pub(crate) fn alone() -> Alone {
    with_runs(CHANGES.write().unwrap_or_else(PoisonError::into_inner))
}

/// As [`alone`]; `None` if a session is being made or freed.
pub(crate) fn alone_now() -> Option<Alone> {
    match CHANGES.try_write() {
        Ok(changes) => Some(with_runs(changes)),
        Err(TryLockError::Poisoned(poisoned)) => Some(with_runs(poisoned.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn with_runs(changes: RwLockWriteGuard<'static, ()>) -> Alone {
    Alone { _runs: RUNS.write().unwrap_or_else(PoisonError::into_inner), _changes: changes }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    // One test: the locks are of the whole process.
    #[test]
    fn a_capture_is_alone_and_does_not_wait_for_a_change_while_requests_wait() {
        let change = changing();
        assert!(alone_now().is_none(), "a change is under way");
        drop(change);
        let run = running();
        let (sender, captured) = mpsc::channel();
        let capture = thread::spawn(move || {
            let alone = alone();
            sender.send(()).unwrap();
            drop(alone);
        });
        assert!(captured.try_recv().is_err(), "a run is under way");
        drop(run);
        captured.recv().unwrap();
        capture.join().unwrap();
        drop((changing(), running()));
    }
}
