//! What the threads of a search share: how many jobs are under way, which one is waited for, and whether the search
//! was stopped, which ends every wait.

use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;

use super::pipeline::Pipeline;
use crate::Canceller;

/// Ends a search from another thread, such as one that waits for Ctrl-C. Its stream then gives the results that are
/// known, and no more.
#[derive(Clone, Debug)]
pub struct SearchStopper {
    pipeline: Arc<Pipeline>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The search was stopped, or a permit came back.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    stopped: bool,
    /// The job whose verdict the stream waits for.
    job: Option<Canceller>,
    /// How many more jobs may be under way.
    permits: usize,
}

/// A job may be under way. Dropping it lets another one begin.
#[derive(Debug)]
pub(super) struct Permit(Arc<Shared>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.state.lock().permits += 1;
        self.0.changed.notify_all();
    }
}

impl SearchStopper {
    /// For a search that may have so many jobs under way.
    pub(super) fn new(pipeline: Arc<Pipeline>, jobs: usize) -> Self {
        let state = State { stopped: false, job: None, permits: jobs.max(1) };
        let shared = Shared { state: Mutex::new(state), changed: Condvar::new() };
        Self { pipeline, shared: Arc::new(shared) }
    }

    /// Reads no more programs, ends every wait, and cancels what runs.
    pub fn stop(&self) {
        self.end();
    }

    /// The same. Returns how many programs were read.
    pub(super) fn end(&self) -> u64 {
        let job = {
            let mut state = self.shared.state.lock();
            state.stopped = true;
            state.job.take()
        };
        self.shared.changed.notify_all();
        let read = self.pipeline.stop();
        if let Some(job) = job {
            job.cancel();
        }
        read
    }

    /// Whether it was stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.state.lock().stopped
    }

    /// Notes the job that is waited for now. Returns whether to wait.
    pub(super) fn waits_for(&self, job: Canceller) -> bool {
        let mut state = self.shared.state.lock();
        state.job = Some(job);
        !state.stopped
    }

    /// Waits until one more job may be under way; `None` if the search is stopped.
    pub(super) fn permit(&self) -> Option<Permit> {
        let mut state = self.shared.state.lock();
        while !state.stopped && state.permits == 0 {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped {
            return None;
        }
        state.permits -= 1;
        Some(Permit(Arc::clone(&self.shared)))
    }

    /// A permit, if one more job may be under way now.
    pub(super) fn permit_now(&self) -> Option<Permit> {
        let mut state = self.shared.state.lock();
        state.permits = state.permits.checked_sub(1)?;
        Some(Permit(Arc::clone(&self.shared)))
    }

    /// Waits for `span`, less if the search is stopped. Returns whether it goes on.
    pub(super) fn pause(&self, span: Duration) -> bool {
        let until = clock::now() + span;
        let mut state = self.shared.state.lock();
        loop {
            let left = clock::until(until);
            if state.stopped || left.is_zero() {
                return !state.stopped;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// Longer than any test may take.
    const LONG: Duration = Duration::from_secs(600);

    fn stopper(jobs: usize) -> SearchStopper {
        SearchStopper::new(Arc::default(), jobs)
    }

    #[test]
    fn as_many_jobs_are_under_way_as_the_search_says_and_at_least_one() {
        for (jobs, most) in [(0, 1), (1, 1), (3, 3)] {
            let stopper = stopper(jobs);
            let mut permits: Vec<_> = (0..most).map(|_| stopper.permit_now().unwrap()).collect();
            assert!(stopper.permit_now().is_none());
            permits.pop();
            assert!(stopper.permit().is_some());
        }
    }

    #[test]
    fn a_stop_ends_the_waits_for_a_permit_and_for_time() {
        let stopper = stopper(1);
        let permit = stopper.permit();
        let (begun, waits) = channel();
        thread::scope(|scope| {
            let (begun, other) = (&begun, &stopper);
            let waiting = scope.spawn(move || {
                begun.send(()).unwrap();
                (other.permit().is_some(), other.pause(LONG))
            });
            waits.recv().unwrap();
            stopper.stop();
            assert_eq!(waiting.join().unwrap(), (false, false));
        });
        drop(permit);
        assert!(stopper.permit().is_none() && stopper.is_stopped());
    }
}
