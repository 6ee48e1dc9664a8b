//! The requests that this worker has in hand, by attempt: so that one that still waits can be withdrawn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridpool_protocol::ids::AttemptId;
use gridpool_protocol::limits::JOIN_MAX;

use crate::infer::Ticket;

/// Most requests in hand: the supervisor's window is no larger.
pub(super) const IN_HAND_MAX: usize = JOIN_MAX;

/// Requests that were accepted and are not answered. The engine may answer one before it has said under
/// which ticket it waits: such a one has none here, and is never withdrawn.
#[derive(Clone, Debug, Default)]
pub(super) struct InHand {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    attempts: BTreeMap<AttemptId, Option<Ticket>>,
    /// Those that are not here any more, and whose answer may not be on its way yet.
    answering: usize,
}

/// An answer that is being sent.
#[derive(Debug)]
pub(super) struct Answering<'a>(&'a InHand);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.shared().answering -= 1;
    }
}

impl InHand {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request in hand. Whether there is room.
    pub(super) fn take(&self, attempt: AttemptId) -> bool {
        let attempts = &mut self.shared().attempts;
        let has_room = attempts.len() < IN_HAND_MAX;
        if has_room {
            attempts.insert(attempt, None);
        }
        has_room
    }

    /// The request waits under this ticket, unless it was answered meanwhile.
    pub(super) fn waits(&self, attempt: AttemptId, ticket: Ticket) {
        if let Some(place) = self.shared().attempts.get_mut(&attempt) {
            *place = Some(ticket);
        }
    }

    /// The request is forgotten, before it is answered: the supervisor may send another for it at once.
    #[must_use = "it is being answered as long as this lives"]
    pub(super) fn answers(&self, attempt: AttemptId) -> Answering<'_> {
        let mut shared = self.shared();
        shared.attempts.remove(&attempt);
        shared.answering += 1;
        drop(shared);
        Answering(self)
    }

    /// Whether every request is answered.
    pub(super) fn is_empty(&self) -> bool {
        let shared = self.shared();
        shared.attempts.is_empty() && shared.answering == 0
    }

    /// Withdraws those of these requests that still wait, or the parts of them that do.
    pub(super) fn withdraw(&self, attempts: &[AttemptId]) {
        for attempt in attempts {
            // Not under the lock: who is withdrawn is answered, and forgotten here.
            let ticket = self.shared().attempts.get(attempt).cloned().flatten();
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
        let in_hand = InHand::default();
        assert!(in_hand.take(attempt(1)));
        let answering = in_hand.answers(attempt(1));
        in_hand.waits(attempt(1), Ticket::of_nobody());
        assert!(in_hand.shared().attempts.is_empty());
        assert!(!in_hand.is_empty(), "its answer is not on its way");
        drop(answering);
        assert!(in_hand.is_empty());
        in_hand.withdraw(&[attempt(1)]);
    }

    #[test]
    fn there_is_room_for_so_many_and_again_for_one_when_one_is_being_answered() {
        let in_hand = InHand::default();
        let most = u32::try_from(IN_HAND_MAX).unwrap();
        assert!((0..most).all(|number| in_hand.take(attempt(number))));
        assert!(!in_hand.take(attempt(most)));
        let _answering = in_hand.answers(attempt(0));
        assert!(in_hand.take(attempt(most)) && !in_hand.take(attempt(most + 1)));
    }
}
