//! Where a device is in its work. A worker of programs records it in memory that it shares with its supervisor, so that
//! it is known after the worker's death, however that came.
//!
//! The memory has [`WORDS`] words of 64 bits: four of the dispatch, two for each of its attempts, and eight for each of
//! the places where chunks are worked on: the lanes of a GPU, the threads of a CPU.

use serde::Serialize;

use crate::ids::{AttemptId, JobId};
use crate::limits::JOIN_MAX;

/// Words of the memory.
pub const WORDS: usize = PLACES + PLACES_MAX * PLACE_WORDS;
/// Places that are recorded; what others do is not.
pub const PLACES_MAX: usize = 64;

/// The number of the dispatch, from 1 on.
pub const DISPATCH: usize = 0;
/// Its attempts; 0 between two dispatches.
pub const ATTEMPTS: usize = 1;
/// Chunks that it has begun.
pub const BEGUN: usize = 2;
/// Those that are done.
pub const DONE: usize = 3;

/// The first word of the attempts: a job and the attempt's number.
const NAMES: usize = 4;
const PLACES: usize = NAMES + 2 * JOIN_MAX;
const PLACE_WORDS: usize = 4 + KERNEL_WORDS;
const KERNEL_WORDS: usize = 4;
/// Most bytes of a kernel's name that are recorded.
pub const KERNEL_BYTES_MAX: usize = 8 * KERNEL_WORDS;

/// The words of one attempt of the dispatch.
#[must_use]
pub fn name_words(at: usize) -> [usize; 2] {
    [NAMES + 2 * at, NAMES + 2 * at + 1]
}

/// The words of one place.
#[derive(Clone, Copy, Debug)]
pub struct PlaceWords(usize);

impl PlaceWords {
    /// Of the `at`th place.
    #[must_use]
    pub fn of(at: usize) -> Self {
        Self(PLACES + at * PLACE_WORDS)
    }

    /// The chunk that is worked on: its dispatch and its number there, as [`pair`]. It is 0 if there is none.
    #[must_use]
    pub fn chunk(self) -> usize {
        self.0
    }

    /// The chunk's first item, as a [`pair`] of its attempt's place in the dispatch and its number in the job.
    #[must_use]
    pub fn from(self) -> usize {
        self.0 + 1
    }

    /// The same of its last item, and the item after that.
    #[must_use]
    pub fn until(self) -> usize {
        self.0 + 2
    }

    /// Launches of the chunk.
    #[must_use]
    pub fn launches(self) -> usize {
        self.0 + 3
    }

    /// What was launched last.
    #[must_use]
    pub fn kernel(self) -> usize {
        self.0 + 4
    }
}

/// Two numbers in one word, which is written at once.
#[must_use]
pub fn pair(high: usize, low: usize) -> u64 {
    let half = |number: usize| u64::from(u32::try_from(number).unwrap_or(u32::MAX));
    half(high) << 32 | half(low)
}

fn halves(word: u64) -> [usize; 2] {
    [word >> 32, word & u64::from(u32::MAX)].map(|half| usize::try_from(half).unwrap_or(usize::MAX))
}

/// Where a device is in the work of a dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Position {
    /// Chunks of the dispatch that it has begun.
    pub chunks_begun: u64,
    /// Those that are done.
    pub chunks_done: u64,
    /// Those that are not, by number.
    pub under_way: Vec<ChunkPosition>,
}

/// A chunk that a device works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChunkPosition {
    /// Its number in the dispatch, from 1 on.
    pub chunk: u64,
    /// Its first item.
    pub first: ItemPosition,
    /// Its last.
    pub last: ItemPosition,
    /// Kernels launched for it, or steps begun on a CPU.
    pub launches: u64,
    /// The last of them; empty if there is none.
    pub kernel: String,
}

/// An item of a job, or a program of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPosition {
    /// Whose.
    pub attempt: AttemptId,
    /// Its number in the job, from 0 on.
    pub item: u64,
}

impl Serialize for ItemPosition {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown {
            job: String,
            attempt: u32,
            item: u64,
        }
        let AttemptId { job, number } = self.attempt;
        Shown { job: job.to_string(), attempt: number, item: self.item }.serialize(to)
    }
}

impl Position {
    /// What [`WORDS`] words say. `None` between two dispatches, and for words that no worker of ours writes.
    #[must_use]
    pub fn read(words: &[u64]) -> Option<Self> {
        let &[dispatch, attempts, begun, done, ..] = words else { return None };
        let attempts =
            usize::try_from(attempts).ok().filter(|count| (1..=JOIN_MAX).contains(count))?;
        if words.len() < WORDS {
            return None;
        }
        let item = |at: usize, item: usize| {
            let [job, number] = name_words(at).map(|word| words[word]);
            let number = u32::try_from(number).ok()?;
            let attempt = (at < attempts).then_some(AttemptId { job: JobId(job), number })?;
            Some(ItemPosition { attempt, item: item as u64 })
        };
        let place = |at: usize| {
            let place = PlaceWords::of(at);
            let [of, chunk] = halves(words[place.chunk()]);
            if words[place.chunk()] == 0 || of as u64 != dispatch & u64::from(u32::MAX) {
                return None;
            }
            let [from, until] = [place.from(), place.until()].map(|word| halves(words[word]));
            let kernel = &words[place.kernel()..place.kernel() + KERNEL_WORDS];
            let kernel = kernel.iter().flat_map(|word| word.to_le_bytes());
            Some(ChunkPosition {
                chunk: chunk as u64,
                first: item(from[0], from[1])?,
                last: item(until[0], until[1].checked_sub(1)?)?,
                launches: words[place.launches()],
                kernel: kernel.filter(u8::is_ascii_graphic).map(char::from).collect(),
            })
        };
        let mut under_way: Vec<_> = (0..PLACES_MAX).filter_map(place).collect();
        under_way.sort_by_key(|chunk| chunk.chunk);
        Some(Self { chunks_begun: begun, chunks_done: done, under_way })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of dispatch 7 with two attempts, and a chunk over both in place 3.
    fn recorded() -> Vec<u64> {
        let mut words = vec![0; WORDS];
        (words[DISPATCH], words[ATTEMPTS], words[BEGUN], words[DONE]) = (7, 2, 5, 4);
        for (at, (job, number)) in [(40, 1), (41, 2)].into_iter().enumerate() {
            let [first, second] = name_words(at);
            (words[first], words[second]) = (job, number);
        }
        let place = PlaceWords::of(3);
        words[place.chunk()] = pair(7, 5);
        (words[place.from()], words[place.until()]) = (pair(0, 90), pair(1, 10));
        words[place.launches()] = 2;
        words[place.kernel()] = u64::from_le_bytes(*b"rot90\0\0\0");
        words
    }

    #[test]
    fn what_a_worker_records_is_read() {
        let item = |job, number, item| ItemPosition {
            attempt: AttemptId { job: JobId(job), number },
            item,
        };
        let chunk = ChunkPosition {
            chunk: 5,
            first: item(40, 1, 90),
            last: item(41, 2, 9),
            launches: 2,
            kernel: "rot90".to_owned(),
        };
        let want = Position { chunks_begun: 5, chunks_done: 4, under_way: vec![chunk] };
        assert_eq!(Position::read(&recorded()), Some(want));
    }

    #[test]
    fn between_dispatches_there_is_no_position_and_chunks_of_an_earlier_one_are_none() {
        let mut words = recorded();
        words[DISPATCH] = 8;
        assert_eq!(Position::read(&words).unwrap().under_way, []);
        words[ATTEMPTS] = 0;
        assert_eq!(Position::read(&words), None);
    }

    #[test]
    fn words_that_no_worker_writes_are_left_out() {
        assert_eq!(Position::read(&[]), None);
        assert_eq!(Position::read(&recorded()[..WORDS - 1]), None);
        assert_eq!(Position::read(&vec![u64::MAX; WORDS]), None);
        let mut words = recorded();
        words[PlaceWords::of(3).until()] = pair(2, 1);
        assert_eq!(Position::read(&words).unwrap().under_way, [], "there is no third attempt");
        words[PlaceWords::of(3).until()] = pair(1, 0);
        assert_eq!(Position::read(&words).unwrap().under_way, [], "it has no item");
    }
}
