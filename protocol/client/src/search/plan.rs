//! From programs to jobs: equal ones run once, and the others are cut into jobs of a bounded size.
//!
//! Owns what is known of earlier programs. It knows no verdicts.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use gridpool_protocol::search::PackedPrograms;

use super::pipeline::Made;

/// Most programs of one job.
pub(super) const JOB_PROGRAMS_MAX: usize = 1 << 14;
/// Most bytes of the programs of one job; one program is always allowed.
const JOB_BYTES_MAX: usize = 16 << 20;
/// Most evaluations, programs times pairs, of one job; one program is always allowed.
const JOB_EVALUATIONS_MAX: usize = 4 << 20;
/// Evaluations of the first jobs, before it is known how fast the devices are.
const JOB_EVALUATIONS_FIRST: usize = 1 << 12;
/// The time that a job should take: short enough that results flow, long enough that its start does not count.
const JOB_TIME: Duration = Duration::from_millis(400);
/// Most times that jobs become larger with one that ends.
const JOB_GROWS: f64 = 8.0;
/// Evaluations that fill a GPU. Far fewer take as long as the slowest of them, so hardly less, unless all are slow.
const GPU_EVALUATIONS: usize = 1 << 18;
/// Bytes of the verdicts that are kept for duplicates.
const KNOWN_BYTES_MAX: usize = 256 << 20;
/// Most programs that are known for duplicates.
const KNOWN_PROGRAMS_MAX: u64 = 1 << 20;

/// The number of a program among those that ran.
pub(super) type Slot = u64;

/// A program of a job, in the order in which the programs came.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) enum Place {
    /// It is this program of the job.
    Runs(usize),
    /// It equals an earlier one, of this job or of another.
    Same(Slot),
    Refused(String),
}

/// Programs that go to the pool together, with those between them that do not.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) entries: Vec<Entry>,
    pub(super) programs: PackedPrograms,
    /// The slot of its first program.
    pub(super) first_slot: Slot,
}

impl Planned {
    fn new(sharing: bool) -> Self {
        Self { entries: Vec::new(), programs: PackedPrograms::new(sharing), first_slot: 0 }
    }
}

/// The size of the next jobs, learnt from how long the last ones took.
#[derive(Debug)]
pub(super) struct Pace {
    evaluations: AtomicUsize,
    /// Whether no job was too large yet.
    is_unbounded: AtomicBool,
}

impl Default for Pace {
    fn default() -> Self {
        let evaluations = AtomicUsize::new(JOB_EVALUATIONS_FIRST);
        Self { evaluations, is_unbounded: AtomicBool::new(true) }
    }
}

impl Pace {
    fn evaluations(&self) -> usize {
        self.evaluations.load(Ordering::Relaxed)
    }

    /// Notes that a job of this size took this long, on GPUs alone or on others too.
    pub(super) fn note(&self, evaluations: usize, took: Duration, on_gpus: bool) {
        let now = self.evaluations();
        let times = JOB_TIME.as_secs_f64() / took.as_secs_f64().max(1e-6);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        let sized = |of: usize, times: f64| (of as f64 * times) as usize;
        let is_full = evaluations >= now / 2;
        let next = if times > 2.0 && is_full {
            sized(now, times.min(JOB_GROWS)).min(JOB_EVALUATIONS_MAX)
        } else if times < 0.5 {
            self.is_unbounded.store(false, Ordering::Relaxed);
            now.min(sized(evaluations, times).max(1))
        } else {
            now
        };
        let fills = on_gpus && times > 1.0 && is_full && self.is_unbounded.load(Ordering::Relaxed);
        let next = if fills { next.max(GPU_EVALUATIONS) } else { next };
        self.evaluations.store(next, Ordering::Relaxed);
    }
}

/// Programs by their digest. Nobody goes through them.
#[expect(clippy::disallowed_types, reason = "its order is never seen")]
type Known = std::collections::HashMap<[u8; 32], Slot, BuildHasherDefault<Tail>>;

/// The hash of a digest: its last eight bytes, which are as random as all of it.
#[derive(Debug, Default)]
struct Tail(u64);

impl Hasher for Tail {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Planner {
    pairs: usize,
    programs_max: usize,
    /// Whether programs that begin alike share what they compute.
    sharing: bool,
    /// Earlier programs by their digest, and in their order.
    known: Known,
    order: VecDeque<[u8; 32]>,
    known_max: u64,
    next_slot: Slot,
    planned: Planned,
    /// Bytes of the names and refusals in `planned`.
    entry_bytes: usize,
}

impl Planner {
    pub(super) fn new(
        pairs: usize,
        verdict_bytes: usize,
        programs_max: usize,
        sharing: bool,
    ) -> Self {
        Self {
            pairs,
            programs_max: programs_max.max(1),
            known: Known::default(),
            order: VecDeque::new(),
            known_max: known_max(verdict_bytes),
            next_slot: 0,
            planned: Planned::new(sharing),
            sharing,
            entry_bytes: 0,
        }
    }

    /// Adds a program, or why it is none. Returns the job before it, if that is full.
    pub(super) fn push(
        &mut self,
        id: String,
        made: Result<Made, String>,
        pace: &Pace,
    ) -> Option<Planned> {
        let made = match made {
            Err(why) => return self.note(id, Place::Refused(why), None),
            Ok(made) => made,
        };
        if let Some(slot) = self.known.get(&made.digest) {
            let slot = *slot;
            return self.note(id, Place::Same(slot), None);
        }
        let full = self.is_full(&made, pace).then(|| self.flush()).flatten();
        let at = self.planned.programs.len();
        // `is_full` keeps it far below every limit of a job.
        match self.planned.programs.push(&made.bytes) {
            Ok(()) => self.remember(made.digest),
            Err(error) => return self.note(id, Place::Refused(error.to_string()), full),
        }
        self.note(id, Place::Runs(at), full)
    }

    /// Adds an entry. What only repeats and refuses is bounded like programs.
    fn note(&mut self, id: String, place: Place, full: Option<Planned>) -> Option<Planned> {
        self.entry_bytes += id.len() + if let Place::Refused(why) = &place { why.len() } else { 0 };
        self.planned.entries.push(Entry { id, place });
        let is_full =
            self.planned.entries.len() >= ENTRIES_MAX || self.entry_bytes >= ENTRY_BYTES_MAX;
        full.or_else(|| is_full.then(|| self.flush()).flatten())
    }

    fn is_full(&self, made: &Made, pace: &Pace) -> bool {
        let programs = self.planned.programs.len();
        programs > 0
            && (programs >= self.programs_max.min(JOB_PROGRAMS_MAX)
                || (programs + 1) * self.pairs > pace.evaluations()
                || self.planned.programs.bytes() + made.bytes.len() > JOB_BYTES_MAX)
    }

    fn remember(&mut self, digest: [u8; 32]) {
        self.known.insert(digest, self.next_slot);
        self.order.push_back(digest);
        self.next_slot += 1;
        if self.order.len() as u64 > self.known_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// How many programs of a template the next job has.
    pub(super) fn of_template(&self, pace: &Pace) -> u64 {
        (pace.evaluations() / self.pairs).clamp(1, self.programs_max) as u64
    }

    /// Whether nothing waits for more.
    pub(super) fn is_empty(&self) -> bool {
        self.planned.entries.is_empty()
    }

    /// What was added since the last job, if anything was.
    pub(super) fn flush(&mut self) -> Option<Planned> {
        if self.is_empty() {
            return None;
        }
        let mut planned = std::mem::replace(&mut self.planned, Planned::new(self.sharing));
        self.entry_bytes = 0;
        planned.first_slot = self.next_slot - planned.programs.len() as u64;
        Some(planned)
    }
}

/// Most entries of one job, duplicates and refusals included.
const ENTRIES_MAX: usize = 1 << 16;
/// Most bytes of their names and refusals; one entry is always allowed.
const ENTRY_BYTES_MAX: usize = 16 << 20;

/// Programs whose verdicts are kept for duplicates. Planner and stream forget in the same order, so a slot that the
/// planner knows has its verdicts still.
pub(super) fn known_max(verdict_bytes: usize) -> u64 {
    let most = KNOWN_BYTES_MAX / verdict_bytes.max(1);
    (most as u64).clamp(1, KNOWN_PROGRAMS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_fill_a_gpu_once_one_was_quick_and_take_their_time_elsewhere() {
        let after = |jobs: &[(usize, u64)], on_gpus| {
            let pace = Pace::default();
            for (evaluations, ms) in jobs {
                pace.note(*evaluations, Duration::from_millis(*ms), on_gpus);
            }
            pace.evaluations()
        };
        let first = JOB_EVALUATIONS_FIRST;
        assert_eq!(after(&[(first, 100)], false), 4 * first);
        assert_eq!(after(&[(first, 100)], true), GPU_EVALUATIONS);
        assert_eq!(after(&[(first, 500)], true), first, "that slow on few is slower on many");
        assert_eq!(after(&[(first, 100), (10, 1)], true), GPU_EVALUATIONS);
        assert_eq!(after(&[(10, 1)], true), first, "the last of a few");
        let slow = [(first, 100), (GPU_EVALUATIONS, 4_000)];
        assert_eq!(after(&slow, true), GPU_EVALUATIONS / 10);
        // Once one was too large, they grow as elsewhere.
        let again = [slow[0], slow[1], (GPU_EVALUATIONS / 10, 100)];
        assert_eq!(after(&again, true), GPU_EVALUATIONS / 10 * 4);
        let quick =
            [first, GPU_EVALUATIONS, 8 * GPU_EVALUATIONS].map(|evaluations| (evaluations, 1));
        assert_eq!(after(&quick, true), JOB_EVALUATIONS_MAX);
    }
}
