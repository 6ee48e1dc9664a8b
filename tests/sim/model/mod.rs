//! The rules, kept by somebody who sees events and actions and never looks into the pool.
//!
//! For every event the model works out by itself what must follow at this very moment: which verdicts,
//! which kills, stops and starts, what the client is told. An action that is not due breaks a rule, and
//! so does a due action that does not come. The one thing that the pool may choose is which waiting
//! job goes to which idle worker; that choice has rules of its own (`dispatch`, `fair`), and decides who
//! is killed for those who wait (`patience`).
//!
//! One file per concern: `clients` what is said to clients, `jobs` what becomes of a job, `verdicts` its
//! end, `devices` what processes say, `seats` where they are and when they are killed, `quarantine` what
//! their deaths mean for their device, `deaths` what is told of them, `faults` what the driver says of
//! it, `hands` what a worker has in hand, `losses` what it takes with it,
//! `moves` what need not wait for its end, `bisection` who is suspect, `convicts` who is guilty,
//! `writers` who may still write, `orders` starts, stops and kills, `dispatch` who runs what, `sharing`
//! with whom, `offers` who has the model for it, `patience` behind whom and for how long, `fair` whose
//! turn it is, `rest` what is done when there is nothing to do, `settled` what holds between events.

mod bisection;
mod clients;
mod convicts;
mod deaths;
mod devices;
mod dispatch;
mod fair;
mod faults;
mod hands;
mod jobs;
mod losses;
mod moves;
mod offers;
mod orders;
mod patience;
mod quarantine;
mod rest;
mod seats;
mod settled;
mod sharing;
mod verdicts;
mod writers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gridpool::pool::config::PoolConfig;
use gridpool::pool::event::{Action, Event, Timestamp};
use gridpool_protocol::ids::{AttemptId, ClientId, DeviceId, JobId, JobKey, WorkerId};
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::Counters;

use crate::coverage::Coverage;
use crate::swarm::Swarm;
use clients::Reply;
use convicts::Convicts;
use deaths::{Dying, Given};
use devices::Device;
use fair::Fair;
use jobs::Job;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining { until: Timestamp },
    Resting,
    Leaving,
    Left,
}

/// What must be done before the event is over.
#[derive(Debug, Default)]
struct Due {
    reply: Option<Reply>,
    discard: Option<JobId>,
    verdicts: BTreeMap<JobId, (Job, Verdict)>,
    kills: BTreeSet<WorkerId>,
    spawns: BTreeSet<WorkerId>,
    stops: BTreeSet<WorkerId>,
    withdrawals: BTreeSet<(WorkerId, AttemptId)>,
    hashes: BTreeSet<JobId>,
    leave: bool,
}

/// What a key was used for, and what came of it.
#[derive(Clone, Debug)]
struct Remembered {
    job: JobId,
    program_hash: String,
    items: u32,
    verdict: Verdict,
}

#[derive(Debug)]
pub(crate) struct Model {
    config: PoolConfig,
    window: usize,
    numbers: [u32; 2],
    /// Whether requests ask for models.
    has_models: bool,
    phase: Phase,
    devices: BTreeMap<DeviceId, Device>,
    /// Live jobs.
    jobs: BTreeMap<JobId, Job>,
    /// Every job that was ever accepted.
    accepted: BTreeSet<JobId>,
    /// Jobs that failed on a device and were tried again, ever.
    retries: u64,
    /// The latest number of suspects that may share a launch with each other.
    next_group: u64,
    convicts: Convicts,
    writers: Writers,
    fair: Fair,
    clients: BTreeSet<ClientId>,
    /// The most jobs that waited between two events, and the most inline bytes.
    jobs_high: u64,
    bytes_high: u64,
    memory: BTreeMap<JobKey, Remembered>,
    memory_order: VecDeque<JobKey>,
    /// Keys whose verdict was forgotten.
    forgotten: BTreeSet<JobKey>,
    due: Due,
    dying: Option<Dying>,
    /// Every verdict.
    given: BTreeMap<JobId, Given>,
    /// When the pool last asked to be called.
    wakes: Option<Timestamp>,
    /// It is called later than it asked for: the supervisor was stopped, or starved.
    late: bool,
    counters: Counters,
    steps: u64,
    pub(crate) coverage: Coverage,
}

impl Model {
    pub(crate) fn new(swarm: &Swarm, devices: &[DeviceId], coverage: Coverage) -> Self {
        let config = &swarm.config;
        Self {
            config: config.clone(),
            window: swarm.window,
            numbers: swarm.numbers,
            has_models: swarm.models > 0,
            phase: if swarm.starts_resting { Phase::Resting } else { Phase::Serving },
            devices: devices.iter().map(|&id| (id, Device::new(config.standbys))).collect(),
            jobs: BTreeMap::new(),
            accepted: BTreeSet::new(),
            retries: 0,
            next_group: 0,
            convicts: Convicts::default(),
            writers: Writers::new(),
            fair: Fair::default(),
            clients: BTreeSet::new(),
            jobs_high: 0,
            bytes_high: 0,
            memory: BTreeMap::new(),
            memory_order: VecDeque::new(),
            forgotten: BTreeSet::new(),
            due: Due::default(),
            dying: None,
            given: BTreeMap::new(),
            wakes: None,
            late: false,
            counters: Counters::default(),
            steps: 0,
            coverage,
        }
    }

    /// Works out what must follow from `event` at `now`.
    pub(crate) fn expect(&mut self, now: Timestamp, event: &Event) {
        self.excuses_pause(now);
        self.notes_dying(event);
        match *event {
            Event::BeaconLost { worker, .. } => self.beacon_lost(now, worker),
            Event::CancelRequested { client, key } => self.cancel_requested(now, client, key),
            Event::ClientConnected { client } => {
                self.clients.insert(client);
            }
            Event::ClientGone { client } => self.client_gone(client),
            Event::ContentHashed { job, content } => self.content_hashed(job, content),
            Event::DeviceFault { device, fault } => self.device_fault(now, device, fault),
            Event::DrainRequested => {
                if matches!(self.phase, Phase::Resting | Phase::Serving) {
                    if self.phase == Phase::Resting {
                        self.coverage.hit(match self.jobs.is_empty() {
                            true => "drain: of a pool that rests",
                            false => "drain: of a pool that is to rest",
                        });
                    }
                    let until = now.after(self.config.drain_timeout);
                    self.phase = Phase::Draining { until };
                }
            }
            Event::JobSubmitted { client, ref request } => self.submitted(now, client, request),
            Event::ModelsOrdered { .. } | Event::ModelsSettled { .. } => {
                unreachable!("the world gives no orders about models")
            }
            Event::ModelsOffered { worker, ref models } => {
                self.models_offered(now, worker, models);
            }
            Event::ReleaseRequested { release } => self.released(now, release),
            Event::RestRequested => self.rest_requested(),
            Event::SpawnFailed { worker, is_final, .. } => {
                self.spawn_failed(now, worker, is_final);
            }
            Event::StopRequested => {
                match self.phase {
                    Phase::Draining { .. } => {
                        self.coverage.hit("drain: cut off by an order to stop");
                    }
                    Phase::Leaving => self.coverage.hit("leaving: told to stop now"),
                    Phase::Left => self.coverage.hit("left: told to stop now"),
                    Phase::Resting => self.coverage.hit("resting: told to stop now"),
                    Phase::Serving => self.coverage.hit("serving: told to stop now"),
                }
                self.leave(now);
            }
            Event::TimePassed => {}
            Event::WakeRequested => self.wake_requested(),
            Event::WorkerAnswered { worker, attempt, ref result } => {
                self.answered(now, worker, attempt, result);
            }
            Event::WorkerExited { worker, ref exit } => self.exited(now, worker, exit),
            Event::WorkerHeard { worker } => {
                self.is_current(now, worker);
            }
            Event::WorkerReady { worker, .. } => self.ready(now, worker),
            Event::WorkerReclaimed { worker } => self.reclaimed(worker),
        }
        self.pass_time(now);
    }

    /// After a pause of a second or more, workers get that time back, and a second to be heard in.
    fn excuses_pause(&mut self, now: Timestamp) {
        const PAUSE_MIN: Duration = Duration::from_millis(100);
        let gap = self.wakes.map_or(Duration::ZERO, |wakes| now.since(wakes));
        self.late = !gap.is_zero();
        if gap >= PAUSE_MIN {
            self.coverage.hit("pause: excused");
            let seats = self.devices.values_mut().flat_map(|device| &mut device.seats);
            seats.for_each(|seat| seat.excuse(now, gap + PAUSE_MIN));
        } else if self.late {
            self.coverage.hit("pause: short");
        }
    }

    /// What time alone brings, in the order that decides ties: a job that is late at the moment its
    /// worker is given up is late.
    fn pass_time(&mut self, now: Timestamp) {
        self.jobs_are_late(now);
        for at in self.seat_ids() {
            self.seat_is_due(now, at);
        }
        self.jobs_have_no_device(now);
        self.jobs_have_no_model(now);
        self.drain_ends(now);
        self.rests(now);
        // Not for a pool that has come to its end by this.
        self.processes_start(now);
        self.devices_are_tried(now);
    }

    /// Holds one action against the rules.
    pub(crate) fn check(&mut self, now: Timestamp, action: &Action) -> Result<(), Broken> {
        match *action {
            Action::Accept { client, key } => self.accepted(client, key),
            Action::Discard { job } => self.discarded(job),
            Action::Dispatch { worker, ref attempts } => self.dispatched(now, worker, attempts),
            Action::Finish { client, job, key, ref receipt } => {
                self.finished(now, client, job, key, receipt)
            }
            Action::HashContent { job } => self.hash_ordered(job),
            Action::Kill { worker } => self.killed(now, worker),
            Action::Leave => self.left(),
            Action::Refuse { client, job, key, ref refusal } => {
                self.refused(client, job, key, refusal)
            }
            Action::Replay { client, key, ref receipt } => self.replayed(client, key, receipt),
            Action::Spawn { worker } => self.spawned(worker),
            Action::Stop { worker } => self.stopped(worker),
            Action::Withdraw { worker, attempt } => self.withdrawn(worker, attempt),
        }
    }

    /// Jobs that have no verdict.
    pub(crate) fn live_jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Whether the pool accepts jobs.
    pub(crate) fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Whether the pool has left.
    pub(crate) fn has_left(&self) -> bool {
        self.phase == Phase::Left
    }

    fn drain_ends(&mut self, now: Timestamp) {
        if let Phase::Draining { until } = self.phase {
            if self.jobs.is_empty() {
                self.coverage.hit("drain: finished");
                self.phase = Phase::Leaving;
                self.stop_all(now);
            } else if now >= until {
                self.coverage.hit("drain: cut off by its timeout");
                self.leave(now);
            }
        }
        if self.phase == Phase::Leaving && self.devices.values().all(Device::is_gone) {
            if self.devices.values().any(Device::is_unkillable) {
                self.coverage.hit("leave: an unkillable worker is left behind");
            }
            self.phase = Phase::Left;
            self.due.leave = true;
        }
    }

    /// Everything ends now.
    fn leave(&mut self, now: Timestamp) {
        if self.phase == Phase::Left {
            return;
        }
        self.phase = Phase::Leaving;
        self.cut_off_all(now);
        self.kill_all(now);
    }

    fn left(&mut self) -> Result<(), Broken> {
        self.coverage.hit("leave");
        self.the_pool_leaves_when_every_process_is_gone_and_not_before()?;
        self.due.leave = false;
        Ok(())
    }

    fn the_pool_leaves_when_every_process_is_gone_and_not_before(&self) -> Result<(), Broken> {
        let rule = "the_pool_leaves_when_every_process_is_gone_and_not_before";
        holds(rule, self.due.leave, || format!("{:?}", self.devices))
    }
}
