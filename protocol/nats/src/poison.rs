//! Jobs that no host may run any more, and jobs under suspicion: a bucket of the cluster.
//!
//! A pool that convicts a job says so here, and every host and client knows within moments. A job whose hosts vanished
//! several times runs alone on its host; if two hosts vanish while it runs there alone, it is convicted, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Store};
use bytes::Bytes;
use futures_util::StreamExt;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::{ContentHash, JobKey};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::NatsError;
use crate::bucket::entries;

/// What begins the keys of convicted contents.
const CONVICTED: &str = "convicted.";
/// All of them.
const ALL_CONVICTED: &str = "convicted.*";
/// Between the end of a watch and the next one.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// Why a content is convicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conviction {
    /// The host that convicted it.
    pub host: String,
    /// The key of the job.
    pub job: String,
    /// A sentence.
    pub reason: String,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Poison {
    store: Store,
    known: Arc<Mutex<BTreeMap<String, Conviction>>>,
}

impl Poison {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, known: Arc::default() }
    }

    /// Learns of convictions, from now on until the connection ends.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn follow(&self) -> Result<(), NatsError> {
        let failed = "convictions cannot be followed";
        let watch = self.store.watch_with_history(ALL_CONVICTED).await;
        let mut changes = watch.map_err(NatsError::jetstream(failed))?;
        let (store, known) = (self.store.clone(), Arc::clone(&self.known));
        tokio::spawn(async move {
            loop {
                while let Some(change) = changes.next().await {
                    match change {
                        Ok(entry) => note(&known, &entry.key, entry.operation, &entry.value),
                        Err(error) => tracing::debug!(%error, "convictions"),
                    }
                }
                // The server has ended it.
                sleep(FOLLOW_AGAIN).await;
                match store.watch_with_history(ALL_CONVICTED).await {
                    Ok(again) => changes = again,
                    Err(error) => tracing::debug!(%error, "convictions"),
                }
            }
        });
        Ok(())
    }

    /// Why a content is convicted, if it is.
    #[must_use]
    pub fn of(&self, content: ContentHash) -> Option<Conviction> {
        self.known.lock().get(&content.to_string()).cloned()
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
        self.known.lock().insert(content.to_string(), why.clone());
        let value = serde_json::to_vec(why).expect("texts have a JSON form");
        let put = self.store.put(format!("{CONVICTED}{content}"), value.into()).await;
        put.map(drop).map_err(NatsError::jetstream("a conviction cannot be stored"))
    }

    /// Takes a conviction back. Returns whether there was one.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn release(&self, content: ContentHash) -> Result<bool, NatsError> {
        let failed = "a conviction cannot be removed";
        let key = format!("{CONVICTED}{content}");
        let there = self.store.get(&key).await.map_err(NatsError::jetstream(failed))?.is_some();
        if there {
            self.store.purge(&key).await.map_err(NatsError::jetstream(failed))?;
        }
        Ok(there)
    }

    /// Notes that this host begins to run a suspect alone. Returns the hosts that did so before, and vanished.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn runs_alone(&self, key: JobKey, host: &str) -> Result<Vec<String>, NatsError> {
        let failed = "a suspect cannot be noted";
        let name = format!("alone.{key}");
        let value = self.store.get(&name).await.map_err(NatsError::jetstream(failed))?;
        let before: Vec<String> =
            value.and_then(|v| serde_json::from_slice(&v).ok()).unwrap_or_default();
        let mut now = before.clone();
        if !now.iter().any(|other| other == host) {
            now.push(host.to_owned());
        }
        let value = serde_json::to_vec(&now).expect("texts have a JSON form");
        let put = self.store.put(&name, Bytes::from(value)).await;
        put.map(|_| before).map_err(NatsError::jetstream(failed))
    }
}

fn note(
    known: &Mutex<BTreeMap<String, Conviction>>,
    key: &str,
    operation: Operation,
    value: &[u8],
) {
    let Some(content) = key.strip_prefix(CONVICTED) else { return };
    match (operation, serde_json::from_slice(value)) {
        (Operation::Put, Ok(why)) => drop(known.lock().insert(content.to_owned(), why)),
        (Operation::Put, Err(error)) => tracing::warn!(%error, key, "a conviction"),
        (Operation::Delete | Operation::Purge, _) => drop(known.lock().remove(content)),
    }
}
