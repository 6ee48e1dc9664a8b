//! The rules, kept by a model that sees events and actions and never looks into the core.
//!
//! For every event the model computes what must follow at once: which verdicts, kills, stops, starts and
//! replies. An action that is not due breaks a rule, and so does a due action that does not come. The core
//! may choose two things: which waiting job goes to which idle worker, and which of the useful commands a
//! worker gets next. Those choices have their own rules (`dispatch`, `fair`, `commands`); the first decides
//! which workers are killed for the dispatch behind them (`feed`).
//!
//! One file per concern: `clients` requests and replies, `accounts` what principals have and may have,
//! `jobs` the life of a job, `verdicts` its end, `devices` the messages of processes, `slots` where
//! they are and when they are killed, `quarantine` what their deaths mean for their device, `deaths`
//! the reports of them, `faults` driver reports, `notes` the log, `outstanding` what a worker has not
//! answered, `losses` what is lost with it, `moves` which attempts need not wait for its end,
//! `bisection` which jobs are suspects, `denylist` which are refused, `writers` which processes may
//! still write, `processes` starts, stops and kills, `dispatch` which job runs where, `sharing` with
//! which others, `offers` which worker has its model, `models` the wanted models, `loads` those that
//! are given up or must be there, `commands` how workers get them, `feed` how long a second dispatch
//! waits, `room` which are asked to stop for a smaller job, `fair` whose turn it is, `rest` groups
//! without work, `leaving` how the pool ends, `handover` how it is replaced, `helpers` the helper
//! processes, `settled` what holds between events.

mod accounts;
mod bisection;
mod capsules;
mod clients;
mod commands;
mod deaths;
mod denylist;
mod devices;
mod dispatch;
mod fair;
mod faults;
mod feed;
mod handover;
mod helpers;
mod jobs;
mod leaving;
mod loads;
mod losses;
mod models;
mod moves;
mod notes;
mod offers;
mod outstanding;
mod owners;
mod placing;
mod processes;
mod quarantine;
mod rest;
mod room;
mod settled;
mod sharing;
mod slots;
mod verdicts;
mod versions;
mod writers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridpool_core::action::Action;
use gridpool_core::config::{Concurrency, PoolConfig, RoleLimits};
use gridpool_core::event::{ClientEvent, Event, Timestamp, WorkerEvent};
use gridpool_protocol::ids::{AttemptId, ClientId, DeviceId, Group, JobId, JobKey, WorkerId};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::Counters;

use crate::coverage::Coverage;
use crate::swarm::Swarm;
use accounts::Accounts;
use clients::Reply;
use deaths::{Dying, Given};
use denylist::Denylist;
use devices::{Device, Facts};
use fair::Fair;
use handover::Replaced;
use helpers::Helpers;
use jobs::Job;
use loads::Required;
use models::Models;
use owners::Owners;
use versions::Swap;

use notes::{Logged, Notes};
use placing::Memories;
use slots::Station;
use verdicts::Remembered;
use writers::Writers;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broken {
    pub(crate) rule: &'static str,
    pub(crate) detail: String,
}

fn holds(rule: &'static str, ok: bool, detail: impl FnOnce() -> String) -> Result<(), Broken> {
    if ok { Ok(()) } else { Err(Broken { rule, detail: detail() }) }
}

/// What the workers of a group do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Resting,
    Leaving,
    Left,
}

/// What the model knows of a group.
#[derive(Debug)]
struct GroupModel {
    limits: RoleLimits,
    phase: Phase,
    fair: Fair,
    /// Jobs that failed on a device and were ever retried.
    retries: u64,
    /// The most jobs that waited between two events, and the most inline bytes.
    jobs_high: u64,
    bytes_high: u64,
}

impl GroupModel {
    /// Whether several attempts run at once.
    fn is_concurrent(&self) -> bool {
        self.limits.concurrency.is_concurrent()
    }

    /// Attempts that a worker may run at once; 1 for an exclusive one.
    fn attempts_max(&self) -> usize {
        match self.limits.concurrency {
            Concurrency::Concurrent { attempts_max } => attempts_max,
            Concurrency::Exclusive { .. } => 1,
        }
    }

    /// What a dispatch may cost behind another, and in front of one.
    fn feed_cost_max(&self) -> u64 {
        match self.limits.concurrency {
            Concurrency::Concurrent { .. } => 0,
            Concurrency::Exclusive { feed_cost_max, .. } => feed_cost_max,
        }
    }
}

/// The actions that must come before the event is over.
#[derive(Debug, Default)]
struct Due {
    /// To submissions, in their order.
    replies: VecDeque<Reply>,
    discards: BTreeSet<JobId>,
    verdicts: BTreeMap<JobId, (Job, Verdict)>,
    apart: BTreeSet<JobId>,
    kills: BTreeSet<WorkerId>,
    spawns: BTreeSet<WorkerId>,
    stops: BTreeSet<WorkerId>,
    withdrawals: BTreeSet<(WorkerId, AttemptId)>,
    hashes: BTreeSet<JobId>,
    /// Deaths that are worth a capsule, with the suspects.
    capsules: BTreeMap<WorkerId, Vec<AttemptId>>,
    /// The replies to operators: whether their request succeeded.
    told: BTreeMap<(ClientId, u64), bool>,
    leave: bool,
}

/// A principal's key.
type Name = (Principal, JobKey);

#[derive(Debug)]
pub(crate) struct Model {
    config: PoolConfig,
    groups: BTreeMap<Group, GroupModel>,
    /// Once the pool drains: when it cuts off the jobs that are left.
    draining_since: Option<Timestamp>,
    /// When a signal first asked for the end.
    end_asked: Option<Timestamp>,
    replaced: Replaced,
    owners: Owners,
    /// Each device and group.
    devices: BTreeMap<Station, Device>,
    /// Facts about each device.
    facts: BTreeMap<DeviceId, Facts>,
    /// Live jobs.
    jobs: BTreeMap<JobId, Job>,
    /// Every job that was ever accepted.
    accepted: BTreeMap<JobId, Principal>,
    /// Of each group and principal: when the kills that it caused there are given back.
    kills: BTreeMap<(Group, Principal), Vec<Timestamp>>,
    accounts: Accounts,
    /// The latest number of suspects that may share a dispatch with each other.
    next_suspects: u64,
    denylist: Denylist,
    writers: Writers,
    clients: BTreeSet<ClientId>,
    memory: BTreeMap<Name, Remembered>,
    memory_order: VecDeque<Name>,
    /// Keys whose verdict was forgotten.
    forgotten: BTreeSet<Name>,
    /// Of each group of models.
    models: BTreeMap<Group, Models>,
    swaps: Vec<Swap>,
    device_memory: Memories,
    required: Required,
    helpers: Helpers,
    notes: Notes,
    due: Due,
    /// Workers whose death has a capsule, with its jobs.
    capsules: BTreeMap<WorkerId, BTreeSet<JobId>>,
    dying: Option<Dying>,
    /// Every verdict.
    given: BTreeMap<JobId, Given>,
    /// When the core last asked to be called.
    wakes: Option<Timestamp>,
    /// The core is called later than it asked for: the supervisor was stopped, or starved.
    late: bool,
    counters: Counters,
    /// The counters when the pool was first told to drain or stop.
    before_end: Option<Counters>,
    steps: u64,
    pub(crate) coverage: Coverage,
}

impl Model {
    pub(crate) fn new(swarm: &Swarm, devices: &[DeviceId], coverage: Coverage) -> Self {
        let config = &swarm.config;
        let of_grid = GroupModel {
            limits: config.of(Group::Grid.role()),
            phase: Phase::Serving,
            fair: Fair::default(),
            retries: 0,
            jobs_high: 0,
            bytes_high: 0,
        };
        let stations = devices.iter().map(|&device| Station { group: Group::Grid, device });
        let mut model = Self {
            config: config.clone(),
            groups: BTreeMap::from([(Group::Grid, of_grid)]),
            draining_since: None,
            end_asked: None,
            replaced: Replaced::default(),
            owners: Owners::default(),
            devices: stations.map(|id| (id, Device::new(config.standbys))).collect(),
            facts: devices.iter().map(|&id| (id, Facts::default())).collect(),
            jobs: BTreeMap::new(),
            accepted: BTreeMap::new(),
            kills: BTreeMap::new(),
            accounts: Accounts::default(),
            next_suspects: 0,
            denylist: Denylist::default(),
            writers: Writers::new(),
            clients: BTreeSet::new(),
            memory: BTreeMap::new(),
            memory_order: VecDeque::new(),
            forgotten: BTreeSet::new(),
            models: BTreeMap::new(),
            swaps: Vec::new(),
            device_memory: Memories::new(),
            required: Required::default(),
            helpers: Helpers::new(swarm.helper_limits),
            notes: Notes::default(),
            due: Due::default(),
            capsules: BTreeMap::new(),
            dying: None,
            given: BTreeMap::new(),
            wakes: None,
            late: false,
            counters: Counters::default(),
            before_end: None,
            steps: 0,
            coverage,
        };
        model.has_plans(&swarm.plans);
        model
    }

    /// Every group, those without work included.
    fn all_groups(&self) -> Vec<Group> {
        self.groups.keys().copied().collect()
    }

    fn group(&self, group: Group) -> &GroupModel {
        &self.groups[&group]
    }

    fn group_mut(&mut self, group: Group) -> &mut GroupModel {
        self.groups.get_mut(&group).expect("groups stay")
    }

    /// Computes what must follow from events that the core handles together at `now`.
    pub(crate) fn expect(&mut self, now: Timestamp, events: &[Event]) {
        self.excuses_pause(now);
        if events.len() > 1 {
            self.coverage.hit("together: several events");
        }
        for event in events {
            self.notes_dying(now, event);
            self.on_event(now, event);
        }
        self.commands_are_late(now);
        self.pass_time(now);
        self.models_change(now);
        self.missing_models_are_reported();
        self.helpers_are_due(now);
        self.services_are_reported(now);
        self.clients_go_over();
    }

    fn on_event(&mut self, now: Timestamp, event: &Event) {
        match *event {
            Event::Client(client, ref event) => self.on_client_event(now, client, event),
            Event::ContentHashed { job, content } => self.content_hashed(job, content),
            Event::DeviceFault { device, fault } => self.device_fault(now, device, fault),
            Event::DeviceMemory { device, memory } => {
                self.device_memory.insert(device, memory);
            }
            Event::DrainRequested => self.drain_requested(now),
            Event::EndRequested => self.end_requested(now),
            Event::HandOver(ref step) => self.handed_over(now, step),
            Event::Predecessor(ref said) => self.predecessor_says(said),
            Event::Helper(helper, ref event) => self.on_helper_event(now, helper, event),
            Event::ModelsRequired => self.models_are_required(),
            Event::QuotasSet(ref quotas) => self.quotas_set(quotas),
            Event::Reconfigured(ref config, _) => self.reconfigured(config),
            Event::StopRequested => self.stop_requested(now),
            Event::TimePassed => {}
            Event::Worker(worker, ref event) => self.on_worker_event(now, worker, event),
        }
    }

    /// The pool goes on with other limits. Its standbys and the windows of its workers stay.
    fn reconfigured(&mut self, config: &PoolConfig) {
        self.coverage.hit("config: other limits");
        let &PoolConfig { standbys, infer_window, .. } = &self.config;
        self.config = PoolConfig { standbys, infer_window, ..config.clone() };
        for (&group, state) in &mut self.groups {
            state.limits = self.config.of(group.role());
        }
    }

    fn on_client_event(&mut self, now: Timestamp, client: ClientId, event: &ClientEvent) {
        match *event {
            ClientEvent::CancelRequested { key } => self.cancel_requested(now, client, key),
            ClientEvent::Connected => {
                self.clients.insert(client);
            }
            ClientEvent::Gone => self.client_gone(client),
            ClientEvent::ModelsChangeRequested { request, ref command } => {
                self.change_requested(now, client, request, command);
            }
            ClientEvent::ReleaseRequested { request, release } => {
                let done = self.released(now, release);
                if done {
                    self.notes.due.push(Logged::Released);
                }
                self.due.told.insert((client, request), done);
            }
            ClientEvent::Submitted(ref request) => self.submitted(now, client, request),
        }
    }

    fn on_worker_event(&mut self, now: Timestamp, worker: WorkerId, event: &WorkerEvent) {
        match *event {
            WorkerEvent::Answered { attempt, ref result } => {
                self.answered(now, worker, attempt, result);
            }
            WorkerEvent::BeaconLost { .. } => self.beacon_lost(now, worker),
            WorkerEvent::ChannelClosed => self.channel_closed(now, worker),
            WorkerEvent::CommandEnded { number, ref result } => {
                self.command_ended(now, worker, number, result.is_ok());
            }
            WorkerEvent::Exited(ref exit) => self.exited(now, worker, exit),
            WorkerEvent::Heard | WorkerEvent::Loading { .. } => {
                self.is_current(now, worker);
            }
            WorkerEvent::Progressed => self.progressed(now, worker),
            WorkerEvent::ModelsReported(ref models) => self.models_reported(now, worker, models),
            WorkerEvent::Ready(_) => self.ready(now, worker),
            WorkerEvent::Reclaimed => self.reclaimed(worker),
            WorkerEvent::SpawnFailed { is_final, .. } => self.spawn_failed(now, worker, is_final),
        }
    }

    /// Handles timeouts, in the order that decides ties: a job whose deadline passes as its worker is given
    /// up is late.
    fn pass_time(&mut self, now: Timestamp) {
        self.jobs_are_late(now);
        for at in self.slot_ids() {
            self.slot_is_due(now, at);
        }
        self.unwanted_devices_are_vacated(now);
        for group in self.all_groups() {
            self.jobs_have_no_device(now, group);
            self.jobs_have_no_model(now, group);
            self.drain_ends(now, group);
        }
        self.vacated_workers_end(now);
        // Not for a group that has just ended.
        self.processes_start(now);
        self.vacated_devices_are_free();
        self.principals_are_held(now);
    }

    /// Checks one action against the rules.
    pub(crate) fn check(&mut self, now: Timestamp, action: &Action) -> Result<(), Broken> {
        match *action {
            Action::Accept { client, job, key } => self.accepted(client, job, key),
            Action::Capsule { worker, ref name, ref attempts } => {
                self.capsule_asked(worker, name, attempts)
            }
            Action::Command { worker, number, ref command } => {
                self.commanded(now, worker, number, command)
            }
            Action::DeathReport(ref report) => self.death_reported(now, report),
            Action::Discard { job } => self.discarded(job),
            Action::Dispatch { worker, ref attempts } => self.dispatched(now, worker, attempts),
            Action::Free { device } => self.freed(device),
            Action::Finish { client, job, key, ref receipt, .. } => {
                self.finished(now, client, job, key, receipt)
            }
            Action::HashContent { job, ref work } => self.hash_requested(job, work),
            Action::Helper(helper, ref action) => self.helper_commanded(helper, action),
            Action::LetGo { client } => self.let_go(client),
            Action::Tell(ref news) => self.told(news),
            Action::Kill { worker, reason } => self.killed(now, worker, reason),
            Action::Leave { ref verdicts } => self.left(verdicts),
            Action::Misconfigured { .. } => self.reported_misconfigured(),
            Action::ModelMissing(ref missing) => self.reported_missing(missing),
            Action::Note(ref note) => self.noted(now, note),
            Action::Refuse { client, job, key, ref refusal } => {
                self.refused(client, job, key, refusal)
            }
            Action::Replay { client, key, ref receipt } => self.replayed(client, key, receipt),
            Action::Reply { client, request, ref result } => {
                self.replied(now, client, request, result.is_ok())
            }
            Action::Spawn { worker, ref models } => self.spawned(worker, models),
            Action::Stop { worker } => self.stopped(worker),
            Action::Withdraw { worker, attempt } => self.withdrawn(now, worker, attempt),
        }
    }

    /// The live jobs of a group.
    fn jobs_of(&self, group: Group) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(move |job| job.group == group)
    }

    pub(crate) fn live_jobs(&self) -> usize {
        self.jobs.len()
    }
}
