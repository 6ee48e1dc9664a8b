//! The pool's core: every rule of scheduling, retry, backoff, quarantine, deadline, fairness and
//! drain, as plain data.
//!
//! It has no clock, thread, file or socket, no `HashMap` and no randomness: the same events at the
//! same times give the same actions. Every call of [`Pool::handle`] is followed by
//! [`Pool::poll_action`] until that gives `None`, before the next event.
//!
//! `handle` first does what the event says, then `advance` restores what is always true
//! between events: nothing late is still waiting, every slot that is due has a process, every idle
//! device has a job if one may go there, and nobody waits for long behind another beside an idle one.

mod clients;
pub mod config;
mod convicts;
mod device;
mod dispatch;
pub mod event;
mod job;
mod kill;
mod losses;
mod meters;
mod obituary;
mod offers;
mod outstanding;
mod part;
mod patience;
pub mod policy;
mod queue;
mod roles;
mod rows;
mod seats;
mod slot;
#[cfg(test)]
mod tests;
mod upkeep;
mod verdicts;
mod workers;
mod xid;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gridpool_protocol::ids::{ClientId, DeviceId, JobId, JobKey};
use gridpool_protocol::limits::JOIN_MAX;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{Counters, QueueStatus};

use config::PoolConfig;
use convicts::Convicts;
use device::Device;
pub use device::Rule;
use event::{Action, Event, Release, Timestamp};
use job::Job;
pub use kill::KillReason;
use meters::Meters;
pub use obituary::{ATTEMPTS_TOLD_MAX, Death, Fate, LostAttempt, Next};
use offers::Prospect;
use part::PartState;
use policy::PolicyTable;
use queue::{Place, Queue, Suspects, Waiting};
pub use roles::Pools;
pub use rows::InHand;
pub use seats::Quarantine;
use slot::Slot;
use verdicts::Verdicts;

/// Whether the pool takes work, finishes it, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Accepts jobs.
    Serving,
    /// Accepts none; what is accepted may run until `until`.
    Draining { until: Timestamp },
    /// There is nothing for its workers to do: accepts no job, and keeps no worker once none is left.
    Resting,
    /// No job is left; workers are ending.
    Leaving,
    /// `Leave` was ordered.
    Left,
}

/// The pool. See the module's text for how to call it.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    policy: PolicyTable,
    /// Attempts that a worker has in hand at most while it goes on taking more.
    window: usize,
    phase: Phase,
    devices: Vec<Device>,
    /// The seats of all devices, device by device.
    slots: Vec<Slot>,
    jobs: BTreeMap<JobId, Job>,
    /// Live jobs by key.
    keys: BTreeMap<JobKey, JobId>,
    /// Live jobs by deadline.
    deadlines: BTreeSet<(Timestamp, JobId)>,
    queue: Queue,
    /// Live jobs of every open connection.
    client_jobs: BTreeMap<ClientId, BTreeSet<JobId>>,
    inline_bytes: u64,
    /// The most that it ever was.
    bytes_high: u64,
    /// The most jobs that ever waited from one event to the next.
    jobs_high: usize,
    verdicts: Verdicts,
    convicts: Convicts,
    /// The number of the latest suspects.
    suspects: u32,
    /// What its workers had, or were about to, when it was last seen who waits in vain.
    outlook: Vec<Prospect>,
    /// Jobs of which something waits only since then.
    newcomers: Vec<JobId>,
    /// Devices that were put out of service for what their workers met.
    given_up: Vec<DeviceId>,
    counters: Counters,
    /// That of which the last event told.
    death: Option<Box<Death>>,
    meters: Meters,
    actions: VecDeque<Action>,
}

impl Pool {
    /// A pool over `devices`, none of which has a process yet.
    #[must_use]
    pub fn new(config: PoolConfig, devices: &[DeviceId]) -> Self {
        let seats = |&device: &DeviceId| (0..=config.standbys).map(move |_| Slot::new(device));
        Self {
            phase: Phase::Serving,
            window: 1,
            devices: devices.iter().map(|&device| Device::new(device)).collect(),
            slots: devices.iter().flat_map(seats).collect(),
            jobs: BTreeMap::new(),
            keys: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            queue: Queue::default(),
            client_jobs: BTreeMap::new(),
            inline_bytes: 0,
            bytes_high: 0,
            jobs_high: 0,
            verdicts: Verdicts::new(config.verdicts_kept),
            convicts: Convicts::new(config.convicts_kept),
            suspects: 0,
            outlook: Vec::new(),
            newcomers: Vec::new(),
            given_up: Vec::new(),
            counters: Counters::default(),
            death: None,
            meters: Meters::default(),
            actions: VecDeque::new(),
            policy: PolicyTable::default(),
            config,
        }
    }

    /// The same, with another policy than the default.
    #[must_use]
    pub fn with_policy(self, policy: PolicyTable) -> Self {
        Self { policy, ..self }
    }

    /// The same, over workers that run several jobs at a time, in an order of their own. Each takes more
    /// while it has fewer than `window` in hand, and whatever it has in hand is one batch.
    #[must_use]
    pub fn windowed(self, window: usize) -> Self {
        assert!((1..=JOIN_MAX).contains(&window), "what a launch may hold goes into one message");
        Self { window, ..self }
    }

    /// Has the next processes of each device numbered `first`, `first + step` and so on: pools that share
    /// devices give no number twice.
    pub fn number(&mut self, first: u32, step: u32) {
        self.devices.iter_mut().for_each(|device| device.number(first, step));
    }

    /// The highest number that a process of any device has had.
    #[must_use]
    pub fn latest_generation(&self) -> u32 {
        self.devices.iter().map(|device| device.generation).max().unwrap_or(0)
    }

    /// The same, without workers until [`Event::WakeRequested`].
    #[must_use]
    pub fn resting(mut self) -> Self {
        self.phase = Phase::Resting;
        self
    }

    /// Takes in one event and whatever time has brought about by `now`.
    pub fn handle(&mut self, now: Timestamp, event: Event) {
        self.excuse_pause(now);
        let is_death = matches!(event, Event::WorkerExited { .. });
        match event {
            Event::BeaconLost { worker, last_words } => {
                self.on_beacon_lost(now, worker, last_words);
            }
            Event::CancelRequested { client, key } => self.on_cancel(now, client, key),
            Event::ClientConnected { client } => {
                self.client_jobs.entry(client).or_default();
            }
            Event::ClientGone { client } => self.on_client_gone(now, client),
            Event::ContentHashed { job, content } => self.on_hashed(now, job, content),
            Event::DeviceFault { device, fault } => self.on_device_fault(now, device, fault),
            Event::DrainRequested => {
                if matches!(self.phase, Phase::Serving | Phase::Resting) {
                    self.phase = Phase::Draining { until: now.after(self.config.drain_timeout) };
                }
            }
            Event::JobSubmitted { client, request } => self.on_submitted(now, client, request),
            Event::ModelsOffered { worker, models } => self.on_offered(now, worker, models),
            Event::ModelsOrdered { worker } => self.on_ordered(now, worker, true),
            Event::ModelsSettled { worker } => self.on_ordered(now, worker, false),
            Event::ReleaseRequested { release } => match release {
                Release::Content(content) => self.convicts.forget(content),
                Release::Contents => self.convicts.forget_all(),
                Release::Device(device) => self.on_release(now, device),
            },
            Event::RestRequested => {
                if self.phase == Phase::Serving {
                    self.phase = Phase::Resting;
                }
            }
            Event::SpawnFailed { worker, detail, is_final } => {
                self.on_spawn_failed(now, worker, &detail, is_final);
            }
            Event::StopRequested => self.leave(now),
            Event::TimePassed => {}
            Event::WakeRequested => self.wake(),
            Event::WorkerAnswered { worker, attempt, result } => {
                self.on_answered(now, worker, attempt, result);
            }
            Event::WorkerExited { worker, exit } => {
                self.note_dying(now, worker, &exit);
                self.on_exited(now, worker, &exit);
            }
            Event::WorkerHeard { worker } => {
                self.current_slot(now, worker);
            }
            Event::WorkerReady { worker, device } => self.on_ready(now, worker, device),
            Event::WorkerReclaimed { worker } => self.on_reclaimed(worker),
        }
        self.advance(now);
        if is_death {
            self.complete_death(now);
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`Pool::handle`] with [`Event::TimePassed`] if nothing else happens.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Timestamp> {
        let slots = self.slots.iter().filter_map(|slot| slot.wakes_at(&self.config));
        let job = self.deadlines.first().map(|&(at, _)| at);
        let drain = match self.phase {
            Phase::Draining { until } => Some(until),
            Phase::Leaving | Phase::Left | Phase::Resting | Phase::Serving => None,
        };
        let patience = self.slots.iter().filter_map(|slot| self.patience_ends(slot));
        let starts = (0..self.slots.len()).filter_map(|index| self.may_start_at(index));
        slots.chain(job).chain(drain).chain(patience).chain(starts).min()
    }

    fn enqueue(&mut self, id: JobId, part: usize) {
        let job = self.jobs.get_mut(&id).expect("the job is live");
        job.parts[part].state = PartState::Queued;
        let waiting =
            Waiting { cost: job.parts[part].cost, joins: job.joins(&self.config, self.window) };
        self.queue.insert(job.client, place(job, part), waiting);
        self.newcomers.push(id);
    }

    /// Takes whatever waits of a job out of the queue.
    fn unqueue(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("the job is live");
        for part in 0..job.parts.len() {
            if job.parts[part].state == PartState::Queued {
                self.queue.remove(job.client, place(job, part));
                job.parts[part].state = PartState::Ended;
            }
        }
    }

    /// A name for suspects that nobody has yet.
    fn next_suspects(&mut self) -> Suspects {
        self.suspects += 1;
        Suspects(self.suspects)
    }

    /// The one place that gives a verdict. Whatever ran was answered or cut off before.
    fn finish(&mut self, now: Timestamp, id: JobId, verdict: Verdict, reason: String) {
        self.unqueue(id);
        let job = self.jobs.remove(&id).expect("a verdict is for a live job");
        assert!(job.has_ended(), "{id} gets its verdict and runs on");
        let (client, key) = (job.client, job.request.key);
        self.deadlines.remove(&(job.deadline, id));
        self.keys.remove(&key);
        self.inline_bytes -= job.request.inline_bytes;
        if let Some(jobs) = self.client_jobs.get_mut(&client) {
            jobs.remove(&id);
        }
        // Whatever came of an orphan, nobody was told: it counts as cancelled.
        let (verdict, reason) = match job.orphaned {
            true => (Verdict::Cancelled, "its client is gone".to_owned()),
            false => (verdict, reason),
        };
        *self.count_of(verdict) += 1;
        let client = (!job.orphaned).then_some(client);
        let receipt = job.into_receipt(now, verdict, reason);
        if client.is_some() {
            self.verdicts.remember(key, id, receipt.clone());
        }
        self.actions.push_back(Action::Finish { client, job: id, key, receipt: Box::new(receipt) });
    }

    fn count_of(&mut self, verdict: Verdict) -> &mut u64 {
        match verdict {
            Verdict::Cancelled => &mut self.counters.cancelled,
            Verdict::Deadline => &mut self.counters.deadline,
            Verdict::DeviceLost => &mut self.counters.device_lost,
            Verdict::Failed => &mut self.counters.failed,
            Verdict::Ok => &mut self.counters.ok,
            Verdict::Poison => &mut self.counters.poison,
        }
    }

    /// What waits. The shell, which has the clock, adds for how long.
    #[must_use]
    pub fn queue(&self) -> QueueStatus {
        QueueStatus {
            jobs: self.queue.jobs() as u64,
            jobs_high: self.jobs_high as u64,
            bytes: self.inline_bytes,
            bytes_high: self.bytes_high,
            oldest_us: None,
        }
    }

    /// When the oldest job that waits was accepted.
    #[must_use]
    pub fn waits_since(&self) -> Option<Timestamp> {
        self.jobs.values().filter(|job| job.waits()).map(|job| job.accepted).min()
    }

    /// Sums since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { quarantines: self.quarantine_count(), ..self.counters }
    }

    /// Whether no device has ever been READY or may ever be.
    #[must_use]
    pub fn is_misconfigured(&self) -> bool {
        self.devices.iter().all(Device::is_misconfigured)
    }

    /// If that is so, why: one sentence for each.
    #[must_use]
    pub fn misconfigured(&self) -> Option<Vec<String>> {
        self.is_misconfigured()
            .then(|| self.devices.iter().map(|device| device.last_fault.clone()).collect())
    }

    /// Whether it has stopped accepting, for good.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        match self.phase {
            Phase::Draining { .. } | Phase::Leaving | Phase::Left => true,
            Phase::Resting | Phase::Serving => false,
        }
    }

    /// Whether there is nothing for its workers to do.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.phase == Phase::Resting
    }

    /// Whether a device in service is about to get a process that serves it.
    #[must_use]
    pub fn awaits_workers(&self) -> bool {
        self.slots.iter().any(|slot| self.prospect(slot) == Prospect::Unknown)
    }

    /// Whether a process of it is there, or about to be.
    #[must_use]
    pub fn has_processes(&self) -> bool {
        self.slots.iter().any(Slot::has_process)
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn place(job: &Job, part: usize) -> Place {
    let part = u32::try_from(part).expect("a job has few parts");
    Place { priority: job.request.priority, job: job.request.job, part }
}
