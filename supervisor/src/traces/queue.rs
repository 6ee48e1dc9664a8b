//! Spans that wait to be sent: a limited number. A span that finds no room is dropped.

use std::collections::VecDeque;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use opentelemetry_proto::tonic::trace::v1::Span;

/// Spans that may wait.
pub(super) const SPANS_MAX: usize = 8_192;
/// Spans that are sent together.
pub(super) const BATCH_MAX: usize = 512;
/// How long a span waits for others.
pub(super) const BATCH_EVERY: Duration = Duration::from_secs(1);

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    spans: VecDeque<Span>,
    /// When the oldest came, or the last batch left.
    since: Option<Instant>,
    /// No more come.
    is_closed: bool,
}

impl Queue {
    /// Adds spans of a packet: all of them, or none. Returns whether there was room.
    pub(super) fn put(&self, spans: Vec<Span>) -> bool {
        let mut state = self.state.lock();
        if state.spans.len() + spans.len() > SPANS_MAX {
            return false;
        }
        state.spans.extend(spans);
        state.since.get_or_insert_with(clock::now);
        self.changed.notify_all();
        true
    }

    /// No more spans come.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Waits for a batch: as many spans as one may have, or those that there are when the first has waited for long.
    /// `None` if it is closed and empty.
    pub(super) fn batch(&self) -> Option<Vec<Span>> {
        let mut state = self.state.lock();
        loop {
            let due = state.since.map(|since| clock::until(since + BATCH_EVERY));
            let is_due = due.is_some_and(|due| due.is_zero()) || state.is_closed;
            if state.spans.is_empty() && state.is_closed {
                return None;
            }
            if state.spans.len() >= BATCH_MAX || (is_due && !state.spans.is_empty()) {
                let count = state.spans.len().min(BATCH_MAX);
                let batch = state.spans.drain(..count).collect();
                state.since = (!state.spans.is_empty()).then(clock::now);
                return Some(batch);
            }
            state = self.wait(state, due);
        }
    }

    /// Waits for a while, or until it is closed.
    pub(super) fn pause(&self, pause: Duration) {
        let state = self.state.lock();
        let open = |state: &mut State| !state.is_closed;
        let waited = self.changed.wait_timeout_while(state, pause, open);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        due: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match due {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(due) => {
                let waited = self.changed.wait_timeout(state, due);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(count: usize) -> Vec<Span> {
        vec![Span::default(); count]
    }

    #[test]
    fn a_full_queue_takes_no_part_of_a_packet() {
        let queue = Queue::default();
        assert!(queue.put(spans(SPANS_MAX - 1)));
        assert!(!queue.put(spans(2)) && queue.put(spans(1)) && !queue.put(spans(1)));
        assert_eq!(queue.batch().unwrap().len(), BATCH_MAX);
        assert!(queue.put(spans(BATCH_MAX)));
    }

    #[test]
    fn a_batch_is_as_large_as_it_may_or_as_old_and_a_closed_queue_gives_the_rest() {
        let queue = Queue::default();
        queue.put(spans(BATCH_MAX + 1));
        assert_eq!(queue.batch().unwrap().len(), BATCH_MAX);
        let began = clock::now();
        assert_eq!(queue.batch().unwrap().len(), 1);
        assert!(began.elapsed() >= BATCH_EVERY / 2, "it waited for others");
        queue.put(spans(3));
        queue.close();
        assert_eq!(queue.batch().unwrap().len(), 3);
        assert!(queue.batch().is_none());
        let began = clock::now();
        queue.pause(Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
