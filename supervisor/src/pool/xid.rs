//! What the driver says about a device: Xids, NVML's results, recovery actions. What is done is the
//! policy's word; how often is once for one incident is decided here.

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::ids::DeviceId;

use super::device::Service;
use super::event::Timestamp;
use super::slot::{KillCause, SlotState};
use super::{Phase, Pool};

/// After the end of a worker the driver may say for so long what it did about its channels.
const EXPECTED_AFTER_KILL: Duration = Duration::from_secs(10);
/// One incident may be told several times, a time for each channel: within so long it is one.
const INCIDENT: Duration = Duration::from_secs(10);
/// The same incident again within so long is a repetition.
const REPEAT_WINDOW: Duration = Duration::from_secs(600);

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
    fn note(&mut self, now: Timestamp, fault: FaultCode) -> Incident {
        self.0.retain(|_, at| now.since(*at) <= REPEAT_WINDOW);
        match self.0.get(&fault) {
            Some(&at) if now.since(at) <= INCIDENT => Incident::Same,
            Some(_) => {
                self.0.insert(fault, now);
                Incident::Repeated
            }
            None => {
                self.0.insert(fault, now);
                Incident::First
            }
        }
    }
}

impl Pool {
    /// The driver tells of a fault of a device.
    pub(super) fn on_device_fault(&mut self, now: Timestamp, id: DeviceId, fault: FaultCode) {
        let knows = self.devices.iter().any(|device| device.id == id);
        if !knows || matches!(self.phase, Phase::Leaving | Phase::Left) {
            return;
        }
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
                self.put_out(now, id, true);
            }
            Response::Quarantine => {
                self.device_mut(id).last_fault = said_of(id, fault);
                self.put_out(now, id, false);
            }
            Response::QuarantineOnRepeat => {
                let incident = self.device_mut(id).incidents.note(now, fault);
                if incident == Incident::Same {
                    return;
                }
                self.device_mut(id).last_fault = said_of(id, fault);
                match incident {
                    Incident::First | Incident::Same => self.end_workers(now, id),
                    Incident::Repeated => self.put_out(now, id, false),
                }
            }
            Response::Restart => {
                self.device_mut(id).last_fault = said_of(id, fault);
                self.end_workers(now, id);
            }
        }
    }

    /// Whether the driver would say `fault` of a device that has just lost a worker.
    #[must_use]
    pub fn is_expected(&self, now: Timestamp, id: DeviceId, fault: FaultCode) -> bool {
        let device = self.devices.iter().find(|device| device.id == id);
        let lost_at = device.and_then(|device| device.lost_at);
        self.policy.response(fault) == Response::ExpectedAfterKill
            && lost_at.is_some_and(|at| now.since(at) <= EXPECTED_AFTER_KILL)
    }

    /// Takes a device out of service, until it is tried again; if `is_final`, until somebody releases
    /// it. Its workers end, and nobody is blamed.
    pub(super) fn put_out(&mut self, now: Timestamp, id: DeviceId, is_final: bool) {
        let config = self.config.clone();
        let device = self.device_mut(id);
        match &mut device.service {
            Service::Open | Service::Probing => device.quarantine(now, is_final, &config),
            // It is out already. What is worse stands; what is not as bad changes nothing.
            Service::Quarantined { .. } if !is_final => return,
            Service::Quarantined { probe_at } => *probe_at = None,
        }
        self.end_workers(now, id);
    }

    /// Ends every worker of a device, and nobody is blamed. One that takes over from another ends in
    /// its turn, before it is given anything.
    fn end_workers(&mut self, now: Timestamp, id: DeviceId) {
        for index in 0..self.slots.len() {
            if self.slots[index].device == id && is_live(&self.slots[index].state) {
                self.kill(now, index, KillCause::FreeDevice);
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
