//! The clock by which clients are judged. It stands while the gateway does not run: on a starved machine, or stopped.
//!
//! A task ticks each [`ATTENDS_EVERY`]. When a tick comes late, the gateway read no socket meanwhile, and what a client
//! sent may lie there: the clock counts one interval at most between two ticks.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use tokio::time::sleep;

use super::limits::ATTENDS_EVERY;

static ATTENTION: Mutex<Option<Attention>> = Mutex::new(None);

#[derive(Clone, Copy, Debug)]
struct Attention {
    ticked: Instant,
    /// The time before that tick in which the gateway did not run.
    absent: Duration,
}

impl Attention {
    fn new(now: Instant) -> Self {
        Self { ticked: now, absent: Duration::ZERO }
    }

    fn absent(self, now: Instant) -> Duration {
        self.absent + now.saturating_duration_since(self.ticked).saturating_sub(ATTENDS_EVERY)
    }

    fn tick(&mut self, now: Instant) {
        *self = Self { ticked: now, absent: self.absent(now) };
    }

    fn at(self, now: Instant) -> Instant {
        now.checked_sub(self.absent(now)).unwrap_or(now)
    }
}

/// Now, by that clock. Without [`keep`] it is the time.
pub(super) fn now() -> Instant {
    let now = clock::now();
    ATTENTION.lock().map_or(now, |attention| attention.at(now))
}

/// The time by that clock since a time of it.
pub(super) fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// Ticks until the task is aborted.
pub(super) async fn keep() {
    loop {
        let now = clock::now();
        ATTENTION.lock().get_or_insert(Attention::new(now)).tick(now);
        sleep(ATTENDS_EVERY).await;
    }
}

/// Waits until a time of that clock.
pub(super) async fn sleep_until(until: Instant) {
    loop {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        sleep(left).await;
    }
}

/// Waits for work so long by that clock; `None` if it is not done by then.
pub(super) async fn timeout<T>(most: Duration, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut over) = (pin!(work), pin!(sleep_until(now() + most)));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => over.as_mut().poll(cx).map(|()| None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_gateway_did_not_run_does_not_count() {
        let began = clock::now();
        let second = Duration::from_secs(1);
        let mut attention = Attention::new(began);
        let so_far = |attention: Attention, now| attention.at(now) - began;
        // In good time: all of it.
        for tick in 1..=8 {
            attention.tick(began + ATTENDS_EVERY * tick);
        }
        let ran = ATTENDS_EVERY * 8;
        assert_eq!(so_far(attention, began + ran), ran);
        assert_eq!(so_far(attention, began + ran + ATTENDS_EVERY / 2), ran + ATTENDS_EVERY / 2);
        // Stopped for long, before the next tick and after it.
        let stopped = began + ran + second * 60;
        assert_eq!(so_far(attention, stopped), ran + ATTENDS_EVERY);
        attention.tick(stopped);
        assert_eq!(so_far(attention, stopped), ran + ATTENDS_EVERY);
        assert_eq!(so_far(attention, stopped + ATTENDS_EVERY), ran + ATTENDS_EVERY * 2);
    }
}
