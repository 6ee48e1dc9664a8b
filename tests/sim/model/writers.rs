//! Which processes may still write a result: each that was sent the shard and has neither answered nor
//! ended. Independent of all other rules: it reads only dispatches, answers and ends.

use std::collections::BTreeMap;

use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::receipt::ItemRange;

use super::{Broken, Model, holds};

/// For every process, the attempts whose results it may be writing, each with its first item.
pub(super) type Writers = BTreeMap<WorkerId, BTreeMap<AttemptId, u32>>;

impl Model {
    pub(super) fn writes(&mut self, worker: WorkerId, attempt: AttemptId, items: ItemRange) {
        self.writers.entry(worker).or_default().insert(attempt, items.start);
    }

    pub(super) fn writes_no_more(&mut self, worker: WorkerId, attempt: AttemptId) {
        self.writers.entry(worker).or_default().remove(&attempt);
    }

    /// The process has ended.
    pub(super) fn writes_nothing_more(&mut self, worker: WorkerId) {
        self.writers.remove(&worker);
    }

    pub(super) fn no_two_processes_write_the_same_result(
        &self,
        worker: WorkerId,
        attempt: AttemptId,
        items: ItemRange,
    ) -> Result<(), Broken> {
        let rule = "no_two_processes_write_the_same_result";
        let same =
            |(other, &start): (&AttemptId, &u32)| other.job == attempt.job && start == items.start;
        let writer = self.writers.iter().find(|(_, all)| all.iter().any(same));
        let in_place = self.jobs[&attempt.job].is_written_in_place();
        holds(rule, !in_place || writer.is_none(), || {
            format!("{attempt} goes to {worker}, {writer:?} may still write")
        })
    }
}
