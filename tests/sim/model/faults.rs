//! What the driver says of devices, as the policy has it by default: some faults take a device out of
//! service, some cost it its processes, most mean nothing for the pool.

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool::pool::event::Timestamp;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::DeviceId;

use super::Model;
use super::quarantine::Service;
use super::seats::{SeatId, State, Why};

/// The same fault of the same device is one incident for so long.
const INCIDENT: Duration = Duration::from_secs(10);

/// It is a new one if it was not told for so long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// When a fault was told last that a device may have once.
pub(super) type Incidents = BTreeMap<FaultCode, Timestamp>;

/// What a fault of a device calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Response {
    /// Out of service until somebody says otherwise.
    Halt,
    Nothing,
    /// Out of service for a while.
    Quarantine,
    /// New processes; out of service if it comes again.
    Renew,
}

fn response(fault: FaultCode) -> Response {
    let FaultCode::Xid(number) = fault else { return Response::Nothing };
    match number {
        79 => Response::Halt,
        48 | 95 => Response::Quarantine,
        74 | 109 => Response::Renew,
        _ => Response::Nothing,
    }
}

impl Model {
    pub(super) fn device_fault(&mut self, now: Timestamp, id: DeviceId, fault: FaultCode) {
        if !self.devices.contains_key(&id) {
            self.coverage.hit("fault: no such device");
            return;
        }
        if self.is_ending() {
            self.coverage.hit("fault: while the pool leaves");
            return;
        }
        match response(fault) {
            Response::Halt => self.is_put_out(now, id, true),
            Response::Nothing => self.coverage.hit("fault: means nothing"),
            Response::Quarantine => self.is_put_out(now, id, false),
            Response::Renew => {
                let device = self.devices.get_mut(&id).expect("it was just found");
                match device.incidents.get(&fault).map(|&at| now.since(at)) {
                    Some(ago) if ago <= INCIDENT => self.coverage.hit("fault: told again"),
                    Some(ago) if ago <= FORGOTTEN_AFTER => {
                        self.coverage.hit("fault: repeated");
                        device.incidents.insert(fault, now);
                        self.is_put_out(now, id, false);
                    }
                    Some(_) | None => {
                        self.coverage.hit("fault: the first of its kind");
                        device.incidents.insert(fault, now);
                        self.its_processes_end(now, id);
                    }
                }
            }
        }
    }

    /// Whatever is worse stands.
    fn is_put_out(&mut self, now: Timestamp, id: DeviceId, is_final: bool) {
        let device = self.devices.get_mut(&id).expect("devices stay");
        match &mut device.service {
            Service::Quarantined { probe_at } if is_final => {
                self.coverage.hit("fault: halts a device that was out of service");
                *probe_at = None;
            }
            Service::Quarantined { .. } => {
                self.coverage.hit("fault: of a device that is out of service");
                return;
            }
            Service::Probing => {
                self.coverage.hit("fault: of a device that is tried");
                self.goes_out_of_service(now, id, is_final);
            }
            Service::Open => {
                self.coverage.hit("fault: takes a device out of service");
                self.goes_out_of_service(now, id, is_final);
            }
        }
        self.its_processes_end(now, id);
    }

    /// Nobody is blamed. A standby that takes over ends in its turn.
    fn its_processes_end(&mut self, now: Timestamp, id: DeviceId) {
        for number in 0..self.devices[&id].seats.len() {
            let at = SeatId { device: id, number };
            match self.seat(at).state {
                State::Busy { .. } | State::Ready | State::Standby | State::Starting { .. } => {
                    self.coverage.hit("kill: the device has a fault");
                    self.kill(now, at, Why::FreeDevice);
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
