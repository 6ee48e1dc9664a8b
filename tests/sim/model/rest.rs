//! A pool that has nothing to do: it finishes what it has, keeps no worker, and gets all of them back.

use gridpool::pool::Pool;
use gridpool::pool::event::Timestamp;

use super::quarantine::Service;
use super::seats::{Seat, SeatId, State};
use super::{Broken, Model, Phase, holds};

impl Model {
    /// Whether no worker could do anything: none is started, and none is kept.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.phase == Phase::Resting && self.jobs.is_empty()
    }

    /// Whether the pool rests.
    pub(crate) fn is_resting(&self) -> bool {
        self.phase == Phase::Resting
    }

    /// Whether no process is left but such as cannot be killed.
    pub(crate) fn is_gone(&self) -> bool {
        self.devices.values().all(super::Device::is_gone)
    }

    pub(super) fn rest_requested(&mut self) {
        if self.phase != Phase::Serving {
            self.coverage.hit("rest: ordered of a pool that does not serve");
            return;
        }
        self.coverage.hit(match self.jobs.is_empty() {
            true => "rest: without a job",
            false => "rest: with jobs",
        });
        self.phase = Phase::Resting;
    }

    pub(super) fn wake_requested(&mut self) {
        if self.phase != Phase::Resting {
            self.coverage.hit("wake: of a pool that does not rest");
            return;
        }
        let any = |is: fn(&State) -> bool| self.seats().any(|(_, seat)| is(&seat.state));
        let ends = any(|state| matches!(state, State::Stopping { .. } | State::Killed { .. }));
        let stuck = any(|state| matches!(state, State::Unkillable { .. }));
        let memory = any(|state| matches!(state, State::Reclaiming { .. }));
        self.coverage.hit(match (self.jobs.is_empty(), ends, stuck, memory) {
            (false, ..) => "wake: before the last job is done",
            (true, true, ..) => "wake: while processes end",
            (true, false, true, _) => "wake: beside what cannot be killed",
            (true, false, false, true) => "wake: while memory is not back",
            (true, false, false, false) => "wake: without a process",
        });
        self.phase = Phase::Serving;
    }

    /// Nobody is kept while there is nothing to do. Whoever comes after that takes nobody's place.
    pub(super) fn rests(&mut self, now: Timestamp) {
        if !self.has_nothing_to_do() {
            return;
        }
        let by = now.after(self.config.kill_timeout);
        for at in self.seat_ids() {
            self.seat_mut(at).processes = 0;
            self.coverage.hit(match self.seat(at).state {
                State::Busy { .. } => "rest: ends one with what nobody wants any more",
                State::Ready => "rest: ends one that idles",
                State::Standby => "rest: ends a standby",
                State::Starting { .. } => "rest: ends one that starts",
                State::Killed { .. } => {
                    self.coverage.hit("rest: one that was killed ends");
                    continue;
                }
                State::Unkillable { .. } => {
                    self.coverage.hit("rest: one that cannot be killed stays");
                    continue;
                }
                State::Absent { .. } | State::Reclaiming { .. } | State::Stopping { .. } => {
                    continue;
                }
            });
            let worker = self.worker(at);
            let starts = matches!(self.seat(at).state, State::Starting { .. });
            self.seat_mut(at).state = State::Stopping { by };
            self.due.stops.insert(worker);
            let device = self.devices.get_mut(&at.device).expect("devices stay");
            if starts && device.service == Service::Probing {
                // Nothing was found out.
                self.coverage.hit("rest: a try of a device is called off");
                device.service = Service::Quarantined { probe_at: Some(now) };
            }
        }
    }

    /// A process that was asked to end has, killed or not; the pool goes on. That says nothing of its
    /// device, however it ended.
    pub(super) fn ended_as_asked(&mut self, now: Timestamp, at: SeatId) {
        self.coverage.hit(match self.phase {
            Phase::Resting => "rest: a process has ended",
            Phase::Draining { .. } => "rest: a process has ended for a pool that drains",
            Phase::Leaving | Phase::Left | Phase::Serving => "wake: the process before has ended",
        });
        let until = now.after(self.config.reclaim_timeout);
        let seat = self.seat_mut(at);
        seat.took_end = seat.doomed.take().map(|doomed| now.since(doomed));
        let state = State::Reclaiming { until, not_before: now };
        match std::mem::replace(&mut seat.state, state) {
            State::Killed { .. } => self.coverage.hit("rest: a process had to be killed"),
            State::Unkillable { .. } => self.coverage.hit("rest: a process has died after all"),
            State::Absent { .. }
            | State::Busy { .. }
            | State::Ready
            | State::Reclaiming { .. }
            | State::Standby
            | State::Starting { .. }
            | State::Stopping { .. } => {}
        }
    }

    pub(super) fn who_rests_is_known(&self, pool: &Pool) -> Result<(), Broken> {
        let rule = "who_rests_is_known";
        let resting = self.is_resting();
        holds(rule, pool.is_resting() == resting, || format!("rests: {resting}"))?;
        let processes = self.seats().any(|(_, seat)| Seat::has_process(seat));
        holds(rule, pool.has_processes() == processes, || format!("processes: {processes}"))?;
        let awaits = self.awaits_workers();
        holds(rule, pool.awaits_workers() == awaits, || {
            format!("awaits: {awaits}: {:?}", self.devices)
        })
    }

    pub(crate) fn a_pool_that_rests_keeps_no_process(&self) -> Result<(), Broken> {
        let rule = "a_pool_that_rests_keeps_no_process";
        holds(rule, self.is_gone(), || format!("{:?}", self.devices))
    }
}
