//! Views of the pool: a row of `status` for each process, the work of each, the queue, and the devices that
//! are out of service.

use std::collections::BTreeSet;

use gridpool_protocol::ids::{DeviceId, Group, JobId, Role, WorkerId};
use gridpool_protocol::message::{JobSelector, JobView};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{
    PrincipalStatus, QueueStatus, WorkerDevice, WorkerState, WorkerStatus,
};

use super::accounts::{Account, Sums};
use super::groups::{GroupState, Phase};
use super::outstanding::Sent;
use super::per_group::PerGroup;
use super::process::{Process, Stage};
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

/// A device that is out of service for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantine<'a> {
    /// The device.
    pub device: DeviceId,
    /// The group.
    pub group: Group,
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

    /// What a job is doing, or what became of it: one of `own`, or of anybody. A key may be that of several principals'
    /// jobs: a live one goes first.
    pub(crate) fn job_view(
        &self,
        now: Timestamp,
        name: JobSelector,
        own: Option<&Principal>,
    ) -> Option<JobView> {
        let job = match (name, own) {
            (JobSelector::Number(job), _) => self.jobs.get(job),
            (JobSelector::Key(key), Some(own)) => {
                self.jobs.by_key(own, key).and_then(|job| self.jobs.get(job))
            }
            (JobSelector::Key(key), None) => {
                let named = self.jobs.unordered().filter(|job| job.request.key == key);
                named.min_by_key(|job| job.request.job)
            }
        };
        match job {
            Some(job) if own.is_none_or(|own| job.request.principal == *own) => {
                let workers = job.running().map(|(_, _, worker)| worker.to_string()).collect();
                let receipt = job.clone().into_receipt(now, Verdict::default(), String::new());
                Some(JobView { receipt, has_ended: false, workers })
            }
            Some(_) => None,
            None => {
                let receipt = self.verdicts.find_named(name, own)?;
                Some(JobView { receipt, has_ended: true, workers: Vec::new() })
            }
        }
    }

    /// A row for every process, and for every device and group without one, with the worker's id. The shell
    /// adds what it knows of processes and jobs.
    pub(crate) fn workers(&self) -> Vec<(Option<WorkerId>, WorkerStatus)> {
        let rows = |device, group| {
            let own = || self.slots.of(device, group);
            let mut live: Vec<_> = own().filter(|slot| slot.has_process()).collect();
            if live.is_empty() {
                live.extend(own().next());
            }
            live
        };
        let groups = self.groups.iter().map(|(group, _)| group);
        let is_busy = |group: &Group| is_busy(&self.groups, &self.slots, *group);
        let busy: Vec<_> = groups.filter(is_busy).collect();
        let places = self.devices.iter().flat_map(|d| busy.iter().map(move |&group| (d.id, group)));
        let slots = places.flat_map(|(device, group)| rows(device, group));
        slots.map(|slot| (slot.process().map(|own| own.worker), self.row(slot))).collect()
    }

    fn row(&self, slot: &Slot) -> WorkerStatus {
        let device = self.devices.at(slot.device);
        let service = device.service(slot.group);
        let is_out = matches!(service.state(), ServiceState::Quarantined { .. });
        let state = match slot.has_process() {
            true => slot.shown_state(),
            false if is_out => WorkerState::Quarantined,
            false if self.groups[slot.group].has_nothing_to_do() => WorkerState::Stopped,
            false => slot.shown_state(),
        };
        let latest = service.latest.unwrap_or(WorkerId {
            device: slot.device,
            group: slot.group,
            generation: 0,
        });
        let worker = slot.process().map_or(latest, |process| process.worker);
        let known = || Some((&*device.info.as_ref()?.name, &*device.info.as_ref()?.uuid));
        let own = slot.process().and_then(Process::device_names);
        let (name, uuid) = own.or_else(known).unwrap_or_default();
        WorkerStatus {
            name: worker.to_string(),
            role: slot.group.role().name().to_owned(),
            group: self.group_name(slot.group).to_string(),
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
            graph_replays: whole(slot.graph_replays),
            restarts: slot.restarts(),
            restart_reasons: slot
                .restart_reasons
                .iter()
                .map(|(reason, &count)| (reason.name().to_owned(), count))
                .collect(),
            last_fault: device.why_away().map_or_else(|| service.last_fault.clone(), str::to_owned),
            start_us: slot.took_start.map(micros),
            end_us: slot.took_end().map(micros),
            ..WorkerStatus::default()
        }
    }

    /// The active worker of `device`, of the group of this name if it has one, or another process there if none is
    /// active. A worker for programs goes before one for models.
    pub(crate) fn worker_on(&self, device: DeviceId, group: Option<&str>) -> Option<WorkerId> {
        let is_its = |process: &&Process| {
            let WorkerId { device: own, group: of, .. } = process.worker;
            own == device && group.is_none_or(|name| &**self.group_name(of) == name)
        };
        let own = self.slots.processes().filter(is_its);
        let first = own.min_by_key(|process| (process.worker.group, !process.serves()));
        first.map(|process| process.worker)
    }

    /// The queue, over all groups.
    pub(crate) fn queue(&self) -> QueueStatus {
        let all = self.groups.iter().map(|(_, group)| group.queue_status());
        all.fold(QueueStatus::default(), QueueStatus::plus)
    }

    /// A row for every principal that has jobs, or had some lately, or is `connected`; one for all others.
    pub(crate) fn principals(
        &self,
        now: Timestamp,
        connected: &BTreeSet<Principal>,
    ) -> Vec<(Option<Principal>, PrincipalStatus)> {
        let row = |principal: &Principal, account: &Account| {
            let queued =
                self.groups.iter().map(|(_, group)| group.queue.jobs_of(principal) as u64).sum();
            let spent = self.groups.iter().map(|(_, group)| group.kills.count(now, principal));
            let left = self.config.kills_max.saturating_sub(spent.max().unwrap_or(0));
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
        Role::ALL.into_iter().filter_map(|role| self.waits_since_of(role)).min()
    }

    /// The same of a role. Numbers ascend with the time of acceptance.
    pub(super) fn waits_since_of(&self, role: Role) -> Option<Timestamp> {
        let oldest = self.groups_of(role).filter_map(|state| state.queue.oldest()).min()?;
        self.jobs.get(oldest).map(|job| job.accepted)
    }

    /// The devices that are out of service for a group, and why.
    pub(crate) fn quarantines(&self) -> impl Iterator<Item = Quarantine<'_>> {
        let services = self.devices.iter().flat_map(|device| {
            device.services().map(move |(group, service)| (device.id, group, service))
        });
        let busy = move |group| is_busy(&self.groups, &self.slots, group);
        services.filter(move |&(_, group, _)| busy(group)).filter_map(|(device, group, service)| {
            let ServiceState::Quarantined { probe_at } = service.state() else { return None };
            Some(Quarantine { device, group, why: &service.last_fault, probe_at })
        })
    }

    /// Whether a device is out of service for any group, even one that rests; `None` if there is no such
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

/// A sum of shares as the number of what was shared.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is rounded, and no share is negative"
)]
fn whole(shares: f64) -> u64 {
    shares.round() as u64
}

/// Whether a group has work, or still a process.
pub(super) fn is_busy(groups: &PerGroup<GroupState>, slots: &Slots, group: Group) -> bool {
    groups[group].phase != Phase::Resting
        || slots.of_group(group).any(|(_, slot)| slot.has_process())
}
