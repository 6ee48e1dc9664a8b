//! How long a dispatch waits in a worker's channel while a device is idle.

use gridpool_core::config::Concurrency;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};

use super::slots::{Freed, Slot, SlotId, State, Why};
use super::{Broken, Model, holds};

impl Model {
    /// When the second dispatch has waited too long, if a device that may take some of it is idle at that
    /// time, as far as is known now.
    pub(super) fn feed_timeout_of(&self, at: SlotId) -> Option<Timestamp> {
        let slot = self.slot(at);
        let State::Busy { outstanding } = &slot.state else { return None };
        let waits = outstanding.0.get(1)?;
        let Concurrency::Exclusive { feed_timeout, .. } = self.group(at.group()).limits.concurrency
        else {
            return None;
        };
        let ends = waits.since.after(feed_timeout);
        let idle = self.slots_of(at.group()).filter(|(_, other)| {
            other.state == State::Ready && ends < other.heard.after(self.config.heartbeat_suspect)
        });
        let mut pairs =
            idle.flat_map(|(at, _)| waits.attempts.iter().map(move |a| (at.device(), a.attempt)));
        pairs.any(|(id, attempt)| self.may_go(attempt, id)).then_some(ends)
    }

    /// Whether the attempt's job is live and its shard did not last fail there.
    fn may_go(&self, attempt: AttemptId, id: DeviceId) -> bool {
        let Some(job) = self.jobs.get(&attempt.job) else { return false };
        let runs = |running: Option<(AttemptId, WorkerId)>| running.is_some_and(|r| r.0 == attempt);
        job.shards.iter().any(|shard| runs(shard.running) && shard.failed_on != Some(id))
    }

    /// If a job has waited too long behind the worker's front dispatch, the worker must be killed.
    pub(super) fn kill_if_others_waited_too_long(&mut self, now: Timestamp, worker: WorkerId) {
        let Some(at) = self.slot_of(worker) else { return };
        if self.feed_timeout_of(at).is_none_or(|ends| ends > now) {
            return;
        }
        self.coverage.hit("kill: others wait behind it");
        let front = self.slot(at).outstanding()[0].clone();
        self.is_bisected(&front);
        self.kill(now, at, Why::FreeDevice(Freed::OthersWait));
    }

    pub(super) fn a_second_dispatch_waits_at_most_feed_timeout_while_an_idle_device_may_take_it(
        &self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule = "a_second_dispatch_waits_at_most_feed_timeout_while_an_idle_device_may_take_it";
        let late =
            |&(at, _): &(SlotId, &Slot)| self.feed_timeout_of(at).is_some_and(|at| at <= now);
        let late = self.slots().find(late);
        holds(rule, late.is_none(), || format!("{late:?}: {:?}", self.devices))
    }
}
