//! When a run may be captured as a CUDA graph. `seam.rs` says why a capture is alone in its process.
//!
//! While requests are waiting, a capture does not wait for a change, since making a session may take a minute, and it
//! waits for other runs only for [`WAIT_MAX`]: none begins meanwhile.

use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;

/// How long a capture waits at most for the runs that are under way, while requests are waiting.
const WAIT_MAX: Duration = Duration::from_millis(5);

static QUIET: Quiet = Quiet::new();

/// What is under way in the process.
#[derive(Debug)]
struct Quiet {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Debug)]
struct Now {
    changes: u32,
    runs: u32,
    /// A capture wants no changes, or no runs either.
    holds_changes: bool,
    holds_runs: bool,
}

/// A session is being made or freed, a provider is added to its options, or pages are locked or unlocked.
#[derive(Debug)]
#[must_use]
pub(crate) struct Changing(&'static Quiet);

/// A run is under way.
#[derive(Debug)]
#[must_use]
pub(crate) struct Running(&'static Quiet);

/// A run is being captured.
#[derive(Debug)]
#[must_use]
pub(crate) struct Alone(&'static Quiet);

/// To be held while a session is made, from its providers on, or freed.
pub(crate) fn changing() -> Changing {
    QUIET.changing()
}

/// The same, unless a capture is under way or waits to begin. To be held while pages are locked or unlocked.
pub(crate) fn changing_now() -> Option<Changing> {
    QUIET.changing_now()
}

/// To be held during a run.
pub(crate) fn running() -> Running {
    QUIET.running()
}

/// To be held during a capture, by a thread that holds nothing else of this module. It waits for changes and runs.
pub(crate) fn alone() -> Alone {
    QUIET.alone()
}

/// As [`alone`], while requests are waiting; `None` if it must not be now.
pub(crate) fn alone_soon() -> Option<Alone> {
    QUIET.alone_soon(WAIT_MAX)
}

impl Quiet {
    const fn new() -> Self {
        let now = Now { changes: 0, runs: 0, holds_changes: false, holds_runs: false };
        Self { now: Mutex::new(now), changed: Condvar::new() }
    }

    /// Waits for `is_now`.
    fn when(&self, is_now: impl Fn(&Now) -> bool) -> MutexGuard<'_, Now> {
        let now = self.changed.wait_while(self.now.lock(), |now| !is_now(now));
        now.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `is_now` and then makes the change.
    fn once(&self, is_now: impl Fn(&Now) -> bool, change: impl FnOnce(&mut Now)) {
        change(&mut self.when(is_now));
        self.changed.notify_all();
    }

    fn changing(&'static self) -> Changing {
        self.when(|now| !now.holds_changes).changes += 1;
        Changing(self)
    }

    fn changing_now(&'static self) -> Option<Changing> {
        let mut now = self.now.lock();
        if now.holds_changes {
            return None;
        }
        now.changes += 1;
        Some(Changing(self))
    }

    fn running(&'static self) -> Running {
        self.when(|now| !now.holds_runs).runs += 1;
        Running(self)
    }

    /// Something has ended. Only a capture waits for that: a system call for nobody is not made.
    fn end(&self, end: impl FnOnce(&mut Now)) {
        let is_awaited = {
            let mut now = self.now.lock();
            end(&mut now);
            now.holds_changes
        };
        if is_awaited {
            self.changed.notify_all();
        }
    }

    fn alone(&'static self) -> Alone {
        self.once(|now| !now.holds_changes, |now| now.holds_changes = true);
        self.once(|now| now.changes == 0, |now| now.holds_runs = true);
        let alone = Alone(self);
        self.once(|now| now.runs == 0, |_| ());
        alone
    }

    fn alone_soon(&'static self, wait_max: Duration) -> Option<Alone> {
        let mut now = self.now.lock();
        if now.holds_changes || now.changes > 0 {
            return None;
        }
        (now.holds_changes, now.holds_runs) = (true, true);
        let alone = Alone(self);
        let until = clock::now() + wait_max;
        while now.runs > 0 {
            let left = clock::until(until);
            if left.is_zero() {
                // Its end takes the lock.
                drop(now);
                return None;
            }
            let waited = self.changed.wait_timeout(now, left);
            now = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(now);
        Some(alone)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.end(|now| now.changes -= 1);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.end(|now| now.runs -= 1);
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.once(|_| true, |now| (now.holds_changes, now.holds_runs) = (false, false));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn quiet() -> &'static Quiet {
        Box::leak(Box::new(Quiet::new()))
    }

    /// Waits until what another thread does has come so far.
    #[track_caller]
    fn until(quiet: &Quiet, is_now: impl Fn(&Now) -> bool) {
        quiet.once(is_now, |_| ());
    }

    #[test]
    fn a_capture_waits_for_runs_and_none_begins_before_it_has_ended() {
        let quiet = quiet();
        let run = quiet.running();
        let (sender, captured) = mpsc::channel();
        let capture = thread::spawn(move || {
            let alone = quiet.alone();
            let runs = quiet.now.lock().runs;
            sender.send(runs).unwrap();
            drop(alone);
        });
        // It waits, and holds back what would begin.
        until(quiet, |now| now.holds_runs && now.holds_changes);
        assert_eq!(captured.try_recv(), Err(mpsc::TryRecvError::Empty), "a run is under way");
        let later = thread::spawn(move || drop((quiet.running(), quiet.changing())));
        drop(run);
        assert_eq!(captured.recv(), Ok(0), "it was alone");
        capture.join().unwrap();
        later.join().unwrap();
    }

    #[test]
    fn nothing_begins_during_a_capture() {
        let quiet = quiet();
        let alone = quiet.alone();
        let threads = [
            thread::spawn(move || drop(quiet.running())),
            thread::spawn(move || drop(quiet.changing())),
        ];
        assert!(quiet.alone_soon(WAIT_MAX).is_none(), "one capture at a time");
        let now = quiet.now.lock();
        assert_eq!((now.runs, now.changes), (0, 0));
        drop(now);
        drop(alone);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_capture_waits_for_changes_before_it_holds_runs_back() {
        let quiet = quiet();
        let change = quiet.changing();
        let capture = thread::spawn(move || drop(quiet.alone()));
        until(quiet, |now| now.holds_changes);
        // A change may take a minute: runs go on meanwhile.
        drop(quiet.running());
        assert!(!quiet.now.lock().holds_runs);
        drop(change);
        capture.join().unwrap();
    }

    #[test]
    fn while_requests_wait_a_capture_gives_up_and_holds_nothing_back() {
        let quiet = quiet();
        let change = quiet.changing();
        assert!(quiet.alone_soon(WAIT_MAX).is_none(), "a change is under way");
        drop(change);
        let run = quiet.running();
        assert!(quiet.alone_soon(Duration::ZERO).is_none(), "a run is under way");
        drop((quiet.running(), quiet.changing(), run));
        let alone = quiet.alone_soon(Duration::ZERO).expect("nothing is under way");
        drop(alone);
        drop((quiet.running(), quiet.changing()));
    }
}
