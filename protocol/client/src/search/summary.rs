//! What a search has done so far.

use std::collections::BTreeMap;

use gridpool_protocol::receipt::{AttemptOutcome, KernelUse, Receipt};
use gridpool_protocol::search::SearchReport;

use super::SearchOutcome;
use super::outcomes::Outcomes;
use super::plan::Place;

/// What a search has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchSummary {
    /// Programs whose results have come, those of templates each.
    pub requested: u64,
    /// Those of them that devices made of templates.
    pub expanded: u64,
    /// Those of them that did not compile or never give a grid.
    pub refused: u64,
    /// Those of them that equal an earlier one, and did not run again.
    pub deduplicated: u64,
    /// Those of them without a verdict.
    pub failed: u64,
    /// How often each status came, by its byte.
    pub statuses: BTreeMap<u8, u64>,
    /// What the devices did.
    pub evaluations: SearchReport,
    /// Verdicts that were compared with another machine's.
    pub checked: u64,
    /// Jobs with a verdict.
    pub jobs: u64,
    /// Attempts of jobs that ended without an answer.
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
        for attempt in &receipt.attempts {
            if attempt.outcome != AttemptOutcome::Ok {
                self.attempts_lost += 1;
                continue;
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
            for byte in verdicts.bytes() {
                *self.statuses.entry(*byte).or_default() += 1;
            }
        }
    }

    /// Adds the results of programs of a template.
    pub(super) fn count_expanded(&mut self, outcomes: &Outcomes) {
        self.requested += outcomes.len() as u64;
        self.expanded += outcomes.len() as u64;
        self.failed += outcomes.failed();
        let mut counts = [0_u64; 256];
        outcomes.statuses().flatten().for_each(|byte| counts[usize::from(*byte)] += 1);
        for (byte, count) in (0..=u8::MAX).zip(counts).filter(|(_, count)| *count > 0) {
            *self.statuses.entry(byte).or_default() += count;
        }
    }

    /// Microseconds that the devices have worked, and processors in their place.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
    pub(super) fn busy_us(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.device_us).sum::<f64>() as u64
    }
}
