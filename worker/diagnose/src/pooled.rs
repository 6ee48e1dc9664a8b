//! What an answer's receipt must show: the job ended OK, at the first attempt, on the intended device, and
//! something was launched there.

use std::sync::Arc;

use gridpool_bench::failure::Failure;
use gridpool_client::ClientError;
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Receipt, Verdict};

/// The start of the pool's message for more shared memory than a client may have.
const ARENA_REFUSED: &str = "an arena of ";

/// What an error means for a check: if memory is short, the size is not tested.
pub(super) fn failure(error: ClientError) -> Failure {
    if let ClientError::Refused(Refusal::Invalid(why)) = &error
        && why.starts_with(ARENA_REFUSED)
    {
        return Failure::Skipped(why.clone());
    }
    error.into()
}

/// Enough digits of a hash to tell it from others.
const HASH_DIGITS: usize = 12;

/// The sum of a check's receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    pub(super) jobs: u64,
    pub(super) items: u64,
    pub(super) item_errors: u64,
    pub(super) launches: u64,
    /// The last worker that answered, and its module.
    pub(super) worker: Arc<str>,
    pub(super) module: Arc<str>,
}

impl Proof {
    /// Adds a receipt. The error is a sentence on what is wrong with it.
    pub(super) fn add(&mut self, receipt: &Receipt, device: DeviceId) -> Result<(), String> {
        if receipt.verdict != Verdict::Ok {
            self.remember(receipt.attempts.last());
            return Err(format!("the verdict is {}: {}", receipt.verdict, receipt.reason));
        }
        for attempt in &receipt.attempts {
            self.remember(Some(attempt));
            let Attempt { worker, outcome, detail, .. } = attempt;
            if *outcome != AttemptOutcome::Ok {
                return Err(format!("it needed another attempt: {worker} {outcome:?}: {detail}"));
            }
            if attempt.device.id() != device {
                let (got, name) = (attempt.device.id(), &attempt.device.name);
                return Err(format!("it ran on {got} ({name}), and not on {device}"));
            }
            let launches = attempt.kernels.iter().map(|kernel| u64::from(kernel.launches));
            let launches: u64 = launches.sum();
            if launches == 0 {
                return Err(format!("{worker} answered, and its launch counters did not move"));
            }
            self.launches += launches;
        }
        let items: u32 = receipt.attempts.iter().map(|attempt| attempt.part.len()).sum();
        if items != receipt.items {
            let parts = receipt.attempts.len();
            return Err(format!(
                "{items} items were run in {parts} parts, and {} submitted",
                receipt.items
            ));
        }
        self.jobs += 1;
        self.items += u64::from(receipt.items);
        self.item_errors += u64::from(receipt.item_errors);
        Ok(())
    }

    fn remember(&mut self, attempt: Option<&Attempt>) {
        if let Some(attempt) = attempt {
            self.worker.clone_from(&attempt.worker);
            self.module.clone_from(&attempt.module_hash);
        }
    }

    /// The worker that answered, as part of a sentence.
    pub(super) fn by(&self) -> String {
        if self.worker.is_empty() {
            return String::new();
        }
        let digits = self.module.len().min(HASH_DIGITS);
        match &self.module[..digits] {
            "" => format!(" (by {})", self.worker),
            module => format!(" (by {}, module {module})", self.worker),
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::ids::DeviceKind;
    use gridpool_protocol::receipt::{DeviceInfo, ItemRange, KernelUse, RunReport};

    use super::*;

    const CPU0: DeviceId = DeviceId { kind: DeviceKind::Cpu, index: 0 };

    fn receipt(launches: u32) -> Receipt {
        let device = DeviceInfo { name: "a processor".to_owned(), ..DeviceInfo::default() };
        let report = RunReport {
            module_hash: "0123456789abcdef".into(),
            items: 3,
            joined_items: 3,
            item_errors: 1,
            kernels: [KernelUse { name: "rot90".to_owned(), launches, device_us: 1.0 }].into(),
            service_us: 1,
            ..RunReport::default()
        };
        let part = ItemRange { start: 0, end: 3 };
        Receipt {
            host: String::new(),
            job: "job1".to_owned(),
            key: String::new(),
            program_hash: "".into(),
            trace_id: String::new(),
            items: 3,
            item_errors: 1,
            verdict: Verdict::Ok,
            reason: String::new(),
            queue_us: 0,
            total_us: 0,
            attempts: vec![Attempt::answered("cpu0#1", device, part, report)],
        }
    }

    #[test]
    fn a_size_without_enough_memory_is_not_tested() {
        let invalid = |why: &str| failure(Refusal::Invalid(why.to_owned()).into());
        assert!(matches!(invalid("an arena of 5 bytes; one client may"), Failure::Skipped(_)));
        assert!(matches!(invalid("the result would overwrite the batch"), Failure::Wrong(_)));
        assert!(matches!(failure(ClientError::Lost), Failure::Lost(_)));
    }

    #[test]
    fn a_receipt_counts_if_it_shows_the_device_at_work() {
        let mut proof = Proof::default();
        proof.add(&receipt(2), CPU0).unwrap();
        proof.add(&receipt(2), CPU0).unwrap();
        assert_eq!((proof.jobs, proof.items, proof.item_errors, proof.launches), (2, 6, 2, 4));
        assert_eq!(proof.by(), " (by cpu0#1, module 0123456789ab)");
    }

    #[test]
    fn a_receipt_that_proves_nothing_says_what_is_missing() {
        let why = |receipt: &Receipt| Proof::default().add(receipt, CPU0).unwrap_err();
        assert!(why(&receipt(0)).contains("its launch counters did not move"));
        let failed =
            Receipt { verdict: Verdict::Failed, reason: "no memory".to_owned(), ..receipt(1) };
        assert_eq!(why(&failed), "the verdict is FAILED: no memory");
        let mut elsewhere = receipt(1);
        Arc::make_mut(&mut elsewhere.attempts[0].device).kind = DeviceKind::Gpu;
        assert_eq!(why(&elsewhere), "it ran on gpu0 (a processor), and not on cpu0");
        let mut again = receipt(1);
        again.attempts[0].outcome = AttemptOutcome::Hang;
        assert!(why(&again).starts_with("it needed another attempt: cpu0#1 Hang"));
        let mut partly = receipt(1);
        partly.attempts[0].part.end = 2;
        assert_eq!(why(&partly), "2 items were run in 1 parts, and 3 submitted");
    }
}
