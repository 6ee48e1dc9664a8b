//! Counts what is refused to clients, by reason, and says so in the log: one line for each reason and [`LOG_EVERY`],
//! however many clients there are.

use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;

/// A line in the log for each reason comes at most this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Why something is refused: an enum without data.
pub(crate) trait Reason: Copy {
    /// The names of all, in their order.
    const NAMES: &'static [&'static str];
    /// What the log says, without the reason.
    const SAYS: &'static str;

    /// Its place in that order.
    fn place(self) -> usize;
}

/// Defines the reasons of one place, with their names.
macro_rules! reasons {
    ($(#[$about:meta])* enum $Reason:ident says $says:literal { $($reason:ident = $name:literal),* $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $Reason {
            $($reason),*
        }

        impl $crate::refusals::Reason for $Reason {
            const NAMES: &'static [&'static str] = &[$($name),*];
            const SAYS: &'static str = $says;

            fn place(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use reasons;

/// The counts since this process started.
#[derive(Debug)]
pub(crate) struct Refusals<R> {
    counts: Vec<Count>,
    reasons: PhantomData<fn(R)>,
}

#[derive(Debug, Default)]
struct Count {
    all: AtomicU64,
    log: Mutex<Logged>,
}

/// Whether a line that could come often is due: at most one in [`LOG_EVERY`].
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether to write it now.
    pub(crate) fn is_due(&self) -> bool {
        let (now, mut last) = (clock::now(), self.0.lock());
        let is_due = last.is_none_or(|last| now.duration_since(last) >= LOG_EVERY);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[derive(Debug, Default)]
struct Logged {
    last: Option<Instant>,
    /// Refusals since the last line.
    since: u64,
}

impl<R: Reason> Default for Refusals<R> {
    fn default() -> Self {
        let counts = R::NAMES.iter().map(|_| Count::default()).collect();
        Self { counts, reasons: PhantomData }
    }
}

impl<R: Reason> Refusals<R> {
    /// Counts one of `whom`.
    pub(crate) fn note(&self, reason: R, whom: &dyn Display) {
        let count = &self.counts[reason.place()];
        count.all.fetch_add(1, Ordering::Relaxed);
        let mut log = count.log.lock();
        log.since += 1;
        let now = clock::now();
        if log.last.is_none_or(|last| now.duration_since(last) >= LOG_EVERY) {
            let refused = std::mem::take(&mut log.since);
            log.last = Some(now);
            drop(log);
            let reason = R::NAMES[reason.place()];
            tracing::warn!(reason, refused, last = %whom, "{}", R::SAYS);
        }
    }

    /// The counts by reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.iter().map(|count| count.all.load(Ordering::Relaxed));
        R::NAMES.iter().copied().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    reasons! {
        enum Fruit says "fruits are refused" { Apple = "apple", Pear = "pear" }
    }

    #[test]
    fn each_reason_is_counted_in_its_place() {
        let refusals = Refusals::default();
        (0..3).for_each(|_| refusals.note(Fruit::Pear, &"one"));
        let counts = refusals.counts();
        assert_eq!(counts.collect::<Vec<_>>(), [("apple", 0), ("pear", 3)]);
        assert_eq!(refusals.counts[Fruit::Pear.place()].log.lock().since, 2, "one line for all");
        assert_eq!(Fruit::Apple.place(), 0);
    }
}
