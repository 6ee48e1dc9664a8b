//! Work of the device between jobs: its known-answer test, and the release of arenas. No job's deadline
//! bounds it, so the heartbeat thread does: a device that does not finish a step within [`STEP_MAX`] is
//! lost. The worker ends before a waiting job loses its deadline to it.

use std::time::{Duration, Instant};

use gridpool_ipc::mutex::Mutex;

/// A step takes milliseconds, or perhaps a second on a busy CPU.
pub(crate) const STEP_MAX: Duration = Duration::from_secs(10);

/// When the current step began, shared by the thread that runs it and the thread that watches it.
#[derive(Debug, Default)]
pub(crate) struct IdleStep(Mutex<Option<Instant>>);

impl IdleStep {
    /// Runs a step.
    pub(crate) fn step<T>(&self, now: Instant, step: impl FnOnce() -> T) -> T {
        self.set(Some(now));
        let result = step();
        self.set(None);
        result
    }

    /// Whether the current step takes too long.
    pub(crate) fn is_stuck(&self, now: Instant) -> bool {
        let began = *self.0.lock();
        began.is_some_and(|began| now.saturating_duration_since(began) > STEP_MAX)
    }

    fn set(&self, began: Option<Instant>) {
        *self.0.lock() = began;
    }
}

#[cfg(test)]
mod tests {
    use gridpool_ipc::clock;

    use super::*;

    #[test]
    fn a_step_is_stuck_after_its_time_and_no_longer_than_it_goes_on() {
        let (idle_step, start) = (IdleStep::default(), clock::now());
        let late = start + STEP_MAX + Duration::from_nanos(1);
        assert!(!idle_step.is_stuck(late), "none has begun");
        idle_step.step(start, || {
            assert!(!idle_step.is_stuck(start + STEP_MAX));
            assert!(idle_step.is_stuck(late));
        });
        assert!(!idle_step.is_stuck(late), "it came back");
    }
}
