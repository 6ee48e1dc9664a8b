//! How long a dispatch waits in a worker's channel behind another while an idle device could take it.
//!
//! The front dispatch may hang or may just be slow. The pool cannot tell, so this never counts against its
//! jobs. The pool kills the worker, none of its attempts counts, and nothing waits behind those jobs again.
//! So a job costs a worker this way only once; if it hangs, its deadline ends it.

use gridpool_protocol::ids::Group;

use super::Pool;
use super::kill::{Freed, KillCause};
use super::process::{Process, Stage};
use super::slots::Slot;
use crate::config::Concurrency;
use crate::event::Timestamp;

impl Pool {
    /// Kills the workers of a group whose second dispatch has waited too long. Returns whether there were
    /// any.
    pub(super) fn expire_feeds(&mut self, now: Timestamp, group: Group) -> bool {
        let mut killed = false;
        for index in self.slots.indexes(group) {
            let slot = &self.slots[index];
            if self.feed_timeout_of(slot).is_none_or(|at| at > now) {
                continue;
            }
            let outstanding = self.slots.process(index).outstanding();
            for sent in outstanding.iter().flat_map(|all| &all.front.sent) {
                if let Some(job) = self.jobs.get_mut(sent.attempt.job) {
                    self.suspects += 1;
                    job.suspects = Some(super::SuspectGroup(self.suspects));
                }
            }
            self.kill(now, index, KillCause::FreeDevice(Freed::OthersWait));
            killed = true;
        }
        killed
    }

    /// When a worker's second dispatch has waited too long, if an idle worker could take any of it and is
    /// not silent by then. The front dispatch has run for at least as long.
    pub(super) fn feed_timeout_of(&self, slot: &Slot) -> Option<Timestamp> {
        let Concurrency::Exclusive { feed_timeout, .. } =
            self.groups[slot.group].limits.concurrency
        else {
            return None;
        };
        let Stage::Busy(outstanding) = slot.process()?.stage() else { return None };
        let second = outstanding.second.as_ref()?;
        let ends = second.since.after(feed_timeout);
        let may_take = |other: &Process| {
            second.sent.iter().any(|sent| {
                // A job that was cut off waits for nothing.
                let Some(job) = self.jobs.get(sent.attempt.job) else { return false };
                let Some(shard) = job.shard_of(sent.attempt) else { return false };
                job.shards[shard].avoid != Some(other.worker.device)
            })
        };
        let idles = |other: &Process| {
            other.is_ready_and_idle() && ends < other.heard.after(self.config.heartbeat_suspect)
        };
        let mut others = self.slots.of_group(slot.group).filter_map(|(_, other)| other.process());
        others.any(|other| idles(other) && may_take(other)).then_some(ends)
    }
}
