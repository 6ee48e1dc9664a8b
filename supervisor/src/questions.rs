//! How often clients ask. A question costs the pool far more than its client, so each client has a rate of questions
//! over all its connections. One that asks faster is answered later: its connection is not read meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gridpool_ipc::mutex::Mutex;

/// Questions of one client in a second.
pub(crate) const QUESTIONS_PER_S: u32 = 100;
/// Those of so long a time may come at once.
const BURST: Duration = Duration::from_secs(1);

/// For each client who has asked lately, the time until which its questions would last at the rate.
#[derive(Debug)]
pub(crate) struct Questions<K>(Mutex<BTreeMap<K, Instant>>);

impl<K> Default for Questions<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord> Questions<K> {
    /// How long a client's next question has to wait, which came at `now`. Counts it, at a rate of so many a second.
    pub(crate) fn take(&self, client: K, per_s: u32, now: Instant) -> Duration {
        let mut clients = self.0.lock();
        clients.retain(|_, lasts| *lasts > now);
        let lasts = clients.entry(client).or_insert(now);
        *lasts += Duration::from_secs(1) / per_s;
        lasts.duration_since(now).saturating_sub(BURST)
    }

    /// A question was not answered after all.
    pub(crate) fn give_back(&self, client: &K, per_s: u32) {
        if let Some(lasts) = self.0.lock().get_mut(client) {
            *lasts -= Duration::from_secs(1) / per_s;
        }
    }

    /// Those who have asked lately.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}
