//! What a process that serves for months may lose bit by bit: memory and descriptors that nothing gives
//! back. A worker that has grown too far since it was READY ends between two jobs, and a fresh process
//! takes its place.

use std::fs;
use std::io;
use std::sync::OnceLock;

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

/// How far a worker may grow beyond what it held when it was READY.
pub type GrowthMax = Holding;

/// What a worker held when it was READY, and whether it has grown too far since.
#[derive(Debug, Default)]
pub struct Wear {
    fresh: OnceLock<Holding>,
    worn: OnceLock<String>,
}

impl Wear {
    /// The worker is READY and holds this much.
    pub fn start(&self, fresh: Holding) {
        self.fresh.get_or_init(|| fresh);
    }

    /// The worker holds this much now.
    pub fn note(&self, now: Holding, most: GrowthMax) {
        let Some(fresh) = self.fresh.get() else { return };
        let memory = now.memory.saturating_sub(fresh.memory);
        let descriptors = now.descriptors.saturating_sub(fresh.descriptors);
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
