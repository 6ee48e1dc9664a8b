//! What a search has done so far.

use std::collections::BTreeMap;

use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::receipt::{AttemptOutcome, KernelUse, Receipt};
use gridpool_protocol::search::{PairStatus, SearchReport};

use super::SearchOutcome;
use super::outcomes::Outcomes;
use super::plan::Place;

/// Statuses that are counted together: they stay in the cache for all passes.
const COUNTED_AT_ONCE: usize = 4_096;

/// What a search has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchSummary {
    /// Programs whose results were given; those that a device made of a template count when all of their job were
    /// given. Once the search has ended, all that were read.
    pub requested: u64,
    /// Those of them that devices made of templates.
    pub expanded: u64,
    /// Those of them that did not compile or never give a grid.
    pub refused: u64,
    /// Those of them that equal an earlier one, and did not run again.
    pub deduplicated: u64,
    /// Those of them without a verdict.
    pub failed: u64,
    /// Those of them that have no result, since the search was stopped or ended with an error.
    pub undecided: u64,
    /// How often each status came, by its byte.
    pub statuses: BTreeMap<u8, u64>,
    /// What the devices did.
    pub evaluations: SearchReport,
    /// Verdicts that were compared with another machine's.
    pub checked: u64,
    /// Jobs with a verdict.
    pub jobs: u64,
    /// Of the first job that was dispatched, from its acceptance to then, microseconds: in a pool that starts, its
    /// start.
    pub queue_us: Option<u64>,
    /// Attempts of jobs that ended without an answer. Those of cancelled jobs are left out, since a search that is
    /// stopped cancels its own, and those whose worker ended because of another attempt.
    pub attempts_lost: u64,
    /// Kernels, or reference functions, with launches and times.
    pub kernels: Vec<KernelUse>,
    /// Devices that ran programs, by name.
    pub devices: Vec<String>,
}

impl SearchSummary {
    /// Adds a job's receipt.
    pub(super) fn note(&mut self, receipt: &Receipt) {
        self.jobs += 1;
        if !receipt.attempts.is_empty() {
            self.queue_us.get_or_insert(receipt.queue_us);
        }
        for attempt in &receipt.attempts {
            match attempt.outcome {
                AttemptOutcome::Ok => {}
                AttemptOutcome::Cancelled | AttemptOutcome::Preempted => continue,
                AttemptOutcome::Deadline
                | AttemptOutcome::DeviceError
                | AttemptOutcome::Hang
                | AttemptOutcome::Refused
                | AttemptOutcome::WorkerDied => {
                    self.attempts_lost += 1;
                    continue;
                }
            }
            self.evaluations = self.evaluations.plus(attempt.search.unwrap_or_default());
            let device = attempt.device.id().to_string();
            if !self.devices.contains(&device) {
                self.devices.push(device);
            }
            attempt.kernels.iter().for_each(|kernel| self.note_kernel(kernel));
        }
    }

    fn note_kernel(&mut self, more: &KernelUse) {
        match self.kernels.iter_mut().find(|known| known.name == more.name) {
            Some(known) => {
                known.launches = known.launches.saturating_add(more.launches);
                known.device_us += more.device_us;
            }
            None => self.kernels.push(more.clone()),
        }
    }

    /// Adds a result.
    pub(super) fn count(&mut self, place: &Place, outcome: &SearchOutcome) {
        self.requested += 1;
        match (place, outcome) {
            (Place::Refused(_), _) | (_, SearchOutcome::Refused(_)) => self.refused += 1,
            (Place::Same(_), _) => self.deduplicated += 1,
            (Place::Runs(_), _) => {}
        }
        self.failed += u64::from(matches!(outcome, SearchOutcome::Failed { .. }));
        if let SearchOutcome::Done(verdicts) = outcome {
            self.count_statuses(verdicts.bytes());
        }
    }

    /// Adds the results of programs of a template.
    pub(super) fn count_expanded(&mut self, outcomes: &Outcomes) {
        self.requested += outcomes.len() as u64;
        self.expanded += outcomes.len() as u64;
        self.failed += outcomes.failed();
        outcomes.statuses().for_each(|statuses| self.count_statuses(statuses));
    }

    /// The search has ended, and so many programs were read.
    pub(super) fn count_undecided(&mut self, read: u64) {
        self.undecided += read - self.requested;
        self.requested = read;
    }

    /// Adds statuses. There may be billions, most of them one of a few: a pass for each of those takes a tenth of the
    /// time that a look at each byte takes.
    fn count_statuses(&mut self, statuses: &[u8]) {
        let errors = ItemErrorCode::ALL.map(|code| code as u8);
        let most = [PairStatus::DIFFERS, PairStatus::EQUAL];
        let all = most.into_iter().chain(errors).chain([PairStatus::NO_PROGRAM]);
        for part in statuses.chunks(COUNTED_AT_ONCE) {
            let mut left = part.len() as u64;
            for status in all.clone() {
                if left == 0 {
                    break;
                }
                let count = count_of(status, part);
                left -= count;
                if count > 0 {
                    *self.statuses.entry(status).or_default() += count;
                }
            }
        }
    }

    /// Whether GPUs alone ran programs.
    pub(super) fn is_of_gpus(&self) -> bool {
        let is_gpu = |device: &String| device.starts_with(DeviceKind::Gpu.name());
        !self.devices.is_empty() && self.devices.iter().all(is_gpu)
    }

    /// Microseconds that the devices have worked, and processors in their place.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
    pub(super) fn busy_us(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.device_us).sum::<f64>() as u64
    }
}

/// How many of the bytes are this one. Sums of a byte each, which the processor makes side by side.
fn count_of(one: u8, bytes: &[u8]) -> u64 {
    let of_part = |part: &[u8]| part.iter().fold(0_u8, |sum, byte| sum + u8::from(*byte == one));
    bytes.chunks(u8::MAX.into()).map(|part| u64::from(of_part(part))).sum()
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::receipt::{Attempt, DeviceInfo, ItemRange};

    use super::*;

    #[test]
    fn an_attempt_that_others_have_ended_is_not_lost() {
        let attempt = |outcome| {
            let (worker, device) = ("cpu0#1", DeviceInfo::default());
            Attempt::unreported(worker, device, ItemRange::default(), outcome, String::new())
        };
        let outcomes =
            [AttemptOutcome::Preempted, AttemptOutcome::WorkerDied, AttemptOutcome::Cancelled];
        let attempts = outcomes.map(attempt).into();
        let mut summary = SearchSummary::default();
        summary.note(&Receipt { attempts, ..Receipt::default() });
        assert_eq!(summary.attempts_lost, 1);
    }

    #[test]
    fn a_search_that_ends_has_read_what_it_gave_and_what_is_undecided() {
        let mut summary = SearchSummary { requested: 3, ..SearchSummary::default() };
        for read in [10, 10] {
            summary.count_undecided(read);
            assert_eq!((summary.requested, summary.undecided), (10, 7));
        }
    }

    #[test]
    fn the_wait_of_the_first_job_that_ran_is_kept() {
        let attempt = || {
            let (worker, device) = ("cpu0#1", DeviceInfo::default());
            let outcome = AttemptOutcome::Ok;
            Attempt::unreported(worker, device, ItemRange::default(), outcome, String::new())
        };
        let mut summary = SearchSummary::default();
        for (queue_us, attempts) in [(5, vec![]), (0, vec![attempt()]), (9, vec![attempt()])] {
            summary.note(&Receipt { queue_us, attempts, ..Receipt::default() });
        }
        assert_eq!(summary.queue_us, Some(0));
    }

    #[test]
    fn statuses_are_counted_as_if_each_were_looked_at() {
        let known: Vec<u8> =
            (0..=u8::MAX).filter(|byte| PairStatus::from_byte(*byte).is_some()).collect();
        for (length, rare) in [(0, 1), (1, 1), (300, 1), (4_095, 7), (20_000, 50)] {
            let of = |at: usize| match at % rare {
                0 => known[at / rare % known.len()],
                _ => PairStatus::DIFFERS,
            };
            let statuses: Vec<u8> = (0..length).map(of).collect();
            let (mut summary, mut want) = (SearchSummary::default(), BTreeMap::<u8, u64>::new());
            summary.count_statuses(&statuses);
            statuses.iter().for_each(|status| *want.entry(*status).or_default() += 1);
            assert_eq!(summary.statuses, want);
        }
    }
}
