//! The only place that reads the clock. Clients, the shell and workers call it. The pool's core takes the
//! time as an argument.

use std::time::{Duration, Instant, SystemTime};

/// Now, on the monotonic clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The time of day, for what a person wrote as a date. It may jump.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
pub fn time_of_day() -> SystemTime {
    SystemTime::now()
}

/// The time left until `deadline`; zero if it has passed.
#[must_use]
pub fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(now())
}
