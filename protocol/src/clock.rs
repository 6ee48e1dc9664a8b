//! The one place that reads the clock. The pool's core takes time as an argument; clients, shell and
//! worker ask here.

use std::time::{Duration, Instant};

/// Now, on the monotonic clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// What is left until `deadline`; zero if it has passed.
#[must_use]
pub fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(now())
}
