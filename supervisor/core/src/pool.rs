//! The pool: devices, workers and jobs, with the rules of scheduling, retry, backoff, quarantine, deadline,
//! fairness and drain.
//!
//! The pool handles an event in two steps: first its own content, then [`Pool::advance`] restores what is
//! always true between events: no timeout is overdue, every slot that is due has a process, every idle
//! device has a job if one may go there, and no job waits for long behind another while a device idles.
//! It looks only at groups that the event has touched, or for which time has brought something (`attention`).

mod accounts;
mod answers;
mod attention;
mod availability;
mod budget;
mod capsules;
pub(crate) mod death_report;
mod denylist;
mod devices;
mod dispatch;
mod driver;
mod exits;
mod feed;
mod groups;
mod handover;
mod incidents;
mod job;
mod jobs;
pub(crate) mod kill;
mod losses;
mod meters;
mod ordered;
mod outstanding;
mod owners;
mod per_group;
mod process;
mod queue;
pub(crate) mod receipts;
mod room;
pub(crate) mod rows;
pub(crate) mod service;
mod shard;
mod slots;
mod starts;
mod submissions;
#[cfg(test)]
mod tests;
mod turns;
mod upkeep;
mod verdicts;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::handover::{JobName, JobNews};
use gridpool_protocol::ids::{ClientId, DeviceId, Group, JobId, Role, WorkerId};
use gridpool_protocol::message::Refusal;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::Counters;

use crate::action::Action;
use crate::config::PoolConfig;
use crate::event::{Release, Timestamp, WorkerEvent};
use crate::policy::PolicyTable;
use crate::quota::{Quota, Quotas};
use accounts::Accounts;
use attention::Attention;
use death_report::DeathReport;
use denylist::Denylist;
use devices::Devices;
use groups::{GroupState, Phase};
use handover::Replaced;
use jobs::Jobs;
use meters::Faults;
use per_group::PerGroup;
use process::Process;
use queue::{Entry, SuspectGroup};
use receipts::Place;
use shard::ShardState;
use slots::Slots;
use verdicts::Verdicts;

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    config: PoolConfig,
    policy: PolicyTable,
    /// Since when the pool drains. From then on it accepts no jobs.
    draining_since: Option<Timestamp>,
    /// When a signal first asked for the end.
    end_asked: Option<Timestamp>,
    /// Another signal asked again later, so the pool ends at once.
    end_asked_again: bool,
    groups: PerGroup<GroupState>,
    attention: PerGroup<Attention>,
    devices: Devices,
    slots: Slots,
    jobs: Jobs,
    verdicts: Verdicts,
    /// Open connections.
    clients: BTreeSet<ClientId>,
    replaced: Replaced,
    /// A successor gets the devices one by one.
    gives_devices: bool,
    /// When the next devices are vacated for it, if only time passes.
    vacates_at: Option<Timestamp>,
    denylist: Denylist,
    accounts: Accounts,
    /// The number of the latest group of suspects.
    suspects: u32,
    faults: Faults,
    /// The report of the death that is being handled, and the slot of the dead worker.
    death: Option<(usize, Box<DeathReport>)>,
    /// Workers that start in this event, without an action yet.
    started: Vec<WorkerId>,
    /// Workers that ended, or were told to end, since the core last asked.
    ended: Vec<WorkerId>,
    /// A service may have changed since the last event.
    services_changed: bool,
    is_misconfigured: bool,
    /// The counters when the pool was first told to drain or stop.
    before_end: Option<Counters>,
    /// What the names of capsules begin with, if any are kept.
    capsules: Option<Arc<str>>,
    actions: VecDeque<Action>,
}

impl Pool {
    /// A pool over `devices`, without processes yet.
    pub(crate) fn new(config: PoolConfig, policy: PolicyTable, devices: &[DeviceId]) -> Self {
        let of_grid = GroupState::new(Role::Grid.name(), config.of(Role::Grid));
        let (groups, devices) = (PerGroup::new(of_grid), Devices::new(devices));
        Self {
            policy,
            draining_since: None,
            end_asked: None,
            end_asked_again: false,
            slots: Slots::new(&devices, config.standbys),
            attention: PerGroup::new(Attention::default()),
            devices,
            groups,
            jobs: Jobs::default(),
            verdicts: Verdicts::new(config.verdicts_kept, config.verdict_bytes_max),
            clients: BTreeSet::new(),
            replaced: Replaced::No,
            gives_devices: false,
            vacates_at: None,
            denylist: Denylist::new(config.denylist_max),
            accounts: Accounts::default(),
            suspects: 0,
            faults: Faults::default(),
            death: None,
            started: Vec::new(),
            ended: Vec::new(),
            services_changed: false,
            is_misconfigured: false,
            before_end: None,
            capsules: None,
            actions: VecDeque::new(),
            config,
        }
    }

    /// Goes on with other limits and responses to faults, as far as a running pool can.
    pub(crate) fn reconfigure(&mut self, config: PoolConfig, policy: PolicyTable) {
        self.config = config.over(&self.config);
        self.policy = policy;
        for (group, state) in self.groups.iter_mut() {
            state.limits = self.config.of(group.role());
        }
        self.verdicts.limit(self.config.verdicts_kept, self.config.verdict_bytes_max);
        self.denylist.limit(self.config.denylist_max);
    }

    /// The quota of a principal.
    pub(crate) fn quota(&self, principal: &Principal) -> Quota {
        self.accounts.quotas.of(principal)
    }

    /// From now on each principal has this quota.
    pub(crate) fn set_quotas(&mut self, quotas: Quotas) {
        self.accounts.quotas = quotas;
    }

    /// Adds an action for the shell.
    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// The next action.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Handles a worker's message, or news of its process.
    pub(crate) fn on_worker(&mut self, now: Timestamp, worker: WorkerId, event: WorkerEvent) {
        match event {
            WorkerEvent::Answered { attempt, result } => {
                self.on_answered(now, worker, attempt, result);
            }
            WorkerEvent::BeaconLost { last_words } => self.on_beacon_lost(now, worker, last_words),
            WorkerEvent::ChannelClosed => self.on_channel_closed(now, worker),
            WorkerEvent::CommandEnded { .. } => {
                if let Some(index) = self.hear(now, worker) {
                    self.slots.process_mut(index).is_changing = false;
                }
            }
            WorkerEvent::Exited(exit) => self.on_exited(now, worker, &exit),
            WorkerEvent::Heard | WorkerEvent::Loading { .. } => {
                self.hear(now, worker);
            }
            WorkerEvent::ModelsReported(models) => self.on_models(now, worker, &models),
            WorkerEvent::Progressed => {
                if let Some(index) = self.hear(now, worker) {
                    self.slots.process_mut(index).progressed(now);
                }
            }
            WorkerEvent::Ready(device) => self.on_ready(now, worker, device),
            WorkerEvent::Reclaimed => self.on_reclaimed(worker),
            WorkerEvent::SpawnFailed { detail, is_final } => {
                self.on_spawn_failed(now, worker, &detail, is_final);
            }
        }
    }

    /// Calls `what` for every group.
    fn for_each_group(&mut self, mut what: impl FnMut(&mut Self, Group)) {
        for group in (0..self.groups.len()).map(per_group::at) {
            what(self, group);
        }
    }

    /// The slot of a worker, whose process it marks as heard. `None`, and counted, if the process is gone.
    fn hear(&mut self, now: Timestamp, worker: WorkerId) -> Option<usize> {
        let index = self.slots.find(worker);
        match index {
            Some(index) => self.slots.process_mut(index).heard = now,
            None => self.groups[worker.group].counters.stale += 1,
        }
        index
    }

    /// Puts a shard of a job into the queue.
    fn enqueue(&mut self, id: JobId, shard: usize) {
        let job = &mut self.jobs[id];
        self.attention[job.group].touch();
        let state = &mut self.groups[job.group];
        job.shards[shard].state = ShardState::Queued;
        let (cost, jobs) = (job.shards[shard].cost, job.request.jobs as usize);
        let entry = Entry { cost, jobs, joins: job.joins(&state.limits) };
        state.queue.insert(&job.owner(), job.position(shard), entry);
        if job.request.work.model().is_some() {
            state.newcomers.push(id);
        }
    }

    /// Takes the shards of a job out of the queue.
    fn unqueue(&mut self, id: JobId) {
        let job = &mut self.jobs[id];
        let queue = &mut self.groups[job.group].queue;
        for shard in 0..job.shards.len() {
            if job.shards[shard].state == ShardState::Queued {
                queue.remove(&job.owner(), job.position(shard));
                job.shards[shard].state = ShardState::Ended;
            }
        }
    }

    /// A new name for a group of suspects.
    fn next_suspects(&mut self) -> SuspectGroup {
        self.suspects += 1;
        SuspectGroup(self.suspects)
    }

    /// The one place that gives a verdict. Running attempts must have been cut off before.
    fn finish(&mut self, now: Timestamp, id: JobId, verdict: Verdict, reason: String) {
        self.unqueue(id);
        let job = self.jobs.remove(id);
        assert!(job.has_ended(), "{id} gets its verdict and runs on");
        let (client, key) = (job.client, job.request.key);
        let (name, fingerprint) = (job.name(), job.request.fingerprint);
        let goes_apart = match verdict {
            Verdict::Failed | Verdict::Poison => job.request.is_bundle() && !job.orphaned,
            Verdict::Cancelled | Verdict::Deadline | Verdict::DeviceLost | Verdict::Ok => false,
        };
        let is_kept = !job.orphaned && !job.is_given_back && !goes_apart;
        // No client learns the verdict of an orphan, nor of a bundle that is given back: it counts as cancelled.
        let (verdict, reason) = match (job.orphaned, goes_apart) {
            (true, _) => (Verdict::Cancelled, "its client is gone".to_owned()),
            (false, true) => {
                (Verdict::Cancelled, format!("{reason}; its jobs run again one by one"))
            }
            (false, false) => (verdict, reason),
        };
        self.touch(job.group);
        self.groups[job.group].finish(&job.request, verdict);
        self.groups[job.group].meters.finished(now, &job);
        self.accounts.finish(now, &job.request);
        let is_quiet = job.is_given_back && self.is_quiet(client);
        let owner = (!job.orphaned).then_some(client);
        let client = owner.filter(|_| !is_quiet && !goes_apart);
        let receipt = Box::new(job.into_receipt(now, verdict, reason));
        let encoded = match is_kept {
            true => self.verdicts.remember(name.clone(), id, fingerprint, &receipt),
            false => None,
        };
        // Before its client: that may be quick to submit the job elsewhere.
        if self.has_successor() {
            let entry = encoded.as_ref().and_then(|_| self.verdicts.latest());
            self.actions.push_back(Action::Tell(entry.unwrap_or(JobNews::Ended(name))));
        }
        self.actions.push_back(Action::Finish { client, job: id, key, receipt, encoded });
        if let Some(client) = owner {
            if goes_apart {
                let refusal = Refusal::Bundled;
                self.actions.push_back(Action::Refuse { client, job: id, key, refusal });
            }
            self.let_go(client);
        }
    }

    /// Remembers a verdict of the pool whose place this one has taken.
    pub(crate) fn remember(&mut self, name: JobName, job: JobId, fingerprint: u64, receipt: &[u8]) {
        self.verdicts.remember_encoded(name, job, fingerprint, receipt);
    }

    /// What the actions of the events before name of verdicts is no longer needed.
    pub(crate) fn forget_verdicts(&mut self) {
        self.verdicts.forget();
    }

    /// The receipt that an action names.
    pub(crate) fn encoded(&self, receipt: &Place) -> &[u8] {
        self.verdicts.encoded(receipt)
    }

    /// Workers that start in this event, without an action yet.
    pub(crate) fn take_started(&mut self) -> Vec<WorkerId> {
        std::mem::take(&mut self.started)
    }

    /// Workers that ended, or were told to end, since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<WorkerId> {
        std::mem::take(&mut self.ended)
    }

    /// Whether a live job uses a model.
    pub(crate) fn is_asked(&self, model: &str) -> bool {
        self.jobs.unordered().any(|job| job.request.work.model().is_some_and(|own| **own == *model))
    }

    /// The model that a live job asks for.
    pub(crate) fn model_of(&self, job: JobId) -> Option<&Arc<str>> {
        self.jobs.get(job).and_then(|job| job.request.work.model())
    }

    /// Whether the pool has stopped accepting, for good.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining_since.is_some() || self.groups.iter().any(|(_, group)| group.is_leaving())
    }

    /// When the drain is over at the latest, and every worker has ended; `None` without a drain, or if a second signal
    /// has asked for an end at once.
    pub(crate) fn drained_by(&self) -> Option<Timestamp> {
        let since = self.draining_since.filter(|_| !self.end_asked_again)?;
        Some(since.after(self.config.longest_drain()))
    }

    /// A group has no work and no jobs: stops its workers.
    pub(crate) fn rest(&mut self, now: Timestamp, group: Group) {
        if self.groups[group].phase != Phase::Serving {
            return;
        }
        self.touch(group);
        self.groups[group].phase = Phase::Resting;
        for slot in self.slots.of_group_mut(group) {
            slot.rest();
            if slot.process().is_some_and(Process::is_starting) {
                self.devices.at_mut(slot.device).service_mut(group).cancel_probe(now);
            }
        }
        self.stop_workers(now, group);
    }

    /// Releases a device or unblocks denylisted jobs, for an operator.
    pub(crate) fn release(&mut self, now: Timestamp, release: Release) -> Result<String, Refusal> {
        match release {
            Release::Content(content) => match self.denylist.remove(content) {
                true => Ok(format!("jobs of content {content} are accepted")),
                false => Err(format!("no job of content {content} is on the denylist")),
            },
            Release::Contents => {
                Ok(format!("{} contents taken off the denylist", self.denylist.clear()))
            }
            Release::Device(device) => match (self.why_away(device), self.is_out(device)) {
                (Some(why), _) => Err(format!("{device} cannot be released: {why}")),
                (None, Some(true)) => {
                    self.release_device(now, device);
                    Ok(format!("{device} is tried again now"))
                }
                (None, Some(false)) => Err(format!("{device} is in service")),
                (None, None) => Err(format!("the pool has no device {device}")),
            },
        }
        .map_err(Refusal::Invalid)
    }

    /// A group has work again. A worker that was asked to end is replaced when it has ended.
    pub(crate) fn wake(&mut self, group: Group) {
        if self.groups[group].phase == Phase::Resting {
            self.touch(group);
            self.groups[group].phase = Phase::Serving;
            self.services_changed = true;
        }
    }

    /// A worker is sent a command: until it answers, its death is no evidence against a job.
    pub(crate) fn begin_change(&mut self, worker: WorkerId) {
        if let Some(index) = self.slots.find(worker) {
            self.slots.process_mut(index).is_changing = true;
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
