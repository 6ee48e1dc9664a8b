//! Views of the pool: a row of `status` for each process, the work of each, the queue, and the devices that
//! are out of service.

use std::collections::BTreeSet;

use gridpool_protocol::ids::{DeviceId, JobId, Role, WorkerId};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::status::{
    PrincipalStatus, QueueStatus, WorkerDevice, WorkerState, WorkerStatus,
};

use super::accounts::{Account, Sums};
use super::outstanding::Sent;
use super::per_role::PerRole;
use super::process::{Process, Stage};
use super::roles::{Phase, RoleState};
use super::service::ServiceState;
use super::slots::{Slot, Slots};
use super::{Pool, micros};
use crate::event::Timestamp;

/// What a busy worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentDispatch {
    /// The job that it has run longest.
    pub job: JobId,
    /// When it was sent that job.
    pub since: Timestamp,
    /// Jobs that it runs together, that one included.
    pub jobs: usize,
    /// Items of all of them that have no verdict yet.
    pub items: u64,
}

/// A device that is out of service for a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantine<'a> {
    /// The device.
    pub device: DeviceId,
    /// The role.
    pub role: Role,
    /// The fault that took it out of service last.
    pub why: &'a str,
    /// When it is probed; if `None`, an operator must release it first.
    pub probe_at: Option<Timestamp>,
}

impl Pool {
    /// What a worker runs, if it is busy.
    pub(crate) fn current_dispatch(&self, worker: WorkerId) -> Option<CurrentDispatch> {
        let process = self.slots.process(self.slots.find(worker)?);
        let Stage::Busy(outstanding) = process.stage() else { return None };
        let items = |sent: &Sent| {
            let job = self.jobs.get(sent.attempt.job)?;
            Some(u64::from(job.shards[job.shard_of(sent.attempt)?].items.len()))
        };
        let sent = outstanding.front.sent.iter().filter(|sent| !sent.moved);
        let first = sent.clone().min_by_key(|sent| sent.since)?;
        Some(CurrentDispatch {
            job: first.attempt.job,
            since: first.since,
            jobs: sent.clone().count(),
            items: sent.filter_map(items).sum(),
        })
    }

    /// A row for every process, and for every device and role without one, with the worker's id. The shell
    /// adds what it knows of processes and jobs.
    pub(crate) fn workers(&self) -> Vec<(Option<WorkerId>, WorkerStatus)> {
        let rows = |device, role| {
            let own = || self.slots.of(device, role);
            let mut live: Vec<_> = own().filter(|slot| slot.has_process()).collect();
            if live.is_empty() {
                live.extend(own().next());
            }
            live
        };
        let busy = Role::ALL.into_iter().filter(|&role| is_busy(&self.roles, &self.slots, role));
        let places = self.devices.iter().flat_map(|d| busy.clone().map(move |role| (d.id, role)));
        let slots = places.flat_map(|(device, role)| rows(device, role));
        slots.map(|slot| (slot.process().map(|own| own.worker), self.row(slot))).collect()
    }

    fn row(&self, slot: &Slot) -> WorkerStatus {
        let device = self.devices.at(slot.device);
        let service = device.service(slot.role);
        let is_out = matches!(service.state(), ServiceState::Quarantined { .. });
        let state = match slot.has_process() {
            true => slot.shown_state(),
            false if is_out => WorkerState::Quarantined,
            false if self.roles[slot.role].has_nothing_to_do() => WorkerState::Stopped,
            false => slot.shown_state(),
        };
        let latest = service.latest.unwrap_or(WorkerId {
            device: slot.device,
            role: slot.role,
            generation: 0,
        });
        let worker = slot.process().map_or(latest, |process| process.worker);
        let known = || Some((&*device.info.as_ref()?.name, &*device.info.as_ref()?.uuid));
        let own = slot.process().and_then(Process::device_names);
        let (name, uuid) = own.or_else(known).unwrap_or_default();
        WorkerStatus {
            name: worker.to_string(),
            role: slot.role.name().to_owned(),
            device: WorkerDevice {
                kind: slot.device.kind,
                index: slot.device.index,
                name: name.to_owned(),
                uuid: uuid.to_owned(),
            },
            state,
            generation: worker.generation,
            jobs_done: slot.jobs_done,
            items_done: slot.items_done,
            restarts: slot.restarts(),
            last_fault: service.last_fault.clone(),
            start_us: slot.took_start.map(micros),
            end_us: slot.took_end().map(micros),
            ..WorkerStatus::default()
        }
    }

    /// The active worker of `device`, or another process there if it has none. A worker for programs goes
    /// before one for models.
    pub(crate) fn worker_on(&self, device: DeviceId) -> Option<WorkerId> {
        let own = self.slots.processes().filter(|process| process.worker.device == device);
        let first = own.min_by_key(|process| (process.worker.role, !process.serves()));
        first.map(|process| process.worker)
    }

    /// The queue, over all roles.
    pub(crate) fn queue(&self) -> QueueStatus {
        let all = self.roles.iter().map(|(_, role)| role.queue_status());
        all.fold(QueueStatus::default(), |sum, queue| QueueStatus {
            jobs: sum.jobs + queue.jobs,
            jobs_high: sum.jobs_high + queue.jobs_high,
            bytes: sum.bytes + queue.bytes,
            bytes_high: sum.bytes_high + queue.bytes_high,
            oldest_us: None,
        })
    }

    /// A row for every principal that has jobs, or had some lately, or is `connected`; one for all others.
    pub(crate) fn principals(
        &self,
        now: Timestamp,
        connected: &BTreeSet<Principal>,
    ) -> Vec<(Option<Principal>, PrincipalStatus)> {
        let row = |principal: &Principal, account: &Account| {
            let queued =
                self.roles.iter().map(|(_, role)| role.queue.jobs_of(principal) as u64).sum();
            let spent = self.kills.count(now, principal);
            let left = self.config.kills_max.saturating_sub(spent);
            PrincipalStatus {
                principal: principal.to_string(),
                queued,
                running: account.jobs.saturating_sub(queued),
                bytes: account.bytes,
                kills_left: Some(u32::try_from(left).unwrap_or(u32::MAX)),
                quota: self.accounts.quotas.of(principal).to_string(),
                ..sums_row(account.sums)
            }
        };
        let none = Account::default();
        let known: BTreeSet<_> =
            self.accounts.iter().map(|(who, _)| who).chain(connected).collect();
        let own = known.into_iter().map(|who| {
            let account = self.accounts.get(who).unwrap_or(&none);
            (Some(who.clone()), row(who, account))
        });
        let others = self.accounts.others();
        let has_others = others != Sums::default();
        let principal = "others".to_owned();
        let others = has_others.then(|| (None, PrincipalStatus { principal, ..sums_row(others) }));
        own.chain(others).collect()
    }

    /// When the oldest job that waits was accepted.
    pub(crate) fn waits_since(&self) -> Option<Timestamp> {
        self.jobs.iter().filter(|job| job.waits()).map(|job| job.accepted).min()
    }

    /// The devices that are out of service for a role, and why.
    pub(crate) fn quarantines(&self) -> impl Iterator<Item = Quarantine<'_>> {
        let services = self.devices.iter().flat_map(|device| {
            device.services().map(move |(role, service)| (device.id, role, service))
        });
        let busy = move |role| is_busy(&self.roles, &self.slots, role);
        services.filter(move |&(_, role, _)| busy(role)).filter_map(|(device, role, service)| {
            let ServiceState::Quarantined { probe_at } = service.state() else { return None };
            Some(Quarantine { device, role, why: &service.last_fault, probe_at })
        })
    }

    /// Whether a device is out of service for any role, even one that rests; `None` if there is no such
    /// device.
    pub(crate) fn is_out(&self, id: DeviceId) -> Option<bool> {
        let device = self.devices.find(id)?;
        Some(device.services().any(|(_, service)| !service.is_open()))
    }
}

fn sums_row(sums: Sums) -> PrincipalStatus {
    let Sums { done, refused, device_time } = sums;
    PrincipalStatus {
        done,
        refused,
        device_s: device_time.as_secs_f64(),
        ..PrincipalStatus::default()
    }
}

/// Whether a role has work, or still a process.
pub(super) fn is_busy(roles: &PerRole<RoleState>, slots: &Slots, role: Role) -> bool {
    roles[role].phase != Phase::Resting || slots.of_role(role).any(|(_, slot)| slot.has_process())
}
