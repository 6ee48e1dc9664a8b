//! The threads that sleep while another reads for all. One that waits for a job is woken when there is news of that
//! job, or to read; those that wait for anything else are woken by any message. When the thread that reads has what it
//! waits for, it wakes one that reads next.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use gridpool_protocol::ids::JobKey;

use super::connection::Connection;
use super::state::State;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// The threads that wait for a job, one at most for each.
    of_jobs: BTreeMap<JobKey, Arc<Condvar>>,
    /// The number of the others.
    others: usize,
    /// Those that are to be woken, without the lock, which they take at once.
    called: Vec<Arc<Condvar>>,
    /// The job whose thread was woken to read, until it is awake.
    next_reader: Option<JobKey>,
}

impl Sleepers {
    /// There is news of a job.
    pub(super) fn call(&mut self, key: JobKey) {
        self.called.extend(self.of_jobs.remove(&key));
    }

    /// There is news of all jobs.
    pub(super) fn call_all(&mut self) {
        self.called.extend(mem::take(&mut self.of_jobs).into_values());
    }
}

impl Connection {
    /// Sleeps until there is news of a job, or of anything if none is named, at most for `span`.
    pub(super) fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        span: Duration,
        job: Option<JobKey>,
    ) -> MutexGuard<'a, State> {
        let Some(key) = job else {
            state.sleepers.others += 1;
            let waited = self.changed.wait_timeout(state, span);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.sleepers.others -= 1;
            return state;
        };
        let bed = Arc::new(Condvar::new());
        state.sleepers.of_jobs.insert(key, Arc::clone(&bed));
        let waited = bed.wait_timeout(state, span);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.sleepers.of_jobs.remove(&key);
        state.sleepers.next_reader.take_if(|next| *next == key);
        state
    }

    /// Wakes the threads and the futures that wait for what has changed.
    pub(super) fn tell<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // Skip the system call if no thread sleeps.
        if state.sleepers.others > 0 {
            self.changed.notify_all();
        }
        let called = mem::take(&mut state.sleepers.called);
        let wakers = mem::take(&mut state.wakers);
        let spent = mem::take(&mut state.spent);
        if called.is_empty() && wakers.is_empty() && spent.is_empty() {
            return state;
        }
        drop(state);
        called.iter().for_each(|bed| bed.notify_one());
        wakers.into_iter().for_each(Waker::wake);
        // Memory may go back to the system, which takes time.
        drop(spent);
        self.lock()
    }

    /// This thread reads no more, if it did. If no other does, one that sleeps does so next. The last job has the
    /// longest to wait, so its thread reads for most.
    pub(super) fn leave(&self, mut state: MutexGuard<'_, State>) {
        if state.reader.is_none() || state.sleepers.next_reader.is_some() {
            return;
        }
        let next = state.sleepers.of_jobs.pop_last();
        state.sleepers.next_reader = next.as_ref().map(|(key, _)| *key);
        let has_others = state.sleepers.others > 0;
        drop(state);
        match next {
            Some((_, bed)) => bed.notify_one(),
            None if has_others => self.changed.notify_all(),
            None => {}
        }
    }

    /// Wakes them, without keeping the lock.
    #[cfg(feature = "async")]
    pub(super) fn wake(&self) {
        drop(self.tell(self.lock()));
    }
}
