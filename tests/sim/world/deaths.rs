//! How processes end, and the events of that: the loss of the beacon, messages that were on their way, the
//! exit, the freed memory; and late messages of dead processes.

use std::time::Duration;

use gridpool_core::event::{Event, Exit, ExitStatus, Timestamp, WorkerEvent};
use gridpool_protocol::exit;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{Group, WorkerId};

use super::workers::{ready, report};
use super::{Delivery, Process, World};

pub(super) const SIGKILL: ExitStatus = ExitStatus::Signal(9);

/// Ends that are evidence against the job.
pub(super) const FATAL: [ExitStatus; 4] = [
    ExitStatus::Code(exit::worker::STICKY),
    ExitStatus::Signal(6),
    ExitStatus::Signal(7),
    ExitStatus::Signal(11),
];

/// Ends that are no evidence against a job.
const ODD: [ExitStatus; 6] = [
    ExitStatus::Code(exit::worker::OK),
    ExitStatus::Code(exit::worker::DEVICE_LOST),
    ExitStatus::Code(exit::worker::DEVICE_MEMORY),
    ExitStatus::Code(exit::worker::PROTOCOL),
    ExitStatus::Rejected,
    ExitStatus::Signal(15),
];

/// Ends that a new process would repeat.
pub(super) const FINAL: [ExitStatus; 3] = [
    ExitStatus::Code(exit::worker::CONFIG),
    ExitStatus::Code(exit::worker::DRIVER),
    ExitStatus::Incompatible,
];

/// The fault that a worker names: a bad address of the job, or broken memory.
const NAMED: [FaultCode; 2] = [FaultCode::Cuda(700), FaultCode::Cuda(214)];

/// Longer than any run: stuck in the kernel until the faults stop.
const FOR_EVER_MS: u64 = 3_600_000;

/// A beacon is lost this soon after the end of its process, in milliseconds, unless it is late.
const BEACON_LAG_MS: u64 = 2;

/// Messages sent this long before its end, in milliseconds, may arrive after the loss of its beacon.
const LATEST_WORDS_MS: u64 = 10;

impl World {
    /// The process ends at `at`, unless it is ending already. Returns the time of its exit event.
    pub(super) fn end(&mut self, at: Timestamp, worker: WorkerId, status: ExitStatus) -> Timestamp {
        let Some(process) = self.processes.get_mut(&worker).filter(|process| !process.ending)
        else {
            return at;
        };
        process.ending = true;
        process.dies_at = Some(at);
        let has_beacon = std::mem::take(&mut process.has_beacon);
        // Short times are more frequent.
        let lag = self.rng.between(0, self.swarm.exit_lag);
        let known_at = self.soon(at, lag);
        if has_beacon && self.rng.chance(self.swarm.beacons) {
            let lost_at = if self.rng.chance(self.swarm.rates.late_beacons) {
                self.soon(at, self.swarm.exit_lag + 100)
            } else {
                self.soon(at, BEACON_LAG_MS).min(known_at)
            };
            self.tell(lost_at, Event::Worker(worker, WorkerEvent::BeaconLost { last_words: None }));
        }
        let sticky = status == ExitStatus::Code(exit::worker::STICKY);
        let named = sticky && self.rng.chance(self.swarm.rates.named_faults);
        let fault = named.then(|| self.rng.pick(&NAMED));
        self.tell(known_at, exited(worker, status, fault));
        self.is_silent(at, known_at, worker);
        known_at
    }

    /// Messages planned between the end of the process and its exit event: some were sent before the end
    /// and arrive then. So do some that were sent shortly before the end.
    fn is_silent(&mut self, from: Timestamp, until: Timestamp, worker: WorkerId) {
        let between = self.network.range((from, u64::MAX)..=(until, u64::MAX));
        let own = between.filter(|(_, delivery)| speaker(delivery) == Some(worker));
        for at in own.map(|(&at, _)| at).collect::<Vec<_>>() {
            if !self.rng.chance(self.swarm.rates.in_flight) {
                self.network.remove(&at);
            }
        }
        if self.rng.chance(self.swarm.rates.in_flight) {
            let since = Timestamp(from.0.saturating_sub(Duration::from_millis(LATEST_WORDS_MS)));
            let latest = self.network.range((since, 0)..=(from, u64::MAX));
            let own = latest.filter(|(_, delivery)| speaker(delivery) == Some(worker));
            for at in own.map(|(&at, _)| at).collect::<Vec<_>>() {
                let said = self.network.remove(&at).expect("it was just found");
                let heard_at = self.within(from, until);
                self.send(heard_at, said);
            }
        }
    }

    pub(super) fn on_kill(&mut self, now: Timestamp, worker: WorkerId) {
        let Some(process) = self.processes.get(&worker) else { return };
        let outstanding = process.outstanding();
        let stuck = self.rng.chance(self.swarm.rates.unkillable);
        let dies_at = if stuck {
            let given_up = now.after(self.swarm.config.kill_timeout);
            let longer = self.rng.pick(&[0, 1, 50, 400, FOR_EVER_MS]);
            self.soon(given_up, longer)
        } else {
            self.soon(now, 15)
        };
        for attempt in outstanding {
            if self.rng.chance(self.swarm.rates.answers_when_killed) {
                let within = if stuck { 600 } else { 15 };
                let at = self.soon(now, within).min(dies_at);
                self.answer(now, at, worker, attempt);
            }
        }
        if self.rng.chance(self.swarm.rates.late_messages) {
            let at = self.soon(now, 600).min(dies_at);
            let event = self.any_message(worker);
            self.tell(at, event);
        }
        let status =
            if self.rng.chance(self.swarm.rates.odd_ends) { self.any_death() } else { SIGKILL };
        self.end(dies_at, worker, status);
    }

    pub(super) fn on_stop(&mut self, now: Timestamp, worker: WorkerId) {
        if self.rng.chance(self.swarm.rates.stops_ignored) {
            if self.rng.chance(500) {
                let at = self.soon(now, 300);
                self.tell(at, Event::Worker(worker, WorkerEvent::ChannelClosed));
            }
            return;
        }
        let at = self.soon(now, self.swarm.stop_lag);
        self.end(at, worker, ExitStatus::Code(exit::worker::OK));
    }

    /// The process is gone: its messages that are under way arrive late or never.
    pub(super) fn process_died(&mut self, now: Timestamp, worker: WorkerId) {
        let process = self.processes.remove(&worker).unwrap_or_default();
        let unheard: Vec<_> = self
            .network
            .iter()
            .filter(|(_, delivery)| speaker(delivery) == Some(worker))
            .map(|(&at, _)| at)
            .collect();
        for at in unheard {
            let delivery = self.network.remove(&at).expect("it was just listed");
            if self.rng.chance(self.swarm.rates.late_messages) {
                let late = self.soon(now, 400);
                self.send(late, delivery);
            }
        }
        if self.rng.chance(self.swarm.rates.late_messages) {
            for attempt in process.outstanding() {
                let late = self.soon(now, 300);
                self.answer(now, late, worker, attempt);
            }
            let late = self.soon(now, 300);
            let event = self.any_message(worker);
            self.tell(late, event);
        }
        self.graves.push((worker, process.outstanding()));
    }

    /// The device memory of the process is free, sooner or later.
    pub(super) fn gives_memory_back(&mut self, now: Timestamp, worker: WorkerId) {
        if !self.rng.chance(self.swarm.rates.lost_memory) {
            let at = self.soon(now, self.swarm.memory_lag);
            self.tell(at, Event::Worker(worker, WorkerEvent::Reclaimed));
        }
    }

    /// A fault happens by itself, or a long dead process sends a message.
    pub(super) fn chaos(&mut self, now: Timestamp) -> Option<Event> {
        let workers: Vec<_> = self.processes.keys().copied().collect();
        if workers.is_empty() || (self.rng.chance(400) && !self.graves.is_empty()) {
            return self.ghost();
        }
        let worker = self.rng.pick(&workers);
        match self.rng.below(7) {
            0 => {
                self.end(now, worker, SIGKILL);
            }
            1 => {
                let status = self.any_death();
                self.end(now, worker, status);
            }
            2 => self.processes.entry(worker).or_default().mute = true,
            3 => {
                // The beacon's thread is gone, but the process goes on.
                let process = self.processes.get_mut(&worker).expect("it was just listed");
                let had_beacon = std::mem::take(&mut process.has_beacon);
                return had_beacon.then_some(Event::Worker(
                    worker,
                    WorkerEvent::BeaconLost { last_words: None },
                ));
            }
            4 => return Some(Event::Worker(worker, WorkerEvent::Reclaimed)),
            5 if self.rng.chance(500) => return Some(self.closes_channel(now, worker)),
            _ => {
                self.processes.entry(worker).or_default().mute = true;
                let at = self.soon(now, 800);
                self.send(at, Delivery::Wake(worker));
            }
        }
        None
    }

    /// A process closes its channel: it ends soon, or not by itself. Its earlier messages may still arrive.
    fn closes_channel(&mut self, now: Timestamp, worker: WorkerId) -> Event {
        self.processes.entry(worker).or_default().mute |= self.rng.chance(500);
        if self.rng.chance(500) {
            let at = self.soon(now, 1_500);
            let status = self.any_death();
            self.end(at, worker, status);
        }
        if self.rng.chance(500) {
            let at = self.soon(now, 900);
            self.tell(at, Event::Worker(worker, WorkerEvent::ChannelClosed));
        }
        Event::Worker(worker, WorkerEvent::ChannelClosed)
    }

    /// A message from a process that is gone, if possible about its successor's attempts.
    fn ghost(&mut self) -> Option<Event> {
        if self.graves.is_empty() {
            return None;
        }
        let graves = self.graves.clone();
        let index = usize::try_from(self.rng.below(graves.len() as u64)).expect("it is a length");
        let (worker, attempts) = &graves[index];
        let worker = *worker;
        let successor = self
            .processes
            .iter()
            .find(|(id, _)| id.device == worker.device)
            .map(|(_, process)| process);
        let current = successor.map(Process::outstanding).unwrap_or_default();
        let choices: Vec<_> = attempts.iter().chain(&current).copied().collect();
        if !choices.is_empty() && self.rng.chance(600) {
            let attempt = self.rng.pick(&choices);
            return Some(Event::Worker(
                worker,
                WorkerEvent::Answered { attempt, result: Ok(report()) },
            ));
        }
        Some(self.any_message(worker))
    }

    pub(super) fn any_death(&mut self) -> ExitStatus {
        let rates = &self.swarm.rates;
        let a_final_one = rates.start_is_final > 0 && self.rng.chance(rates.final_ends);
        match self.rng.below(10) {
            _ if a_final_one => self.rng.pick(&FINAL),
            0..5 => self.rng.pick(&FATAL),
            5..8 => self.rng.pick(&ODD),
            _ => SIGKILL,
        }
    }

    fn any_message(&mut self, worker: WorkerId) -> Event {
        let lives = self.processes.contains_key(&worker);
        match self.rng.below(8) {
            0 => ready(worker),
            1 if !lives => {
                let status = self.any_death();
                exited(worker, status, None)
            }
            2 if !lives => Event::Worker(
                worker,
                WorkerEvent::SpawnFailed { detail: "late".to_owned(), is_final: false },
            ),
            3 => Event::Worker(worker, WorkerEvent::BeaconLost { last_words: None }),
            4 => Event::Worker(worker, WorkerEvent::Reclaimed),
            5 => Event::Worker(worker, WorkerEvent::ChannelClosed),
            6 if worker.group != Group::Grid => {
                Event::Worker(worker, WorkerEvent::CommandEnded { number: 0, result: Ok(()) })
            }
            _ => Event::Worker(worker, WorkerEvent::Heard),
        }
    }
}

/// The sender of a worker's own message.
fn speaker(delivery: &Delivery) -> Option<WorkerId> {
    let &Delivery::Event(Event::Worker(worker, ref event)) = delivery else { return None };
    match event {
        WorkerEvent::Answered { .. }
        | WorkerEvent::CommandEnded { .. }
        | WorkerEvent::Heard
        | WorkerEvent::Loading { .. }
        | WorkerEvent::ModelsReported(_)
        | WorkerEvent::Progressed
        | WorkerEvent::Ready(_) => Some(worker),
        WorkerEvent::BeaconLost { .. }
        | WorkerEvent::ChannelClosed
        | WorkerEvent::Exited(_)
        | WorkerEvent::Reclaimed
        | WorkerEvent::SpawnFailed { .. } => None,
    }
}

fn exited(worker: WorkerId, status: ExitStatus, fault: Option<FaultCode>) -> Event {
    Event::Worker(
        worker,
        WorkerEvent::Exited(Exit { status, fault, last_words: None, is_ordered: false }),
    )
}
