//! What becomes of a device: its processes, their silence and death, backoff and quarantine.

use std::time::Duration;

use gridpool::pool::event::{Exit, ExitStatus, Timestamp};
use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::RunReport;

use super::hands::{Batch, Hands};
use super::losses::Loss;
use super::{Model, Phase};

/// Why the pool killed a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its job had its verdict already, or others waited behind it for too long.
    FreeDevice,
    /// It was silent, or not READY in time.
    Hang,
    /// The pool ends.
    Leaving,
}

/// Whose fault a death is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nobody,
    Outside,
    Worker,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// No process; the next may start at `Device::not_before`.
    #[default]
    Absent,
    Busy {
        hands: Hands,
    },
    Killed {
        give_up_at: Timestamp,
        /// What it may still answer.
        hands: Hands,
        why: Why,
    },
    Quarantined,
    Ready,
    Starting {
        by: Timestamp,
    },
    Stopping {
        by: Timestamp,
    },
    Unkillable {
        why: Why,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    pub(super) state: State,
    pub(super) generation: u32,
    pub(super) heard: Timestamp,
    pub(super) jobs_done: u64,
    pub(super) was_suspect: bool,
    not_before: Timestamp,
    pub(super) ever_ready: bool,
    worked: bool,
    was_ready: bool,
    start_failures: u32,
    /// Deaths that count, since work was last done.
    deaths: Vec<Timestamp>,
    /// Restarts that count, since work was last done.
    restarts: u32,
}

impl Device {
    pub(super) fn has_process(&self) -> bool {
        !matches!(self.state, State::Absent | State::Quarantined)
    }

    pub(super) fn is_gone(&self) -> bool {
        !self.has_process() || self.is_unkillable()
    }

    pub(super) fn is_unkillable(&self) -> bool {
        matches!(self.state, State::Unkillable { .. })
    }

    pub(super) fn is_quarantined(&self) -> bool {
        self.state == State::Quarantined
    }

    pub(super) fn may_serve(&self) -> bool {
        !matches!(
            self.state,
            State::Quarantined | State::Stopping { .. } | State::Unkillable { .. }
        )
    }

    /// Whether it is worth waiting for, to a job that failed elsewhere.
    pub(super) fn is_near(&self) -> bool {
        matches!(self.state, State::Ready | State::Starting { .. })
    }

    /// What it was sent and has not answered.
    pub(super) fn hands(&self) -> &[Batch] {
        match &self.state {
            State::Busy { hands } | State::Killed { hands, .. } => &hands.0,
            State::Absent
            | State::Quarantined
            | State::Ready
            | State::Starting { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => &[],
        }
    }

    /// The job of an attempt that it has in hand has its verdict.
    pub(super) fn frees(&mut self, attempt: AttemptId, at: Timestamp) {
        if let State::Busy { hands } = &mut self.state {
            let all = hands.0.iter_mut().flat_map(|batch| &mut batch.attempts);
            all.filter(|(id, _)| *id == attempt).for_each(|(_, free_at)| *free_at = Some(at));
        }
    }

    /// Nobody listened for `gap`: the worker is not late because of that.
    pub(super) fn excuse(&mut self, now: Timestamp, gap: Duration) {
        self.heard = now;
        match &mut self.state {
            State::Killed { give_up_at: at, .. }
            | State::Starting { by: at }
            | State::Stopping { by: at } => *at = at.after(gap),
            State::Busy { hands } => hands.excuse(gap),
            State::Absent | State::Quarantined | State::Ready | State::Unkillable { .. } => {}
        }
    }

    /// When something must happen here without any event.
    pub(super) fn wakes_at(&self, model: &Model) -> Option<Timestamp> {
        let silent = self.heard.after(model.config.heartbeat_kill);
        match self.state {
            State::Absent => matches!(model.phase, Phase::Serving | Phase::Draining { .. })
                .then_some(self.not_before),
            State::Busy { ref hands } => Some(hands.free_at().unwrap_or(silent).min(silent)),
            State::Killed { give_up_at, .. } => Some(give_up_at),
            State::Ready => Some(silent),
            State::Starting { by } | State::Stopping { by } => Some(by),
            State::Quarantined | State::Unkillable { .. } => None,
        }
    }
}

impl Model {
    /// Whether the message comes from the process that the device has now. Counts it if not.
    pub(super) fn is_current(&mut self, now: Timestamp, worker: WorkerId) -> bool {
        let device = self.devices.get_mut(&worker.device).expect("devices stay");
        if device.generation == worker.generation && device.has_process() {
            device.heard = now;
            return true;
        }
        self.counters.stale += 1;
        let old = device.generation != worker.generation;
        self.coverage.hit(if old { "stale: of an old generation" } else { "stale: of no process" });
        false
    }

    pub(super) fn ready(&mut self, now: Timestamp, worker: WorkerId) {
        if !self.is_current(now, worker) {
            return;
        }
        let device = self.devices.get_mut(&worker.device).expect("devices stay");
        if matches!(device.state, State::Starting { .. }) {
            device.state = State::Ready;
            device.was_ready = true;
            device.ever_ready = true;
            device.start_failures = 0;
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
        result: &Result<RunReport, AttemptError>,
    ) {
        if !self.is_current(now, worker) {
            if matches!(self.devices[&worker.device].state, State::Busy { .. }) {
                self.coverage.hit("stale: answer while the successor is busy");
            }
            return;
        }
        let free_at = now.after(self.config.cancel_grace);
        let device = self.devices.get_mut(&worker.device).expect("devices stay");
        let waits = device.hands().iter().skip(1).flat_map(|batch| &batch.attempts);
        if waits.into_iter().any(|&(id, _)| id == attempt) {
            self.coverage.hit("answer: of the batch that waits");
        }
        let known = match &mut device.state {
            State::Busy { hands } => hands.answered(attempt, free_at),
            State::Killed { hands, .. } => {
                let known = hands.answered(attempt, free_at);
                if known {
                    self.coverage.hit("answer: while being killed");
                }
                known
            }
            State::Absent
            | State::Quarantined
            | State::Ready
            | State::Starting { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => false,
        };
        if !known {
            self.coverage.hit("answer: not the attempt it runs");
            self.counters.stale += 1;
            return;
        }
        if matches!(&device.state, State::Busy { hands } if hands.0.is_empty()) {
            device.state = State::Ready;
        }
        device.jobs_done += 1;
        device.worked = true;
        device.restarts = 0;
        device.deaths.clear();
        self.attempt_answered(attempt, worker, result, now);
    }

    pub(super) fn spawn_failed(&mut self, now: Timestamp, worker: WorkerId, is_final: bool) {
        if self.is_current(now, worker) {
            self.coverage.hit(if is_final {
                "spawn: can never be started"
            } else {
                "spawn: could not be started"
            });
            self.died(now, worker.device, Fault::Outside, is_final);
        }
    }

    pub(super) fn exited(&mut self, now: Timestamp, worker: WorkerId, exit: &Exit) {
        if !self.is_current(now, worker) {
            self.coverage.hit("stale: exit");
            return;
        }
        let from_outside = exit.status == ExitStatus::Signal(9);
        let by_itself = if from_outside { Fault::Outside } else { Fault::Worker };
        let device = self.devices.get_mut(&worker.device).expect("devices stay");
        let (lost, fault) = match std::mem::take(&mut device.state) {
            State::Busy { hands } => {
                let evidence = is_evidence(exit.status);
                (Some((hands, Loss::Died { evidence, from_outside })), by_itself)
            }
            State::Killed { hands, why: Why::Hang, .. } => {
                (Some((hands, Loss::Hung)), Fault::Worker)
            }
            State::Unkillable { why: Why::Hang } => {
                self.coverage.hit("device: back after being unkillable");
                (None, Fault::Worker)
            }
            State::Killed { hands, .. } => (Some((hands, Loss::Freed)), Fault::Nobody),
            State::Stopping { .. } | State::Unkillable { .. } => (None, Fault::Nobody),
            State::Absent | State::Quarantined | State::Ready | State::Starting { .. } => {
                (None, by_itself)
            }
        };
        self.died(now, worker.device, fault, is_final(exit.status));
        if let Some((hands, loss)) = lost {
            self.hands_lost(now, worker, hands, loss);
        }
    }

    fn died(&mut self, now: Timestamp, id: DeviceId, fault: Fault, is_final: bool) {
        let device = self.devices.get_mut(&id).expect("devices stay");
        device.state = State::Absent;
        if matches!(self.phase, Phase::Leaving | Phase::Left) {
            return;
        }
        let mut wait = Duration::ZERO;
        match fault {
            Fault::Nobody => self.coverage.hit("death: the pool freed the device"),
            Fault::Outside => self.coverage.hit("death: from outside"),
            Fault::Worker => {
                device.start_failures += u32::from(!device.was_ready);
                if device.worked {
                    self.coverage.hit("death: after work");
                } else {
                    device.deaths.push(now);
                }
            }
        }
        if fault != Fault::Nobody {
            wait = backoff(device.restarts, self.config.backoff_min, self.config.backoff_max);
            device.restarts += 1;
        }
        device.not_before = now.after(wait);
        let window = self.config.restart_window;
        let recent = device.deaths.iter().filter(|&&at| now.since(at) <= window).count();
        if is_final {
            self.coverage.hit("death: exit that a new process would share");
            self.coverage.hit("device: quarantined by its exit code");
            device.state = State::Quarantined;
        } else if device.start_failures >= self.config.start_failures_max {
            self.coverage.hit("device: quarantined by starts that failed");
            device.state = State::Quarantined;
        } else if recent as u64 >= u64::from(self.config.restart_limit) {
            self.coverage.hit("device: quarantined by deaths without work");
            device.state = State::Quarantined;
        }
    }

    /// What is due on the device because of the time.
    pub(super) fn device_is_due(&mut self, now: Timestamp, id: DeviceId) {
        if self.devices[&id].wakes_at(self).is_none_or(|at| at > now) {
            return;
        }
        match self.devices[&id].state.clone() {
            State::Absent => self.spawn(now, id),
            State::Busy { hands } => {
                if hands.free_at().is_some_and(|at| at <= now) {
                    let late = self.due.verdicts.keys();
                    let front = hands.front();
                    let is_late = late.into_iter().any(|&job| front.has(job));
                    self.coverage.hit(if is_late { "kill: late job" } else { "kill: grace over" });
                    self.kill(now, id, Why::FreeDevice);
                } else {
                    self.coverage.hit("kill: hang");
                    self.kill(now, id, Why::Hang);
                }
            }
            State::Killed { hands, why, .. } => self.give_up(now, id, hands, why),
            State::Ready => self.kill(now, id, Why::Hang),
            State::Starting { .. } => {
                self.coverage.hit("kill: not READY in time");
                self.kill(now, id, Why::Hang);
            }
            State::Stopping { .. } => {
                self.coverage.hit("kill: stop ignored");
                self.kill(now, id, Why::Leaving);
            }
            State::Quarantined | State::Unkillable { .. } => {}
        }
    }

    fn spawn(&mut self, now: Timestamp, id: DeviceId) {
        let by = now.after(self.config.ready_timeout);
        let device = self.devices.get_mut(&id).expect("devices stay");
        if device.restarts > 1 {
            self.coverage.hit("spawn: after a backoff");
        }
        device.generation += 1;
        device.state = State::Starting { by };
        device.heard = now;
        device.worked = false;
        device.was_ready = false;
        device.was_suspect = false;
        self.counters.restarts += u64::from(device.generation > 1);
        self.due.spawns.insert(WorkerId { device: id, generation: device.generation });
    }

    pub(super) fn kill(&mut self, now: Timestamp, id: DeviceId, why: Why) {
        let give_up_at = now.after(self.config.kill_timeout);
        let device = self.devices.get_mut(&id).expect("devices stay");
        let hands = Hands(device.hands().to_vec());
        device.state = State::Killed { give_up_at, hands, why };
        self.due.kills.insert(WorkerId { device: id, generation: device.generation });
    }

    fn give_up(&mut self, now: Timestamp, id: DeviceId, hands: Hands, why: Why) {
        self.coverage.hit("worker: unkillable");
        let device = self.devices.get_mut(&id).expect("devices stay");
        device.state = State::Unkillable { why };
        let worker = WorkerId { device: id, generation: device.generation };
        let loss = if why == Why::Hang { Loss::Hung } else { Loss::Freed };
        self.hands_lost(now, worker, hands, loss);
    }

    pub(super) fn stop_all(&mut self, now: Timestamp) {
        let by = now.after(self.config.kill_timeout);
        for (&id, device) in &mut self.devices {
            if matches!(device.state, State::Busy { .. } | State::Ready | State::Starting { .. }) {
                device.state = State::Stopping { by };
                self.due.stops.insert(WorkerId { device: id, generation: device.generation });
            }
        }
    }

    pub(super) fn kill_all(&mut self, now: Timestamp) {
        for id in self.devices.keys().copied().collect::<Vec<_>>() {
            match self.devices[&id].state {
                State::Busy { .. }
                | State::Ready
                | State::Starting { .. }
                | State::Stopping { .. } => {
                    self.coverage.hit("kill: leaving");
                    self.kill(now, id, Why::Leaving);
                }
                State::Absent
                | State::Killed { .. }
                | State::Quarantined
                | State::Unkillable { .. } => {}
            }
        }
    }
}

/// How long the start after `restarts` others waits: not at all, then `min`, then twice as long each.
fn backoff(restarts: u32, min: Duration, max: Duration) -> Duration {
    match restarts {
        0 => Duration::ZERO,
        n => (1..n).fold(min, |wait, _| (wait * 2).min(max)).min(max),
    }
}

fn is_evidence(status: ExitStatus) -> bool {
    match status {
        ExitStatus::Code(code) => code == 70,
        ExitStatus::Incompatible | ExitStatus::Rejected => false,
        ExitStatus::Signal(signal) => matches!(signal, 4 | 6 | 7 | 8 | 11),
    }
}

fn is_final(status: ExitStatus) -> bool {
    matches!(status, ExitStatus::Code(73 | 75) | ExitStatus::Incompatible)
}
