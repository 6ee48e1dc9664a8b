//! Who waits in a worker's channel while a device idles, and for how long.

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};

use super::seats::{Seat, State, Why};
use super::{Broken, Model, holds};

impl Model {
    /// When whoever waits behind the front batch has waited for long enough, if a device idles at that
    /// moment, as far as is known now, on which somebody of them did not fail last.
    pub(super) fn patience_ends(&self, seat: &Seat) -> Option<Timestamp> {
        let State::Busy { hands } = &seat.state else { return None };
        let waits = hands.0.get(1)?;
        let ends = waits.since.after(self.config.feed_patience);
        let idle = self.seats().filter(|(_, other)| {
            other.state == State::Ready && ends < other.heard.after(self.config.heartbeat_suspect)
        });
        let mut pairs =
            idle.flat_map(|(at, _)| waits.attempts.iter().map(move |a| (at.device, a.attempt)));
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
        let Some(at) = self.seat_of(worker) else { return };
        if self.patience_ends(self.seat(at)).is_none_or(|ends| ends > now) {
            return;
        }
        self.coverage.hit("kill: somebody waits behind it");
        let front = self.seat(at).hands()[0].clone();
        self.is_taken_apart(&front);
        self.kill(now, at, Why::FreeDevice);
    }

    pub(super) fn nobody_waits_for_longer_than_feed_patience_while_a_device_idles_that_may_take_it(
        &self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule =
            "nobody_waits_for_longer_than_feed_patience_while_a_device_idles_that_may_take_it";
        let late = |(_, seat): &(_, &Seat)| self.patience_ends(seat).is_some_and(|at| at <= now);
        let late = self.seats().find(late);
        holds(rule, late.is_none(), || format!("{late:?}: {:?}", self.devices))
    }
}
