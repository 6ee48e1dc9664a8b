//! Verdicts remembered by key, the latest few thousand, so that a resubmission is not run again.

use std::collections::{BTreeMap, VecDeque};

use gridpool_protocol::ids::JobKey;
use gridpool_protocol::receipt::Receipt;

/// A bounded memory of verdicts; the oldest goes first.
#[derive(Debug)]
pub(super) struct Verdicts {
    receipts: BTreeMap<JobKey, Receipt>,
    order: VecDeque<JobKey>,
    kept: usize,
}

impl Verdicts {
    pub(super) fn new(kept: usize) -> Self {
        Self { receipts: BTreeMap::new(), order: VecDeque::new(), kept }
    }

    pub(super) fn find(&self, key: JobKey) -> Option<&Receipt> {
        self.receipts.get(&key)
    }

    pub(super) fn remember(&mut self, key: JobKey, receipt: Receipt) {
        if self.receipts.insert(key, receipt).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > self.kept {
            let oldest = self.order.pop_front().expect("it is longer than the limit");
            self.receipts.remove(&oldest);
        }
    }
}
