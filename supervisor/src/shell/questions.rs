//! How often users ask. A question costs the pool far more than it costs its client, so each user has a rate of
//! questions over all its connections. One that asks faster is answered later: its connection is not read meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gridpool_ipc::account::Account;
use gridpool_ipc::mutex::Mutex;

use super::clients::Peer;

/// Questions of one user in a second.
const QUESTIONS_PER_S: u32 = 100;
/// The same of one who may change the pool, and of the pool's own gateway and bridge.
const OPERATOR_QUESTIONS_PER_S: u32 = 1_000;
/// Those of so long a time may come at once.
const BURST: Duration = Duration::from_secs(1);

/// For each user who has asked lately, the time until which its questions would last at the rate. The processes of the
/// pool are counted apart from its user.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<BTreeMap<(u32, Peer), Instant>>);

impl Questions {
    /// How long a user's next question has to wait, which came at `now`. Counts it.
    pub(super) fn take(&self, (account, peer): (Account, Peer), now: Instant) -> Duration {
        let mut users = self.0.lock();
        users.retain(|_, lasts| *lasts > now);
        let lasts = users.entry((account.uid(), peer)).or_insert(now);
        *lasts += takes(peer);
        lasts.duration_since(now).saturating_sub(BURST)
    }

    /// A question was not answered after all.
    pub(super) fn give_back(&self, (account, peer): (Account, Peer)) {
        if let Some(lasts) = self.0.lock().get_mut(&(account.uid(), peer)) {
            *lasts -= takes(peer);
        }
    }
}

/// How long one question lasts at the rate of who asks it.
fn takes(peer: Peer) -> Duration {
    let rate = match peer {
        Peer::Client => QUESTIONS_PER_S,
        Peer::Bridge | Peer::Gateway | Peer::Operator => OPERATOR_QUESTIONS_PER_S,
    };
    Duration::from_secs(1) / rate
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
        assert_eq!(questions.0.lock().len(), 1);
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
