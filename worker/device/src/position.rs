//! Records where the device is in its work, in memory that outlives this process. It costs some stores for each chunk
//! and launch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gridpool_ipc::arena::ArenaMap;
use gridpool_protocol::ids::AttemptId;
use gridpool_protocol::position::{
    ATTEMPTS, BEGUN, DISPATCH, DONE, KERNEL_BYTES_MAX, PLACES_MAX, PlaceWords, WORDS, name_words,
    pair,
};

use crate::chunk::Piece;

/// Where a chunk begins or ends: an attempt's place in its dispatch, and an item of its job.
pub(crate) type Spot = (usize, usize);

/// See the module's text. What is recorded before it has memory is lost.
#[derive(Debug, Default)]
pub struct Recorder(OnceLock<Arc<ArenaMap>>);

impl Recorder {
    /// Records in this memory from now on, if it is large enough. Only the first memory counts.
    pub fn record_in(&self, memory: Arc<ArenaMap>) {
        drop(self.0.set(memory));
    }

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        self.0.get()?.all().words(WORDS)?.get(at)
    }

    fn set(&self, word: usize, value: u64) {
        // In this order also for who looks from outside.
        self.word(word).inspect(|word| word.store(value, Ordering::Release));
    }

    fn add(&self, word: usize) -> usize {
        let before = self.word(word).map_or(0, |word| word.fetch_add(1, Ordering::Release));
        usize::try_from(before + 1).unwrap_or(usize::MAX)
    }

    /// The next dispatch has this attempt as its `at`th.
    pub fn names(&self, at: usize, attempt: AttemptId) {
        let [job, number] = name_words(at);
        self.set(job, attempt.job.0);
        self.set(number, attempt.number.into());
    }

    /// A dispatch of so many attempts begins.
    pub fn dispatch_begins(&self, attempts: usize) {
        self.set(BEGUN, 0);
        self.set(DONE, 0);
        self.add(DISPATCH);
        self.set(ATTEMPTS, attempts as u64);
    }

    /// It is done.
    pub fn dispatch_ends(&self) {
        self.set(ATTEMPTS, 0);
    }

    /// A chunk begins in this place.
    pub(crate) fn chunk_begins(&self, place: usize, from: Spot, until: Spot) {
        let Some(words) = words_of(place) else { return };
        let dispatch = self.word(DISPATCH).map_or(0, |word| word.load(Ordering::Relaxed));
        let dispatch = usize::try_from(dispatch & u64::from(u32::MAX)).unwrap_or(0);
        let chunk = self.add(BEGUN);
        self.set(words.chunk(), 0);
        self.set(words.from(), pair(from.0, from.1));
        self.set(words.until(), pair(until.0, until.1));
        self.set(words.launches(), 0);
        self.set(words.kernel(), 0);
        self.set(words.chunk(), pair(dispatch, chunk));
    }

    /// A chunk of these pieces begins in this place.
    pub(crate) fn pieces_begin(&self, place: usize, pieces: &[Piece]) {
        if let [first, ..] = pieces
            && let [.., last] = pieces
        {
            let from = (first.attempt, first.of_batch.items.start);
            self.chunk_begins(place, from, (last.attempt, last.of_batch.items.end));
        }
    }

    /// Something is launched for the chunk in this place, or a step of it begins.
    pub(crate) fn launches(&self, place: usize, kernel: &str) {
        let Some(words) = words_of(place) else { return };
        let mut name = [0; KERNEL_BYTES_MAX];
        let bytes = kernel.len().min(KERNEL_BYTES_MAX);
        name[..bytes].copy_from_slice(&kernel.as_bytes()[..bytes]);
        for (at, part) in name.as_chunks().0.iter().enumerate() {
            self.set(words.kernel() + at, u64::from_le_bytes(*part));
        }
        self.add(words.launches());
    }

    /// The chunk in this place is done.
    pub(crate) fn chunk_is_done(&self, place: usize) {
        if let Some(words) = words_of(place) {
            self.set(words.chunk(), 0);
            self.add(DONE);
        }
    }
}

fn words_of(place: usize) -> Option<PlaceWords> {
    (place < PLACES_MAX).then(|| PlaceWords::of(place))
}
