//! Verdicts remembered by key, the latest few thousand, so that a resubmission is not run again.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use gridpool_protocol::codec;
use gridpool_protocol::handover::{JobName as Name, JobNews};
use gridpool_protocol::ids::{JobId, JobKey};
use gridpool_protocol::message::{Inline, JobSelector};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::Receipt;
use hashbrown::HashTable;

use super::receipts::{Place, Receipts};

/// Verdicts among which a client's question is looked up: the latest. It waits for nobody's lock for long.
const LOOKED_AT_MAX: usize = 8_192;

/// A memory of verdicts, bounded in their number and their bytes; the oldest goes first.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// The oldest first.
    all: VecDeque<Remembered>,
    /// The number of the oldest: they are counted as they come.
    first: u64,
    /// The latest number of each name. Numbers alone, so that the table is small and stays in a processor's cache.
    numbers: HashTable<u64>,
    /// Names are hashed with a secret of this process; see [`crate::maps::ByKey`].
    hasher: RandomState,
    /// Encoded, because that takes a third of the memory and of the allocations, and its size is known.
    receipts: Receipts,
    /// Of all receipts.
    bytes: usize,
    kept: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Remembered {
    name: Name,
    hash: u64,
    job: JobId,
    fingerprint: u64,
    receipt: Place,
}

impl Verdicts {
    pub(super) fn new(kept: usize, bytes_max: usize) -> Self {
        Self { kept, bytes_max, ..Self::default() }
    }

    /// Sets the limits. What is over them goes with the next verdict.
    pub(super) fn limit(&mut self, kept: usize, bytes_max: usize) {
        (self.kept, self.bytes_max) = (kept, bytes_max);
    }

    /// The fingerprint of a job and its receipt.
    pub(super) fn find(&self, principal: &Principal, key: JobKey) -> Option<(u64, Receipt)> {
        let named = self.named(&(principal, key))?;
        Some((named.fingerprint, self.receipt(named)))
    }

    fn named(&self, name: &(&Principal, JobKey)) -> Option<&Remembered> {
        let is_it = |&number: &u64| {
            let (principal, key) = &self.at(number).name;
            (principal, *key) == *name
        };
        self.numbers.find(self.hasher.hash_one(name), is_it).map(|&number| self.at(number))
    }

    fn at(&self, number: u64) -> &Remembered {
        at(&self.all, self.first, number)
    }

    fn receipt(&self, of: &Remembered) -> Receipt {
        codec::decode(self.encoded(&of.receipt)).expect("what was encoded here can be decoded")
    }

    /// An encoded receipt.
    pub(super) fn encoded(&self, place: &Place) -> &[u8] {
        self.receipts.get(place)
    }

    /// The verdict of a job by its number. A client is told of its verdict at once, so the latest are looked at first.
    pub(super) fn find_job(&self, job: JobId) -> Option<Receipt> {
        self.all.iter().rev().find(|other| other.job == job).map(|found| self.receipt(found))
    }

    /// The latest verdict of a job of this name, of `own` or of anybody.
    pub(super) fn find_named(&self, name: JobSelector, own: Option<&Principal>) -> Option<Receipt> {
        if let (JobSelector::Key(key), Some(own)) = (name, own) {
            return Some(self.find(own, key)?.1);
        }
        let is_it = |other: &&Remembered| {
            let (principal, key) = &other.name;
            let is_named = match name {
                JobSelector::Key(wanted) => *key == wanted,
                JobSelector::Number(wanted) => other.job == wanted,
            };
            is_named && own.is_none_or(|own| principal == own)
        };
        let found = self.all.iter().rev().take(LOOKED_AT_MAX).find(is_it)?;
        Some(self.receipt(found))
    }

    /// Remembers a verdict. Returns where its receipt is, unless that fits no frame and so does not reach its client.
    pub(super) fn remember(
        &mut self,
        name: Name,
        job: JobId,
        fingerprint: u64,
        receipt: &Receipt,
    ) -> Option<Place> {
        let place = self.receipts.add(receipt)?;
        self.insert(name, job, fingerprint, place.clone());
        Some(place)
    }

    /// Remembers a receipt of another pool.
    pub(super) fn remember_encoded(
        &mut self,
        name: Name,
        job: JobId,
        fingerprint: u64,
        bytes: &[u8],
    ) {
        // One that is of no receipt would be found out when it is asked for.
        if codec::decode::<Receipt>(bytes).is_ok() {
            let receipt = self.receipts.add_encoded(bytes);
            self.insert(name, job, fingerprint, receipt);
        }
    }

    /// All that is remembered, the oldest first, for another pool.
    pub(super) fn entries(&self) -> impl Iterator<Item = JobNews> {
        self.all.iter().map(|remembered| self.news(remembered))
    }

    /// The latest that is remembered, for another pool.
    pub(super) fn latest(&self) -> Option<JobNews> {
        self.all.back().map(|latest| self.news(latest))
    }

    fn news(&self, Remembered { name, job, fingerprint, receipt, .. }: &Remembered) -> JobNews {
        let (name, receipt) = (name.clone(), Inline(self.encoded(receipt).to_vec()));
        JobNews::Verdict { name, job: *job, fingerprint: *fingerprint, receipt }
    }

    fn insert(&mut self, name: Name, job: JobId, fingerprint: u64, receipt: Place) {
        self.bytes += receipt.len();
        let (all, first) = (&self.all, self.first);
        let hash = self.hasher.hash_one((&name.0, name.1));
        let is_same = |&number: &u64| at(all, first, number).name == name;
        let rehash = |&number: &u64| at(all, first, number).hash;
        let number = first + all.len() as u64;
        *self.numbers.entry(hash, is_same, rehash).or_insert(number).into_mut() = number;
        self.all.push_back(Remembered { name, hash, job, fingerprint, receipt });
        while self.all.len() > self.kept || self.bytes > self.bytes_max {
            let oldest = self.all.pop_front().expect("what is over a limit is not empty");
            // A later one may have its name.
            let is_it = |&number: &u64| number == self.first;
            if let Ok(found) = self.numbers.find_entry(oldest.hash, is_it) {
                found.remove();
            }
            self.first += 1;
            self.bytes -= oldest.receipt.len();
        }
    }

    /// Gives back the memory of receipts that are no longer remembered. Until then an action may name them.
    pub(super) fn forget(&mut self) {
        self.receipts.forget_before(self.all.front().map(|oldest| &oldest.receipt));
    }
}

fn at(all: &VecDeque<Remembered>, first: u64, number: u64) -> &Remembered {
    &all[usize::try_from(number - first).expect("they are in memory")]
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
