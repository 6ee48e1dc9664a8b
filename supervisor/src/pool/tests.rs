//! The core's rules, one by one. The simulator in `tests/sim` holds them under random schedules.
//!
//! A test drives a [`Rig`]: a pool whose clock, workers and clients are moved by hand.

mod beside;
mod clients;
mod deaths;
mod drain;
mod faults;
mod jobs;
mod joins;
mod meters;
mod models;
mod parts;
mod patience;
mod poison;
mod quarantine;
mod rest;
mod rows;
mod standby;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gridpool_protocol::ids::{
    AttemptId, ClientId, ContentHash, DeviceId, DeviceKind, JobId, JobKey, Role, WorkerId,
};
use gridpool_protocol::message::{AttemptError, Priority, Refusal};
use gridpool_protocol::receipt::{DeviceInfo, Receipt, RunReport, Verdict};
use gridpool_protocol::status::WorkerState;

use super::Pool;
use super::config::PoolConfig;
use super::event::{Action, Assignment, Event, Exit, ExitStatus, JobRequest, Timestamp};

const SIGABRT: ExitStatus = ExitStatus::Signal(6);
const SIGKILL: ExitStatus = ExitStatus::Signal(9);
const SIGSEGV: ExitStatus = ExitStatus::Signal(11);
const STICKY: ExitStatus = ExitStatus::Code(70);

/// A pool with a clock, a world that does nothing by itself, and a memory of all actions.
struct Rig {
    pool: Pool,
    now: Timestamp,
    next_job: u64,
    /// What each worker was told to run and has not answered, batch by batch.
    running: BTreeMap<WorkerId, VecDeque<Vec<Assignment>>>,
    /// Devices whose workers give no sign of life while time passes.
    mute: BTreeSet<u32>,
    /// Whether the shell says at once what a suspect job is.
    hashes: bool,
    /// Batches that a worker may have.
    batches_max: usize,
    seen: Vec<(Timestamp, Action)>,
}

impl Rig {
    /// A pool over `devices` devices at time 0, their workers just ordered. A worker has one attempt
    /// at a time, unless `change` allows more.
    fn starting(devices: u32, change: impl FnOnce(&mut PoolConfig)) -> Self {
        let mut config = PoolConfig { feed_cost_max: 0, join_cost_max: 0, ..PoolConfig::DEFAULT };
        change(&mut config);
        let devices: Vec<_> = (0..devices).map(device).collect();
        let mut rig = Self {
            pool: Pool::new(config, &devices),
            now: Timestamp::default(),
            next_job: 0,
            running: BTreeMap::new(),
            mute: BTreeSet::new(),
            hashes: true,
            batches_max: 2,
            seen: Vec::new(),
        };
        for client in 1..=3 {
            rig.tell(Event::ClientConnected { client: ClientId(client) });
        }
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

    fn tell(&mut self, event: Event) {
        self.pool.handle(self.now, event);
        let mut asked = Vec::new();
        while let Some(action) = self.pool.poll_action() {
            if let Action::HashContent { job } = action {
                asked.push(job);
            }
            if let Action::Dispatch { worker, attempts } = &action {
                let batches = self.running.entry(*worker).or_default();
                batches.push_back(attempts.clone());
                let most = self.batches_max;
                assert!(batches.len() <= most, "{worker} got one batch too many: {attempts:?}");
            }
            self.seen.push((self.now, action));
        }
        let late = self.pool.poll_deadline().is_some_and(|at| at <= self.now);
        assert!(!late, "the pool left something undone at {}", self.now);
        asked.retain(|_| self.hashes);
        for job in asked {
            self.tell(Event::ContentHashed { job, content: Some(content(job.0)) });
        }
    }

    /// Lets time pass; every worker that is not mute is heard once a second.
    fn wait(&mut self, span: Duration) {
        let end = self.now.after(span);
        while self.now < end {
            let heartbeat = Timestamp(Duration::from_secs(self.now.0.as_secs() + 1));
            let timer = self.pool.poll_deadline().unwrap_or(end);
            self.now = timer.min(heartbeat).min(end);
            if self.now == heartbeat {
                for index in 0..self.devices() {
                    let worker = self.pool.worker_on(device(index));
                    if let Some(worker) = worker.filter(|_| !self.mute.contains(&index)) {
                        self.tell(Event::WorkerHeard { worker });
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
        self.next_job += 1;
        let mut request = JobRequest {
            job: JobId(self.next_job),
            role: Role::Grid,
            model: None,
            key: JobKey(key),
            label: "rot90".into(),
            program_hash: "rot90".into(),
            items: 1,
            cost: 10,
            inline_bytes: 100,
            deadline: Duration::from_secs(30),
            priority: Priority::Normal,
            idempotent: true,
            divisible: true,
            answer_inline: false,
            content: None,
        };
        change(&mut request);
        self.tell(Event::JobSubmitted { client: ClientId(client), request });
    }

    fn cancel(&mut self, key: u128) {
        self.tell(Event::CancelRequested { client: ClientId(1), key: JobKey(key) });
    }

    /// The device's worker becomes READY.
    fn ready(&mut self, index: u32) {
        let worker = self.worker(index);
        self.tell(Event::WorkerReady { worker, device: info(index) });
    }

    /// The device's worker answers the first attempt that it runs.
    fn answer(&mut self, index: u32) {
        self.reply(index, Ok(report()));
    }

    fn reply(&mut self, index: u32, result: Result<RunReport, AttemptError>) {
        let worker = self.worker(index);
        let batches = self.running.get_mut(&worker).expect("the worker runs something");
        let front = batches.front_mut().expect("the worker runs something");
        let attempt = front.remove(0).attempt;
        if front.is_empty() {
            batches.pop_front();
        }
        self.tell(Event::WorkerAnswered { worker, attempt, result });
    }

    /// The device's process ends.
    fn die(&mut self, index: u32, status: ExitStatus) {
        self.exit(self.worker(index), status);
    }

    /// A process ends, and gives back what it held.
    fn exit(&mut self, worker: WorkerId, status: ExitStatus) {
        self.running.remove(&worker);
        self.tell(Event::WorkerExited {
            worker,
            exit: Exit { status, fault: None, last_words: None },
        });
        self.tell(Event::WorkerReclaimed { worker });
    }

    /// The beacon of the device's worker is lost; who that was.
    fn lose_beacon(&mut self, index: u32) -> WorkerId {
        let worker = self.worker(index);
        self.tell(Event::BeaconLost { worker, last_words: None });
        worker
    }

    /// The device's process ends and its successor is READY as soon as it may be.
    fn die_and_return(&mut self, index: u32, status: ExitStatus) {
        self.die(index, status);
        while self.state(index) == WorkerState::Backoff {
            self.wait_ms(50);
        }
        self.ready(index);
    }

    fn devices(&self) -> u32 {
        u32::try_from(self.pool.workers().len()).unwrap()
    }

    fn worker(&self, index: u32) -> WorkerId {
        self.pool.worker_on(device(index)).expect("the device has a process")
    }

    fn state(&self, index: u32) -> WorkerState {
        self.pool.workers()[index as usize].state
    }

    /// The first attempt that the device's worker runs.
    fn attempt(&self, index: u32) -> Option<AttemptId> {
        let worker = self.pool.worker_on(device(index))?;
        Some(self.running.get(&worker)?.front()?.first()?.attempt)
    }

    /// Which job's attempt runs where.
    fn runs(&self, index: u32) -> Option<(u64, u32)> {
        self.attempt(index).map(|attempt| (attempt.job.0, attempt.number))
    }

    /// The jobs of every batch that the device's worker has, front first.
    fn batches(&self, index: u32) -> Vec<Vec<u64>> {
        let jobs = |batch: &Vec<Assignment>| batch.iter().map(|sent| sent.attempt.job.0).collect();
        let worker = self.pool.worker_on(device(index));
        let batches = worker.and_then(|worker| self.running.get(&worker));
        batches.into_iter().flatten().map(jobs).collect()
    }

    /// Every verdict given under `key`.
    fn verdicts(&self, key: u128) -> Vec<Verdict> {
        self.receipts(key).iter().map(|receipt| receipt.verdict).collect()
    }

    fn receipts(&self, key: u128) -> Vec<&Receipt> {
        let mut receipts = Vec::new();
        for action in self.actions() {
            if let Action::Finish { key: of, receipt, .. } = action
                && *of == JobKey(key)
            {
                receipts.push(&**receipt);
            }
        }
        receipts
    }

    fn refusals(&self) -> Vec<&Refusal> {
        let mut refusals = Vec::new();
        for action in self.actions() {
            if let Action::Refuse { refusal, .. } = action {
                refusals.push(refusal);
            }
        }
        refusals
    }

    fn actions(&self) -> impl Iterator<Item = &Action> {
        self.seen.iter().map(|(_, action)| action)
    }

    fn count(&self, what: impl Fn(&Action) -> bool) -> usize {
        self.actions().filter(|action| what(action)).count()
    }

    fn kills(&self) -> usize {
        self.count(|action| matches!(action, Action::Kill { .. }))
    }

    /// When each process of the device was ordered, milliseconds.
    fn spawns(&self, index: u32) -> Vec<u128> {
        let spawned = |(at, action): &(Timestamp, Action)| {
            let Action::Spawn { worker } = action else { return None };
            (worker.device == device(index)).then_some(at.0.as_millis())
        };
        self.seen.iter().filter_map(spawned).collect()
    }

    /// Whether everything accepted has its verdict or is live, and nothing is counted twice.
    fn assert_counters_add_up(&self, live: u64) {
        let c = self.pool.counters();
        let verdicts = c.ok + c.failed + c.deadline + c.poison + c.cancelled + c.device_lost;
        assert_eq!(c.accepted, verdicts + live, "{c:?}");
        let finished = self.count(|action| matches!(action, Action::Finish { .. }));
        assert_eq!(verdicts, finished as u64);
    }
}

/// What the jobs of a rig are, by their number.
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
        module_hash: "00".to_owned(),
        items: 1,
        joined_items: 1,
        item_errors: 0,
        kernels: Vec::new(),
        h2d_bytes: 1,
        d2h_bytes: 1,
        service_us: 1,
        allocations: 0,
        infer: None,
    }
}
