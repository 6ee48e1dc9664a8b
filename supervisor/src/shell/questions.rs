//! How often users ask the supervisor: each at a rate, over all its connections.

use std::time::{Duration, Instant};

use gridpool_ipc::account::Account;

use super::clients::Peer;
use crate::questions::{self, QUESTIONS_PER_S};

/// Questions in a second of one who may change the pool, and of the pool's own gateway and bridge.
const OPERATOR_QUESTIONS_PER_S: u32 = 1_000;

/// The processes of the pool are counted apart from its user.
#[derive(Debug, Default)]
pub(super) struct Questions(questions::Questions<(u32, Peer)>);

impl Questions {
    /// How long a user's next question has to wait, which came at `now`. Counts it.
    pub(super) fn take(&self, (account, peer): (Account, Peer), now: Instant) -> Duration {
        self.0.take((account.uid(), peer), rate(peer), now)
    }

    /// A question was not answered after all.
    pub(super) fn give_back(&self, (account, peer): (Account, Peer)) {
        self.0.give_back(&(account.uid(), peer), rate(peer));
    }
}

/// The rate of who asks, a second.
fn rate(peer: Peer) -> u32 {
    match peer {
        Peer::Client => QUESTIONS_PER_S,
        Peer::Bridge | Peer::Gateway | Peer::Operator => OPERATOR_QUESTIONS_PER_S,
    }
}

#[cfg(test)]
mod tests {
    use gridpool_ipc::clock;

    use super::*;

    #[test]
    fn a_user_may_ask_some_at_once_and_then_at_a_rate_whatever_others_ask() {
        let questions = Questions::default();
        let now = clock::now();
        let after = |uid, ms| {
            let at = now + Duration::from_millis(ms);
            questions.take((Account::new(uid), Peer::Client), at)
        };
        assert!((0..100).all(|_| after(1, 0).is_zero()));
        assert_eq!([after(1, 0), after(1, 0)], [10, 20].map(Duration::from_millis));
        // Those of a connection that is gone do not count.
        questions.give_back((Account::new(1), Peer::Client));
        assert_eq!(after(1, 0), Duration::from_millis(20));
        assert_eq!(after(2, 0), Duration::ZERO);
        // It has waited for as long as that, and for one more.
        assert_eq!([after(1, 30), after(1, 30)], [0, 10].map(Duration::from_millis));
        // Who asks nothing is forgotten, and may ask as many again.
        assert!((0..100).all(|_| after(2, 5_000).is_zero()));
        assert_eq!(questions.0.count(), 1);
    }

    #[test]
    fn operators_may_ask_more_and_are_not_held_up_by_the_pools_own_processes() {
        let questions = Questions::default();
        let now = clock::now();
        let ask = |peer| questions.take((Account::new(1), peer), now);
        assert!((0..1_000).all(|_| ask(Peer::Gateway).is_zero()));
        assert_eq!(ask(Peer::Gateway), Duration::from_millis(1));
        assert!((0..1_000).all(|_| ask(Peer::Operator).is_zero()));
    }
}
