//! Which dispatches are asked to stop for a smaller job. The model does not know which job is next, so it does not
//! demand that room is made; a worker may be asked only if a job waits that room may be made for.

use std::time::Duration;

use gridpool_core::action::Assignment;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, WorkerId};

use super::jobs::Job;
use super::slots::{SlotId, State};
use super::{Broken, Model, holds};

/// How much larger a shard must be than the one that waits.
const LARGER: u64 = 16;
/// How young its dispatch must be.
const YOUNG: Duration = Duration::from_millis(50);
/// How often it may be asked.
const ROOM_MAX: u32 = 3;

impl Model {
    /// Whether the front dispatch of a busy worker is far larger than a shard of a job, and of other principals.
    pub(super) fn is_in_the_way(&self, at: SlotId, job: &Job) -> bool {
        // Shards may differ by what is rounded.
        let items = u64::from(job.request.items / job.shards_due);
        let cost = job.request.cost * items / u64::from(job.request.items);
        self.is_larger(at, job, cost.saturating_sub(1))
    }

    pub(super) fn is_larger(&self, at: SlotId, job: &Job, cost: u64) -> bool {
        let State::Busy { outstanding } = &self.slot(at).state else { return false };
        let front = outstanding.front();
        let own = &job.request.principal;
        front.cost_max >= self.config.shard_cost_min.max(cost * LARGER)
            && front.attempts.iter().all(|sent| self.accepted[&sent.attempt.job] != *own)
    }

    pub(super) fn no_small_shard_waits_behind_a_large_one_of_others(
        &self,
        at: SlotId,
        lead: &Assignment,
    ) -> Result<(), Broken> {
        let rule = "no_small_shard_waits_behind_a_large_one_of_others";
        let job = &self.jobs[&lead.attempt.job];
        let waits = self.is_larger(at, job, job.cost(lead.shard));
        holds(rule, !waits, || format!("{lead:?} behind {:?}", self.slot(at)))
    }

    /// Whether an attempt may be asked to stop for a job that waits; notes that it was.
    pub(super) fn makes_room(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
    ) -> bool {
        let Some(at) = self.slot_of(worker) else { return false };
        let State::Busy { outstanding } = &self.slot(at).state else { return false };
        let sent = || outstanding.0.iter().flat_map(|dispatch| &dispatch.attempts);
        let is_young = now < outstanding.front().since.after(YOUNG);
        let none_ends = sent().all(|sent| sent.free_at.is_none());
        let no_suspects = outstanding.0.iter().all(|dispatch| !dispatch.has_suspects);
        let waits = self.jobs_of(worker.group).any(|job| {
            let own = &job.request.principal;
            job.waits()
                && !self.is_held(now, job)
                && self.is_in_the_way(at, job)
                && sent().all(|sent| self.accepted[&sent.attempt.job] != *own)
        });
        let is_concurrent = self.group(worker.group).is_concurrent();
        let may = !is_concurrent && is_young && none_ends && no_suspects && waits;
        let may = may && !self.is_away(worker.device);
        let job = self.jobs.get_mut(&attempt.job).filter(|job| job.runs_attempt(attempt));
        let Some(job) = job.filter(|job| may && job.request.idempotent && !job.orphaned) else {
            return false;
        };
        let shard = job.shard_of(attempt);
        let may = !shard.makes_room && shard.made_room < ROOM_MAX;
        shard.makes_room = true;
        shard.made_room += 1;
        self.coverage.hit("room: asked to stop");
        may
    }
}
