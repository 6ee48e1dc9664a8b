//! The world outside the core: processes of workers and helpers, clients, and a network that delays their
//! messages.
//!
//! The world performs the core's actions and never looks into the core.

mod clients;
mod deaths;
mod helpers;
mod models;
mod upgrades;
mod workers;

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_core::action::Action;
use gridpool_core::event::{
    ClientEvent, Event, Helper, HelperEvent, JobRequest, Timestamp, WorkerEvent,
};
use gridpool_protocol::ids::{AttemptId, ClientId, ContentHash, JobId, WorkerId};

use crate::rates::Rates;
use crate::rng::Rng;
use crate::swarm::Swarm;
use helpers::HelperProcess;
use models::Loaded;

/// What happens next.
#[derive(Clone, Debug)]
enum Delivery {
    /// The worker's next sign of life is due.
    Beat(WorkerId),
    /// The core gets an event.
    Event(Event),
    /// The next sign of life of a helper's process is due.
    HelperBeat(Helper, u64),
    /// The process of a helper is gone, or did not start.
    HelperGone(Helper, u64, HelperEvent),
    /// A silent worker is heard again.
    Wake(WorkerId),
}

/// One worker process that has not been reaped.
#[derive(Clone, Debug, Default)]
struct Process {
    /// Its latest two dispatches.
    running: Vec<AttemptId>,
    before: Vec<AttemptId>,
    /// When it will have finished them.
    done_at: Timestamp,
    /// Its job never ends.
    stuck: bool,
    /// It gives no sign of life.
    mute: bool,
    /// Its exit is on its way.
    ending: bool,
    /// It sends nothing new after this time.
    dies_at: Option<Timestamp>,
    /// Its beacon is open.
    has_beacon: bool,
    /// The models that it has.
    models: BTreeMap<String, Loaded>,
    /// When its latest report of models arrives.
    reported_at: Timestamp,
}

impl Process {
    /// Its attempts that may be outstanding.
    fn outstanding(&self) -> Vec<AttemptId> {
        self.before.iter().chain(&self.running).copied().collect()
    }

    fn is_dead(&self, now: Timestamp) -> bool {
        self.dies_at.is_some_and(|at| at <= now)
    }
}

/// What the world decided about a job when it was submitted.
#[derive(Clone, Copy, Debug)]
struct Fate {
    deadline: Timestamp,
    poisonous: bool,
    batch: u8,
    items: u32,
}

#[derive(Debug)]
pub(crate) struct World {
    swarm: Swarm,
    rng: Rng,
    network: BTreeMap<(Timestamp, u64), Delivery>,
    sent: u64,
    processes: BTreeMap<WorkerId, Process>,
    helpers: BTreeMap<Helper, HelperProcess>,
    /// Processes that are gone, with their attempts.
    graves: Vec<(WorkerId, Vec<AttemptId>)>,
    fates: BTreeMap<JobId, Fate>,
    /// Hashed contents, the latest last.
    suspects: Vec<ContentHash>,
    /// Open connections.
    clients: Vec<ClientId>,
    next_client: u64,
    next_job: u64,
    next_key: u128,
    /// The number of the latest operator request.
    next_request: u64,
    /// What all files of models contain.
    content: u64,
    /// The faults have stopped.
    is_calm: bool,
    /// The latest submissions, for repeated keys.
    submitted: Vec<(ClientId, JobRequest)>,
}

impl World {
    pub(crate) fn new(swarm: &Swarm, rng: Rng) -> Self {
        let mut world = Self {
            swarm: swarm.clone(),
            rng,
            network: BTreeMap::new(),
            sent: 0,
            processes: BTreeMap::new(),
            helpers: BTreeMap::new(),
            graves: Vec::new(),
            fates: BTreeMap::new(),
            suspects: Vec::new(),
            clients: Vec::new(),
            next_client: 0,
            next_job: 0,
            next_key: 0,
            next_request: 0,
            content: 0,
            is_calm: false,
            submitted: Vec::new(),
        };
        for _ in 0..swarm.clients {
            world.connect(Timestamp::default());
        }
        if swarm.has_helpers {
            for helper in Helper::ALL {
                let at = world.soon(Timestamp::default(), 20);
                world.tell(at, Event::Helper(helper, HelperEvent::Wanted));
            }
        }
        world
    }

    /// When something happens next.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.network.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes what happens at `now`; `None` if it is no event for the core.
    pub(crate) fn deliver(&mut self, now: Timestamp) -> Option<Event> {
        let (_, delivery) = self.network.pop_first().expect("something was on its way");
        match delivery {
            Delivery::Beat(worker) => {
                let process = self.processes.get(&worker)?;
                if process.mute || process.is_dead(now) {
                    return None;
                }
                self.send(now.after(self.swarm.heartbeat), Delivery::Beat(worker));
                let progresses = self.rng.chance(self.swarm.rates.progresses);
                let said = if progresses { WorkerEvent::Progressed } else { WorkerEvent::Heard };
                Some(Event::Worker(worker, said))
            }
            Delivery::Event(event) => {
                self.on_delivered(now, &event);
                Some(event)
            }
            Delivery::HelperBeat(helper, number) => self.helper_beats(now, helper, number),
            Delivery::HelperGone(helper, number, event) => {
                self.helper_is_gone(helper, number, event)
            }
            Delivery::Wake(worker) => {
                let process = self.processes.get_mut(&worker)?;
                if process.is_dead(now) {
                    return None;
                }
                process.mute = false;
                self.send(now.after(self.swarm.heartbeat), Delivery::Beat(worker));
                Some(Event::Worker(worker, WorkerEvent::Heard))
            }
        }
    }

    /// Takes what happens next, and when, if that is a frequent event before `end`.
    pub(crate) fn deliver_frequent(&mut self, end: Timestamp) -> Option<(Timestamp, Event)> {
        let next = self.network.first_entry().filter(|next| next.key().0 < end)?;
        let is_frequent = matches!(next.get(), Delivery::Event(event) if event.is_frequent());
        let next = is_frequent.then(|| next.remove_entry())?;
        let ((at, _), Delivery::Event(event)) = next else { return None };
        Some((at, event))
    }

    fn on_delivered(&mut self, now: Timestamp, event: &Event) {
        if let Event::HandOver(step) = event {
            self.on_hand_over(now, step);
        } else if let &Event::Client(client, ClientEvent::Connected) = event {
            self.clients.push(client);
        } else if let &Event::Client(client, ClientEvent::Gone) = event {
            self.clients.retain(|&open| open != client);
        } else if let &Event::Worker(worker, WorkerEvent::SpawnFailed { .. }) = event {
            self.process_died(now, worker);
        } else if let &Event::Worker(worker, WorkerEvent::Exited(_)) = event {
            self.process_died(now, worker);
            self.gives_memory_back(now, worker);
        }
    }

    /// Performs the actions of the core.
    pub(crate) fn perform(&mut self, now: Timestamp, action: &Action) {
        match *action {
            Action::Command { worker, number, ref command } => {
                self.on_command(now, worker, number, command);
            }
            Action::Dispatch { worker, ref attempts } => self.on_dispatch(now, worker, attempts),
            Action::Free { .. } => self.successor_may_start(now),
            Action::HashContent { job, ref work } => self.on_hash(now, job, work),
            Action::Helper(helper, ref action) => self.on_helper(now, helper, action),
            Action::Kill { worker, .. } => self.on_kill(now, worker),
            Action::LetGo { client } => self.on_let_go(now, client),
            Action::Spawn { worker, ref models } => self.on_spawn(now, worker, models),
            Action::Stop { worker } => self.on_stop(now, worker),
            Action::Withdraw { worker, attempt } => self.on_withdraw(now, worker, attempt),
            Action::Accept { .. }
            | Action::Capsule { .. }
            | Action::DeathReport(_)
            | Action::Discard { .. }
            | Action::Finish { .. }
            | Action::Leave { .. }
            | Action::Misconfigured { .. }
            | Action::ModelMissing(_)
            | Action::Note(_)
            | Action::Refuse { .. }
            | Action::Replay { .. }
            | Action::Reply { .. }
            | Action::Tell(_) => {}
        }
    }

    /// Stops all faults, and ends what was stuck.
    pub(crate) fn calm(&mut self, now: Timestamp) {
        self.is_calm = true;
        self.swarm.rates = Rates::default();
        self.swarm.exit_lag = 0;
        for fate in self.fates.values_mut() {
            fate.poisonous = false;
        }
        let soon = now.after(Duration::from_millis(100));
        for process in self.processes.values_mut() {
            process.done_at = process.done_at.min(soon);
            // It may have answered a job that never ends.
            process.stuck = false;
        }
        for (_, stuck) in self.network.split_off(&(soon, 0)) {
            let at = now.after(self.rng.millis(0, 100));
            self.send(at, stuck);
        }
        // After all their earlier messages.
        self.all_models_work(soon.after(Duration::from_millis(1)));
    }

    fn send(&mut self, at: Timestamp, delivery: Delivery) {
        self.sent += 1;
        self.network.insert((at, self.sent), delivery);
    }

    fn tell(&mut self, at: Timestamp, event: Event) {
        self.send(at, Delivery::Event(event));
    }

    /// A moment from `now` to `max` milliseconds later.
    fn soon(&mut self, now: Timestamp, max: u64) -> Timestamp {
        now.after(self.rng.millis(0, max))
    }

    /// A moment from `from` to `to`.
    fn within(&mut self, from: Timestamp, to: Timestamp) -> Timestamp {
        let most = to.since(from).as_millis();
        self.soon(from, u64::try_from(most).expect("it is a short time"))
    }
}
