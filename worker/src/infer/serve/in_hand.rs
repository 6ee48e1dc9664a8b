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
            tracing::debug!(%attempt, waited, "withdrawn");
        }
    }
}
