//! Verdicts remembered by key, the latest few thousand, so that a resubmission is not run again.

use std::collections::{BTreeMap, VecDeque};

use gridpool_protocol::codec;
use gridpool_protocol::ids::{JobId, JobKey};
use gridpool_protocol::receipt::Receipt;

/// A memory of verdicts, bounded in their number and their bytes; the oldest goes first.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// Encoded, because that takes a third of the memory and of the allocations, and its size is known.
    receipts: BTreeMap<JobKey, Box<[u8]>>,
    keys: BTreeMap<JobId, JobKey>,
    order: VecDeque<(JobKey, JobId)>,
    /// Of all receipts.
    bytes: usize,
    kept: usize,
    bytes_max: usize,
}

impl Verdicts {
    pub(super) fn new(kept: usize, bytes_max: usize) -> Self {
        Self {
            receipts: BTreeMap::new(),
            keys: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            kept,
            bytes_max,
        }
    }

    /// Sets the limits. What is over them goes with the next verdict.
    pub(super) fn limit(&mut self, kept: usize, bytes_max: usize) {
        (self.kept, self.bytes_max) = (kept, bytes_max);
    }

    pub(super) fn find(&self, key: JobKey) -> Option<Receipt> {
        let bytes = self.receipts.get(&key)?;
        Some(codec::decode(bytes).expect("what was encoded here can be decoded"))
    }

    /// The verdict of a job by its number.
    pub(super) fn find_job(&self, job: JobId) -> Option<Receipt> {
        self.find(*self.keys.get(&job)?)
    }

    pub(super) fn remember(&mut self, key: JobKey, job: JobId, receipt: &Receipt) {
        // A receipt that fits no frame does not reach its client either.
        let Ok(bytes) = codec::encode(receipt) else { return };
        self.bytes += bytes.len();
        match self.receipts.insert(key, bytes.into()) {
            Some(before) => self.bytes -= before.len(),
            None => {
                self.order.push_back((key, job));
                self.keys.insert(job, key);
            }
        }
        while self.order.len() > self.kept || self.bytes > self.bytes_max {
            let (oldest, job) = self.order.pop_front().expect("what is over a limit is not empty");
            let receipt = self.receipts.remove(&oldest).expect("each key in order has a receipt");
            self.bytes -= receipt.len();
            self.keys.remove(&job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(reason: &str) -> Receipt {
        Receipt { reason: reason.to_owned(), ..Receipt::default() }
    }

    #[test]
    fn the_oldest_goes_at_either_limit() {
        let bytes = codec::encode(&receipt("12345678")).unwrap().len();
        let mut verdicts = Verdicts::new(3, 2 * bytes);
        let is_there =
            |verdicts: &Verdicts| [1, 2, 3, 4].map(|key| verdicts.find(JobKey(key)).is_some());
        verdicts.remember(JobKey(1), JobId(1), &receipt("12345678"));
        verdicts.remember(JobKey(2), JobId(2), &receipt("87654321"));
        assert_eq!(is_there(&verdicts), [true, true, false, false]);
        verdicts.remember(JobKey(3), JobId(3), &receipt("1"));
        assert_eq!(is_there(&verdicts), [false, true, true, false]);
        assert_eq!(verdicts.find_job(JobId(2)), Some(receipt("87654321")));
        verdicts.remember(JobKey(4), JobId(4), &receipt(""));
        verdicts.remember(JobKey(1), JobId(5), &receipt(""));
        assert_eq!(is_there(&verdicts), [true, false, true, true]);
        assert_eq!(verdicts.find_job(JobId(2)), None);
    }
}
