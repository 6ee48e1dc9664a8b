//! What the driver reports about a device: Xids, results of NVML calls, recovery actions. The policy names
//! the response; this module makes sure that one incident gets it once.

use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::ids::{DeviceId, Group, WorkerId};

use super::Pool;
use super::devices::Device;
use super::incidents::Incident;
use super::kill::{Freed, KillCause};
use crate::action::{Action, Note, Novelty};
use crate::event::Timestamp;

impl Pool {
    /// The driver reports a fault of a device. A job that ran there may have caused it.
    pub(crate) fn on_device_fault(&mut self, now: Timestamp, id: DeviceId, fault: FaultCode) {
        let response = self.policy.response(fault);
        let is_expected = self.is_expected(now, id, response);
        self.log_report(now, id, fault, response, is_expected);
        let device = self.devices.find_mut(id);
        let is_known = device.is_some();
        if let Some(device) = device {
            device.driver_report = Some((now, fault));
        }
        // The loss of a worker brings such reports: no new fault.
        if is_expected {
            return;
        }
        self.faults.note(fault);
        if !is_known || self.groups.iter().all(|(_, group)| group.is_leaving()) {
            return;
        }
        let cause = KillCause::DeviceFault(fault);
        let why = fault_text(id, fault);
        match response {
            Response::AwaitWorker
            | Response::ExpectedAfterKill
            | Response::FailJob
            | Response::Ignore
            | Response::Retry
            | Response::RetryJob
            | Response::Suspect => {}
            Response::Halt => self.quarantine_device(now, id, true, cause, &why),
            Response::Quarantine => self.quarantine_device(now, id, false, cause, &why),
            Response::QuarantineOnRepeat => {
                match self.devices.at_mut(id).incidents.note(now, fault, &self.config) {
                    Incident::Same => {}
                    Incident::First => self.end_all_workers(now, id, cause, &why),
                    Incident::Repeated => self.quarantine_device(now, id, false, cause, &why),
                }
            }
            Response::Restart => self.end_all_workers(now, id, cause, &why),
        }
    }

    /// Whether the report follows from a worker that the device has just lost: the driver reports once for
    /// each channel that it closes.
    fn is_expected(&self, now: Timestamp, id: DeviceId, response: Response) -> bool {
        let follows = match response {
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
        let device = self.devices.find(id);
        let lost = device.and_then(|device| device.lost_lately(now, &self.config));
        follows && lost.is_some()
    }

    /// Logs what the driver reports. A report soon after a death is about the dead worker if the device has
    /// no other, and comes again for each of its channels.
    fn log_report(
        &mut self,
        now: Timestamp,
        id: DeviceId,
        fault: FaultCode,
        response: Response,
        is_expected: bool,
    ) {
        let device = self.devices.find_mut(id);
        let lost = device.as_ref().and_then(|device| device.lost_lately(now, &self.config));
        let report = lost.map(|worker| (worker, fault));
        let before = device.and_then(|device| std::mem::replace(&mut device.reported_loss, report));
        let novelty = match is_expected {
            false => Novelty::New,
            true if report == before => Novelty::Repeated,
            true => Novelty::Expected,
        };
        let is_about = |lost: WorkerId| {
            let mut own = self.slots.processes().map(|process| process.worker);
            own.all(|worker| worker.device != id || worker == lost)
        };
        let is_about_lost = lost.is_some_and(is_about);
        let note = Note::DriverReport { device: id, fault, response, novelty, lost, is_about_lost };
        self.act(Action::Note(note));
    }

    /// Takes a device out of service for every group, because of the fault that a worker met.
    pub(super) fn give_up_device(&mut self, now: Timestamp, id: DeviceId, why: &str) {
        self.quarantine_device(now, id, false, KillCause::FreeDevice(Freed::DeviceOut), why);
    }

    /// Takes a device out of service until it is probed; if `is_final`, until an operator releases it.
    /// Kills its workers for `cause`.
    fn quarantine_device(
        &mut self,
        now: Timestamp,
        id: DeviceId,
        is_final: bool,
        cause: KillCause,
        why: &str,
    ) {
        self.touch_all();
        self.for_each_group(|pool, group| {
            if pool.groups[group].is_leaving() || !pool.slots.are_on(id, group) {
                return;
            }
            let service = pool.devices.at_mut(id).service_mut(group);
            why.clone_into(&mut service.last_fault);
            if service.quarantine_for_fault(now, is_final, &pool.config) {
                pool.services_changed = true;
                pool.end_workers(now, id, group, cause);
            }
        });
    }

    /// Kills every worker of a device, whatever its group.
    fn end_all_workers(&mut self, now: Timestamp, id: DeviceId, cause: KillCause, why: &str) {
        self.for_each_group(|pool, group| {
            if !pool.groups[group].is_leaving() && pool.slots.are_on(id, group) {
                let service = pool.devices.at_mut(id).service_mut(group);
                why.clone_into(&mut service.last_fault);
                pool.end_workers(now, id, group, cause);
            }
        });
    }

    /// Kills the workers of a device and group. A standby that takes over meanwhile dies in its turn, before
    /// it gets a dispatch.
    fn end_workers(&mut self, now: Timestamp, id: DeviceId, group: Group, cause: KillCause) {
        for index in self.slots.indexes(group) {
            let slot = &self.slots[index];
            if slot.device == id && slot.process().is_some_and(|process| !process.is_ending()) {
                self.kill(now, index, cause);
            }
        }
    }

    /// An operator wants a device probed now.
    pub(super) fn release_device(&mut self, now: Timestamp, id: DeviceId) {
        let services = self.devices.find_mut(id).into_iter().flat_map(Device::services_mut);
        services.for_each(|(_, service)| service.release(now));
    }
}

/// What `status` shows as the last fault of a device.
fn fault_text(id: DeviceId, fault: FaultCode) -> String {
    let meaning = fault.meaning();
    format!("{id}: {fault} ({}): {}", meaning.name, meaning.sentence)
}
