//! Deaths: which of them count, how long the next start waits, and when a device goes out of service
//! and comes back.

use std::time::Duration;

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::DeviceId;

use super::Model;
use super::seats::{SeatId, State, Why};

/// Whose fault a death is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Nobody,
    Outside,
    Worker,
}

/// Whether a device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Open,
    /// One process is started to see whether the device is whole again.
    Probing,
    /// Nobody starts here before `probe_at`; if that is `None`, not before somebody says so.
    Quarantined {
        probe_at: Option<Timestamp>,
    },
}

impl Model {
    /// A process has ended. Its siblings are as they are once a standby took over from it.
    pub(super) fn died(&mut self, now: Timestamp, at: SeatId, fault: Fault, is_final: bool) {
        if self.is_ending() {
            self.seat_mut(at).state = State::default();
            return;
        }
        let device = self.devices.get_mut(&at.device).expect("devices stay");
        device.lost_at = Some(now);
        let sibling_serves = device.sibling_serves(at.number);
        let out_of_service = matches!(device.service, Service::Quarantined { .. });
        let seat = &mut device.seats[at.number];
        let counts = seat.served || !(seat.was_ready || sibling_serves);
        match fault {
            Fault::Nobody => self.coverage.hit("death: nobody's fault"),
            Fault::Outside => self.coverage.hit("death: from outside"),
            // An old process: what was to be said of the device has been said.
            Fault::Worker if out_of_service => {}
            Fault::Worker if counts && seat.worked => self.coverage.hit("death: after work"),
            Fault::Worker if counts => {
                device.start_failures += u32::from(!seat.was_ready);
                device.idle_deaths.push(now);
            }
            Fault::Worker => self.coverage.hit("death: does not count"),
        }
        seat.took_end = seat.doomed.take().map(|doomed| now.since(doomed));
        let is_idle_death = counts && fault == Fault::Worker && !seat.worked;
        let mut wait = Duration::ZERO;
        if fault != Fault::Nobody {
            wait = backoff(seat.restarts, self.config.backoff_min, self.config.backoff_max);
            seat.restarts += 1;
        }
        if is_final {
            self.coverage.hit("death: exit that a new process would share");
            if !counts {
                self.coverage.hit("death: final, and does not count");
                wait = self.config.backoff_max;
            }
        }
        let until = now.after(self.config.reclaim_timeout);
        seat.state = State::Reclaiming { until, not_before: now.after(wait) };

        if let Some(why) = self.why_out_of_service(now, at, counts, is_idle_death, is_final) {
            self.coverage.hit(why);
            let device = self.devices.get_mut(&at.device).expect("devices stay");
            device.refused |= fault != Fault::Nobody;
            self.goes_out_of_service(now, at.device, is_final, Why::FreeDevice);
        }
    }

    /// Why the device goes out of service by this death, if it does.
    fn why_out_of_service(
        &mut self,
        now: Timestamp,
        at: SeatId,
        counts: bool,
        is_idle_death: bool,
        is_final: bool,
    ) -> Option<&'static str> {
        let device = &self.devices[&at.device];
        let window = self.config.restart_window;
        let recent = device.idle_deaths.iter().filter(|&&at| now.since(at) <= window).count();
        let many = recent as u64 >= u64::from(self.config.restart_limit);
        match device.service {
            Service::Quarantined { .. } => {
                self.coverage.hit("death: on a device that is out of service");
                None
            }
            Service::Probing => Some("probe: failed"),
            Service::Open if !counts => None,
            Service::Open if device.sibling_serves(at.number) => {
                if is_final || many {
                    self.coverage.hit("device: stays in service by its standby");
                }
                None
            }
            Service::Open if is_final => Some("device: quarantined by its exit code"),
            Service::Open if device.start_failures >= self.config.start_failures_max => {
                Some("device: quarantined by starts that failed")
            }
            Service::Open if many => Some("device: quarantined by deaths without work"),
            Service::Open if device.probes > 0 && is_idle_death => {
                Some("device: quarantined on probation")
            }
            Service::Open => None,
        }
    }

    /// Whoever was about to start there ends, for this reason.
    pub(super) fn goes_out_of_service(
        &mut self,
        now: Timestamp,
        id: DeviceId,
        is_final: bool,
        why: Why,
    ) {
        let device = self.devices.get_mut(&id).expect("devices stay");
        device.start_failures = 0;
        device.idle_deaths.clear();
        let factor = 5_u32.saturating_pow(device.probes);
        let wait = self.config.probe_min.saturating_mul(factor).min(self.config.probe_max);
        if device.probes > 0 && !is_final {
            self.coverage.hit("device: out of service for longer than before");
        }
        device.probes += 1;
        self.counters.quarantines += 1;
        let probe_at = (!is_final).then_some(now.after(wait));
        device.service = Service::Quarantined { probe_at };
        let numbers = 0..device.seats.len();
        for at in numbers.map(|number| SeatId { device: id, number }) {
            if matches!(self.seat(at).state, State::Starting { .. }) {
                self.coverage.hit("kill: starts on a device that goes out of service");
                self.kill(now, at, why);
            }
        }
    }

    /// When the device is tried again, if nothing but time is missing.
    pub(super) fn probe_wakes_at(&self, id: DeviceId) -> Option<Timestamp> {
        let device = &self.devices[&id];
        match device.service {
            Service::Quarantined { probe_at } if self.starts_workers() && device.is_empty() => {
                probe_at
            }
            Service::Open | Service::Probing | Service::Quarantined { .. } => None,
        }
    }

    /// Tries a device again that was out of service for long enough and is empty.
    pub(super) fn devices_are_tried(&mut self, now: Timestamp) {
        for id in self.devices.keys().copied().collect::<Vec<_>>() {
            if self.probe_wakes_at(id).is_some_and(|at| at <= now) {
                self.coverage.hit("probe: starts");
                let device = self.devices.get_mut(&id).expect("devices stay");
                device.service = Service::Probing;
                self.spawn(now, SeatId { device: id, number: 0 });
                continue;
            }
            let device = &self.devices[&id];
            let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
            match device.service {
                Service::Quarantined { probe_at } if due(probe_at) && self.starts_workers() => {
                    self.coverage.hit("probe: waits for what is left of an old process");
                }
                Service::Open | Service::Probing | Service::Quarantined { .. } => {}
            }
        }
    }

    /// An operator wants a device tried again now.
    pub(super) fn device_released(&mut self, now: Timestamp, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else {
            self.coverage.hit("release: no such device");
            return;
        };
        match device.service {
            Service::Quarantined { probe_at: None } => self.coverage.hit("release: halted device"),
            Service::Quarantined { .. } => self.coverage.hit("release: quarantined device"),
            Service::Open | Service::Probing => {
                self.coverage.hit("release: device in service");
                return;
            }
        }
        device.service = Service::Quarantined { probe_at: Some(now) };
    }
}

/// How long the start after `restarts` others waits: not at all, then `min`, then twice as long each.
fn backoff(restarts: u32, min: Duration, max: Duration) -> Duration {
    match restarts {
        0 => Duration::ZERO,
        n => (1..n).fold(min, |wait, _| (wait * 2).min(max)).min(max),
    }
}
