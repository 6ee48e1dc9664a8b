//! Who waits in a worker's channel while a device idles, and for how long.

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};

use super::devices::{Device, State, Why};
use super::{Broken, Model, holds};

impl Model {
    /// When whoever waits behind the front batch has waited for long enough, if a device idles at that
    /// moment, as far as is known now, on which somebody of them did not fail last.
    pub(super) fn patience_ends(&self, device: &Device) -> Option<Timestamp> {
        let State::Busy { hands } = &device.state else { return None };
        let waits = hands.0.get(1)?;
        let ends = waits.since.after(self.config.feed_patience);
        let idle = self.devices.iter().filter(|(_, other)| {
            other.state == State::Ready && ends < other.heard.after(self.config.heartbeat_suspect)
        });
        let mut pairs = idle.flat_map(|(&id, _)| waits.attempts.iter().map(move |a| (id, a.0)));
        pairs.any(|(id, attempt)| self.may_go(attempt, id)).then_some(ends)
    }

    /// Whether the attempt's job is live and its part did not fail there last.
    fn may_go(&self, attempt: AttemptId, id: DeviceId) -> bool {
        let Some(job) = self.jobs.get(&attempt.job) else { return false };
        let runs = |running: Option<(AttemptId, WorkerId)>| running.is_some_and(|r| r.0 == attempt);
        job.parts.iter().any(|part| runs(part.running) && part.failed_on != Some(id))
    }

    /// If somebody has waited for too long behind what the worker runs, it must be killed.
    pub(super) fn waits_no_longer(&mut self, now: Timestamp, worker: WorkerId) {
        let device = &self.devices[&worker.device];
        let is_late = self.patience_ends(device).is_some_and(|ends| ends <= now);
        if !is_late || device.generation != worker.generation {
            return;
        }
        self.coverage.hit("kill: somebody waits behind it");
        for (attempt, _) in device.hands()[0].attempts.clone() {
            if let Some(job) = self.jobs.get_mut(&attempt.job) {
                job.alone = true;
            }
        }
        self.kill(now, worker.device, Why::FreeDevice);
    }

    pub(super) fn nobody_waits_for_longer_than_feed_patience_while_a_device_idles_that_may_take_it(
        &self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule =
            "nobody_waits_for_longer_than_feed_patience_while_a_device_idles_that_may_take_it";
        let late = |device: &&Device| self.patience_ends(device).is_some_and(|ends| ends <= now);
        let late = self.devices.values().find(late);
        holds(rule, late.is_none(), || format!("{late:?}: {:?}", self.devices))
    }
}
