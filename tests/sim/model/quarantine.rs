//! Deaths: which of them count, how long the next start waits, and when a device goes out of service
//! and comes back.

use std::time::Duration;

use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::DeviceId;

use super::Model;
use super::slots::{Freed, SlotId, State, Station, Why};

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
    /// One process is starting, to test the device.
    Probing,
    /// No process starts before `probe_at`; if `None`, not before an operator releases it.
    Quarantined {
        probe_at: Option<Timestamp>,
    },
}

impl Model {
    /// A process has ended, and a standby may have taken over.
    pub(super) fn died(&mut self, now: Timestamp, at: SlotId, fault: Fault, is_final: bool) {
        if self.is_ending(at.group()) {
            let slot = self.slot_mut(at);
            slot.took_end = slot.doomed.take().map(|doomed| now.since(doomed));
            slot.state = State::default();
            return;
        }
        let worker = self.worker(at);
        self.loses(now, worker);
        let device = self.devices.get_mut(&at.station).expect("devices stay");
        let sibling_serves = device.sibling_serves(at.number);
        let out_of_service = matches!(device.service, Service::Quarantined { .. });
        let slot = &mut device.slots[at.number];
        let counts = slot.served || !(slot.was_ready || sibling_serves);
        match fault {
            Fault::Nobody => self.coverage.hit("death: no evidence against any job"),
            Fault::Outside => self.coverage.hit("death: from outside"),
            // An old process: the device was judged before.
            Fault::Worker if out_of_service => {}
            Fault::Worker if counts && slot.worked => self.coverage.hit("death: after work"),
            Fault::Worker if counts => {
                device.start_failures += u32::from(!slot.was_ready);
                device.idle_deaths.push(now);
            }
            Fault::Worker => self.coverage.hit("death: does not count"),
        }
        slot.took_end = slot.doomed.take().map(|doomed| now.since(doomed));
        let is_idle_death = counts && fault == Fault::Worker && !slot.worked;
        let mut wait = Duration::ZERO;
        if fault != Fault::Nobody {
            wait = backoff(slot.restarts, self.config.backoff_min, self.config.backoff_max);
            slot.restarts += 1;
        }
        if is_final {
            self.coverage.hit("death: a new process would end the same way");
            if !counts {
                self.coverage.hit("death: final, and does not count");
                wait = self.config.backoff_max;
            }
        }
        let until = now.after(self.config.reclaim_timeout);
        slot.state = State::Reclaiming { until, not_before: now.after(wait) };

        if let Some(why) = self.why_out_of_service(now, at, counts, is_idle_death, is_final) {
            self.coverage.hit(why);
            let device = self.devices.get_mut(&at.station).expect("devices stay");
            device.refused |= fault != Fault::Nobody;
            self.goes_out_of_service(now, at.station, is_final, false);
            self.starts_are_cancelled(now, at.station);
        }
    }

    /// Why the device goes out of service after this death, if it does.
    fn why_out_of_service(
        &mut self,
        now: Timestamp,
        at: SlotId,
        counts: bool,
        is_idle_death: bool,
        is_final: bool,
    ) -> Option<&'static str> {
        let device = &self.devices[&at.station];
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

    /// From now on it is out of service.
    pub(super) fn goes_out_of_service(
        &mut self,
        now: Timestamp,
        id: Station,
        is_final: bool,
        by_fault: bool,
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
        device.by_fault = by_fault;
    }

    /// The processes that are starting there end.
    fn starts_are_cancelled(&mut self, now: Timestamp, id: Station) {
        let numbers = 0..self.devices[&id].slots.len();
        for at in numbers.map(|number| SlotId { station: id, number }) {
            if matches!(self.slot(at).state, State::Starting { .. }) {
                self.coverage.hit("kill: starts on a device that goes out of service");
                self.kill(now, at, Why::FreeDevice(Freed::DeviceOut));
            }
        }
    }

    /// When the device is probed, if it only waits for time.
    pub(super) fn probe_wakes_at(&self, id: Station) -> Option<Timestamp> {
        let device = &self.devices[&id];
        match device.service {
            Service::Quarantined { probe_at }
                if self.starts_workers(id.group)
                    && device.is_empty()
                    && !self.is_away(id.device) =>
            {
                probe_at
            }
            Service::Open | Service::Probing | Service::Quarantined { .. } => None,
        }
    }

    /// Probes a device that is due and empty; `at` is its first slot.
    pub(super) fn is_tried(&mut self, now: Timestamp, at: SlotId) {
        let id = at.station;
        if self.probe_wakes_at(id).is_some_and(|at| at <= now) {
            self.coverage.hit("probe: starts");
            self.device_mut(id).service = Service::Probing;
            return self.spawn(now, at);
        }
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        match self.devices[&id].service {
            Service::Quarantined { probe_at } if due(probe_at) => {
                self.coverage.hit("probe: waits for what is left of an old process");
            }
            Service::Open | Service::Probing | Service::Quarantined { .. } => {}
        }
    }

    /// An operator releases a device for every group. Returns whether it was out for any.
    pub(super) fn device_released(&mut self, now: Timestamp, id: DeviceId) -> bool {
        if !self.facts.contains_key(&id) {
            self.coverage.hit("release: no such device");
            return false;
        }
        if self.is_away(id) {
            self.coverage.hit(match self.is_held_before(id) {
                true => "release: a device that is held",
                false => "release: a device that is given away",
            });
            return false;
        }
        let groups = self.all_groups();
        let stations = || groups.iter().map(|&group| Station { group, device: id });
        if stations().all(|at| self.devices[&at].service == Service::Open) {
            self.coverage.hit("release: device in service");
            return false;
        }
        for at in stations() {
            let device = self.devices.get_mut(&at).expect("devices stay");
            let Service::Quarantined { probe_at } = &mut device.service else { continue };
            self.coverage.hit(match probe_at {
                None => "release: halted device",
                Some(_) => "release: quarantined device",
            });
            *probe_at = Some(now);
        }
        true
    }
}

/// How long the start after `restarts` others waits: 0, then `min`, then twice as long each time.
fn backoff(restarts: u32, min: Duration, max: Duration) -> Duration {
    match restarts {
        0 => Duration::ZERO,
        n => (1..n).fold(min, |wait, _| (wait * 2).min(max)).min(max),
    }
}
