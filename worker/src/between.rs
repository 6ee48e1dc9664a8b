//! What the device does between jobs, on no job's time: its known-answer tests, the release of memory.
//! No deadline bounds that, so the thread that gives signs of life does: a device that does not come back
//! from a step in [`STEP_MAX`] is lost, before a job that waits for it pays with its own deadline.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A step takes milliseconds, on a CPU that others use too perhaps a second.
pub const STEP_MAX: Duration = Duration::from_secs(10);

/// When the step that is being made began, shared by who makes it and who watches.
#[derive(Debug, Default)]
pub struct Between(Mutex<Option<Instant>>);

impl Between {
    /// Makes a step.
    pub fn step<T>(&self, now: Instant, step: impl FnOnce() -> T) -> T {
        self.set(Some(now));
        let result = step();
        self.set(None);
        result
    }

    /// Whether a step has been going on for too long.
    pub fn is_stuck(&self, now: Instant) -> bool {
        let began = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        began.is_some_and(|began| now.saturating_duration_since(began) > STEP_MAX)
    }

    fn set(&self, began: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = began;
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::clock;

    use super::*;

    #[test]
    fn a_step_is_stuck_after_its_time_and_no_longer_than_it_goes_on() {
        let (between, start) = (Between::default(), clock::now());
        let late = start + STEP_MAX + Duration::from_nanos(1);
        assert!(!between.is_stuck(late), "none has begun");
        between.step(start, || {
            assert!(!between.is_stuck(start + STEP_MAX));
            assert!(between.is_stuck(late));
        });
        assert!(!between.is_stuck(late), "it came back");
    }
}
