//! The requests in flight at this worker: how many it accepts, and when the last is answered.

use std::sync::Arc;

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::AttemptId;
use gridpool_protocol::limits::JOIN_MAX;

use crate::cancels::Cancels;

/// Most requests in flight: the supervisor's window is no larger.
pub(super) const IN_FLIGHT_MAX: usize = JOIN_MAX;

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    cancels: Cancels,
    /// Requests that have ended, but whose answer may not be sent yet.
    answering: Arc<Mutex<usize>>,
}

/// An answer that is being sent.
#[derive(Debug)]
pub(super) struct Answering<'a>(&'a InFlight);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        *self.0.answering.lock() -= 1;
    }
}

impl InFlight {
    pub(super) fn new(cancels: Cancels) -> Self {
        Self { cancels, answering: Arc::default() }
    }

    /// Adds a request. Returns whether there was capacity.
    pub(super) fn take(&self, attempt: AttemptId) -> bool {
        let has_capacity = self.cancels.running() < IN_FLIGHT_MAX;
        if has_capacity {
            self.cancels.begin(attempt);
        }
        has_capacity
    }

    /// Removes a request before it is answered, because the supervisor may send another one at once.
    #[must_use = "it is being answered as long as this lives"]
    pub(super) fn answers(&self, attempt: AttemptId) -> Answering<'_> {
        *self.answering.lock() += 1;
        self.cancels.end(attempt);
        Answering(self)
    }

    /// Whether every request is answered.
    pub(super) fn is_empty(&self) -> bool {
        self.cancels.running() == 0 && *self.answering.lock() == 0
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::ids::JobId;

    use super::*;

    fn attempt(number: u32) -> AttemptId {
        AttemptId { job: JobId(1), number }
    }

    #[test]
    fn a_worker_has_requests_until_the_last_answer_is_on_its_way() {
        let in_flight = InFlight::new(Cancels::default());
        assert!(in_flight.take(attempt(1)));
        let answering = in_flight.answers(attempt(1));
        assert!(!in_flight.is_empty(), "its answer is not on its way");
        drop(answering);
        assert!(in_flight.is_empty());
    }

    #[test]
    fn the_limit_counts_requests_until_they_are_being_answered() {
        let in_flight = InFlight::new(Cancels::default());
        let most = u32::try_from(IN_FLIGHT_MAX).unwrap();
        assert!((0..most).all(|number| in_flight.take(attempt(number))));
        assert!(!in_flight.take(attempt(most)));
        let _answering = in_flight.answers(attempt(0));
        assert!(in_flight.take(attempt(most)) && !in_flight.take(attempt(most + 1)));
    }
}
