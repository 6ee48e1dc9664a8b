//! Verdicts remembered by key, the latest few thousand, so that a resubmission is not run again.

use std::collections::{BTreeMap, VecDeque};

use gridpool_protocol::ids::{JobId, JobKey};
use gridpool_protocol::receipt::Receipt;

/// A bounded memory of verdicts; the oldest goes first.
#[derive(Debug)]
pub(super) struct Verdicts {
    receipts: BTreeMap<JobKey, Receipt>,
    keys: BTreeMap<JobId, JobKey>,
    order: VecDeque<(JobKey, JobId)>,
    kept: usize,
}

impl Verdicts {
    pub(super) fn new(kept: usize) -> Self {
        Self { receipts: BTreeMap::new(), keys: BTreeMap::new(), order: VecDeque::new(), kept }
    }

    pub(super) fn find(&self, key: JobKey) -> Option<&Receipt> {
        self.receipts.get(&key)
    }

    /// The verdict of a job by its number.
    pub(super) fn find_job(&self, job: JobId) -> Option<&Receipt> {
        self.find(*self.keys.get(&job)?)
    }

    pub(super) fn remember(&mut self, key: JobKey, job: JobId, receipt: Receipt) {
        if self.receipts.insert(key, receipt).is_none() {
            self.order.push_back((key, job));
            self.keys.insert(job, key);
        }
        while self.order.len() > self.kept {
            let (oldest, job) = self.order.pop_front().expect("it is longer than the limit");
            self.receipts.remove(&oldest);
            self.keys.remove(&job);
        }
    }
}
