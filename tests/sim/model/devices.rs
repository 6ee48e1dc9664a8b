//! A device with its slots, and the messages of its processes: READY, answers, the loss of a beacon, the
//! end.

use std::time::Duration;

use gridpool_core::event::{Exit, ExitStatus, JobRequest, Timestamp};
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, Group, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::RunReport;

use super::faults::Incidents;
use super::losses::Loss;
use super::outstanding::Dispatch;
use super::quarantine::{Fault, Service};
use super::slots::{Slot, SlotId, State, Station, Why};
use super::{Model, Phase};

/// How long a process may take to end once it has closed its channel.
const EXIT_GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) service: Service,
    pub(super) slots: Vec<Slot>,
    /// The generation of the latest process for this group.
    pub(super) generation: u32,
    pub(super) ever_ready: bool,
    pub(super) start_failures: u32,
    /// Deaths that count, since the last answer.
    pub(super) idle_deaths: Vec<Timestamp>,
    /// Quarantines since the last answer.
    pub(super) probes: u32,
    /// Whether it ever went out of service because no process became READY.
    pub(super) refused: bool,
    /// Whether it went out of service last for a fault of the device itself.
    pub(super) by_fault: bool,
}

/// Facts about a device that do not depend on a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The generation of the latest process.
    pub(super) generation: u32,
    pub(super) incidents: Incidents,
    /// When it last lost a process, and which.
    pub(super) lost: Option<(Timestamp, WorkerId)>,
    /// The driver's last report, and when it came.
    pub(super) driver_report: Option<(Timestamp, FaultCode)>,
    /// The driver's report about a lost process, and that process.
    pub(super) reported_loss: Option<(WorkerId, FaultCode)>,
}

impl Device {
    pub(super) fn new(standbys: u32) -> Self {
        Self {
            service: Service::Open,
            slots: (0..=standbys).map(|_| Slot::default()).collect(),
            generation: 0,
            ever_ready: false,
            start_failures: 0,
            idle_deaths: Vec::new(),
            probes: 0,
            refused: false,
            by_fault: false,
        }
    }

    pub(super) fn siblings(&self, number: usize) -> impl Iterator<Item = &Slot> {
        let others = self.slots.iter().enumerate().filter(move |&(other, _)| other != number);
        others.map(|(_, slot)| slot)
    }

    pub(super) fn sibling_serves(&self, number: usize) -> bool {
        self.siblings(number).any(Slot::serves)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.slots.iter().all(|slot| !slot.has_process() || slot.is_unkillable())
    }

    pub(super) fn is_unkillable(&self) -> bool {
        self.slots.iter().any(Slot::is_unkillable)
    }

    /// Whether it is out of service until an operator releases it.
    pub(super) fn is_halted(&self) -> bool {
        self.service == Service::Quarantined { probe_at: None }
    }

    /// Whether neither an old process nor its memory is left.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot.state, State::Absent { .. }))
    }

    /// Why no process may start in a slot, whatever the time: a device out of service starts none; an
    /// unkillable process blocks all; the first process of a device waits until no other starts, ends or
    /// still holds memory.
    pub(super) fn held_back(&self, number: usize) -> Option<&'static str> {
        if self.service != Service::Open {
            return Some("spawn: the device is out of service");
        }
        if self.sibling_serves(number) {
            return None;
        }
        self.siblings(number).find_map(|slot| match slot.state {
            State::Killed { .. } | State::Stopping { .. } => {
                Some("spawn: held back by an ending process")
            }
            State::Reclaiming { .. } => Some("spawn: held back by memory that is not free"),
            State::Starting { .. } => Some("spawn: held back by a starting process"),
            State::Absent { .. }
            | State::Busy { .. }
            | State::Ready
            | State::Standby
            | State::Unkillable { .. } => None,
        })
    }

    pub(super) fn may_serve(&self) -> bool {
        let lives = |slot: &Slot| match slot.state {
            State::Absent { .. }
            | State::Busy { .. }
            | State::Killed { .. }
            | State::Ready
            | State::Reclaiming { .. }
            | State::Standby
            | State::Starting { .. }
            | State::Stopping { .. } => true,
            State::Unkillable { .. } => false,
        };
        self.service == Service::Open && self.slots.iter().any(lives)
    }

    /// Whether a job that failed elsewhere should wait for it: it has, or may have, the model.
    pub(super) fn is_near(&self, request: &JobRequest) -> bool {
        let mut slots = self.slots.iter().enumerate();
        slots.any(|(number, slot)| match slot.state {
            State::Ready => slot.has_for(request),
            State::Starting { .. } => !self.sibling_serves(number),
            State::Absent { .. }
            | State::Busy { .. }
            | State::Killed { .. }
            | State::Reclaiming { .. }
            | State::Standby
            | State::Stopping { .. }
            | State::Unkillable { .. } => false,
        })
    }
}

impl Model {
    /// The slot of a live process, which counts as heard. Counts the message as stale if the process is
    /// gone.
    pub(super) fn is_current(&mut self, now: Timestamp, worker: WorkerId) -> Option<SlotId> {
        let at = self.slot_of(worker);
        let current = at.filter(|&at| self.slot(at).has_process());
        match (at, current) {
            (_, Some(at)) => self.slot_mut(at).heard = now,
            (Some(_), None) => {
                self.counters.stale += 1;
                self.coverage.hit("stale: of no process");
            }
            (None, None) => {
                self.counters.stale += 1;
                self.coverage.hit("stale: of an old generation");
            }
        }
        current
    }

    pub(super) fn ready(&mut self, now: Timestamp, worker: WorkerId) {
        let Some(at) = self.is_current(now, worker) else { return };
        if !matches!(self.slot(at).state, State::Starting { .. }) {
            return;
        }
        let device = self.devices.get_mut(&at.station).expect("devices stay");
        let serves = !device.sibling_serves(at.number);
        if device.service == Service::Probing {
            self.coverage.hit("probe: the device is back");
            device.service = Service::Open;
        }
        device.ever_ready = true;
        device.start_failures = 0;
        let others_end = device.siblings(at.number).any(Slot::has_process);
        let slot = &mut device.slots[at.number];
        slot.was_ready = true;
        slot.took_start = Some(now.since(slot.started));
        slot.served = serves;
        slot.state = if serves { State::Ready } else { State::Standby };
        match (serves, others_end) {
            (true, true) => self.coverage.hit("ready: beside an ending process"),
            (true, false) => {}
            (false, _) => self.coverage.hit("standby: READY"),
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
        result: &Result<RunReport, AttemptError>,
    ) {
        let Some(at) = self.is_current(now, worker) else {
            let busy = |slot: &Slot| matches!(slot.state, State::Busy { .. });
            if self.devices[&Station::of(worker)].slots.iter().any(busy) {
                self.coverage.hit("stale: answer while the successor is busy");
            }
            return;
        };
        let free_at = now.after(self.group(at.group()).limits.cancel_grace);
        let is_in = |other: &Dispatch| other.attempts.iter().any(|sent| sent.attempt == attempt);
        if self.slot(at).outstanding().iter().skip(1).any(is_in) {
            self.coverage.hit("answer: of the dispatch that waits");
        }
        let slot = self.slot_mut(at);
        let (struck, dies) = match &mut slot.state {
            State::Busy { outstanding } => (outstanding.answered(now, attempt, free_at), false),
            State::Killed { outstanding, .. } => {
                (outstanding.answered(now, attempt, free_at), true)
            }
            State::Absent { .. }
            | State::Ready
            | State::Reclaiming { .. }
            | State::Standby
            | State::Starting { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => (None, false),
        };
        let Some(struck) = struck else {
            self.coverage.hit("answer: not the attempt it runs");
            self.counters.stale += 1;
            return;
        };
        if matches!(&slot.state, State::Busy { outstanding } if outstanding.0.is_empty()) {
            slot.state = State::Ready;
        }
        slot.jobs_done += 1;
        slot.worked = true;
        slot.answered += 1;
        slot.restarts = 0;
        let device = self.devices.get_mut(&at.station).expect("devices stay");
        device.idle_deaths.clear();
        if std::mem::take(&mut device.probes) > 0 {
            self.coverage.hit("probe: the device has worked since");
        }
        if dies {
            self.coverage.hit("answer: while being killed");
        }
        self.attempt_is_charged(now, &struck);
        self.writes_no_more(worker, attempt);
        if struck.moved {
            self.coverage.hit("answer: of an attempt that was moved");
            self.counters.stale += 1;
        } else {
            self.attempt_answered(attempt, worker, result, now);
        }
    }

    /// The process is ending, so the core kills it; its earlier messages may still come.
    pub(super) fn beacon_lost(&mut self, now: Timestamp, worker: WorkerId) {
        let Some(at) = self.is_current(now, worker) else {
            self.coverage.hit("beacon: after the exit");
            return;
        };
        let what = match self.slot(at).state {
            State::Busy { .. } => "beacon: of a busy worker",
            State::Ready => "beacon: of an idle worker",
            State::Standby => "beacon: of a standby",
            State::Starting { .. } => "beacon: of a starting worker",
            State::Absent { .. }
            | State::Killed { .. }
            | State::Reclaiming { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => {
                self.coverage.hit("beacon: of a worker that was killed or told to end");
                return;
            }
        };
        self.coverage.hit(what);
        self.kill(now, at, Why::Beacon);
    }

    /// The process has closed its channel, and has a moment to end by itself.
    pub(super) fn channel_closed(&mut self, now: Timestamp, worker: WorkerId) {
        let Some(at) = self.is_current(now, worker) else {
            self.coverage.hit("channel: closed after the exit");
            return;
        };
        let by = now.after(EXIT_GRACE);
        self.slot_mut(at).end_by.get_or_insert(by);
    }

    pub(super) fn spawn_failed(&mut self, now: Timestamp, worker: WorkerId, is_final: bool) {
        let Some(at) = self.is_current(now, worker) else { return };
        self.coverage.hit(if is_final {
            "spawn: can never be started"
        } else {
            "spawn: could not be started"
        });
        self.writes_nothing_more(worker);
        self.worker_ends(worker);
        self.died(now, at, Fault::Outside, is_final);
        if let State::Reclaiming { not_before, .. } = self.slot(at).state {
            // No process ever had memory.
            self.slot_mut(at).state = State::Absent { not_before };
        }
    }

    pub(super) fn exited(&mut self, now: Timestamp, worker: WorkerId, exit: &Exit) {
        let Some(at) = self.is_current(now, worker) else {
            self.coverage.hit("stale: exit");
            return;
        };
        let from_outside = exit.status == ExitStatus::Signal(9);
        let by_itself = if from_outside { Fault::Outside } else { Fault::Worker };
        let died = Loss::Died { evidence: is_evidence(exit), from_outside };
        let slot = self.slot_mut(at);
        let was_asked = match slot.state {
            State::Killed { why, .. } | State::Unkillable { why } => why == Why::Leaving,
            State::Stopping { .. } => true,
            State::Absent { .. }
            | State::Busy { .. }
            | State::Ready
            | State::Reclaiming { .. }
            | State::Standby
            | State::Starting { .. } => false,
        };
        self.worker_ends(worker);
        if was_asked && !self.is_ending(worker.group) {
            self.writes_nothing_more(worker);
            return self.ended_on_request(now, at);
        }
        let changes = self.slot(at).is_changing;
        let slot = self.slot_mut(at);
        if slot.was_ready && !slot.served {
            self.coverage.hit("death: of a standby");
        }
        let (lost, fault) = match std::mem::take(&mut self.slot_mut(at).state) {
            State::Busy { outstanding } => (Some((outstanding, died)), by_itself),
            State::Killed { outstanding, why, .. } => match why {
                Why::Beacon => (Some((outstanding, died)), by_itself),
                Why::Channel | Why::Command { .. } => {
                    let loss = Loss::Died { evidence: false, from_outside: false };
                    (Some((outstanding, loss)), Fault::Worker)
                }
                Why::Driver { evidence } => {
                    let loss = Loss::Died { evidence, from_outside: false };
                    (Some((outstanding, loss)), Fault::Worker)
                }
                Why::FreeDevice(_) | Why::Leaving => {
                    (Some((outstanding, Loss::of_freed(why))), Fault::Nobody)
                }
                Why::Hang | Why::Mute => {
                    (Some((outstanding, Loss::Hung { evidence: true })), Fault::Worker)
                }
            },
            State::Unkillable { why } => {
                self.coverage.hit("device: back after being unkillable");
                match why {
                    Why::Beacon => (None, by_itself),
                    Why::FreeDevice(_) | Why::Leaving => (None, Fault::Nobody),
                    Why::Channel
                    | Why::Command { .. }
                    | Why::Driver { .. }
                    | Why::Hang
                    | Why::Mute => (None, Fault::Worker),
                }
            }
            State::Stopping { .. } => (None, Fault::Nobody),
            State::Absent { .. }
            | State::Ready
            | State::Reclaiming { .. }
            | State::Standby
            | State::Starting { .. } => (None, by_itself),
        };
        let front = lost.as_ref().and_then(|(outstanding, _)| outstanding.0.first());
        let fault = match (fault, front.is_some_and(|front| front.has_suspects)) {
            (Fault::Worker, true) => {
                self.coverage.hit("death: during bisection");
                Fault::Nobody
            }
            (Fault::Nobody | Fault::Outside | Fault::Worker, _) => fault,
        };
        self.writes_nothing_more(worker);
        self.a_standby_takes_over(at.station);
        self.died(now, at, fault, is_final(exit.status));
        if let Some((outstanding, mut loss)) = lost {
            if changes {
                loss = loss.without_evidence();
                self.coverage.hit("death: while its models change");
            }
            self.outstanding_lost(now, worker, outstanding, loss, false);
        }
    }

    /// The memory of a process is free, so the next may start.
    pub(super) fn reclaimed(&mut self, worker: WorkerId) {
        let at = self.slot_of(worker);
        let Some(at) = at else {
            self.coverage.hit("reclaim: of an old generation");
            return;
        };
        match self.slot(at).state {
            State::Reclaiming { not_before, .. } => {
                self.coverage.hit("reclaim: in time");
                self.slot_mut(at).state = State::Absent { not_before };
            }
            State::Absent { .. } => self.coverage.hit("reclaim: too late"),
            State::Busy { .. }
            | State::Killed { .. }
            | State::Ready
            | State::Standby
            | State::Starting { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => self.coverage.hit("reclaim: of a process that lives"),
        }
    }

    /// Whether processes of a group end on purpose.
    pub(super) fn is_ending(&self, group: Group) -> bool {
        matches!(self.group(group).phase, Phase::Leaving | Phase::Left)
    }

    /// A device loses this process, now or soon.
    pub(super) fn loses(&mut self, now: Timestamp, worker: WorkerId) {
        self.facts.get_mut(&worker.device).expect("devices stay").lost = Some((now, worker));
    }
}

/// The fault that it named goes before its exit status.
fn is_evidence(exit: &Exit) -> bool {
    match exit.fault {
        Some(FaultCode::Cuda(700)) => return true, // an address of the job's
        Some(FaultCode::Cuda(214)) => return false, // the memory of the device
        Some(_) | None => {}
    }
    match exit.status {
        ExitStatus::Code(code) => code == 70,
        ExitStatus::Incompatible | ExitStatus::Rejected => false,
        ExitStatus::Signal(signal) => matches!(signal, 4 | 6 | 7 | 8 | 11),
    }
}

fn is_final(status: ExitStatus) -> bool {
    matches!(status, ExitStatus::Code(73 | 75) | ExitStatus::Incompatible)
}
