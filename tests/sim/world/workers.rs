//! Worker processes: how they start, serve and fail. How they end is in `deaths`.

use gridpool_core::action::Assignment;
use gridpool_core::event::{Event, Timestamp, WorkerEvent};
use gridpool_protocol::ids::{AttemptId, Group, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::{DeviceInfo, RunReport};
use gridpool_protocol::tensor::options::ModelPlan;

use super::deaths::{FATAL, FINAL, SIGKILL};
use super::{Delivery, Process, World};

/// How often a poisonous job kills its worker only after all others are answered, of 1,000 cases.
const POISON_COMES_LAST: u64 = 400;

impl World {
    pub(super) fn on_spawn(&mut self, now: Timestamp, worker: WorkerId, models: &[ModelPlan]) {
        self.processes.insert(worker, Process { has_beacon: true, ..Process::default() });
        let ready_at = now.after(self.rng.millis(1, 80));
        let is_final = self.rng.chance(self.swarm.rates.spawn_is_final);
        if is_final || self.rng.chance(self.swarm.rates.spawn_fails) {
            let process = Process { ending: true, ..Process::default() };
            self.processes.insert(worker, process);
            let detail = if is_final { "ENOENT" } else { "EAGAIN" }.to_owned();
            self.tell(
                ready_at,
                Event::Worker(worker, WorkerEvent::SpawnFailed { detail, is_final }),
            );
            return;
        }
        if self.rng.chance(self.swarm.rates.start_mutes) {
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
            self.loads_at(now, ready_at, worker, models);
            self.tell(ready_at, ready(worker));
        }
    }

    /// The worker gets a dispatch, which it begins after the one before.
    pub(super) fn on_dispatch(&mut self, now: Timestamp, worker: WorkerId, sent: &[Assignment]) {
        let Some(process) = self.processes.get_mut(&worker) else { return };
        let attempts: Vec<_> = sent.iter().map(|sent| sent.attempt).collect();
        let many = worker.group != Group::Grid;
        if many {
            process.running.extend(&attempts);
        } else {
            process.before = std::mem::replace(&mut process.running, attempts.clone());
        }
        if process.mute || process.stuck || process.is_dead(now) {
            return;
        }
        // A concurrent worker begins at once.
        let begins = if many { now } else { process.done_at.max(now) };
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
        let mut dies_of = None;
        if poisonous && self.rng.chance(self.swarm.rates.poisonous_hangs) {
            self.processes.entry(worker).or_default().mute = true;
            return;
        } else if poisonous || self.rng.chance(self.swarm.rates.crashes) {
            dies_of = Some(self.rng.pick(&FATAL));
        } else if self.rng.chance(self.swarm.rates.outside_kills) {
            dies_of = Some(SIGKILL);
        }
        if let Some(status) = dies_of {
            let at = if poisonous && self.rng.chance(POISON_COMES_LAST) {
                answers.retain(|(_, attempt)| !self.fates[&attempt.job].poisonous);
                ends
            } else {
                self.within(begins, ends)
            };
            answers.retain(|&(answered_at, _)| answered_at <= at);
            let known_at = self.end(at, worker, status);
            for answer in &mut answers {
                if self.rng.chance(self.swarm.rates.in_flight) {
                    answer.0 = self.within(answer.0, known_at);
                }
            }
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
        // Within a dispatch, answers may come in any order.
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

    /// An attempt is withdrawn. A worker that has not begun says so soon; otherwise it answers as usual.
    pub(super) fn on_withdraw(&mut self, now: Timestamp, worker: WorkerId, attempt: AttemptId) {
        let begun = self.rng.chance(500);
        let Some(process) = self.processes.get(&worker) else { return };
        let hears = !(process.mute || process.stuck || process.is_dead(now));
        if hears && !begun && process.running.contains(&attempt) {
            let at = self.soon(now, 5);
            let result = Err(AttemptError::Refused("cancelled".to_owned()));
            self.tell(at, Event::Worker(worker, WorkerEvent::Answered { attempt, result }));
        }
    }

    pub(super) fn answer(
        &mut self,
        now: Timestamp,
        at: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
    ) {
        let result = if self.rng.chance(self.swarm.rates.device_errors) {
            Err(AttemptError::Device("CUDA_ERROR_OUT_OF_MEMORY".to_owned()))
        } else if self.rng.chance(self.swarm.rates.refusals) {
            Err(AttemptError::Refused("not the dispatch that was submitted".to_owned()))
        } else {
            Ok(report())
        };
        self.tell(at.max(now), Event::Worker(worker, WorkerEvent::Answered { attempt, result }));
    }

    /// An attempt that the worker does not run now: of its last dispatch, an earlier or later one of the
    /// same job, or another worker's.
    fn some_other_attempt(&mut self, running: &[AttemptId], before: &[AttemptId]) -> AttemptId {
        let some = self.rng.pick(running);
        let earlier = AttemptId { number: some.number - 1, ..some };
        let later = AttemptId { number: some.number + 1, ..some };
        let elsewhere = self.processes.values().flat_map(Process::outstanding);
        let mut choices: Vec<_> = elsewhere.filter(|a| !running.contains(a)).collect();
        choices.extend(before);
        choices.extend([earlier, later]);
        // No attempt of a second dispatch runs yet.
        choices.push(some);
        self.rng.pick(&choices)
    }
}

fn shifted(at: Timestamp, millis: i64) -> Timestamp {
    let by = std::time::Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { Timestamp(at.0.saturating_sub(by)) } else { at.after(by) }
}

pub(super) fn ready(worker: WorkerId) -> Event {
    let device = DeviceInfo {
        kind: worker.device.kind,
        index: worker.device.index,
        name: worker.to_string(), // so that a receipt can be held against it
        uuid: String::new(),
        driver: String::new(),
    };
    Event::Worker(worker, WorkerEvent::Ready(device))
}

pub(super) fn report() -> RunReport {
    RunReport {
        module_hash: "00".into(),
        items: 1,
        joined_items: 1,
        item_errors: 1,
        kernels: [].into(),
        h2d_bytes: 1,
        d2h_bytes: 1,
        service_us: 1,
        allocations: 0,
        infer: None,
        search: None,
    }
}
