//! What the driver reports about devices, under the default policy: some faults take a device out of
//! service, some cost it its processes, most mean nothing for the pool.

use std::collections::BTreeMap;

use gridpool_core::event::Timestamp;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::DeviceId;

use super::Model;
use super::quarantine::Service;
use super::slots::{Freed, SlotId, State, Station, Why};

/// When a fault that a device may have once was last reported.
pub(super) type Incidents = BTreeMap<FaultCode, Timestamp>;

/// The response to a fault of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Response {
    /// Out of service until an operator releases it.
    Halt,
    Nothing,
    /// Out of service for a while.
    Quarantine,
    /// New processes; out of service if it repeats.
    Renew,
}

fn response(fault: FaultCode) -> Response {
    let FaultCode::Xid(number) = fault else { return Response::Nothing };
    match number {
        79 => Response::Halt,
        46 | 48 | 95 => Response::Quarantine,
        74 | 109 => Response::Renew,
        _ => Response::Nothing,
    }
}

/// Why the processes of a device with this fault end: a job may stop a device or block a context switch,
/// but it cannot break memory, link or bus.
fn of_a_job(fault: FaultCode) -> Why {
    Why::Driver { evidence: matches!(fault, FaultCode::Xid(46 | 109)) }
}

impl Model {
    pub(super) fn device_fault(&mut self, now: Timestamp, id: DeviceId, fault: FaultCode) {
        self.driver_is_heard(now, id, fault);
        if !self.facts.contains_key(&id) {
            self.coverage.hit("fault: no such device");
            return;
        }
        let follows = self.follows_a_loss(now, id, fault);
        if self.all_groups().into_iter().all(|group| self.is_ending(group)) {
            self.coverage.hit("fault: while the pool leaves");
            return;
        }
        match response(fault) {
            Response::Halt => self.goes_out(now, id, true, fault),
            Response::Nothing => self.coverage.hit("fault: means nothing"),
            Response::Quarantine => self.goes_out(now, id, false, fault),
            Response::Renew if follows => self.coverage.hit("fault: of a process that is gone"),
            Response::Renew => {
                let facts = self.facts.get_mut(&id).expect("it was just found");
                match facts.incidents.insert(fault, now).map(|at| now.since(at)) {
                    Some(ago) if ago <= self.config.incident_window => {
                        self.coverage.hit("fault: reported again")
                    }
                    Some(ago) if ago <= self.config.incident_repeat_window => {
                        self.coverage.hit("fault: repeated");
                        self.goes_out(now, id, false, fault);
                    }
                    Some(_) | None => {
                        self.coverage.hit("fault: the first of its kind");
                        for at in self.stations(id) {
                            self.its_processes_end(now, at, of_a_job(fault));
                        }
                    }
                }
            }
        }
    }

    /// Whether the report follows from a process that the device has just lost.
    pub(super) fn follows_a_loss(&self, now: Timestamp, id: DeviceId, fault: FaultCode) -> bool {
        let is_expected =
            matches!(fault, FaultCode::Xid(43 | 45)) || response(fault) == Response::Renew;
        is_expected && self.lost_lately(now, id).is_some()
    }

    /// The groups of a device that are not at their end.
    fn stations(&self, id: DeviceId) -> Vec<Station> {
        let all = self.all_groups().into_iter().map(|group| Station { group, device: id });
        let is_used = |at: &Station| !self.devices[at].slots.is_empty();
        all.filter(|at| !self.is_ending(at.group)).filter(is_used).collect()
    }

    /// The worse fault counts.
    fn goes_out(&mut self, now: Timestamp, id: DeviceId, is_final: bool, fault: FaultCode) {
        for at in self.stations(id) {
            let device = self.devices.get_mut(&at).expect("devices stay");
            match &mut device.service {
                Service::Quarantined { probe_at } if is_final => {
                    self.coverage.hit("fault: halts a device that was out of service");
                    *probe_at = None;
                    device.by_fault = true;
                }
                Service::Quarantined { .. } => {
                    self.coverage.hit("fault: of a device that is out of service");
                    continue;
                }
                Service::Probing => {
                    self.coverage.hit("fault: of a device that is being probed");
                    self.goes_out_of_service(now, at, is_final, true);
                }
                Service::Open => {
                    self.coverage.hit("fault: takes a device out of service");
                    self.goes_out_of_service(now, at, is_final, true);
                }
            }
            self.its_processes_end(now, at, of_a_job(fault));
        }
    }

    /// A process cannot be killed: its device goes out of service for every group, and its other processes
    /// are not blamed.
    pub(super) fn is_stuck(&mut self, now: Timestamp, id: DeviceId) {
        for at in self.stations(id) {
            match self.devices[&at].service {
                Service::Quarantined { .. } => {
                    self.coverage.hit("unkillable: on a device that is out of service");
                }
                Service::Open | Service::Probing => {
                    self.coverage.hit("unkillable: takes its device out of service");
                    self.goes_out_of_service(now, at, false, true);
                    self.its_processes_end(now, at, Why::FreeDevice(Freed::DeviceOut));
                }
            }
        }
    }

    /// A standby that takes over ends in its turn.
    fn its_processes_end(&mut self, now: Timestamp, id: Station, why: Why) {
        for number in 0..self.devices[&id].slots.len() {
            let at = SlotId { station: id, number };
            match self.slot(at).state {
                State::Busy { .. } | State::Ready | State::Standby | State::Starting { .. } => {
                    self.coverage.hit(match why {
                        Why::Driver { evidence: true } => {
                            "kill: the device has a fault that a job may cause"
                        }
                        Why::Driver { evidence: false } => "kill: the device has a fault",
                        Why::Beacon
                        | Why::Channel
                        | Why::Command { .. }
                        | Why::FreeDevice(_)
                        | Why::Hang
                        | Why::Mute
                        | Why::Leaving => "kill: beside one that cannot be killed",
                    });
                    self.kill(now, at, why);
                }
                State::Absent { .. }
                | State::Killed { .. }
                | State::Reclaiming { .. }
                | State::Stopping { .. }
                | State::Unkillable { .. } => {}
            }
        }
    }
}
