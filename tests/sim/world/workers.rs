//! Worker processes: how they start, serve, fail and end.

use gridpool::pool::event::{Assignment, Event, Exit, ExitStatus, Timestamp};
use gridpool_protocol::exit;
use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::{DeviceInfo, RunReport};

use super::{Delivery, Process, World};

const SIGKILL: ExitStatus = ExitStatus::Signal(9);

/// Ends that speak against the job.
const FATAL: [ExitStatus; 4] = [
    ExitStatus::Code(exit::worker::STICKY),
    ExitStatus::Signal(6),
    ExitStatus::Signal(7),
    ExitStatus::Signal(11),
];

/// Ends that speak against nobody in particular.
const ODD: [ExitStatus; 6] = [
    ExitStatus::Code(exit::worker::OK),
    ExitStatus::Code(exit::worker::DEVICE_LOST),
    ExitStatus::Code(exit::worker::DEVICE_MEMORY),
    ExitStatus::Code(exit::worker::PROTOCOL),
    ExitStatus::Rejected,
    ExitStatus::Signal(15),
];

/// Ends that a new process would share.
const FINAL: [ExitStatus; 3] = [
    ExitStatus::Code(exit::worker::CONFIG),
    ExitStatus::Code(exit::worker::DRIVER),
    ExitStatus::Incompatible,
];

/// Longer than any run: stuck in the kernel until the faults stop.
const FOR_EVER_MS: u64 = 3_600_000;

impl World {
    pub(super) fn on_spawn(&mut self, now: Timestamp, worker: WorkerId) {
        self.processes.insert(worker, Process::default());
        let ready_at = now.after(self.rng.millis(1, 80));
        let is_final = self.rng.chance(self.swarm.rates.spawn_is_final);
        if is_final || self.rng.chance(self.swarm.rates.spawn_fails) {
            self.processes.entry(worker).or_default().ending = true;
            let detail = if is_final { "ENOENT" } else { "EAGAIN" }.to_owned();
            self.tell(ready_at, Event::SpawnFailed { worker, detail, is_final });
            return;
        }
        self.send(now.after(self.swarm.heartbeat), Delivery::Beat(worker));
        if self.rng.chance(self.swarm.rates.start_is_final) {
            let status = self.rng.pick(&FINAL);
            self.end(ready_at, worker, status);
        } else if self.rng.chance(self.swarm.rates.start_crashes) {
            let status = self.any_death();
            self.end(ready_at, worker, status);
        } else if !self.rng.chance(self.swarm.rates.start_hangs) {
            self.tell(ready_at, ready(worker));
        }
    }

    /// The worker is told to run a batch, which it begins when it is done with the one before.
    pub(super) fn on_dispatch(&mut self, now: Timestamp, worker: WorkerId, sent: &[Assignment]) {
        let Some(process) = self.processes.get_mut(&worker) else { return };
        let attempts: Vec<_> = sent.iter().map(|sent| sent.attempt).collect();
        process.before = std::mem::replace(&mut process.running, attempts.clone());
        if process.mute || process.stuck {
            return;
        }
        let begins = process.done_at.max(now);
        let (before, service_max) = (process.before.clone(), self.swarm.service_max);
        if self.rng.chance(self.swarm.rates.wrong_answers) {
            let at = self.soon(begins, service_max);
            let other = self.some_other_attempt(&attempts, &before);
            self.answer(now, at, worker, other);
        }
        let mut ends = self.soon(begins, service_max);
        let mut answers = Vec::new();
        for &attempt in &attempts {
            if self.rng.chance(self.swarm.rates.answers_at_deadline) {
                let about = self.rng.pick(&[-1, 0, 0, 1]);
                ends = shifted(self.fates[&attempt.job].deadline, about).max(ends);
            }
            answers.push((ends, attempt));
            ends = self.soon(ends, 2);
        }
        let poisonous = attempts.iter().any(|attempt| self.fates[&attempt.job].poisonous);
        let mut dies_at = None;
        if poisonous || self.rng.chance(self.swarm.rates.crashes) {
            dies_at = Some(self.rng.pick(&FATAL));
        } else if self.rng.chance(self.swarm.rates.outside_kills) {
            dies_at = Some(SIGKILL);
        }
        if let Some(status) = dies_at {
            let taken = ends.since(begins).as_millis();
            let at = self.soon(begins, u64::try_from(taken).expect("it is a short time"));
            answers.retain(|&(answered_at, _)| answered_at < at);
            self.end(at, worker, status);
        } else if self.rng.chance(self.swarm.rates.hangs) {
            self.processes.entry(worker).or_default().mute = true;
            return;
        } else if self.rng.chance(self.swarm.rates.endless) {
            let answered = self.rng.below(answers.len() as u64);
            answers.truncate(usize::try_from(answered).expect("it is a length"));
            self.processes.entry(worker).or_default().stuck = true;
        }
        self.processes.entry(worker).or_default().done_at = ends;
        let again = self.rng.chance(self.swarm.rates.wrong_answers);
        // Inside a batch they may come in any order.
        if self.rng.chance(300) {
            let times: Vec<_> = answers.iter().map(|&(at, _)| at).rev().collect();
            answers.iter_mut().zip(times).for_each(|(answer, at)| answer.0 = at);
        }
        for (at, attempt) in answers {
            self.answer(now, at, worker, attempt);
            if again {
                let again = self.soon(at, 30);
                self.answer(now, again, worker, attempt);
            }
        }
    }

    pub(super) fn on_kill(&mut self, now: Timestamp, worker: WorkerId) {
        let Some(process) = self.processes.get(&worker) else { return };
        let hands = process.hands();
        let stuck = self.rng.chance(self.swarm.rates.unkillable);
        let dies_at = if stuck {
            let given_up = now.after(self.swarm.config.kill_timeout);
            let longer = self.rng.pick(&[0, 1, 50, 400, FOR_EVER_MS]);
            self.soon(given_up, longer)
        } else {
            self.soon(now, 15)
        };
        for attempt in hands {
            if self.rng.chance(self.swarm.rates.answers_when_killed) {
                let within = if stuck { 600 } else { 15 };
                let at = self.soon(now, within).min(dies_at);
                self.answer(now, at, worker, attempt);
            }
        }
        if self.rng.chance(self.swarm.rates.late_messages) {
            let at = self.soon(now, 600).min(dies_at);
            let event = self.any_word(worker);
            self.tell(at, event);
        }
        let status = if self.rng.chance(100) { self.any_death() } else { SIGKILL };
        self.end(dies_at, worker, status);
    }

    pub(super) fn on_stop(&mut self, now: Timestamp, worker: WorkerId) {
        if self.rng.chance(self.swarm.rates.stops_ignored) {
            return;
        }
        let at = self.soon(now, 30);
        self.end(at, worker, ExitStatus::Code(exit::worker::OK));
    }

    /// The process is gone: what it said and nobody has heard yet arrives late or never.
    pub(super) fn bury(&mut self, now: Timestamp, worker: WorkerId) {
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
            for attempt in process.hands() {
                let late = self.soon(now, 300);
                self.answer(now, late, worker, attempt);
            }
            let late = self.soon(now, 300);
            let event = self.any_word(worker);
            self.tell(late, event);
        }
        self.graves.push((worker, process.hands()));
    }

    /// Something goes wrong by itself, or somebody long dead speaks.
    pub(super) fn chaos(&mut self, now: Timestamp) -> Option<Event> {
        let workers: Vec<_> = self.processes.keys().copied().collect();
        if workers.is_empty() || (self.rng.chance(400) && !self.graves.is_empty()) {
            return self.ghost();
        }
        let worker = self.rng.pick(&workers);
        match self.rng.below(5) {
            0 => self.end(now, worker, SIGKILL),
            1 => {
                let status = self.any_death();
                self.end(now, worker, status);
            }
            2 => self.processes.entry(worker).or_default().mute = true,
            _ => {
                self.processes.entry(worker).or_default().mute = true;
                let at = self.soon(now, 800);
                self.send(at, Delivery::Wake(worker));
            }
        }
        None
    }

    /// A word from a process that is gone, if possible about what its successor runs.
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
        let current = successor.map(Process::hands).unwrap_or_default();
        let choices: Vec<_> = attempts.iter().chain(&current).copied().collect();
        if !choices.is_empty() && self.rng.chance(600) {
            let attempt = self.rng.pick(&choices);
            return Some(Event::WorkerAnswered { worker, attempt, result: Ok(report()) });
        }
        Some(self.any_word(worker))
    }

    fn answer(&mut self, now: Timestamp, at: Timestamp, worker: WorkerId, attempt: AttemptId) {
        let result = if self.rng.chance(self.swarm.rates.device_errors) {
            Err(AttemptError::Device("CUDA_ERROR_OUT_OF_MEMORY".to_owned()))
        } else if self.rng.chance(self.swarm.rates.refusals) {
            Err(AttemptError::Refused("not the batch that was submitted".to_owned()))
        } else {
            Ok(report())
        };
        self.tell(at.max(now), Event::WorkerAnswered { worker, attempt, result });
    }

    fn end(&mut self, at: Timestamp, worker: WorkerId, status: ExitStatus) {
        let Some(process) = self.processes.get_mut(&worker) else { return };
        if !process.ending {
            process.ending = true;
            self.tell(at, exited(worker, status));
        }
    }

    fn any_death(&mut self) -> ExitStatus {
        match self.rng.below(10) {
            0..5 => self.rng.pick(&FATAL),
            5..8 => self.rng.pick(&ODD),
            _ => SIGKILL,
        }
    }

    fn any_word(&mut self, worker: WorkerId) -> Event {
        match self.rng.below(4) {
            0 => ready(worker),
            1 if !self.processes.contains_key(&worker) => {
                let status = self.any_death();
                exited(worker, status)
            }
            2 if !self.processes.contains_key(&worker) => {
                Event::SpawnFailed { worker, detail: "late".to_owned(), is_final: false }
            }
            _ => Event::WorkerHeard { worker },
        }
    }

    /// An attempt that the worker does not run yet or no more: of its batch before, an earlier or a
    /// later one of the same job, or what another worker runs.
    fn some_other_attempt(&mut self, running: &[AttemptId], before: &[AttemptId]) -> AttemptId {
        let some = self.rng.pick(running);
        let earlier = AttemptId { number: some.number - 1, ..some };
        let later = AttemptId { number: some.number + 1, ..some };
        let elsewhere = self.processes.values().flat_map(Process::hands);
        let mut choices: Vec<_> = elsewhere.filter(|a| !running.contains(a)).collect();
        choices.extend(before);
        choices.extend([earlier, later]);
        // Of a batch that waits behind another, every attempt is such a one.
        choices.push(some);
        self.rng.pick(&choices)
    }
}

/// Whose message it is.
fn speaker(delivery: &Delivery) -> Option<WorkerId> {
    match *delivery {
        Delivery::Event(
            Event::WorkerAnswered { worker, .. }
            | Event::WorkerHeard { worker }
            | Event::WorkerReady { worker, .. },
        ) => Some(worker),
        Delivery::Beat(_) | Delivery::Event(_) | Delivery::Wake(_) => None,
    }
}

fn shifted(at: Timestamp, millis: i64) -> Timestamp {
    let by = std::time::Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { Timestamp(at.0.saturating_sub(by)) } else { at.after(by) }
}

fn exited(worker: WorkerId, status: ExitStatus) -> Event {
    Event::WorkerExited { worker, exit: Exit { status, last_words: None } }
}

fn ready(worker: WorkerId) -> Event {
    let device = DeviceInfo {
        kind: worker.device.kind,
        index: worker.device.index,
        name: worker.to_string(), // so that a receipt can be held against it
        uuid: String::new(),
        driver: String::new(),
    };
    Event::WorkerReady { worker, device }
}

fn report() -> RunReport {
    RunReport {
        module_hash: "00".to_owned(),
        joined_items: 1,
        item_errors: 1,
        kernels: Vec::new(),
        h2d_bytes: 1,
        d2h_bytes: 1,
        service_us: 1,
        allocations: 0,
    }
}
