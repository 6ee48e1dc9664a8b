//! Attempts that the supervisor has cancelled. The thread of the lifeline notes them while the device works; the
//! device looks at an attempt's flag between chunks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::AttemptId;

/// The most cancelled attempts without a flag that are kept: those that have not begun, and those that were answered
/// as they were cancelled. More than a worker has outstanding.
const KEPT_MAX: usize = 1_024;

/// See the module's text. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancels(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Set once the attempt is cancelled.
    running: BTreeMap<AttemptId, Arc<AtomicBool>>,
    cancelled: BTreeSet<AttemptId>,
}

impl Cancels {
    /// An attempt begins. Returns its flag, which may be set already.
    pub(crate) fn begin(&self, attempt: AttemptId) -> Arc<AtomicBool> {
        let mut state = self.0.lock();
        let flag = Arc::new(AtomicBool::new(state.cancelled.remove(&attempt)));
        state.running.insert(attempt, Arc::clone(&flag));
        flag
    }

    /// An attempt is answered.
    pub(crate) fn end(&self, attempt: AttemptId) {
        self.0.lock().running.remove(&attempt);
    }

    /// The supervisor has cancelled an attempt.
    pub(crate) fn cancel(&self, attempt: AttemptId) {
        let mut state = self.0.lock();
        if let Some(flag) = state.running.get(&attempt) {
            return flag.store(true, Ordering::Relaxed);
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
    fn attempts_that_were_answered_as_they_were_cancelled_do_not_pile_up() {
        let cancels = Cancels::default();
        (0..10_000).for_each(|job| cancels.cancel(attempt(job)));
        assert_eq!(cancels.0.lock().cancelled.len(), KEPT_MAX);
        assert!(cancels.begin(attempt(9_999)).load(Ordering::Relaxed));
    }
}
