//! The core's rules, one by one. The simulator in `tests/sim` holds them under random schedules.
//!
//! A test drives a [`Rig`]: a pool whose clock, workers and clients the test controls.

mod beside;
mod bundles;
mod capsules;
mod clients;
mod deaths;
mod drain;
mod faults;
mod feed;
mod groups;
mod handover;
mod jobs;
mod joins;
mod meters;
mod models;
mod owners;
mod poison;
mod quarantine;
mod quotas;
mod rest;
mod room;
mod rows;
mod seen;
mod shards;
mod standby;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gridpool_protocol::ids::{
    AttemptId, ClientId, ContentHash, DeviceId, DeviceKind, Group, JobId, JobKey, WorkerId,
};
use gridpool_protocol::message::{AttemptError, ModelCommand, Priority, Refusal};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::{DeviceInfo, Receipt, RunReport, Verdict};
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};

use super::rows::Quarantine;
use crate::Core;
use crate::action::{Action, Assignment, DeathReport, KillReason, Note, Rule};
use crate::config::{HelperLimits, PoolConfig};
use crate::event::{
    ClientEvent, Event, Exit, ExitStatus, JobRequest, Release, Timestamp, Work, WorkerEvent,
};
use crate::policy::PolicyTable;

const SIGABRT: ExitStatus = ExitStatus::Signal(6);
const SIGKILL: ExitStatus = ExitStatus::KILLED;
const SIGSEGV: ExitStatus = ExitStatus::Signal(11);
const STICKY: ExitStatus = ExitStatus::Code(70);

/// A pool with a clock, a world that does nothing by itself, and a memory of all actions.
struct Rig {
    core: Core,
    /// The group of all workers; the other group rests.
    group: Group,
    /// Whether workers with models get commands; otherwise they keep the models that they have.
    is_whole: bool,
    /// The models that each process reports by itself when it is READY.
    models: &'static [&'static str],
    now: Timestamp,
    next_job: u64,
    /// The outstanding attempts of each worker, dispatch by dispatch.
    running: BTreeMap<WorkerId, VecDeque<Vec<Assignment>>>,
    /// Devices whose workers give no sign of life while time passes.
    mute: BTreeSet<u32>,
    /// Whether the shell hashes a suspect job at once.
    hashes: bool,
    /// Dispatches that a worker may have.
    dispatches_max: usize,
    seen: Vec<(Timestamp, Action)>,
    notes: Vec<Note>,
    /// The latest death report.
    death: Option<DeathReport>,
}

impl Rig {
    fn over(config: PoolConfig, policy: PolicyTable, group: Group, devices: u32) -> Self {
        let devices: Vec<_> = (0..devices).map(device).collect();
        let mut core = Core::new(config, policy, &devices, &[], HelperLimits::of);
        if group != Group::Grid {
            core.pool.rest(Timestamp::default(), Group::Grid);
            assert_eq!(core.pool.add_group("m", None), group);
        }
        Self {
            core,
            group,
            is_whole: false,
            models: &[],
            now: Timestamp::default(),
            next_job: 0,
            running: BTreeMap::new(),
            mute: BTreeSet::new(),
            hashes: true,
            dispatches_max: 2,
            seen: Vec::new(),
            notes: Vec::new(),
            death: None,
        }
    }

    /// A pool over `devices` devices at time 0, whose workers are starting. A worker has one attempt at a
    /// time, unless `change` allows more.
    fn starting(devices: u32, change: impl FnOnce(&mut PoolConfig)) -> Self {
        Self::starting_with(devices, PolicyTable::default(), change)
    }

    fn starting_with(
        devices: u32,
        policy: PolicyTable,
        change: impl FnOnce(&mut PoolConfig),
    ) -> Self {
        let mut config = PoolConfig { feed_cost_max: 0, join_cost_max: 0, ..PoolConfig::DEFAULT };
        change(&mut config);
        let mut rig = Self::over(config, policy, Group::Grid, devices);
        rig.tell(Event::TimePassed);
        rig
    }

    /// The same over workers with models that run up to `attempts_max` requests each. [`Rig::offer`] sets
    /// the models of each.
    fn concurrent(devices: u32, attempts_max: u32, change: impl FnOnce(&mut PoolConfig)) -> Self {
        let mut config = PoolConfig {
            infer_window: attempts_max,
            infer_cancel_grace: PoolConfig::DEFAULT.cancel_grace,
            infer_ready_timeout: PoolConfig::DEFAULT.ready_timeout,
            ..PoolConfig::DEFAULT
        };
        change(&mut config);
        let mut rig = Self::over(config, PolicyTable::default(), Group::Models(0), devices);
        rig.dispatches_max = attempts_max as usize;
        rig
    }

    /// The same with every worker READY.
    fn with(devices: u32, change: impl FnOnce(&mut PoolConfig)) -> Self {
        let mut rig = Self::starting(devices, change);
        for index in 0..devices {
            rig.ready(index);
        }
        rig
    }

    fn new(devices: u32) -> Self {
        Self::with(devices, |_| {})
    }

    /// Passes an event to the core; without `changes_models`, to the pool alone, so that no worker gets a
    /// command.
    fn tell(&mut self, event: Event) {
        match self.group {
            Group::Grid => self.core.handle(self.now, event),
            Group::Models(_) if self.is_whole => self.core.handle(self.now, event),
            Group::Models(_) => self.tell_pool(event),
        }
        let mut asked = Vec::new();
        while let Some(action) = self.core.poll_action() {
            if let Action::DeathReport(report) = action {
                self.death = Some(*report);
                continue;
            }
            if let Action::Note(note) = action {
                self.notes.push(note);
                continue;
            }
            if let Action::HashContent { job, .. } = action {
                asked.push(job);
            }
            if let Action::Dispatch { worker, attempts } = &action {
                let dispatches = self.running.entry(*worker).or_default();
                dispatches.push_back(attempts.clone());
                let most = self.dispatches_max;
                assert!(dispatches.len() <= most, "{worker} got one too many: {attempts:?}");
            }
            self.seen.push((self.now, action));
        }
        let late = self.core.poll_deadline().is_some_and(|at| at <= self.now);
        assert!(!late, "the pool left something undone at {}", self.now);
        asked.retain(|_| self.hashes);
        for job in asked {
            self.tell(Event::ContentHashed { job, content: Some(content(job.0)) });
        }
    }

    fn tell_pool(&mut self, event: Event) {
        let (core, now) = (&mut self.core, self.now);
        core.excuse_pause(now);
        core.pool.attend(&event);
        if let Event::Client(client, ClientEvent::Submitted(request)) = event {
            core.pool.on_submitted(now, client, request, Ok(self.group));
        } else if let Event::Worker(worker, event) = event {
            core.pool.on_worker(now, worker, event);
        } else {
            core.take_in(now, event);
        }
        core.pool.advance(now);
        core.start_workers();
        core.pool.report(now);
        core.wakes_at = core.pool.deadline();
    }

    /// The group of the workers rests.
    fn rest(&mut self) {
        self.core.pool.rest(self.now, self.group);
        self.tell(Event::TimePassed);
    }

    /// The group has work again.
    fn wake(&mut self) {
        self.core.pool.wake(self.group);
        self.tell(Event::TimePassed);
    }

    /// The device's worker reports its models.
    fn offer(&mut self, index: u32, models: &[&str]) {
        let worker = self.worker(index);
        let info = |name: &&str| {
            let mut info = ModelInfo::unavailable(name, String::new());
            (info.state, info.contexts) = (ModelState::Ready, 1);
            info
        };
        let models = models.iter().map(info).collect();
        self.tell(Event::Worker(worker, WorkerEvent::ModelsReported(models)));
    }

    /// Client 1 submits a request to a model.
    fn ask(&mut self, key: u128, name: &str) {
        self.submit_as(1, key, |request| request.work = model(name));
    }

    /// Lets time pass; every worker that is not mute is heard once a second.
    fn wait(&mut self, span: Duration) {
        let end = self.now.after(span);
        while self.now < end {
            let heartbeat = Timestamp(Duration::from_secs(self.now.0.as_secs() + 1));
            let timer = self.core.poll_deadline().unwrap_or(end);
            self.now = timer.min(heartbeat).min(end);
            if self.now == heartbeat {
                for index in 0..self.devices() {
                    let worker = self.core.worker_on(device(index), None);
                    if let Some(worker) = worker.filter(|_| !self.mute.contains(&index)) {
                        self.tell(Event::Worker(worker, WorkerEvent::Heard));
                    }
                }
            }
            self.tell(Event::TimePassed);
        }
    }

    fn wait_ms(&mut self, span: u64) {
        self.wait(Duration::from_millis(span));
    }

    /// Client 1 submits an ordinary job under `key`.
    fn submit(&mut self, key: u128) {
        self.submit_as(1, key, |_| {});
    }

    fn submit_as(&mut self, client: u64, key: u128, change: impl FnOnce(&mut JobRequest)) {
        let submitted = self.submission(client, key, change);
        self.tell(submitted);
    }

    /// A client submits a job that is ordinary but for `change`.
    fn submission(
        &mut self,
        client: u64,
        key: u128,
        change: impl FnOnce(&mut JobRequest),
    ) -> Event {
        self.next_job += 1;
        let mut request = JobRequest {
            job: JobId(self.next_job),
            work: program("rot90"),
            principal: Principal::Uid(u32::try_from(client).expect("there are few")),
            key: JobKey(key),
            fingerprint: 0,
            label: "rot90".into(),
            jobs: 1,
            items: 1,
            cost: 10,
            inline_bytes: 100,
            bytes: 100,
            deadline: Duration::from_secs(30),
            priority: Priority::Normal,
            idempotent: true,
            divisible: true,
            answer_inline: false,
            trace: None,
            content: None,
        };
        change(&mut request);
        Event::Client(ClientId(client), ClientEvent::Submitted(Box::new(request)))
    }

    fn cancel(&mut self, key: u128) {
        self.tell(Event::Client(ClientId(1), ClientEvent::CancelRequested { key: JobKey(key) }));
    }

    /// The device's worker becomes READY.
    fn ready(&mut self, index: u32) {
        let worker = self.worker(index);
        if !self.models.is_empty() {
            self.offer(index, self.models);
        }
        self.tell(Event::Worker(worker, WorkerEvent::Ready(info(index))));
    }

    /// The device's worker answers the first attempt that it runs.
    fn answer(&mut self, index: u32) {
        self.reply(index, Ok(report()));
    }

    fn reply(&mut self, index: u32, result: Result<RunReport, AttemptError>) {
        let worker = self.worker(index);
        let dispatches = self.running.get_mut(&worker).expect("the worker runs something");
        let front = dispatches.front_mut().expect("the worker runs something");
        let attempt = front.remove(0).attempt;
        if front.is_empty() {
            dispatches.pop_front();
        }
        self.tell(Event::Worker(worker, WorkerEvent::Answered { attempt, result }));
    }

    /// The device's process ends.
    fn die(&mut self, index: u32, status: ExitStatus) {
        self.exit(self.worker(index), status);
    }

    /// A process ends, and its device memory is free.
    fn exit(&mut self, worker: WorkerId, status: ExitStatus) {
        self.running.remove(&worker);
        self.tell(Event::Worker(
            worker,
            WorkerEvent::Exited(Exit { status, fault: None, last_words: None, is_ordered: false }),
        ));
        self.tell(Event::Worker(worker, WorkerEvent::Reclaimed));
    }

    /// The beacon of the device's worker is lost; returns that worker.
    fn lose_beacon(&mut self, index: u32) -> WorkerId {
        let worker = self.worker(index);
        self.tell(Event::Worker(worker, WorkerEvent::BeaconLost { last_words: None }));
        worker
    }

    /// The device's process ends, and its successor is READY as soon as possible.
    fn die_and_return(&mut self, index: u32, status: ExitStatus) {
        self.die(index, status);
        while self.state(index) == WorkerState::Backoff {
            self.wait_ms(50);
        }
        self.ready(index);
    }
}

/// What an operator does.
fn released(release: Release) -> Event {
    Event::Client(ClientId(9), ClientEvent::ReleaseRequested { request: 1, release })
}

fn program(hash: impl Into<std::sync::Arc<str>>) -> Work {
    Work::Program { hash: hash.into() }
}

fn model(name: &str) -> Work {
    Work::Model { name: name.into() }
}

/// The content hashes of a rig's jobs, by their number.
fn content(job: u64) -> ContentHash {
    ContentHash([u8::try_from(job).unwrap(); 32])
}

fn device(index: u32) -> DeviceId {
    DeviceId { kind: DeviceKind::Gpu, index }
}

fn info(index: u32) -> DeviceInfo {
    DeviceInfo {
        kind: DeviceKind::Gpu,
        index,
        name: "H200".to_owned(),
        uuid: format!("GPU-{index}"),
        driver: "580".to_owned(),
    }
}

fn report() -> RunReport {
    RunReport {
        module_hash: "00".into(),
        items: 1,
        joined_items: 1,
        item_errors: 0,
        kernels: [].into(),
        h2d_bytes: 1,
        d2h_bytes: 1,
        service_us: 1,
        allocations: 0,
        infer: None,
        search: None,
    }
}
