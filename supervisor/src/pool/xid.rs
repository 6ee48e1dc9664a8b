//! What the driver says about a device: Xids, NVML's results, recovery actions. What is done is the
//! policy's word; how often is once for one incident is decided here.

use std::collections::BTreeMap;

use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::ids::DeviceId;

use super::config::PoolConfig;
use super::device::{Rule, Service};
use super::event::Timestamp;
use super::kill::{Freed, KillCause};
use super::seats::find;
use super::slot::SlotState;
use super::{Phase, Pool};

/// The incidents of one device that would be quarantined for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Incidents(BTreeMap<FaultCode, Timestamp>);

/// What a fault is, by what was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incident {
    First,
    /// It has been told already.
    Same,
    Repeated,
}

impl Incidents {
    /// An incident lasts for as long as it is told again and again.
    fn note(&mut self, now: Timestamp, fault: FaultCode, config: &PoolConfig) -> Incident {
        match self.0.insert(fault, now).map(|at| now.since(at)) {
            Some(ago) if ago <= config.incident_window => Incident::Same,
            Some(ago) if ago <= config.incident_repeat_window => Incident::Repeated,
            Some(_) | None => Incident::First,
        }
    }
}

impl Pool {
    /// The driver tells of a fault of a device. A worker that ends over it may have brought it about.
    pub(super) fn on_device_fault(&mut self, now: Timestamp, id: DeviceId, fault: FaultCode) {
        let knows = self.devices.iter().any(|device| device.id == id);
        if !knows || matches!(self.phase, Phase::Leaving | Phase::Left) {
            return;
        }
        let is_expected = self.is_expected(now, id, fault);
        let cause = KillCause::DeviceFault(fault);
        match self.policy.response(fault) {
            Response::AwaitWorker
            | Response::ExpectedAfterKill
            | Response::FailJob
            | Response::Ignore
            | Response::Retry
            | Response::RetryJob
            | Response::Suspect => {}
            Response::Halt => {
                self.device_mut(id).last_fault = said_of(id, fault);
                self.put_out(now, id, true, cause);
            }
            Response::Quarantine => {
                self.device_mut(id).last_fault = said_of(id, fault);
                self.put_out(now, id, false, cause);
            }
            Response::QuarantineOnRepeat | Response::Restart if is_expected => {}
            Response::QuarantineOnRepeat => {
                let device = find(&mut self.devices, id);
                let incident = device.incidents.note(now, fault, &self.config);
                if incident == Incident::Same {
                    return;
                }
                self.device_mut(id).last_fault = said_of(id, fault);
                match incident {
                    Incident::First | Incident::Same => self.end_workers(now, id, cause),
                    Incident::Repeated => self.put_out(now, id, false, cause),
                }
            }
            Response::Restart => {
                self.device_mut(id).last_fault = said_of(id, fault);
                self.end_workers(now, id, cause);
            }
        }
    }

    /// Remembers what the driver has said last, whatever is done about it.
    pub(super) fn note_driver(&mut self, now: Timestamp, id: DeviceId, fault: FaultCode) {
        if let Some(device) = self.devices.iter_mut().find(|device| device.id == id) {
            device.driver_said = Some((now, fault));
        }
    }

    /// Whether the driver would say `fault` of a device that has just lost a worker: what it did about
    /// that one's channels. It is told a time for each, and nothing is left to be done.
    #[must_use]
    pub fn is_expected(&self, now: Timestamp, id: DeviceId, fault: FaultCode) -> bool {
        let device = self.devices.iter().find(|device| device.id == id);
        let lost_at = device.and_then(|device| device.lost).map(|(at, _)| at);
        let follows = match self.policy.response(fault) {
            Response::ExpectedAfterKill | Response::QuarantineOnRepeat | Response::Restart => true,
            Response::AwaitWorker
            | Response::FailJob
            | Response::Halt
            | Response::Ignore
            | Response::Quarantine
            | Response::Retry
            | Response::RetryJob
            | Response::Suspect => false,
        };
        follows && lost_at.is_some_and(|at| now.since(at) <= self.config.incident_window)
    }

    /// What a worker met speaks against its device: it goes out of service, for every role.
    pub(super) fn give_up_device(&mut self, now: Timestamp, id: DeviceId) {
        self.given_up.push(id);
        self.put_out(now, id, false, KillCause::FreeDevice(Freed::DeviceOut));
    }

    /// Devices that were given up since this was asked last.
    pub(super) fn take_given_up(&mut self) -> Vec<DeviceId> {
        std::mem::take(&mut self.given_up)
    }

    /// The same device was given up for what a worker of another role met.
    pub(super) fn give_up_too(&mut self, now: Timestamp, id: DeviceId, why: String) {
        self.device_mut(id).last_fault = why;
        self.put_out(now, id, false, KillCause::FreeDevice(Freed::DeviceOut));
        self.advance(now);
    }

    /// Takes a device out of service, until it is tried again; if `is_final`, until somebody releases
    /// it. Its workers end for `cause`.
    pub(super) fn put_out(
        &mut self,
        now: Timestamp,
        id: DeviceId,
        is_final: bool,
        cause: KillCause,
    ) {
        let config = self.config.clone();
        let device = self.device_mut(id);
        match &mut device.service {
            Service::Open | Service::Probing => {
                device.quarantine(now, Rule::Fault, is_final, &config);
            }
            // It is out already. What is worse stands; what is not as bad changes nothing.
            Service::Quarantined { .. } if !is_final => return,
            Service::Quarantined { probe_at } => {
                *probe_at = None;
                device.rule = Some(Rule::Fault);
            }
        }
        self.end_workers(now, id, cause);
    }

    /// Ends every worker of a device. One that takes over from another ends in its turn, before it is
    /// given anything.
    fn end_workers(&mut self, now: Timestamp, id: DeviceId, cause: KillCause) {
        for index in 0..self.slots.len() {
            if self.slots[index].device == id && is_live(&self.slots[index].state) {
                self.kill(now, index, cause);
            }
        }
    }
}

/// What `status` shows as the last fault of a device.
fn said_of(id: DeviceId, fault: FaultCode) -> String {
    let meaning = fault.meaning();
    format!("{id}: {fault} ({}): {}", meaning.name, meaning.sentence)
}

/// Whether there is a process that nobody has ended yet.
fn is_live(state: &SlotState) -> bool {
    match state {
        SlotState::Busy { .. }
        | SlotState::Ready { .. }
        | SlotState::Standby
        | SlotState::Starting { .. } => true,
        SlotState::Killed { .. }
        | SlotState::Reclaiming { .. }
        | SlotState::Stopped
        | SlotState::Stopping { .. }
        | SlotState::Unkillable { .. }
        | SlotState::Waiting { .. } => false,
    }
}
