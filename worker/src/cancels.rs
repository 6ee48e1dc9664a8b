//! Attempts that the supervisor has cancelled. The thread of the lifeline notes them while the device works. The
//! device looks at an attempt's flag between chunks; a request of a model is withdrawn.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::AttemptId;

/// What stops an attempt that runs.
type Stop = Box<dyn FnOnce() + Send>;

/// The most cancelled attempts without a flag that are kept: those that have not begun, and those that were answered
/// as they were cancelled. More than a worker has outstanding.
const KEPT_MAX: usize = 1_024;

/// See the module's text. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancels(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    running: BTreeMap<AttemptId, Running>,
    /// Those that run together.
    dispatch: Dispatch,
    cancelled: BTreeSet<AttemptId>,
}

/// The attempts of a dispatch, and the flag of each. There are few.
#[derive(Debug, Default)]
struct Dispatch {
    attempts: Vec<AttemptId>,
    flags: Arc<[AtomicBool]>,
}

#[derive(Default)]
struct Running {
    /// Set once the attempt is cancelled.
    flag: Arc<AtomicBool>,
    stop: Option<Stop>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("flag", &self.flag).finish_non_exhaustive()
    }
}

impl Cancels {
    /// An attempt begins. Returns its flag, which may be set already.
    pub(crate) fn begin(&self, attempt: AttemptId) -> Arc<AtomicBool> {
        let mut state = self.0.lock();
        let flag = Arc::new(AtomicBool::new(state.cancelled.remove(&attempt)));
        state.running.insert(attempt, Running { flag: Arc::clone(&flag), stop: None });
        flag
    }

    /// Attempts begin that run together, after those of the last [`Cancels::begin_together`] have ended. Returns their
    /// flags, in order; some may be set already.
    pub(crate) fn begin_together(&self, attempts: Vec<AttemptId>) -> Arc<[AtomicBool]> {
        let mut state = self.0.lock();
        let State { dispatch, cancelled, .. } = &mut *state;
        // Mostly nothing is cancelled.
        let mut is_cancelled = |attempt| !cancelled.is_empty() && cancelled.remove(attempt);
        let flags: Arc<[_]> =
            attempts.iter().map(|attempt| AtomicBool::new(is_cancelled(attempt))).collect();
        *dispatch = Dispatch { attempts, flags: Arc::clone(&flags) };
        flags
    }

    /// All of these attempts are answered.
    pub(crate) fn end_together(&self) {
        self.0.lock().dispatch.attempts.clear();
    }

    /// Calls `stop` once the attempt is cancelled, at once if it is already, and never if it has ended.
    pub(crate) fn on_cancel(&self, attempt: AttemptId, stop: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        let Some(running) = state.running.get_mut(&attempt) else { return };
        if !running.flag.load(Ordering::Relaxed) {
            running.stop = Some(Box::new(stop));
            return;
        }
        drop(state);
        stop();
    }

    /// An attempt is answered.
    pub(crate) fn end(&self, attempt: AttemptId) {
        self.0.lock().running.remove(&attempt);
    }

    /// Attempts that have begun and not ended.
    pub(crate) fn running(&self) -> usize {
        self.0.lock().running.len()
    }

    /// The supervisor has cancelled an attempt.
    pub(crate) fn cancel(&self, attempt: AttemptId) {
        let mut state = self.0.lock();
        if let Some(running) = state.running.get_mut(&attempt) {
            running.flag.store(true, Ordering::Relaxed);
            let stop = running.stop.take();
            // What stops it may end it, which takes the lock.
            drop(state);
            stop.into_iter().for_each(|stop| stop());
            return;
        }
        let Dispatch { attempts, flags } = &state.dispatch;
        if let Some(at) = attempts.iter().position(|known| *known == attempt) {
            return flags[at].store(true, Ordering::Relaxed);
        }
        state.cancelled.insert(attempt);
        if state.cancelled.len() > KEPT_MAX {
            // Numbers of jobs grow: the oldest was answered long ago.
            state.cancelled.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use gridpool_protocol::ids::JobId;

    use super::*;

    fn attempt(job: u64) -> AttemptId {
        AttemptId { job: JobId(job), number: 1 }
    }

    #[test]
    fn an_attempt_is_cancelled_before_or_after_it_begins() {
        let cancels = Cancels::default();
        cancels.cancel(attempt(1));
        assert!(cancels.begin(attempt(1)).load(Ordering::Relaxed));
        let other = cancels.begin(attempt(2));
        assert!(!other.load(Ordering::Relaxed));
        cancels.cancel(attempt(2));
        assert!(other.load(Ordering::Relaxed));
        cancels.end(attempt(2));
        assert!(!cancels.begin(attempt(3)).load(Ordering::Relaxed));
    }

    #[test]
    fn attempts_that_run_together_have_a_flag_each_until_they_end() {
        let cancels = Cancels::default();
        cancels.cancel(attempt(2));
        let flags = cancels.begin_together(vec![attempt(1), attempt(2), attempt(3)]);
        let set = || flags.iter().map(|flag| flag.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(set(), [false, true, false]);
        cancels.cancel(attempt(3));
        assert_eq!(set(), [false, true, true]);
        cancels.end_together();
        cancels.cancel(attempt(1));
        assert_eq!(set(), [false, true, true]);
        let again = cancels.begin_together(vec![attempt(2), attempt(1)]);
        assert!(!again[0].load(Ordering::Relaxed) && again[1].load(Ordering::Relaxed));
    }

    #[test]
    fn what_stops_an_attempt_is_called_once_and_not_after_its_end() {
        let (cancels, calls) = (Cancels::default(), Arc::new(AtomicUsize::new(0)));
        let count = || {
            let calls = Arc::clone(&calls);
            move || {
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        cancels.begin(attempt(1));
        cancels.on_cancel(attempt(1), count());
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        cancels.cancel(attempt(1));
        cancels.cancel(attempt(1));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        // The cancel was there first.
        cancels.cancel(attempt(2));
        cancels.begin(attempt(2));
        cancels.on_cancel(attempt(2), count());
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        // The answer was.
        cancels.begin(attempt(3));
        cancels.end(attempt(3));
        cancels.on_cancel(attempt(3), count());
        cancels.cancel(attempt(3));
        assert_eq!((calls.load(Ordering::Relaxed), cancels.running()), (2, 2));
    }

    #[test]
    fn attempts_that_were_answered_as_they_were_cancelled_do_not_pile_up() {
        let cancels = Cancels::default();
        (0..10_000).for_each(|job| cancels.cancel(attempt(job)));
        assert_eq!(cancels.0.lock().cancelled.len(), KEPT_MAX);
        assert!(cancels.begin(attempt(9_999)).load(Ordering::Relaxed));
    }
}
