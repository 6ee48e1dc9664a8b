//! Large batches that several jobs use: each is fetched once, and stays in the pool's memory until others need the
//! room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gridpool_client::{ClientError, LoadedBatch, PackedInput};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_nats::{Carried, JobMessage, NatsError};
use gridpool_protocol::limits::ARENA_BYTES_MAX;
use gridpool_protocol::message::{Packing, Refusal};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::counts::count;
use crate::{Bridge, RETRY_EVERY};

/// How old a job is when it waits no longer for a batch that is not whole in the stream.
const MISSING_FOR: Duration = Duration::from_secs(30);
/// How long an older one waits.
const MISSING_AT_LEAST: Duration = Duration::from_secs(4);
/// Jobs of a host that wait for such batches. Others are given back: they would keep the host from its work.
const MISSING_MAX: usize = 2;

/// A batch's digest, and its numbers of items and cells.
type Name = ([u8; 32], (u32, u32));

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Batches {
    bytes_max: u64,
    held: Mutex<Held>,
    /// For jobs that wait for batches that are not whole.
    missing: Semaphore,
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
    #[error("other jobs wait for batches that are not whole")]
    Crowded,
}

impl Batches {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, held: Mutex::default(), missing: Semaphore::new(MISSING_MAX) }
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

/// How long a job of this age waits. Many may miss their batches, and few of them wait at a time.
fn missing_for(age: Duration) -> Duration {
    MISSING_FOR.saturating_sub(age).max(MISSING_AT_LEAST)
}

impl Bridge {
    /// The packed input, where the pool can have it. The job is so old, and has so much time left.
    pub(crate) async fn input(
        &self,
        job: &JobMessage,
        (age, left): (Duration, Duration),
    ) -> Result<PackedInput, BatchError> {
        let until = clock::now() + left.min(missing_for(age));
        match (&job.input, job.packing) {
            (Carried::Inline(bytes), _) => Ok(PackedInput::Private(Arc::new(bytes.0.clone()))),
            (&Carried::Pieces { digest, bytes }, Packing::Grids { items, cells }) => {
                let name = (digest, (items, cells));
                let batch = self.patiently(bytes, until, || self.batch(name, bytes)).await;
                batch.map(PackedInput::Loaded)
            }
            (&Carried::Pieces { digest, bytes }, Packing::Search(_) | Packing::Tensors) => {
                let fetched = self.patiently(bytes, until, || self.fetch(digest, bytes)).await;
                fetched.map(|bytes| PackedInput::Private(Arc::new(bytes)))
            }
        }
    }

    /// What a look-up finds. While it is not whole, somebody may send it again.
    async fn patiently<T, F>(
        &self,
        bytes: u64,
        until: Instant,
        look: impl Fn() -> F,
    ) -> Result<T, BatchError>
    where
        F: Future<Output = Result<T, BatchError>>,
    {
        let mut waits = None;
        loop {
            let error = match look().await {
                Err(BatchError::Nats(error @ NatsError::Data { .. })) => error,
                done => return done,
            };
            if bytes > ARENA_BYTES_MAX || clock::until(until).is_zero() {
                return Err(BatchError::Nats(error));
            }
            if waits.is_none() {
                let place = self.batches.missing.try_acquire();
                waits = Some(place.map_err(|_| BatchError::Crowded)?);
            }
            tracing::warn!(%error, "a batch is looked for again");
            sleep(RETRY_EVERY.min(clock::until(until))).await;
        }
    }

    /// The batch of grids that has this digest, in the pool's memory.
    async fn batch(&self, name: Name, bytes: u64) -> Result<LoadedBatch, BatchError> {
        let (place, is_new) = self.batches.place(name, bytes);
        let fetch = || async {
            let packed = Arc::new(self.fetch(name.0, bytes).await?);
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
        match &batch {
            Ok(_) if !is_new => count(&self.counts.batches_reused),
            Ok(_) => {}
            Err(_) => self.batches.forget(&name, &place),
        }
        batch
    }

    /// Bytes from the stream.
    async fn fetch(&self, digest: [u8; 32], bytes: u64) -> Result<Vec<u8>, BatchError> {
        let fetched = self.streams.data.get(digest, digest, bytes).await?;
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
    fn a_job_that_was_given_back_for_others_does_not_wait_anew() {
        assert_eq!(missing_for(Duration::ZERO), MISSING_FOR);
        assert_eq!(missing_for(Duration::from_secs(20)), Duration::from_secs(10));
        assert_eq!(missing_for(Duration::from_secs(600)), MISSING_AT_LEAST);
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
