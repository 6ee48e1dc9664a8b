//! Verdicts remembered by key, the latest few thousand, so that a resubmission is not run again.

use std::collections::VecDeque;
use std::sync::Arc;

use gridpool_protocol::codec;
use gridpool_protocol::handover::{JobName as Name, JobNews};
use gridpool_protocol::ids::{JobId, JobKey};
use gridpool_protocol::message::{Inline, JobSelector};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::Receipt;

use crate::maps::ByKey;

/// Verdicts among which a client's question is looked up: the latest. It waits for nobody's lock for long.
const LOOKED_AT_MAX: usize = 8_192;

/// A memory of verdicts, bounded in their number and their bytes; the oldest goes first.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// Encoded, because that takes a third of the memory and of the allocations, and its size is known.
    receipts: ByKey<Name, Remembered>,
    order: VecDeque<(Name, JobId)>,
    /// Of all receipts.
    bytes: usize,
    kept: usize,
    bytes_max: usize,
    /// Receipts are encoded here, so that each takes the memory of its own bytes alone.
    scratch: Vec<u8>,
}

/// Room that is kept to encode receipts: most have 300 bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
struct Remembered {
    fingerprint: u64,
    /// The job log may have it, too.
    receipt: Arc<[u8]>,
}

impl Verdicts {
    pub(super) fn new(kept: usize, bytes_max: usize) -> Self {
        Self {
            receipts: ByKey::default(),
            order: VecDeque::new(),
            bytes: 0,
            kept,
            bytes_max,
            scratch: Vec::new(),
        }
    }

    /// Sets the limits. What is over them goes with the next verdict.
    pub(super) fn limit(&mut self, kept: usize, bytes_max: usize) {
        (self.kept, self.bytes_max) = (kept, bytes_max);
    }

    /// The fingerprint of a job and its receipt.
    pub(super) fn find(&self, principal: &Principal, key: JobKey) -> Option<(u64, Receipt)> {
        self.get(&(principal.clone(), key))
    }

    fn get(&self, name: &Name) -> Option<(u64, Receipt)> {
        let Remembered { fingerprint, receipt } = self.receipts.get(name)?;
        let receipt = codec::decode(receipt).expect("what was encoded here can be decoded");
        Some((*fingerprint, receipt))
    }

    /// The verdict of a job by its number.
    pub(super) fn find_job(&self, job: JobId) -> Option<Receipt> {
        Some(self.get(self.name_of(job)?)?.1)
    }

    /// The latest verdict of a job of this name, of `own` or of anybody.
    pub(super) fn find_named(&self, name: JobSelector, own: Option<&Principal>) -> Option<Receipt> {
        if let (JobSelector::Key(key), Some(own)) = (name, own) {
            return Some(self.find(own, key)?.1);
        }
        let is_it = |&&((ref principal, key), job): &&(Name, JobId)| {
            let is_named = match name {
                JobSelector::Key(wanted) => key == wanted,
                JobSelector::Number(wanted) => job == wanted,
            };
            is_named && own.is_none_or(|own| principal == own)
        };
        Some(self.get(&self.order.iter().rev().take(LOOKED_AT_MAX).find(is_it)?.0)?.1)
    }

    /// The name of a job. A client is told of its verdict at once, so the latest are looked at first.
    fn name_of(&self, job: JobId) -> Option<&Name> {
        let found = self.order.iter().rev().find(|&&(_, other)| other == job)?;
        Some(&found.0)
    }

    /// Remembers a verdict. Returns its receipt encoded, unless it fits no frame and so does not reach its client.
    pub(super) fn remember(
        &mut self,
        name: Name,
        job: JobId,
        fingerprint: u64,
        receipt: &Receipt,
    ) -> Option<Arc<[u8]>> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let is_encoded = codec::append(receipt, &mut scratch).is_ok();
        let encoded = is_encoded.then(|| Arc::<[u8]>::from(scratch.as_slice()));
        if let Some(encoded) = &encoded {
            self.insert(name, job, fingerprint, Arc::clone(encoded));
        }
        if scratch.capacity() <= SCRATCH_BYTES_MAX {
            self.scratch = scratch;
        }
        encoded
    }

    /// Remembers a receipt of another pool.
    pub(super) fn remember_encoded(
        &mut self,
        name: Name,
        job: JobId,
        fingerprint: u64,
        bytes: Vec<u8>,
    ) {
        // One that is of no receipt would be found out when it is asked for.
        if codec::decode::<Receipt>(&bytes).is_ok() {
            self.insert(name, job, fingerprint, bytes.into());
        }
    }

    /// All that is remembered, the oldest first, for another pool.
    pub(super) fn entries(&self) -> impl Iterator<Item = JobNews> {
        self.order.iter().filter_map(|(name, job)| self.entry(name, *job))
    }

    /// What is remembered of a job, for another pool.
    pub(super) fn entry(&self, name: &Name, job: JobId) -> Option<JobNews> {
        let Remembered { fingerprint, receipt } = self.receipts.get(name)?;
        let (name, receipt) = (name.clone(), Inline(receipt.to_vec()));
        Some(JobNews::Verdict { name, job, fingerprint: *fingerprint, receipt })
    }

    fn insert(&mut self, name: Name, job: JobId, fingerprint: u64, receipt: Arc<[u8]>) {
        self.bytes += receipt.len();
        let remembered = Remembered { fingerprint, receipt };
        match self.receipts.insert(name.clone(), remembered) {
            Some(before) => self.bytes -= before.receipt.len(),
            None => self.order.push_back((name, job)),
        }
        while self.order.len() > self.kept || self.bytes > self.bytes_max {
            let (oldest, _) = self.order.pop_front().expect("what is over a limit is not empty");
            let removed = self.receipts.remove(&oldest).expect("each key in order has a receipt");
            self.bytes -= removed.receipt.len();
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
        let is_there = |verdicts: &Verdicts| {
            [1, 2, 3, 4].map(|key| verdicts.find(&Principal::Uid(1), JobKey(key)).is_some())
        };
        verdicts.remember((Principal::Uid(1), JobKey(1)), JobId(1), 0, &receipt("12345678"));
        verdicts.remember((Principal::Uid(1), JobKey(2)), JobId(2), 0, &receipt("87654321"));
        assert_eq!(is_there(&verdicts), [true, true, false, false]);
        verdicts.remember((Principal::Uid(1), JobKey(3)), JobId(3), 0, &receipt("1"));
        assert_eq!(is_there(&verdicts), [false, true, true, false]);
        assert_eq!(verdicts.find_job(JobId(2)), Some(receipt("87654321")));
        verdicts.remember((Principal::Uid(1), JobKey(4)), JobId(4), 0, &receipt(""));
        verdicts.remember((Principal::Uid(1), JobKey(1)), JobId(5), 0, &receipt(""));
        assert_eq!(is_there(&verdicts), [true, false, true, true]);
        assert_eq!(verdicts.find_job(JobId(2)), None);
    }
}
