//! Busy polling: a thread that waits for a message polls for it before it sleeps.
//!
//! Waking a thread costs 5 to 10 µs on the hosts that we serve. A small job passes four waiting threads: the
//! connection's, the worker's, the worker's reader and the client's. If such jobs follow each other,
//! polling is worth a core; otherwise it is not. So a thread polls only if its last wait was short, only
//! for a short time, and only if the host has cores to spare.
//!
//! Owns that rule and the count of polling threads. It reads nothing itself: the caller passes a function.

use std::hint;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;

/// How long a thread polls by default, and what counts as a short wait. A job of one grid takes 60 to 120 µs, a
/// model's run over an image of 600 KB 130 µs, and each end waits for nearly all of that, so this leaves a client
/// some time between jobs. When jobs stop coming, each end polls in vain once.
pub const SPIN_DEFAULT: Duration = Duration::from_micros(200);
/// The longest time that a thread may poll. In a longer wait the cost of a wake-up does not matter.
pub const SPIN_MAX: Duration = Duration::from_millis(1);
/// A process may have one polling thread for each so many cores. A supervisor, a worker and a client together
/// then leave a quarter of the cores free, less one while there are many jobs ([`poll`]). On a host with fewer cores no
/// thread polls.
pub const CORES_PER_SPINNER: usize = 4;

/// The permits of this process.
static PERMITS: LazyLock<SpinPermits> = LazyLock::new(|| SpinPermits::new(spinners_max()));

/// The number of threads of this process that may poll at the same time on this host.
#[must_use]
pub fn spinners_max() -> usize {
    thread::available_parallelism().map_or(1, usize::from) / CORES_PER_SPINNER
}

/// Polls for at most `limit` until something is there, and returns whether it is. It takes no permit: this is for
/// the one thread of a supervisor through which all jobs pass while there are many. On a host where a process has
/// fewer than three permits it looks once.
pub fn poll(limit: Duration, is_there: impl FnMut() -> bool) -> bool {
    let limit = if PERMITS.max < 3 { Duration::ZERO } else { limit.min(SPIN_MAX) };
    poll_for(limit, is_there)
}

fn poll_for(limit: Duration, mut is_there: impl FnMut() -> bool) -> bool {
    let began = clock::now();
    loop {
        if is_there() {
            return true;
        }
        if began.elapsed() >= limit {
            return false;
        }
        hint::spin_loop();
    }
}

/// How to receive a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Return at once, with or without a message.
    Now,
    /// Sleep until a message arrives or the wait ends.
    Sleeping,
}

/// The polling rule of one waiting thread.
#[derive(Clone, Copy, Debug)]
pub struct SpinWait {
    limit: Duration,
    /// The last wait was short, so the next may be short, too.
    expects_soon: bool,
    permits: &'static SpinPermits,
}

impl SpinWait {
    /// Polls for at most `limit`, which is at most [`SPIN_MAX`]. With zero it never polls.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit: limit.min(SPIN_MAX), expects_soon: false, permits: &PERMITS }
    }

    /// Changes how long it polls.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit.min(SPIN_MAX);
    }

    /// Receives a message: polls if the last wait was short, then sleeps. `receive` returns `None` if there
    /// is no message now, or if its own timeout has passed.
    ///
    /// # Errors
    /// Those of `receive`.
    pub fn receive<T, E>(
        &mut self,
        mut receive: impl FnMut(Ask) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if self.limit.is_zero() {
            return receive(Ask::Sleeping);
        }
        let began = clock::now();
        let received = match self.poll(began, &mut receive)? {
            Some(message) => Some(message),
            None => receive(Ask::Sleeping)?,
        };
        self.learn(began.elapsed());
        Ok(received)
    }

    /// Polls, if the last wait was short and a permit is free.
    fn poll<T, E>(
        &self,
        began: Instant,
        receive: &mut impl FnMut(Ask) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if !self.expects_soon {
            return Ok(None);
        }
        let Some(_permit) = self.permits.take() else { return Ok(None) };
        loop {
            let received = receive(Ask::Now)?;
            if received.is_some() || began.elapsed() >= self.limit {
                return Ok(received);
            }
            hint::spin_loop();
        }
    }

    /// Decides from the last wait whether to poll in the next.
    fn learn(&mut self, waited: Duration) {
        self.expects_soon = waited < self.limit;
    }
}

/// Permits to poll.
#[derive(Debug)]
pub(crate) struct SpinPermits {
    taken: AtomicUsize,
    max: usize,
}

impl SpinPermits {
    pub(crate) const fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    /// Takes a permit, if one is free. The count guards no data, so relaxed ordering suffices.
    fn take(&self) -> Option<SpinPermit<'_>> {
        let more = |taken| (taken < self.max).then_some(taken + 1);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        took.ok().map(|_| SpinPermit(self))
    }
}

/// A taken permit.
struct SpinPermit<'a>(&'a SpinPermits);

impl Drop for SpinPermit<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::convert::Infallible;

    use super::*;

    static PLENTY: SpinPermits = SpinPermits::new(1_024);
    static NONE: SpinPermits = SpinPermits::new(0);

    /// A rule that polls at once on any host.
    pub(crate) fn eager() -> SpinWait {
        SpinWait { limit: SPIN_MAX, expects_soon: true, permits: &PLENTY }
    }

    /// How a thread asks for a message that arrives at the second poll, or else while it sleeps.
    fn asked(wait: &mut SpinWait) -> Vec<Ask> {
        let mut asked = Vec::new();
        let received = wait.receive(|ask| {
            asked.push(ask);
            Ok::<_, Infallible>((ask == Ask::Sleeping || asked.len() == 2).then_some("here"))
        });
        assert_eq!(received, Ok(Some("here")));
        asked
    }

    #[test]
    fn only_a_wait_shorter_than_the_limit_promises_another() {
        let mut wait = SpinWait { limit: Duration::from_micros(100), ..eager() };
        let cases = [(0, true), (99, true), (100, false), (5_000, false), (1, true)];
        for (waited, expects_soon) in cases {
            wait.learn(Duration::from_micros(waited));
            assert_eq!(wait.expects_soon, expects_soon, "{waited} µs");
        }
    }

    #[test]
    fn a_thread_polls_only_after_a_short_wait() {
        // Longer than any test takes, so that only the message can end the polling.
        let mut wait = SpinWait { limit: Duration::MAX, expects_soon: false, ..eager() };
        assert_eq!(asked(&mut wait), [Ask::Sleeping]);
        assert_eq!(asked(&mut wait), [Ask::Now, Ask::Now], "its last wait was short");
        wait.learn(Duration::MAX);
        assert_eq!(asked(&mut wait), [Ask::Sleeping]);
        assert!(!SpinWait::new(SPIN_MAX).expects_soon);
    }

    #[test]
    fn fruitless_polling_ends_at_its_limit_and_is_not_repeated() {
        let mut wait = SpinWait { limit: Duration::from_nanos(1), ..eager() };
        let mut last = None;
        let silence = wait.receive(|ask| {
            last = Some(ask);
            Ok::<_, Infallible>(None::<()>)
        });
        assert_eq!((silence, last), (Ok(None), Some(Ask::Sleeping)));
        assert_eq!(asked(&mut wait), [Ask::Sleeping]);
    }

    #[test]
    fn without_a_limit_or_a_free_permit_no_thread_polls() {
        let mut off = SpinWait { limit: Duration::ZERO, ..eager() };
        let mut without_permits = SpinWait { permits: &NONE, ..eager() };
        assert_eq!(asked(&mut off), [Ask::Sleeping]);
        assert_eq!(asked(&mut without_permits), [Ask::Sleeping]);
    }

    #[test]
    fn a_thread_without_a_permit_polls_until_something_is_there_or_its_limit() {
        let mut polls = 0;
        assert!(poll_for(Duration::MAX, || {
            polls += 1;
            polls == 3
        }));
        assert_eq!(polls, 3);
        assert!(!poll_for(Duration::from_nanos(1), || false));
        assert!(poll_for(Duration::ZERO, || true), "it looks once");
    }

    #[test]
    fn a_limit_above_the_longest_is_cut() {
        let mut wait = SpinWait::new(Duration::MAX);
        assert_eq!(wait.limit, SPIN_MAX);
        wait.set_limit(2 * SPIN_MAX);
        assert_eq!(wait.limit, SPIN_MAX);
    }

    #[test]
    fn a_permit_is_free_again_after_its_thread_has_polled() {
        let permits = SpinPermits::new(1);
        let permit = permits.take();
        assert!(permit.is_some() && permits.take().is_none());
        drop(permit);
        assert!(permits.take().is_some());
    }
}
