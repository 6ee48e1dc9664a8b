//! Jobs that no host may run any more: in a bucket of the cluster.
//!
//! A pool that convicts a job says so here, and every host and client knows within moments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::kv::{Entry, Operation, Store};
use bytes::Bytes;
use futures_util::StreamExt;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::ContentHash;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use crate::NatsError;
use crate::bucket::entries;
use crate::streams::POISON_AGE;

/// What begins the keys of convicted contents.
const CONVICTED: &str = "convicted.";
/// All of them.
const ALL_CONVICTED: &str = "convicted.*";
/// Convictions that a process remembers; one more, and the oldest is forgotten.
const CONVICTED_MAX: usize = 16_384;
/// Releases that may wait until a pool is told. One more, and the first is told when such a job comes to the pool.
const RELEASES_MAX: usize = 1_024;
/// Between the end of a watch and the next one.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);
/// How long a watch may be silent before it is asked whether the bucket is still the one that it is of.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// Why a content is convicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conviction {
    /// The host that convicted it.
    pub host: String,
    /// The key of the job.
    pub job: String,
    /// A sentence.
    pub reason: String,
    /// The hash that pools have of the content, which their logs and refusals name; empty if none has convicted it.
    #[serde(default)]
    pub pool: String,
}

impl Conviction {
    /// How a conviction of this content is taken back.
    #[must_use]
    pub fn advice(content: ContentHash) -> String {
        format!("`gridpool cluster release {content}` allows it again")
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Poison {
    store: Store,
    known: Arc<Mutex<Known>>,
    releases: Sender<ContentHash>,
}

/// What this process has heard.
#[derive(Debug, Default)]
struct Known {
    /// By content: why, and when it was heard.
    convicted: BTreeMap<String, (Conviction, Instant)>,
    /// Contents that were convicted, and are not any more.
    released: BTreeSet<String>,
}

impl Known {
    fn why(&self, content: &str, now: Instant) -> Option<&Conviction> {
        let (why, heard) = self.convicted.get(content)?;
        (now.duration_since(*heard) < POISON_AGE).then_some(why)
    }

    fn convict(&mut self, content: &str, why: Conviction, now: Instant) {
        if self.convicted.len() >= CONVICTED_MAX {
            let oldest = self.convicted.iter().min_by_key(|(_, (_, heard))| *heard);
            let oldest = oldest.map(|(content, _)| content.clone());
            oldest.map(|content| self.convicted.remove(&content));
        }
        self.released.remove(content);
        self.convicted.insert(content.to_owned(), (why, now));
    }

    /// Returns the hash that pools have of what was convicted until now.
    fn release(&mut self, content: &str) -> Option<ContentHash> {
        let convicted = self.convicted.remove(content);
        while self.released.len() >= CONVICTED_MAX {
            self.released.pop_first();
        }
        self.released.insert(content.to_owned());
        convicted.and_then(|(why, _)| why.pool.parse().ok())
    }
}

impl Poison {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, known: Arc::default(), releases: channel(RELEASES_MAX).0 }
    }

    /// Learns of convictions, from now on until the connection ends.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn follow(&self) -> Result<(), NatsError> {
        let failed = "convictions cannot be followed";
        let watch = self.store.watch_with_history(ALL_CONVICTED).await;
        let mut changes = watch.map_err(NatsError::jetstream(failed))?;
        let following = self.clone();
        tokio::spawn(async move {
            let store = &following.store;
            let mut made = store.stream.cached_info().created;
            loop {
                let of = match timeout(SILENT_FOR, changes.next()).await {
                    Ok(Some(change)) => {
                        match change {
                            Ok(entry) => following.note(&entry),
                            Err(error) => tracing::debug!(%error, "convictions"),
                        }
                        continue;
                    }
                    // The server has ended it.
                    Ok(None) => {
                        sleep(FOLLOW_AGAIN).await;
                        made
                    }
                    // A bucket that was made anew counts from one, and this waits for the old one's next number.
                    Err(_) => match store.stream.get_info().await {
                        Ok(info) if info.created != made => info.created,
                        Ok(_) => continue,
                        Err(error) => {
                            tracing::debug!(%error, "whether the bucket is there");
                            continue;
                        }
                    },
                };
                match store.watch_with_history(ALL_CONVICTED).await {
                    Ok(again) => (changes, made) = (again, of),
                    Err(error) => tracing::debug!(%error, "convictions"),
                }
            }
        });
        Ok(())
    }

    /// The hashes that pools have of contents whose convictions are taken back from now on.
    #[must_use]
    pub fn releases(&self) -> Receiver<ContentHash> {
        self.releases.subscribe()
    }

    /// Why a content is convicted, if it is.
    #[must_use]
    pub fn of(&self, content: ContentHash) -> Option<Conviction> {
        self.known.lock().why(&content.to_string(), clock::now()).cloned()
    }

    /// Whether an operator has taken a conviction of it back.
    #[must_use]
    pub fn was_released(&self, content: ContentHash) -> bool {
        self.known.lock().released.contains(&content.to_string())
    }

    /// All convictions, by content.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn list(&self) -> Result<Vec<(String, Conviction)>, NatsError> {
        let all = entries(&self.store, CONVICTED).await?.into_iter();
        let parse = |(key, value): (String, Bytes)| {
            let content = key.strip_prefix(CONVICTED)?.to_owned();
            Some((content, serde_json::from_slice(&value).ok()?))
        };
        Ok(all.filter_map(parse).collect())
    }

    /// Convicts a content for all hosts.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn convict(&self, content: ContentHash, why: &Conviction) -> Result<(), NatsError> {
        self.known.lock().convict(&content.to_string(), why.clone(), clock::now());
        let value = serde_json::to_vec(why).expect("texts have a JSON form");
        let put = self.store.put(format!("{CONVICTED}{content}"), value.into()).await;
        put.map(drop).map_err(NatsError::jetstream("a conviction cannot be stored"))
    }

    /// Takes a conviction back: that of a content, or of the one that pools have this hash of. Returns the hash of the
    /// one that was in the bucket, if there was one. If the servers have lost it, hosts and clients may remember it:
    /// they hear that it is taken back all the same.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn release(&self, content: ContentHash) -> Result<Option<String>, NatsError> {
        let failed = "a conviction cannot be removed";
        let content = content.to_string();
        let key = format!("{CONVICTED}{content}");
        let there = self.store.get(&key).await.map_err(NatsError::jetstream(failed))?;
        let there = match there {
            Some(_) => Some(content),
            None => {
                let mut all = self.list().await?.into_iter();
                all.find(|(_, why)| why.pool == content).map(|(own, _)| own)
            }
        };
        let key = there.as_ref().map_or(key, |own| format!("{CONVICTED}{own}"));
        self.store.purge(&key).await.map_err(NatsError::jetstream(failed))?;
        Ok(there)
    }

    fn note(&self, entry: &Entry) {
        let Some(content) = entry.key.strip_prefix(CONVICTED) else { return };
        match (entry.operation, serde_json::from_slice(&entry.value)) {
            (Operation::Put, Ok(why)) => {
                let taken = entry.created.unix_timestamp();
                let since = since(taken, clock::time_of_day(), clock::now());
                self.known.lock().convict(content, why, since);
            }
            (Operation::Put, Err(error)) => {
                tracing::warn!(%error, key = entry.key, "a conviction");
            }
            (Operation::Delete | Operation::Purge, _) => {
                let released = self.known.lock().release(content);
                if let Some(content) = released {
                    // A client has no pool that it would tell, so nobody may listen.
                    let _listeners = self.releases.send(content).unwrap_or(0);
                }
            }
        }
    }
}

/// The time at which a bucket took something, in seconds since 1970, on this machine's clock: what is heard of again is
/// as old as before.
fn since(taken_s: i64, now: SystemTime, monotonic: Instant) -> Instant {
    let taken = UNIX_EPOCH + Duration::from_secs(u64::try_from(taken_s).unwrap_or(0));
    let age = now.duration_since(taken).unwrap_or_default();
    monotonic.checked_sub(age).unwrap_or(monotonic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why() -> Conviction {
        let pool = ContentHash([7; 32]).to_string();
        Conviction { host: "a".into(), job: "1".into(), reason: "it".into(), pool }
    }

    #[test]
    fn a_conviction_that_is_followed_again_is_as_old_as_before() {
        let (mut known, now, wall) = (Known::default(), clock::now(), clock::time_of_day());
        let today = wall.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let taken = |days: u64| i64::try_from(today - days * 24 * 3_600).unwrap();
        for (content, days) in [("old", 31), ("young", 29), ("ahead", 0)] {
            known.convict(content, why(), since(taken(days) + 5, wall, now));
        }
        assert!(known.why("old", now).is_none());
        assert!(known.why("young", now).is_some() && known.why("ahead", now).is_some());
        assert!(known.why("young", now + Duration::from_secs(2 * 24 * 3_600)).is_none());
    }

    #[test]
    fn convictions_end_with_their_release_and_with_their_age() {
        let (mut known, now) = (Known::default(), clock::now());
        known.convict("one", why(), now);
        known.convict("two", why(), now);
        assert_eq!(known.release("one"), Some(ContentHash([7; 32])));
        assert_eq!(known.release("one"), None, "pools are told once");
        assert!(known.released.contains("one") && !known.convicted.contains_key("one"));
        known.convict("one", why(), now + POISON_AGE);
        assert!(!known.released.contains("one"), "it is convicted again");
        let later = now + POISON_AGE;
        assert!(known.why("one", later).is_some());
        assert!(known.why("two", now).is_some() && known.why("two", later).is_none());
    }

    #[test]
    fn there_is_a_limit_to_what_is_remembered() {
        let (mut known, now) = (Known::default(), clock::now());
        for content in 0..CONVICTED_MAX {
            known.convicted.insert(content.to_string(), (why(), now + Duration::from_secs(1)));
        }
        known.convicted.insert("0".into(), (why(), now));
        known.convict("new", why(), now + Duration::from_secs(2));
        assert_eq!(known.convicted.len(), CONVICTED_MAX);
        assert!(known.convicted.contains_key("new") && !known.convicted.contains_key("0"));
    }
}
