//! Room for a small job: a large dispatch that has just begun is asked to stop for the next shard, if that is far
//! smaller and of another principal. So nobody waits for as long as the jobs of others take.
//!
//! What was asked to stop runs again, and loses little: only a young dispatch makes room, and a shard only a few
//! times. A worker that does not stop is left alone.

use std::time::Duration;

use gridpool_protocol::ids::Group;
use gridpool_protocol::principal::Principal;

use super::Pool;
use super::job::Job;
use super::outstanding::{Dispatch, Outstanding, Sent};
use super::process::Stage;
use super::slots::Slot;
use crate::action::Action;
use crate::event::Timestamp;

/// A dispatch is large beside a shard of this many times less cost.
const LARGER: u64 = 16;
/// A dispatch makes room only so soon after it was sent.
const YOUNG: Duration = Duration::from_millis(50);
/// How often a shard makes room.
const ROOM_MAX: u32 = 3;

impl Dispatch {
    /// Whether it has a shard far larger than one of `cost`, worth `worth` at least, and is of others than
    /// `principal`.
    pub(super) fn is_in_the_way(&self, principal: &Principal, cost: u64, worth: u64) -> bool {
        self.cost_max >= worth.max(cost.saturating_mul(LARGER))
            && self.sent.iter().all(|sent| sent.principal != *principal)
    }
}

impl Pool {
    /// Asks one worker of a group to stop what it has just begun, if the next shard is small and no worker will soon
    /// be free for it.
    pub(super) fn make_room(&mut self, now: Timestamp, group: Group) {
        if self.groups[group].limits.concurrency.is_concurrent() {
            return;
        }
        let Some(next) = self.groups[group].queue.in_order().next() else { return };
        let (job, worth) = (&self.jobs[next.job], self.config.shard_cost_min);
        let (principal, shard) = (&job.request.principal, job.shard_at(next));
        let others = || {
            let others = self.slots.of_group(group);
            let others = others.filter(|(_, slot)| Some(slot.device) != shard.avoid);
            let others = others.filter(|(_, slot)| self.devices.at(slot.device).is_own());
            others.filter_map(|(index, slot)| Some((index, busy_with(slot)?)))
        };
        let is_in_the_way =
            |sent: &Outstanding| sent.front.is_in_the_way(principal, shard.cost, worth);
        let may_stop = |sent: &Outstanding| {
            now < sent.front.since.after(YOUNG)
                && sent.dispatches().all(|dispatch| !dispatch.has_suspects)
                && sent.all().all(|sent| sent.principal != *principal && self.may_make_room(sent))
        };
        let youngest = others()
            .filter(|(_, sent)| is_in_the_way(sent) && may_stop(sent))
            .map(|(index, sent)| (sent.front.since, index))
            .max();
        let Some((_, index)) = youngest else { return };
        let is_soon_free = |sent: &Sent| sent.is_cut_off() || self.makes_room(sent);
        if others().any(|(_, sent)| sent.all().all(is_soon_free)) {
            return;
        }
        let process = self.slots.process(index);
        let worker = process.worker;
        for sent in process.outstanding().expect("it is busy").all() {
            let shard = &mut self.jobs[sent.attempt.job].shards[sent.shard];
            shard.makes_room = true;
            shard.made_room += 1;
            self.actions.push_back(Action::Withdraw { worker, attempt: sent.attempt });
        }
    }

    /// Whether an attempt was asked to stop for another.
    fn makes_room(&self, sent: &Sent) -> bool {
        self.job_of(sent).is_some_and(|job| job.shards[sent.shard].makes_room)
    }

    fn may_make_room(&self, sent: &Sent) -> bool {
        self.job_of(sent).is_some_and(|job| {
            let shard = &job.shards[sent.shard];
            let may = !shard.makes_room && shard.made_room < ROOM_MAX;
            may && job.request.idempotent && !job.orphaned
        })
    }

    fn job_of(&self, sent: &Sent) -> Option<&Job> {
        self.jobs.running(sent.attempt).map(|id| &self.jobs[id])
    }
}

/// The dispatches of a worker that runs something.
fn busy_with(slot: &Slot) -> Option<&Outstanding> {
    let Stage::Busy(outstanding) = slot.process()?.stage() else { return None };
    Some(outstanding)
}
