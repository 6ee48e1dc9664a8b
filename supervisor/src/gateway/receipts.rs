//! The receipts of the last jobs that the gateway has sent, for the page. Each is shown to whom its job was for, and
//! to operators.

use std::collections::VecDeque;
use std::mem::size_of;

use gridpool_client::Principal;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::receipt::{Attempt, KernelUse, Receipt};
use gridpool_protocol::tensor::model::ProviderNodes;
use serde_json::{Value, json};

use super::limits::{RECEIPTS_BYTES_MAX, RECEIPTS_MAX, RECEIPTS_SHOWN_MAX};

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Receipts(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: VecDeque<(Principal, Receipt)>,
    bytes: usize,
}

impl Receipts {
    /// Keeps a receipt, and drops the oldest ones that there is no room for.
    pub(super) fn keep(&self, principal: Principal, receipt: Receipt) {
        let bytes = weight(&receipt);
        if bytes > RECEIPTS_BYTES_MAX {
            return;
        }
        let mut dropped = Vec::new();
        let mut kept = self.0.lock();
        while kept.all.len() >= RECEIPTS_MAX || kept.bytes + bytes > RECEIPTS_BYTES_MAX {
            let Some(oldest) = kept.all.pop_front() else { break };
            kept.bytes -= weight(&oldest.1);
            dropped.push(oldest);
        }
        kept.bytes += bytes;
        kept.all.push_back((principal, receipt));
        // Their memory is given back without the lock.
        drop(kept);
        drop(dropped);
    }

    /// The latest that a principal may see, all if it is an operator; the latest first.
    pub(super) fn document(&self, principal: &Principal, is_operator: bool) -> Value {
        let kept = self.0.lock();
        let own = kept.all.iter().rev().filter(|(whose, _)| is_operator || whose == principal);
        let rows: Vec<_> = own
            .take(RECEIPTS_SHOWN_MAX)
            .map(|(whose, receipt)| json!({ "principal": whose.to_string(), "receipt": receipt }))
            .collect();
        rows.into()
    }
}

/// About how much memory a receipt takes.
fn weight(receipt: &Receipt) -> usize {
    let of_attempt = |attempt: &Attempt| {
        let infer = attempt.infer.iter().map(|infer| {
            infer.nodes.len() * (size_of::<ProviderNodes>() + 64) + infer.steps.len() * 256
        });
        let kernels = attempt.kernels.len() * (size_of::<KernelUse>() + 32);
        size_of::<Attempt>() + 256 + attempt.detail.len() + kernels + infer.sum::<usize>()
    };
    size_of::<Receipt>()
        + 128
        + receipt.reason.len()
        + receipt.attempts.iter().map(of_attempt).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(job: usize, reason: usize) -> Receipt {
        Receipt { job: format!("job{job}"), reason: "x".repeat(reason), ..Receipt::default() }
    }

    #[test]
    fn each_sees_its_own_and_an_operator_all_the_latest_first() {
        let receipts = Receipts::default();
        for (job, uid) in [0, 1, 0, 1].into_iter().enumerate() {
            receipts.keep(Principal::Uid(uid), receipt(job, 0));
        }
        let jobs = |uid, is_operator| {
            let document = receipts.document(&Principal::Uid(uid), is_operator);
            let rows = document.as_array().unwrap().iter();
            rows.map(|row| row["receipt"]["job"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(jobs(1, false), ["job3", "job1"]);
        assert_eq!(jobs(1, true), ["job3", "job2", "job1", "job0"]);
        assert!(jobs(2, false).is_empty());
    }

    #[test]
    fn they_are_bounded_in_number_and_in_bytes() {
        let receipts = Receipts::default();
        (0..RECEIPTS_MAX + 9).for_each(|job| receipts.keep(Principal::Gateway, receipt(job, 0)));
        assert_eq!(receipts.0.lock().all.len(), RECEIPTS_MAX);
        let shown = receipts.document(&Principal::Gateway, false);
        assert_eq!(shown.as_array().unwrap().len(), RECEIPTS_SHOWN_MAX);
        (0..9).for_each(|job| {
            receipts.keep(Principal::Gateway, receipt(job, RECEIPTS_BYTES_MAX / 4))
        });
        let kept = receipts.0.lock();
        assert!(kept.bytes <= RECEIPTS_BYTES_MAX && kept.all.len() == 3, "{}", kept.all.len());
        drop(kept);
        receipts.keep(Principal::Gateway, receipt(0, RECEIPTS_BYTES_MAX));
        assert_eq!(receipts.0.lock().all.len(), 3, "one that is too large is not kept");
    }
}
