//! The requests in flight at this worker, by attempt, so that a waiting one can be withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_infer::Ticket;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::AttemptId;
use gridpool_protocol::limits::JOIN_MAX;

/// Most requests in flight: the supervisor's window is no larger.
pub(super) const IN_FLIGHT_MAX: usize = JOIN_MAX;

/// Requests that were accepted and not yet answered. The engine may answer a request before it returns the
/// request's ticket. Such a request has no ticket here and cannot be withdrawn.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    shared: Arc<Mutex<Requests>>,
}

#[derive(Debug, Default)]
struct Requests {
    attempts: BTreeMap<AttemptId, Option<Ticket>>,
    /// Requests that were removed, but whose answer may not be sent yet.
    answering: usize,
}

/// An answer that is being sent.
#[derive(Debug)]
pub(super) struct Answering<'a>(&'a InFlight);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().answering -= 1;
    }
}

impl InFlight {
    /// Adds a request. Returns whether there was capacity.
    pub(super) fn take(&self, attempt: AttemptId) -> bool {
        let attempts = &mut self.shared.lock().attempts;
        let has_capacity = attempts.len() < IN_FLIGHT_MAX;
        if has_capacity {
            attempts.insert(attempt, None);
        }
        has_capacity
    }

    /// Sets the ticket of a waiting request, unless it was answered meanwhile.
    pub(super) fn waits(&self, attempt: AttemptId, ticket: Ticket) {
        if let Some(place) = self.shared.lock().attempts.get_mut(&attempt) {
            *place = Some(ticket);
        }
    }

    /// Removes a request before it is answered, because the supervisor may send another one at once.
    #[must_use = "it is being answered as long as this lives"]
    pub(super) fn answers(&self, attempt: AttemptId) -> Answering<'_> {
        let mut shared = self.shared.lock();
        shared.attempts.remove(&attempt);
        shared.answering += 1;
        drop(shared);
        Answering(self)
    }

    /// Whether every request is answered.
    pub(super) fn is_empty(&self) -> bool {
        let shared = self.shared.lock();
        shared.attempts.is_empty() && shared.answering == 0
    }

    /// Withdraws those of these requests that still wait, or the parts of them that do.
    pub(super) fn withdraw(&self, attempts: &[AttemptId]) {
        for attempt in attempts {
            // Without the lock: a request that is withdrawn is answered and removed here.
            let ticket = self.shared.lock().attempts.get(attempt).cloned().flatten();
            let waited = ticket.is_some_and(|ticket| ticket.cancel());
            let AttemptId { job, number } = attempt;
            tracing::debug!(%job, attempt = number, waited, "withdrawn");
        }
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
    fn a_request_that_is_answered_before_its_ticket_comes_is_forgotten_for_good() {
        let in_flight = InFlight::default();
        assert!(in_flight.take(attempt(1)));
        let answering = in_flight.answers(attempt(1));
        in_flight.waits(attempt(1), Ticket::default());
        assert!(in_flight.shared.lock().attempts.is_empty());
        assert!(!in_flight.is_empty(), "its answer is not on its way");
        drop(answering);
        assert!(in_flight.is_empty());
        in_flight.withdraw(&[attempt(1)]);
    }

    #[test]
    fn the_limit_counts_requests_until_they_are_being_answered() {
        let in_flight = InFlight::default();
        let most = u32::try_from(IN_FLIGHT_MAX).unwrap();
        assert!((0..most).all(|number| in_flight.take(attempt(number))));
        assert!(!in_flight.take(attempt(most)));
        let _answering = in_flight.answers(attempt(0));
        assert!(in_flight.take(attempt(most)) && !in_flight.take(attempt(most + 1)));
    }
}
