//! What is shown of processes: a row of `status` for each, its device for receipts, what each has in hand.

use gridpool_protocol::ids::{DeviceId, JobId, WorkerId};
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::status::{SlotDevice, WorkerMemory, WorkerState, WorkerStatus};

use super::device::Service;
use super::event::Timestamp;
use super::outstanding::Sent;
use super::slot::{Slot, SlotState};
use super::{Pool, micros};

/// What a worker has in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InHand {
    /// The job that it has had longest.
    pub job: JobId,
    /// When it was sent that one.
    pub since: Timestamp,
    /// Jobs that it runs together, that one included.
    pub jobs: usize,
    /// Items of all of them that have no verdict yet.
    pub items: u64,
}

impl Pool {
    /// What a worker has in hand, if it is busy.
    #[must_use]
    pub fn in_hand(&self, worker: WorkerId) -> Option<InHand> {
        let slot = self.slots.iter().find(|slot| slot.worker() == worker)?;
        let SlotState::Busy { outstanding } = &slot.state else { return None };
        let items = |sent: &Sent| {
            let job = self.jobs.get(&sent.attempt.job)?;
            Some(u64::from(job.parts[job.part_of(sent.attempt)?].items.len()))
        };
        let sent = outstanding.front.sent.iter().filter(|sent| !sent.moved);
        let first = sent.clone().min_by_key(|sent| sent.since)?;
        Some(InHand {
            job: first.attempt.job,
            since: first.since,
            jobs: sent.clone().count(),
            items: sent.filter_map(items).sum(),
        })
    }

    /// A row for every process, and for every device without one. The shell adds what it knows of
    /// processes and what jobs are.
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
            items_done: slot.items_done,
            restarts: slot.starts.saturating_sub(1),
            last_fault: device.last_fault.clone(),
            start_us: slot.took_start.map(micros),
            end_us: slot.took_end.map(micros),
            arena_bytes: 0,
            memory: WorkerMemory::default(),
            run: None,
            cpu_us: 0,
            resident_bytes: 0,
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
    /// The device as its worker found it; without a name if none was READY yet.
    pub(super) fn device_info(&self) -> DeviceInfo {
        self.info.clone().unwrap_or_else(|| DeviceInfo {
            kind: self.device.kind,
            index: self.device.index,
            name: String::new(),
            uuid: String::new(),
            driver: String::new(),
        })
    }

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
