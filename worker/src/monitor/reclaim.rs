//! Decides when the memory of an ended process is free again: plain data, no NVML.
//!
//! A device's memory belongs to the processes that NVML lists, except for the rest: memory that the driver
//! keeps, and memory that a process still holds although it is no longer listed. The rest is recorded while
//! the process lives. Its memory is free once the process is not listed and the rest is back at that level.
//! So other processes on the device, such as a standby, may come, go and grow meanwhile.
//!
//! If NVML never listed the process (in a container it may see none), or does not say what each process
//! holds, the device's memory has to be stable for a moment instead.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How far the rest may be above its recorded level.
const TOLERANCE_BYTES: u64 = 64 << 20;
/// How long after the question the answer is that the memory is not free.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// Memory is stable if it changes by at most this much.
const STILL_BYTES: u64 = 1 << 20;
/// Polls in a row during which memory has to be stable: a tenth of a second.
const STILL_POLLS: u32 = 5;
/// How long a process that is not listed any more is remembered.
const REMEMBERED_MAX: Duration = Duration::from_secs(60);

/// One process with a context on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Bytes that it holds, if NVML says.
    pub(super) used: Option<u64>,
}

/// The memory of a device and its users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// All bytes in use.
    pub(super) used: u64,
    pub(super) processes: Vec<Process>,
}

impl Usage {
    fn lists(&self, pid: u32) -> bool {
        self.processes.iter().any(|process| process.pid == pid)
    }

    /// Bytes that no listed process holds; `None` if NVML does not say what each holds.
    fn rest(&self) -> Option<u64> {
        let held = self.processes.iter().map(|process| process.used).sum::<Option<u64>>()?;
        Some(self.used.saturating_sub(held))
    }
}

/// A process, as recorded when it was last listed.
#[derive(Clone, Copy, Debug)]
struct Listed {
    seen: Instant,
    /// The rest of the device's memory at that time.
    rest: Option<u64>,
}

/// The record of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceHistory {
    listed: BTreeMap<u32, Listed>,
}

impl DeviceHistory {
    /// Records a sample of the device.
    pub(super) fn note(&mut self, now: Instant, usage: &Usage) {
        let rest = usage.rest();
        for process in &usage.processes {
            self.listed.insert(process.pid, Listed { seen: now, rest });
        }
        self.listed.retain(|_, listed| now.duration_since(listed.seen) < REMEMBERED_MAX);
    }

    fn rest_beside(&self, pid: u32) -> Option<u64> {
        self.listed.get(&pid)?.rest
    }
}

/// Samples since the question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    last_used: Option<u64>,
    still: u32,
}

impl Progress {
    /// Whether the memory of `pid` is free, or `None` if that is not known yet. `waited` is the time since the
    /// question, `usage` the newest sample.
    pub(super) fn check(
        &mut self,
        history: &DeviceHistory,
        pid: u32,
        usage: Option<&Usage>,
        waited: Duration,
    ) -> Option<bool> {
        let is_back = usage.is_some_and(|usage| self.is_back(history, pid, usage));
        if is_back { Some(true) } else { (waited >= RECLAIM_TIMEOUT).then_some(false) }
    }

    fn is_back(&mut self, history: &DeviceHistory, pid: u32, usage: &Usage) -> bool {
        if usage.lists(pid) {
            *self = Self::default();
            return false;
        }
        if let (Some(before), Some(now)) = (history.rest_beside(pid), usage.rest()) {
            return now <= before.saturating_add(TOLERANCE_BYTES);
        }
        let stands = self.last_used.is_some_and(|last| last.abs_diff(usage.used) <= STILL_BYTES);
        self.last_used = Some(usage.used);
        self.still = if stands { self.still + 1 } else { 0 };
        self.still >= STILL_POLLS
    }
}

#[cfg(test)]
mod tests {
    use gridpool_ipc::clock;

    use super::*;

    const MIB: u64 = 1 << 20;
    const SOON: Duration = Duration::from_millis(20);

    /// `used` MiB in all; each process has its number and its MiB.
    fn usage(used: u64, processes: &[(u32, u64)]) -> Usage {
        let process = |&(pid, held): &(u32, u64)| Process { pid, used: Some(held * MIB) };
        Usage { used: used * MIB, processes: processes.iter().map(process).collect() }
    }

    fn history(usage: &Usage) -> DeviceHistory {
        let mut history = DeviceHistory::default();
        history.note(clock::now(), usage);
        history
    }

    #[test]
    fn memory_is_free_once_the_process_is_unlisted_and_the_rest_is_at_its_old_level() {
        let history = history(&usage(1_400, &[(7, 900)]));
        let mut progress = Progress::default();
        let mut check = |now: &Usage| progress.check(&history, 7, Some(now), SOON);
        assert_eq!(check(&usage(1_400, &[(7, 900)])), None, "it is still listed");
        assert_eq!(check(&usage(1_400, &[])), None, "it is not listed and still holds it");
        assert_eq!(check(&usage(565, &[])), None, "65 MiB too many");
        assert_eq!(check(&usage(564, &[])), Some(true));
    }

    #[test]
    fn a_standby_beside_it_may_stay_and_grow() {
        let history = history(&usage(2_000, &[(7, 900), (8, 600)]));
        let mut progress = Progress::default();
        let mut check = |now: &Usage| progress.check(&history, 7, Some(now), SOON);
        assert_eq!(check(&usage(2_500, &[(8, 1_100)])), None);
        assert_eq!(check(&usage(1_600, &[(8, 1_100)])), Some(true));
    }

    #[test]
    fn memory_of_a_process_that_was_never_listed_is_free_once_memory_is_stable() {
        let history = DeviceHistory::default();
        let mut progress = Progress::default();
        let mut check = |used| progress.check(&history, 7, Some(&usage(used, &[])), SOON);
        for used in [1_400, 1_000, 700, 500, 500, 500, 500, 500] {
            assert_eq!(check(used), None, "{used}");
        }
        assert_eq!(check(500), Some(true));
    }

    #[test]
    fn memory_of_unknown_owners_has_to_be_stable_too() {
        let nameless =
            |used| Usage { used: used * MIB, processes: vec![Process { pid: 8, used: None }] };
        let mut before = nameless(1_400);
        before.processes.push(Process { pid: 7, used: None });
        let history = history(&before);
        let mut progress = Progress::default();
        let mut check = |now: &Usage| progress.check(&history, 7, Some(now), SOON);
        for _ in 0..20 {
            assert_eq!(check(&before), None, "it is still listed");
        }
        let answers: Vec<_> = (0..6).map(|_| check(&nameless(500))).collect();
        assert_eq!(answers, [None, None, None, None, None, Some(true)]);
    }

    #[test]
    fn after_ten_seconds_the_answer_is_no() {
        let history = history(&usage(1_400, &[(7, 900)]));
        let mut progress = Progress::default();
        let stuck = usage(1_400, &[]);
        let mut check = |usage, waited| progress.check(&history, 7, usage, waited);
        assert_eq!(check(Some(&stuck), RECLAIM_TIMEOUT - SOON), None);
        assert_eq!(check(Some(&stuck), RECLAIM_TIMEOUT), Some(false));
        assert_eq!(check(None, RECLAIM_TIMEOUT - SOON), None);
        assert_eq!(check(None, RECLAIM_TIMEOUT), Some(false));
    }

    #[test]
    fn processes_that_are_long_gone_are_forgotten() {
        let now = clock::now();
        let mut history = DeviceHistory::default();
        history.note(now, &usage(900, &[(7, 400)]));
        history.note(now + REMEMBERED_MAX / 2, &usage(500, &[]));
        assert_eq!(history.rest_beside(7), Some(500 * MIB));
        history.note(now + REMEMBERED_MAX, &usage(500, &[]));
        assert_eq!(history.rest_beside(7), None);
    }
}
