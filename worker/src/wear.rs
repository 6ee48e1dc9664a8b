//! What a process that serves for months may lose bit by bit: memory and descriptors that nothing gives
//! back. A worker that has grown too far since it was READY ends between two jobs, and a fresh process
//! takes its place.

use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What a process holds that only its end gives back for sure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Bytes of memory of its own: not of arenas, which are shared and counted elsewhere.
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl Holding {
    /// What this process holds now.
    ///
    /// # Errors
    /// The system's, or what is missing in what it says.
    pub fn now() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        let kib = kib.ok_or_else(|| io::Error::other("/proc/self/status names no RssAnon"))?;
        let descriptors = fs::read_dir("/proc/self/fd")?.count() as u64;
        Ok(Self { memory: kib << 10, descriptors })
    }
}

/// From this size on a piece of memory goes back to the system as soon as it is let go of; and no more than
/// this is kept at the end of each of the allocator's heaps.
#[cfg(target_env = "gnu")]
const KEPT_MAX: i32 = 1 << 20;

/// Has memory of models go back to the system with them. By itself the C library's allocator learns to
/// keep pieces of the size of weights, for pieces of that size are asked for and freed while a model is
/// read; and what is at the end of a heap, no call gives back.
pub fn keep_little() {
    #[cfg(target_env = "gnu")]
    for limit in [nix::libc::M_MMAP_THRESHOLD, nix::libc::M_TRIM_THRESHOLD] {
        #[expect(unsafe_code, reason = "the allocator has no safe wrapper")]
        // SAFETY: it takes two numbers, and changes nothing of what is in use.
        let is_set = unsafe { nix::libc::mallopt(limit, KEPT_MAX) };
        if is_set == 0 {
            tracing::warn!(limit, "what models leave behind may be kept");
        }
    }
}

/// Gives memory that this process has let go of back to the system: pages between pieces that are in use
/// stay with the allocator otherwise.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the allocator has no safe wrapper")]
    // SAFETY: it takes a number, locks what it looks at, and moves nothing that is in use.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// How far a worker may grow beyond what it held when it was READY.
pub type GrowthMax = Holding;

impl Holding {
    /// So much more.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            descriptors: self.descriptors.saturating_add(other.descriptors),
        }
    }

    /// So much less; nothing where that is more than there is.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_sub(other.memory),
            descriptors: self.descriptors.saturating_sub(other.descriptors),
        }
    }
}

/// What a worker held when it was READY, and whether it has grown too far since.
#[derive(Debug, Default)]
pub struct Wear {
    measure: Mutex<Measure>,
    worn: OnceLock<String>,
}

/// What growth is counted from.
#[derive(Debug, Default)]
struct Measure {
    /// What it held when it was READY.
    fresh: Option<Holding>,
    /// What was wanted of that, and what is wanted now.
    wanted_then: Holding,
    wanted: Holding,
    /// What is wanted is changing: until it has, nothing is known.
    is_changing: bool,
}

impl Wear {
    fn measure(&self) -> MutexGuard<'_, Measure> {
        self.measure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker is READY and holds this much.
    pub fn start(&self, fresh: Holding) {
        let mut measure = self.measure();
        measure.wanted_then = measure.wanted;
        measure.fresh = Some(fresh);
    }

    /// What the worker holds is about to change because it was told so.
    pub fn changes(&self) {
        self.measure().is_changing = true;
    }

    /// From now on so much of what the worker holds is there because it was told so. Whatever it holds
    /// beyond what that adds to what it held at first is growth: what it was told to let go of, and has
    /// not let go of, too.
    pub fn wants(&self, wanted: Holding) {
        let mut measure = self.measure();
        (measure.wanted, measure.is_changing) = (wanted, false);
    }

    /// The worker holds this much now.
    pub fn note(&self, now: Holding, most: GrowthMax) {
        let measure = self.measure();
        let Some(fresh) = measure.fresh.filter(|_| !measure.is_changing) else { return };
        let grown = now.plus(measure.wanted_then).minus(fresh.plus(measure.wanted));
        drop(measure);
        let Holding { memory, descriptors } = grown;
        let grown = if memory > most.memory {
            format!("by {memory} bytes of memory: more than worker_memory_growth_max")
        } else if descriptors > most.descriptors {
            format!("by {descriptors} descriptors: more than worker_descriptors_growth_max")
        } else {
            return;
        };
        self.worn.get_or_init(|| {
            format!("it has grown {grown} allows, and makes room for a fresh process")
        });
    }

    /// Why the worker is to end at the next opportunity, if it is.
    #[must_use]
    pub fn worn(&self) -> Option<&str> {
        self.worn.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Holding = Holding { memory: 1_000, descriptors: 10 };
    const MOST: GrowthMax = Holding { memory: 500, descriptors: 5 };

    #[test]
    fn a_worker_is_worn_when_it_has_grown_further_than_it_may_and_stays_so() {
        let wear = Wear::default();
        wear.note(Holding { memory: u64::MAX, descriptors: u64::MAX }, MOST);
        assert_eq!(wear.worn(), None, "it was not READY yet");
        wear.start(FRESH);
        wear.note(Holding { memory: 1_500, descriptors: 15 }, MOST);
        wear.note(Holding { memory: 0, descriptors: 0 }, MOST);
        assert_eq!(wear.worn(), None, "as far as it may");
        wear.note(Holding { memory: 1_501, descriptors: 15 }, MOST);
        let why = wear.worn().expect("a byte too far");
        assert!(why.contains("501 bytes of memory: more than worker_memory_growth_max"), "{why}");
        wear.note(FRESH, MOST);
        assert!(wear.worn().is_some(), "it ends all the same");
        let wear = Wear::default();
        wear.start(FRESH);
        wear.note(Holding { memory: 1_500, descriptors: 16 }, MOST);
        let why = wear.worn().expect("a descriptor too far");
        assert!(why.contains("6 descriptors"), "{why}");
    }

    #[test]
    fn what_a_worker_was_told_to_hold_is_no_growth_and_what_it_was_told_to_let_go_of_is() {
        let held = |memory| Holding { memory, descriptors: 10 };
        let model = Holding { memory: 2_000, descriptors: 1 };
        let wear = Wear::default();
        wear.wants(model);
        wear.start(held(3_000));
        wear.changes();
        wear.note(held(100_000), MOST);
        wear.wants(model.plus(model));
        wear.note(held(5_500), MOST);
        assert_eq!(wear.worn(), None, "one more model, and as far as it may grow beside that");
        wear.wants(model);
        wear.note(held(3_500), MOST);
        assert_eq!(wear.worn(), None, "that model has gone");
        wear.wants(Holding::default());
        wear.note(held(1_501), MOST);
        let why = wear.worn().expect("the first model has gone, and not all of its memory");
        assert!(why.contains("501 bytes of memory"), "{why}");
    }

    #[test]
    fn memory_and_descriptors_that_are_taken_are_seen() {
        let before = Holding::now().unwrap();
        let memory = vec![1_u8; 64 << 20];
        let files: Vec<_> = (0..64).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = Holding::now().unwrap();
        // Other tests run beside this one: most of it must be there.
        assert!(after.memory >= before.memory + (32 << 20), "{before:?} {after:?}");
        assert!(after.descriptors >= before.descriptors + 32, "{before:?} {after:?}");
        drop((memory, files));
    }
}
