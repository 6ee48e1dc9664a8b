//! The growth of a process that serves for months: memory and descriptors that are never freed. A worker
//! that has grown too far since READY is recycled: it ends between two jobs, and a fresh process takes its
//! place.

use std::sync::OnceLock;

use gridpool_ipc::mutex::Mutex;
use procfs::process::Process;
use procfs::{ProcError, ProcResult};

/// Resources that only the end of the process frees for certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Bytes of private memory. Arenas are shared and counted elsewhere.
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl Holding {
    /// What this process holds now.
    ///
    /// # Errors
    /// The system's, or that `/proc` lacks a number.
    pub fn now() -> ProcResult<Self> {
        let process = Process::myself()?;
        let kib = process.status()?.rssanon;
        let kib =
            kib.ok_or_else(|| ProcError::Other("/proc/self/status names no RssAnon".to_owned()))?;
        Ok(Self { memory: kib << 10, descriptors: process.fd_count()? as u64 })
    }
}

/// Allocations of this size and above are returned to the system when they are freed. The allocator keeps at
/// most this much at the end of each of its heaps.
#[cfg(target_env = "gnu")]
const KEPT_MAX: i32 = 1 << 20;

/// Makes freed memory of models return to the system. By default the C library's allocator adapts: it keeps
/// freed blocks of the size of weights, because loading allocates and frees such blocks. No call frees the
/// memory at the end of a heap.
pub fn limit_kept_memory() {
    #[cfg(target_env = "gnu")]
    for limit in [nix::libc::M_MMAP_THRESHOLD, nix::libc::M_TRIM_THRESHOLD] {
        #[expect(unsafe_code, reason = "the allocator has no safe wrapper")]
        // SAFETY: it takes two numbers, and changes no memory in use.
        let is_set = unsafe { nix::libc::mallopt(limit, KEPT_MAX) };
        if is_set == 0 {
            tracing::warn!(limit, "freed memory of models may be kept");
        }
    }
}

/// Returns freed memory to the system: otherwise pages between blocks in use stay with the allocator.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the allocator has no safe wrapper")]
    // SAFETY: it takes a number, locks what it reads, and moves no memory in use.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// How far a worker may grow beyond its size at READY.
pub type GrowthMax = Holding;

impl Holding {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            descriptors: self.descriptors.saturating_add(other.descriptors),
        }
    }

    /// The difference, at least 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_sub(other.memory),
            descriptors: self.descriptors.saturating_sub(other.descriptors),
        }
    }
}

/// Watches a worker's growth since READY, and decides when it has grown too far.
#[derive(Debug, Default)]
pub struct Growth {
    baseline: Mutex<Baseline>,
    recycle_reason: OnceLock<String>,
}

/// The base from which growth is counted.
#[derive(Debug, Default)]
struct Baseline {
    /// What it held at READY.
    at_ready: Option<Holding>,
    /// The memory of its models at READY, and now.
    wanted_at_ready: Holding,
    wanted: Holding,
    /// A model command is changing that memory: growth is unknown until it ends.
    is_changing: bool,
}

impl Growth {
    /// Starts counting: the worker is READY and holds this much.
    pub fn start(&self, at_ready: Holding) {
        let mut baseline = self.baseline.lock();
        baseline.wanted_at_ready = baseline.wanted;
        baseline.at_ready = Some(at_ready);
    }

    /// A model command is about to change what the worker holds.
    pub fn begin_change(&self) {
        self.baseline.lock().is_changing = true;
    }

    /// Sets the memory that the worker's models may hold from now on. Everything beyond that and the base counts
    /// as growth, including memory of unloaded models that is not freed.
    pub fn set_wanted(&self, wanted: Holding) {
        let mut baseline = self.baseline.lock();
        (baseline.wanted, baseline.is_changing) = (wanted, false);
    }

    /// Notes what the worker holds now.
    pub fn note(&self, now: Holding, most: GrowthMax) {
        let baseline = self.baseline.lock();
        let Some(at_ready) = baseline.at_ready.filter(|_| !baseline.is_changing) else { return };
        let grown = now.plus(baseline.wanted_at_ready).minus(at_ready.plus(baseline.wanted));
        drop(baseline);
        let Holding { memory, descriptors } = grown;
        let grown = if memory > most.memory {
            format!("by {memory} bytes of memory: more than worker_memory_growth_max")
        } else if descriptors > most.descriptors {
            format!("by {descriptors} descriptors: more than worker_descriptors_growth_max")
        } else {
            return;
        };
        self.recycle_reason.get_or_init(|| {
            format!("it has grown {grown} allows: a fresh process takes its place")
        });
    }

    /// Why the worker should be recycled, if it should.
    #[must_use]
    pub fn recycle_reason(&self) -> Option<&str> {
        self.recycle_reason.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Holding = Holding { memory: 1_000, descriptors: 10 };
    const MOST: GrowthMax = Holding { memory: 500, descriptors: 5 };

    #[test]
    fn a_worker_that_has_grown_too_far_is_recycled_even_if_it_shrinks() {
        let growth = Growth::default();
        growth.note(Holding { memory: u64::MAX, descriptors: u64::MAX }, MOST);
        assert_eq!(growth.recycle_reason(), None, "it was not READY yet");
        growth.start(FRESH);
        growth.note(Holding { memory: 1_500, descriptors: 15 }, MOST);
        growth.note(Holding { memory: 0, descriptors: 0 }, MOST);
        assert_eq!(growth.recycle_reason(), None, "as far as it may");
        growth.note(Holding { memory: 1_501, descriptors: 15 }, MOST);
        let why = growth.recycle_reason().expect("a byte too far");
        assert!(why.contains("501 bytes of memory: more than worker_memory_growth_max"), "{why}");
        growth.note(FRESH, MOST);
        assert!(growth.recycle_reason().is_some(), "it ends all the same");
        let growth = Growth::default();
        growth.start(FRESH);
        growth.note(Holding { memory: 1_500, descriptors: 16 }, MOST);
        let why = growth.recycle_reason().expect("a descriptor too far");
        assert!(why.contains("6 descriptors"), "{why}");
    }

    #[test]
    fn loaded_models_are_not_growth_and_memory_kept_of_unloaded_ones_is() {
        let held = |memory| Holding { memory, descriptors: 10 };
        let model = Holding { memory: 2_000, descriptors: 1 };
        let growth = Growth::default();
        growth.set_wanted(model);
        growth.start(held(3_000));
        growth.begin_change();
        growth.note(held(100_000), MOST);
        growth.set_wanted(model.plus(model));
        growth.note(held(5_500), MOST);
        assert_eq!(
            growth.recycle_reason(),
            None,
            "one more model, and as far as it may grow beside that"
        );
        growth.set_wanted(model);
        growth.note(held(3_500), MOST);
        assert_eq!(growth.recycle_reason(), None, "that model has gone");
        growth.set_wanted(Holding::default());
        growth.note(held(1_501), MOST);
        let why =
            growth.recycle_reason().expect("the first model has gone, and not all of its memory");
        assert!(why.contains("501 bytes of memory"), "{why}");
    }

    #[test]
    fn memory_and_descriptors_are_counted() {
        let before = Holding::now().unwrap();
        let memory = vec![1_u8; 64 << 20];
        let files: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let after = Holding::now().unwrap();
        // Other tests run beside this one, so most of it must be there, not all.
        assert!(after.memory >= before.memory + (32 << 20), "{before:?} {after:?}");
        assert!(after.descriptors >= before.descriptors + 32, "{before:?} {after:?}");
        drop((memory, files));
    }
}
