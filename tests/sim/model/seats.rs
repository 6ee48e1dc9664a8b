//! A seat of a device: the one process that it may hold, and what time alone does to that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};

use super::hands::{Batch, Hands};
use super::losses::Loss;
use super::{Model, Phase};

/// Why the pool killed a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is ending by itself.
    Beacon,
    /// The driver told of a fault of its device, which may be the doing of what it ran.
    Driver { evidence: bool },
    /// Its job had its verdict already, others waited behind it for too long, or its device was taken
    /// out of service for another's sake.
    FreeDevice,
    /// It was silent, or not READY in time.
    Hang,
    /// The pool ends.
    Leaving,
}

/// Which seat of which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeatId {
    pub(super) device: DeviceId,
    pub(super) number: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No process; the next may start from this moment on, if the others of the device let it.
    Absent {
        not_before: Timestamp,
    },
    Busy {
        hands: Hands,
    },
    Killed {
        give_up_at: Timestamp,
        /// What it may still answer.
        hands: Hands,
        why: Why,
    },
    Ready,
    /// The process is gone, its device's memory is not back yet.
    Reclaiming {
        until: Timestamp,
        not_before: Timestamp,
    },
    Standby,
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

impl Default for State {
    fn default() -> Self {
        Self::Absent { not_before: Timestamp::default() }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
    pub(super) state: State,
    /// Of its latest process.
    pub(super) generation: u32,
    /// How many it had.
    pub(super) processes: u32,
    pub(super) heard: Timestamp,
    /// The models that its process has, as it last said.
    pub(super) offers: BTreeSet<Arc<str>>,
    pub(super) jobs_done: u64,
    pub(super) was_suspect: bool,
    /// Whether its process was ever READY, ever served, ever answered.
    pub(super) was_ready: bool,
    pub(super) served: bool,
    pub(super) worked: bool,
    /// Restarts that count, since work was last done.
    pub(super) restarts: u32,
    /// When its process was started and killed, and how long it took to start; how long the one before
    /// took to end.
    pub(super) started: Timestamp,
    pub(super) doomed: Option<Timestamp>,
    pub(super) took_start: Option<Duration>,
    pub(super) took_end: Option<Duration>,
}

impl Seat {
    pub(super) fn has_process(&self) -> bool {
        !matches!(self.state, State::Absent { .. } | State::Reclaiming { .. })
    }

    /// Whether its process is the one of the device that takes jobs.
    pub(super) fn serves(&self) -> bool {
        matches!(self.state, State::Busy { .. } | State::Ready)
    }

    pub(super) fn is_unkillable(&self) -> bool {
        matches!(self.state, State::Unkillable { .. })
    }

    /// What it was sent and has not answered.
    pub(super) fn hands(&self) -> &[Batch] {
        match &self.state {
            State::Busy { hands } | State::Killed { hands, .. } => &hands.0,
            State::Absent { .. }
            | State::Ready
            | State::Reclaiming { .. }
            | State::Standby
            | State::Starting { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => &[],
        }
    }

    /// The job of an attempt that it has in hand has its verdict.
    pub(super) fn frees(&mut self, attempt: AttemptId, at: Timestamp) {
        if let State::Busy { hands } = &mut self.state {
            let own = hands.all().filter(|sent| sent.attempt == attempt);
            own.for_each(|sent| sent.free_at = Some(at));
        }
    }

    /// Nobody listened for `gap`: it is not late because of that.
    pub(super) fn excuse(&mut self, now: Timestamp, gap: Duration) {
        self.heard = now;
        match &mut self.state {
            State::Killed { give_up_at: at, .. }
            | State::Reclaiming { until: at, .. }
            | State::Starting { by: at }
            | State::Stopping { by: at } => *at = at.after(gap),
            State::Busy { hands } => hands.excuse(gap),
            State::Absent { .. } | State::Ready | State::Standby | State::Unkillable { .. } => {}
        }
    }
}

impl Model {
    pub(super) fn seat(&self, at: SeatId) -> &Seat {
        &self.devices[&at.device].seats[at.number]
    }

    pub(super) fn seat_mut(&mut self, at: SeatId) -> &mut Seat {
        &mut self.devices.get_mut(&at.device).expect("devices stay").seats[at.number]
    }

    /// Every seat, in the order in which things happen to them.
    pub(super) fn seats(&self) -> impl Iterator<Item = (SeatId, &Seat)> {
        let of = |(&device, all): (&DeviceId, _)| {
            let all: &Vec<Seat> = all;
            let named = all.iter().enumerate();
            named.map(move |(number, seat)| (SeatId { device, number }, seat))
        };
        self.devices.iter().map(|(id, device)| (id, &device.seats)).flat_map(of)
    }

    pub(super) fn seat_ids(&self) -> Vec<SeatId> {
        self.seats().map(|(at, _)| at).collect()
    }

    /// The latest process of a seat.
    pub(super) fn worker(&self, at: SeatId) -> WorkerId {
        WorkerId { device: at.device, generation: self.seat(at).generation }
    }

    /// Where a process is or was, until the next one took its seat.
    pub(super) fn seat_of(&self, worker: WorkerId) -> Option<SeatId> {
        let mut seats = self.seats();
        let (at, _) = seats.find(|(at, seat)| {
            at.device == worker.device && seat.generation == worker.generation
        })?;
        Some(at)
    }

    /// Whether processes that are gone are replaced.
    pub(super) fn is_working(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. } | Phase::Resting | Phase::Serving)
    }

    /// Whether processes are started.
    pub(super) fn starts_workers(&self) -> bool {
        self.is_working() && !self.has_nothing_to_do()
    }

    /// When something must happen to a seat without any event.
    pub(super) fn seat_wakes_at(&self, at: SeatId) -> Option<Timestamp> {
        let (device, seat) = (&self.devices[&at.device], self.seat(at));
        let silent = seat.heard.after(self.config.heartbeat_kill);
        match seat.state {
            State::Absent { not_before } => {
                let may = self.starts_workers() && device.held_back(at.number).is_none();
                may.then_some(not_before)
            }
            State::Busy { ref hands } => Some(hands.free_at().unwrap_or(silent).min(silent)),
            State::Killed { give_up_at, .. } => Some(give_up_at),
            State::Ready | State::Standby => Some(silent),
            State::Reclaiming { until, .. } => Some(until),
            State::Starting { by } | State::Stopping { by } => Some(by),
            State::Unkillable { .. } => None,
        }
    }

    /// What is due because of the time: kills, givings-up, and memory that does not come back. Starts
    /// come after all of these.
    pub(super) fn seat_is_due(&mut self, now: Timestamp, at: SeatId) {
        if self.seat_wakes_at(at).is_none_or(|due| due > now) {
            return;
        }
        match self.seat(at).state.clone() {
            State::Busy { hands } if hands.free_at().is_some_and(|due| due <= now) => {
                let front = hands.front();
                let is_late = self.due.verdicts.keys().any(|&job| front.has(job));
                self.coverage.hit(if is_late { "kill: late job" } else { "kill: grace over" });
                self.kill(now, at, Why::FreeDevice);
            }
            State::Busy { .. } | State::Ready => {
                self.coverage.hit("kill: hang");
                self.kill(now, at, Why::Hang);
            }
            State::Killed { hands, why, .. } => self.give_up(now, at, hands, why),
            State::Reclaiming { not_before, .. } => {
                self.coverage.hit("reclaim: not in time");
                self.seat_mut(at).state = State::Absent { not_before };
            }
            State::Standby => {
                self.coverage.hit("kill: silent standby");
                self.kill(now, at, Why::Hang);
            }
            State::Starting { .. } => {
                self.coverage.hit("kill: not READY in time");
                self.kill(now, at, Why::Hang);
            }
            State::Stopping { .. } => {
                self.coverage.hit("kill: stop ignored");
                self.kill(now, at, Why::Leaving);
            }
            State::Absent { .. } | State::Unkillable { .. } => {}
        }
    }

    /// Every seat that is due and whose siblings let it has a process, one after the other.
    pub(super) fn processes_start(&mut self, now: Timestamp) {
        if !self.starts_workers() {
            return;
        }
        for at in self.seat_ids() {
            let State::Absent { not_before } = self.seat(at).state else { continue };
            if not_before > now {
                continue;
            }
            let device = &self.devices[&at.device];
            match device.held_back(at.number) {
                Some(why) => self.coverage.hit(why),
                None => {
                    if device.sibling_serves(at.number) {
                        self.coverage.hit("spawn: beside one that serves");
                    }
                    self.spawn(now, at);
                }
            }
        }
    }

    pub(super) fn spawn(&mut self, now: Timestamp, at: SeatId) {
        let by = now.after(self.config.ready_timeout);
        let device = self.devices.get_mut(&at.device).expect("devices stay");
        let [first, step] = self.numbers;
        device.generation = if device.generation == 0 { first } else { device.generation + step };
        let seat = &mut device.seats[at.number];
        if seat.restarts > 1 {
            self.coverage.hit("spawn: after a backoff");
        }
        *seat = Seat {
            state: State::Starting { by },
            generation: device.generation,
            processes: seat.processes + 1,
            heard: now,
            jobs_done: seat.jobs_done,
            restarts: seat.restarts,
            started: now,
            took_end: seat.took_end,
            ..Seat::default()
        };
        self.counters.restarts += u64::from(seat.processes > 1);
        self.due.spawns.insert(WorkerId { device: at.device, generation: device.generation });
    }

    /// SIGKILL. What may run elsewhere at once does, and a standby takes over.
    pub(super) fn kill(&mut self, now: Timestamp, at: SeatId, why: Why) {
        let give_up_at = now.after(self.config.kill_timeout);
        let worker = self.worker(at);
        let seat = self.seat_mut(at);
        let hands = Hands(seat.hands().to_vec());
        seat.state = State::Killed { give_up_at, hands, why };
        seat.doomed = Some(now);
        self.due.kills.insert(worker);
        self.devices.get_mut(&at.device).expect("devices stay").lost_at = Some(now);
        if matches!(why, Why::Beacon | Why::Driver { .. } | Why::Hang) {
            self.front_is_split(at);
        }
        if why != Why::Leaving {
            self.attempts_move(at, why);
        }
        self.a_standby_takes_over(at.device);
    }

    /// If nobody serves the device, the standby that was started first does from now on.
    pub(super) fn a_standby_takes_over(&mut self, id: DeviceId) {
        if !self.is_working() {
            return;
        }
        let device = self.devices.get_mut(&id).expect("devices stay");
        if device.seats.iter().any(Seat::serves) {
            return;
        }
        let standbys = device.seats.iter_mut().filter(|seat| seat.state == State::Standby);
        if let Some(first) = standbys.min_by_key(|seat| seat.generation) {
            self.coverage.hit("standby: takes over");
            first.state = State::Ready;
            first.served = true;
        }
    }

    fn give_up(&mut self, now: Timestamp, at: SeatId, hands: Hands, why: Why) {
        self.coverage.hit("worker: unkillable");
        let worker = self.worker(at);
        self.seat_mut(at).state = State::Unkillable { why };
        let loss = match why {
            Why::Beacon => {
                self.coverage.hit("worker: unkillable after its beacon");
                Loss::Died { evidence: false, from_outside: false }
            }
            Why::Driver { evidence } => Loss::Died { evidence, from_outside: false },
            Why::FreeDevice | Why::Leaving => Loss::Freed,
            Why::Hang => Loss::Hung,
        };
        self.hands_lost(now, worker, hands, loss, true);
        if self.is_working() {
            self.is_stuck(now, at.device);
        }
    }

    pub(super) fn stop_all(&mut self, now: Timestamp) {
        let by = now.after(self.config.kill_timeout);
        for at in self.seat_ids() {
            match self.seat(at).state {
                State::Busy { .. } | State::Ready | State::Standby | State::Starting { .. } => {
                    let worker = self.worker(at);
                    self.seat_mut(at).state = State::Stopping { by };
                    self.due.stops.insert(worker);
                }
                State::Reclaiming { not_before, .. } => {
                    self.seat_mut(at).state = State::Absent { not_before };
                }
                State::Absent { .. }
                | State::Killed { .. }
                | State::Stopping { .. }
                | State::Unkillable { .. } => {}
            }
        }
    }

    pub(super) fn kill_all(&mut self, now: Timestamp) {
        for at in self.seat_ids() {
            match self.seat(at).state {
                State::Busy { .. }
                | State::Ready
                | State::Standby
                | State::Starting { .. }
                | State::Stopping { .. } => {
                    self.coverage.hit("kill: leaving");
                    self.kill(now, at, Why::Leaving);
                }
                State::Reclaiming { not_before, .. } => {
                    self.coverage.hit("leaving: memory is not back yet");
                    self.seat_mut(at).state = State::Absent { not_before };
                }
                State::Absent { .. } | State::Killed { .. } | State::Unkillable { .. } => {}
            }
        }
    }
}
