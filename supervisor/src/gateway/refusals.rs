//! Counts what the gateway refuses, by reason, and says so in the log: one line for each reason and
//! [`LOG_EVERY`], however many clients there are.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;

use super::limits::LOG_EVERY;

/// Why a request or a connection is refused, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    BodiesFull,
    BodiesOwn,
    ConnectionsFull,
    ConnectionsOwn,
    ContentType,
    Evicted,
    Handshake,
    Host,
    RequestsFull,
    RequestsOwn,
    Scope,
    SlowAnswer,
    SlowBody,
    SlowHead,
    Token,
    User,
    WebPage,
}

impl Reason {
    /// All of them, with the label of the metric.
    pub(super) const ALL: [(Self, &'static str); 17] = [
        (Self::BodiesFull, "bodies_full"),
        (Self::BodiesOwn, "bodies_own"),
        (Self::ConnectionsFull, "connections_full"),
        (Self::ConnectionsOwn, "connections_own"),
        (Self::ContentType, "content_type"),
        (Self::Evicted, "evicted"),
        (Self::Handshake, "handshake"),
        (Self::Host, "host"),
        (Self::RequestsFull, "requests_full"),
        (Self::RequestsOwn, "requests_own"),
        (Self::Scope, "scope"),
        (Self::SlowAnswer, "slow_answer"),
        (Self::SlowBody, "slow_body"),
        (Self::SlowHead, "slow_head"),
        (Self::Token, "token"),
        (Self::User, "user"),
        (Self::WebPage, "web_page"),
    ];
}

/// The counts since this process started.
#[derive(Debug, Default)]
pub(super) struct Refusals([Count; Reason::ALL.len()]);

#[derive(Debug, Default)]
struct Count {
    all: AtomicU64,
    log: Mutex<Logged>,
}

#[derive(Debug, Default)]
struct Logged {
    last: Option<Instant>,
    /// Refusals since the last line.
    since: u64,
}

impl Refusals {
    /// Counts one of `whom`.
    pub(super) fn note(&self, reason: Reason, whom: &dyn Display) {
        let count = &self.0[reason as usize];
        count.all.fetch_add(1, Ordering::Relaxed);
        let mut log = count.log.lock();
        log.since += 1;
        let now = clock::now();
        if log.last.is_none_or(|last| now.duration_since(last) >= LOG_EVERY) {
            let refused = std::mem::take(&mut log.since);
            log.last = Some(now);
            drop(log);
            let (_, reason) = Reason::ALL[reason as usize];
            tracing::warn!(reason, refused, last = %whom, "HTTP clients are refused");
        }
    }

    /// The counts by reason.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.all.load(Ordering::Relaxed));
        Reason::ALL.iter().map(|&(_, name)| name).zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_in_its_place() {
        for (place, (reason, _)) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
        let refusals = Refusals::default();
        (0..3).for_each(|_| refusals.note(Reason::Host, &"one"));
        let counts = refusals.counts().filter(|&(_, count)| count > 0);
        assert_eq!(counts.collect::<Vec<_>>(), [("host", 3)]);
        assert_eq!(refusals.0[Reason::Host as usize].log.lock().since, 2, "one line for them all");
    }
}
