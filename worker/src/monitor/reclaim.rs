//! When the memory of a process that has ended is back: plain data, no NVML.
//!
//! A device's memory is that of the processes that NVML lists, and the rest: what the driver keeps, and
//! what a process that is no longer listed still holds. The rest is noted while the process lives;
//! its memory is back once it is not listed and the rest is what it was. So other processes on the
//! device, a standby for one, may come, go and grow meanwhile.
//!
//! Where NVML never listed the process (in a container it may see none), or does not say what each
//! holds, the device's memory has to stand still for a moment instead.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How far the rest may be above what it was.
const TOLERANCE_BYTES: u64 = 64 << 20;
/// From the question to the answer that the memory is not back.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// Memory that moves by no more than this stands still.
const STILL_BYTES: u64 = 1 << 20;
/// Polls in a row between which memory has to stand still: a tenth of a second.
const STILL_POLLS: u32 = 5;
/// A process that is not listed is remembered for so long.
const REMEMBERED: Duration = Duration::from_secs(60);

/// One process with a context on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Bytes that it holds, if NVML says.
    pub(super) used: Option<u64>,
}

/// Who uses a device's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Bytes in use, whoever uses them.
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

/// What is noted of a process while it is listed.
#[derive(Clone, Copy, Debug)]
struct Known {
    seen: Instant,
    /// The rest of the device's memory beside it.
    rest: Option<u64>,
}

/// What is noted of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    known: BTreeMap<u32, Known>,
}

impl Ledger {
    /// Takes a look at the device into account.
    pub(super) fn note(&mut self, now: Instant, usage: &Usage) {
        let rest = usage.rest();
        for process in &usage.processes {
            self.known.insert(process.pid, Known { seen: now, rest });
        }
        self.known.retain(|_, known| now.duration_since(known.seen) < REMEMBERED);
    }

    fn rest_beside(&self, pid: u32) -> Option<u64> {
        self.known.get(&pid)?.rest
    }
}

/// What was seen since the question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    last_used: Option<u64>,
    still: u32,
}

impl Course {
    /// The answer to a question, if it can be given: whether the memory of `pid` is back, `waited` after
    /// the question. `usage` is what NVML says now.
    pub(super) fn judge(
        &mut self,
        ledger: &Ledger,
        pid: u32,
        usage: Option<&Usage>,
        waited: Duration,
    ) -> Option<bool> {
        let is_back = usage.is_some_and(|usage| self.is_back(ledger, pid, usage));
        if is_back { Some(true) } else { (waited >= RECLAIM_TIMEOUT).then_some(false) }
    }

    fn is_back(&mut self, ledger: &Ledger, pid: u32, usage: &Usage) -> bool {
        if usage.lists(pid) {
            *self = Self::default();
            return false;
        }
        if let (Some(before), Some(now)) = (ledger.rest_beside(pid), usage.rest()) {
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
    use super::*;
    use gridpool_protocol::clock;

    const MIB: u64 = 1 << 20;
    const SOON: Duration = Duration::from_millis(20);

    /// `used` MiB in all; of each process its number and its MiB.
    fn usage(used: u64, processes: &[(u32, u64)]) -> Usage {
        let process = |&(pid, held): &(u32, u64)| Process { pid, used: Some(held * MIB) };
        Usage { used: used * MIB, processes: processes.iter().map(process).collect() }
    }

    fn ledger(usage: &Usage) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.note(clock::now(), usage);
        ledger
    }

    #[test]
    fn memory_is_back_once_the_process_is_unlisted_and_the_rest_is_what_it_was() {
        let ledger = ledger(&usage(1_400, &[(7, 900)]));
        let mut course = Course::default();
        let mut judge = |now: &Usage| course.judge(&ledger, 7, Some(now), SOON);
        assert_eq!(judge(&usage(1_400, &[(7, 900)])), None, "it is still listed");
        assert_eq!(judge(&usage(1_400, &[])), None, "it is not listed and still holds it");
        assert_eq!(judge(&usage(565, &[])), None, "65 MiB too many");
        assert_eq!(judge(&usage(564, &[])), Some(true));
    }

    #[test]
    fn a_standby_beside_it_may_stay_and_grow() {
        let ledger = ledger(&usage(2_000, &[(7, 900), (8, 600)]));
        let mut course = Course::default();
        let mut judge = |now: &Usage| course.judge(&ledger, 7, Some(now), SOON);
        assert_eq!(judge(&usage(2_500, &[(8, 1_100)])), None);
        assert_eq!(judge(&usage(1_600, &[(8, 1_100)])), Some(true));
    }

    #[test]
    fn what_was_never_listed_is_back_once_memory_stands_still() {
        let ledger = Ledger::default();
        let mut course = Course::default();
        let mut judge = |used| course.judge(&ledger, 7, Some(&usage(used, &[])), SOON);
        for used in [1_400, 1_000, 700, 500, 500, 500, 500, 500] {
            assert_eq!(judge(used), None, "{used}");
        }
        assert_eq!(judge(500), Some(true));
    }

    #[test]
    fn memory_of_unknown_owners_has_to_stand_still_too() {
        let nameless =
            |used| Usage { used: used * MIB, processes: vec![Process { pid: 8, used: None }] };
        let mut before = nameless(1_400);
        before.processes.push(Process { pid: 7, used: None });
        let ledger = ledger(&before);
        let mut course = Course::default();
        let mut judge = |now: &Usage| course.judge(&ledger, 7, Some(now), SOON);
        for _ in 0..20 {
            assert_eq!(judge(&before), None, "it is still listed");
        }
        let answers: Vec<_> = (0..6).map(|_| judge(&nameless(500))).collect();
        assert_eq!(answers, [None, None, None, None, None, Some(true)]);
    }

    #[test]
    fn after_ten_seconds_the_answer_is_no() {
        let ledger = ledger(&usage(1_400, &[(7, 900)]));
        let mut course = Course::default();
        let stuck = usage(1_400, &[]);
        let mut judge = |usage, waited| course.judge(&ledger, 7, usage, waited);
        assert_eq!(judge(Some(&stuck), RECLAIM_TIMEOUT - SOON), None);
        assert_eq!(judge(Some(&stuck), RECLAIM_TIMEOUT), Some(false));
        assert_eq!(judge(None, RECLAIM_TIMEOUT - SOON), None);
        assert_eq!(judge(None, RECLAIM_TIMEOUT), Some(false));
    }

    #[test]
    fn processes_that_are_long_gone_are_forgotten() {
        let now = clock::now();
        let mut ledger = Ledger::default();
        ledger.note(now, &usage(900, &[(7, 400)]));
        ledger.note(now + REMEMBERED / 2, &usage(500, &[]));
        assert_eq!(ledger.rest_beside(7), Some(500 * MIB));
        ledger.note(now + REMEMBERED, &usage(500, &[]));
        assert_eq!(ledger.rest_beside(7), None);
    }
}
