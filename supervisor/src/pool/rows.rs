//! What `status` shows of processes: a row for each.

use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::status::{SlotDevice, WorkerMemory, WorkerState, WorkerStatus};

use super::device::Service;
use super::slot::{Slot, SlotState};
use super::{Pool, micros};

impl Pool {
    /// A row for every process, and for every device without one. The shell adds process ids.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let rows = |device| {
            let mut live: Vec<_> = self.seats(device).filter(|slot| slot.has_process()).collect();
            if live.is_empty() {
                live.extend(self.seats(device).next());
            }
            live
        };
        let devices = self.devices.iter();
        devices.flat_map(|device| rows(device.id).into_iter().map(|slot| self.row(slot))).collect()
    }

    fn row(&self, slot: &Slot) -> WorkerStatus {
        let device = self.device(slot.device);
        let (worker, state) = match (slot.has_process(), device.service) {
            (true, _) => (slot.worker(), slot.shown_state()),
            (false, Service::Quarantined { .. }) => (device.latest(), WorkerState::Quarantined),
            (false, Service::Open | Service::Probing) if self.has_nothing_to_do() => {
                (device.latest(), WorkerState::Stopped)
            }
            (false, Service::Open | Service::Probing) => (device.latest(), slot.shown_state()),
        };
        let info = self.seats(slot.device).find_map(|seat| seat.info.as_ref());
        let info = slot.info.as_ref().or(info);
        WorkerStatus {
            name: worker.to_string(),
            pid: 0,
            role: "grid".to_owned(),
            device: SlotDevice {
                kind: slot.device.kind,
                index: slot.device.index,
                name: info.map_or_else(String::new, |info| info.name.clone()),
                uuid: info.map_or_else(String::new, |info| info.uuid.clone()),
            },
            state,
            generation: worker.generation,
            jobs_done: slot.jobs_done,
            restarts: slot.starts.saturating_sub(1),
            last_fault: device.last_fault.clone(),
            start_us: slot.took_start.map(micros),
            end_us: slot.took_end.map(micros),
            arena_bytes: 0,
            memory: WorkerMemory::default(),
        }
    }

    /// The worker that serves `device` now; if none does, another that has a process there.
    #[must_use]
    pub fn worker_on(&self, device: DeviceId) -> Option<WorkerId> {
        let mut live: Vec<_> = self.seats(device).filter(|slot| slot.has_process()).collect();
        live.sort_by_key(|slot| !slot.serves());
        live.first().map(|slot| slot.worker())
    }
}

impl Slot {
    /// Its state, in the words of the interface.
    fn shown_state(&self) -> WorkerState {
        match self.state {
            SlotState::Busy { .. } => WorkerState::Busy,
            SlotState::Killed { .. } | SlotState::Stopping { .. } => WorkerState::Stopping,
            SlotState::Ready { .. } => WorkerState::Ready,
            SlotState::Reclaiming { .. } | SlotState::Waiting { .. } => WorkerState::Backoff,
            SlotState::Standby => WorkerState::Standby,
            SlotState::Starting { .. } => WorkerState::Starting,
            SlotState::Stopped => WorkerState::Stopped,
            SlotState::Unkillable { .. } => WorkerState::Unkillable,
        }
    }
}
