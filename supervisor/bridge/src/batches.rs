//! Large batches that several jobs use: each is fetched once, and stays in the pool's memory until others need the
//! room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gridpool_client::{ClientError, LoadedBatch};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_nats::NatsError;
use gridpool_protocol::limits::ARENA_BYTES_MAX;
use gridpool_protocol::message::Refusal;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::counts::count;
use crate::{Bridge, RETRY_EVERY};

/// How long a job waits for a batch that is not whole in the stream.
const MISSING_FOR: Duration = Duration::from_secs(30);

/// A batch's digest, and its numbers of items and cells.
type Name = ([u8; 32], (u32, u32));

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Batches {
    bytes_max: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    batches: BTreeMap<Name, Entry>,
    bytes: u64,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    batch: Arc<OnceCell<LoadedBatch>>,
    bytes: u64,
    used: u64,
}

/// Why there is no batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    #[error(transparent)]
    Nats(#[from] NatsError),
    #[error(transparent)]
    Pool(#[from] ClientError),
}

impl Batches {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, held: Mutex::default() }
    }

    /// The place of a batch, and whether it is new. Forgets those that were not used for longest.
    fn place(&self, name: Name, bytes: u64) -> (Arc<OnceCell<LoadedBatch>>, bool) {
        let mut held = self.held.lock();
        held.uses += 1;
        let used = held.uses;
        if let Some(entry) = held.batches.get_mut(&name) {
            entry.used = used;
            return (Arc::clone(&entry.batch), false);
        }
        while held.bytes.saturating_add(bytes) > self.bytes_max && held.forget_oldest() {}
        let batch = Arc::new(OnceCell::new());
        held.bytes = held.bytes.saturating_add(bytes);
        held.batches.insert(name, Entry { batch: Arc::clone(&batch), bytes, used });
        (batch, true)
    }

    /// Forgets a place that nothing came into, unless another has it by now.
    fn forget(&self, name: &Name, place: &Arc<OnceCell<LoadedBatch>>) {
        let mut held = self.held.lock();
        let is_it = held.batches.get(name).is_some_and(|entry| Arc::ptr_eq(&entry.batch, place));
        if is_it && !place.initialized() {
            held.remove(name);
        }
    }

    fn forget_all(&self) {
        let mut held = self.held.lock();
        while held.forget_oldest() {}
    }
}

impl Held {
    /// Jobs that use it keep it alive. Returns whether there was one.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.batches.iter().min_by_key(|(_, entry)| entry.used).map(|(name, _)| *name);
        oldest.is_some_and(|name| self.remove(&name))
    }

    fn remove(&mut self, name: &Name) -> bool {
        let Some(entry) = self.batches.remove(name) else { return false };
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        true
    }
}

impl Bridge {
    /// The batch of grids that has this digest, in the pool's memory.
    /// A job that has so much time `left` waits for it.
    pub(crate) async fn batch(
        &self,
        name: Name,
        bytes: u64,
        left: Duration,
    ) -> Result<LoadedBatch, BatchError> {
        let (place, is_new) = self.batches.place(name, bytes);
        if !is_new {
            count(&self.counts.batches_reused);
        }
        let fetch = || async {
            let packed = Arc::new(self.fetch(name.0, bytes, left).await?);
            match self.load(name.1, &packed).await {
                // Others in the cache may leave no room.
                Err(ClientError::Refused(Refusal::Busy(_))) => {
                    self.batches.forget_all();
                    self.load(name.1, &packed).await.map_err(BatchError::Pool)
                }
                loaded => loaded.map_err(BatchError::Pool),
            }
        };
        let batch = place.get_or_try_init(fetch).await.cloned();
        if batch.is_err() {
            self.batches.forget(&name, &place);
        }
        batch
    }

    /// Bytes from the stream, for a job that has so much time left. If they are not whole, somebody may send them again
    /// meanwhile.
    pub(crate) async fn fetch(
        &self,
        digest: [u8; 32],
        bytes: u64,
        left: Duration,
    ) -> Result<Vec<u8>, NatsError> {
        let until = clock::now() + left.min(MISSING_FOR);
        let fetched = loop {
            match self.streams.data.get(digest, digest, bytes).await {
                Err(error @ NatsError::Data { .. }) if bytes <= ARENA_BYTES_MAX => {
                    if clock::until(until).is_zero() {
                        return Err(error);
                    }
                    tracing::warn!(%error, "a batch is looked for again");
                    sleep(RETRY_EVERY.min(clock::until(until))).await;
                }
                fetched => break fetched?,
            }
        };
        self.counts.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(fetched)
    }

    async fn load(
        &self,
        size: (u32, u32),
        packed: &Arc<Vec<u8>>,
    ) -> Result<LoadedBatch, ClientError> {
        let (pool, packed) = (self.pool.clone(), Arc::clone(packed));
        let loaded = spawn_blocking(move || pool.load_packed(size, &packed)).await;
        loaded.map_err(|error| ClientError::System(std::io::Error::other(error)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_that_was_not_used_for_longest_makes_room() {
        let batches = Batches::new(100);
        let name = |n| ([n; 32], (1, 1));
        assert!(batches.place(name(1), 40).1);
        assert!(batches.place(name(2), 40).1);
        assert!(!batches.place(name(1), 40).1);
        assert!(batches.place(name(3), 40).1);
        assert!(!batches.place(name(1), 40).1, "it was used after the second");
        assert!(batches.place(name(2), 40).1, "it made room for the third");
        assert!(batches.held.lock().bytes <= 100);
        // One that is larger than all room is used all the same, and forgotten first.
        assert!(batches.place(name(4), 1_000).1);
        assert_eq!(batches.held.lock().batches.len(), 1);
        batches.forget_all();
        assert_eq!(batches.held.lock().bytes, 0);
    }

    #[test]
    fn a_batch_that_does_not_come_takes_no_room() {
        let batches = Batches::new(100);
        let name = ([1; 32], (1, 1));
        let (place, _) = batches.place(name, u64::MAX);
        batches.place(([2; 32], (1, 1)), u64::MAX);
        assert!(batches.place(name, u64::MAX).1, "both sizes together have no number");
        batches.forget(&name, &place);
        assert_eq!(batches.held.lock().batches.len(), 1, "the place is another's by now");
        let (place, _) = batches.place(name, 1);
        batches.forget(&name, &place);
        assert_eq!(batches.held.lock().bytes, 0);
    }
}
