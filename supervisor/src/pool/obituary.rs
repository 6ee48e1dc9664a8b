//! What is to be told of a worker's death: how it ended, what it had in hand and what becomes of that,
//! who serves its device now and when the next process may start. Taken from the pool's own state, before
//! and after it has dealt with the death; decides nothing.

use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, DeviceId, JobId, WorkerId};
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, DeviceInfo, Verdict};

use super::device::Service;
use super::event::{Action, Exit, ExitStatus, Timestamp};
use super::job::Job;
use super::kill::KillReason;
use super::outstanding::{Outstanding, Sent};
use super::part::PartState;
use super::slot::{Slot, SlotState};
use super::{Phase, Pool};

/// Attempts that a death names; of more there is a count.
pub const ATTEMPTS_TOLD_MAX: usize = 16;

/// The death of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Death {
    /// Which worker.
    pub worker: WorkerId,
    /// Its device as it found it; without a name if it was never READY.
    pub device: DeviceInfo,
    /// How it ended and what it said last.
    pub exit: Exit,
    /// Why the pool killed it, if it did.
    pub killed: Option<KillReason>,
    /// It was told to end and has ended as it was told.
    pub is_expected: bool,
    /// From the order to start it to its end.
    pub lived: Duration,
    /// From the order to start it to READY, if it was that.
    pub ready_after: Option<Duration>,
    /// Attempts that it answered.
    pub answered: u64,
    /// What it had in hand and had not answered, the first of it.
    pub attempts: Vec<LostAttempt>,
    /// How many more there were.
    pub attempts_more: usize,
    /// What the driver has said of the device shortly before, while there was this process.
    pub driver: Option<FaultCode>,
    /// Another worker that serves the device now.
    pub served_by: Option<WorkerId>,
    /// What happens to its place.
    pub next: Next,
}

/// An attempt that died with its worker.
#[derive(Clone, Debug, PartialEq)]
pub struct LostAttempt {
    /// Which.
    pub attempt: AttemptId,
    /// The part of its job.
    part: usize,
    /// Its program or model, in words.
    pub label: Arc<str>,
    /// Whether it waited behind others and had not begun.
    pub waited: bool,
    /// What becomes of its job.
    pub fate: Fate,
}

impl LostAttempt {
    /// An attempt at a job of one part.
    #[must_use]
    pub fn new(attempt: AttemptId, label: &str, waited: bool, fate: Fate) -> Self {
        Self { attempt, part: 0, label: label.into(), waited, fate }
    }
}

/// What becomes of the job of a lost attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Enough workers have died of it: POISON, as soon as it is known what it is.
    Convicted,
    /// It has had its verdict before this death was known.
    Over {
        /// Which.
        verdict: Verdict,
        /// Who has given the answer, if it had one.
        by: Option<WorkerId>,
    },
    /// This part of it has ended, and the job goes on.
    PartOver,
    /// It runs again, on this worker.
    Runs(WorkerId),
    /// It has ended, and nobody waits for it: its client is gone, or its verdict was so long ago that it
    /// is forgotten.
    Unheard,
    /// It has this verdict, by this death.
    Verdict(Verdict),
    /// It waits to run again, by itself or with the others of so many suspects.
    Waits {
        /// How many jobs are told apart; none if nobody is suspect.
        suspects: usize,
    },
}

/// What happens to the place of a dead worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No process starts there: the pool ends, or has nothing to do.
    Nothing,
    /// The device is out of service, and tried again after so long; if there is no such time, when
    /// somebody releases it.
    Out(Option<Duration>),
    /// The next process starts after so long, once the device's memory is back.
    Restart(Duration),
}

impl Pool {
    /// A worker has ended: remembers what it had, before that is dealt with.
    pub(super) fn note_dying(&mut self, now: Timestamp, worker: WorkerId, exit: &Exit) {
        let dies = |slot: &&Slot| slot.worker() == worker && slot.has_process();
        let Some(slot) = self.slots.iter().find(dies) else { return };
        let outstanding = match &slot.state {
            SlotState::Busy { outstanding } => Some(outstanding),
            SlotState::Killed { outstanding, .. } => outstanding.as_ref(),
            SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => None,
        };
        let all = || outstanding.into_iter().flat_map(sent_to);
        let attempts = all().take(ATTEMPTS_TOLD_MAX).map(|(sent, waited)| LostAttempt {
            attempt: sent.attempt,
            part: sent.part,
            label: Arc::clone(&sent.label),
            waited,
            fate: Fate::Unheard,
        });
        let is_told_to = matches!(slot.state, SlotState::Stopping { .. })
            || matches!(self.phase, Phase::Leaving | Phase::Left);
        let killed = slot.killed.filter(|&reason| reason != KillReason::BeaconLost);
        let as_told = killed == Some(KillReason::Leaving)
            || (is_told_to && exit.status == ExitStatus::Code(exit_code::OK));
        let (lived, answered) = slot.life(now);
        let said = self.device(slot.device).driver_said;
        // What was said before there was this process is about another.
        let longest = self.config.incident_window.min(lived);
        let is_near = |&(at, _): &(Timestamp, _)| now.since(at) <= longest;
        let driver = said.filter(is_near).map(|(_, fault)| fault);
        self.death = Some(Box::new(Death {
            worker,
            device: slot.device_info(),
            exit: exit.clone(),
            killed,
            is_expected: as_told,
            lived,
            ready_after: slot.was_ready.then_some(slot.took_start).flatten(),
            answered,
            attempts: attempts.collect(),
            attempts_more: all().count().saturating_sub(ATTEMPTS_TOLD_MAX),
            driver,
            served_by: None,
            next: Next::Nothing,
        }));
    }

    /// It has been dealt with: adds what has become of that.
    pub(super) fn complete_death(&mut self, now: Timestamp) {
        let Some(mut death) = self.death.take() else { return };
        for lost in &mut death.attempts {
            lost.fate = self.fate_of(lost.attempt.job, lost.part);
        }
        let id = death.worker.device;
        death.served_by = self.seats(id).find(|slot| slot.serves()).map(Slot::worker);
        let seat = self.seats(id).find(|slot| slot.worker() == death.worker);
        death.next = seat.map_or(Next::Nothing, |seat| self.next_of(now, id, seat));
        self.death = Some(death);
    }

    /// The death that the last event told of, once.
    pub fn take_death(&mut self) -> Option<Death> {
        self.death.take().map(|death| *death)
    }

    fn fate_of(&self, id: JobId, part: usize) -> Fate {
        let Some(job) = self.jobs.get(&id) else {
            let now = self.verdict_just_given(id).map(Fate::Verdict);
            return now.or_else(|| self.verdict_before(id)).unwrap_or(Fate::Unheard);
        };
        if job.convicted.is_some() {
            return Fate::Convicted;
        }
        match job.parts[part].state {
            PartState::Ended => Fate::PartOver,
            PartState::Running { worker, .. } => Fate::Runs(worker),
            PartState::Queued => {
                let is_suspect =
                    |other: &&Job| other.suspects.is_some() && other.suspects == job.suspects;
                Fate::Waits { suspects: self.jobs.values().filter(is_suspect).count() }
            }
        }
    }

    /// The verdict that a job had before, if that is remembered.
    fn verdict_before(&self, id: JobId) -> Option<Fate> {
        let receipt = self.verdicts.find_job(id)?;
        let answered = |attempt: &&Attempt| attempt.outcome == AttemptOutcome::Ok;
        let last = receipt.attempts.iter().rev().find(answered);
        let last = last.filter(|_| receipt.verdict == Verdict::Ok);
        let by = last.and_then(|attempt| attempt.worker.parse().ok());
        Some(Fate::Over { verdict: receipt.verdict, by })
    }

    /// The verdict of a job that has got it by the event that is being handled.
    fn verdict_just_given(&self, id: JobId) -> Option<Verdict> {
        self.actions.iter().rev().find_map(|action| {
            let Action::Finish { job, receipt, .. } = action else { return None };
            (*job == id).then_some(receipt.verdict)
        })
    }

    fn next_of(&self, now: Timestamp, id: DeviceId, seat: &Slot) -> Next {
        if matches!(self.phase, Phase::Leaving | Phase::Left) || self.has_nothing_to_do() {
            return Next::Nothing;
        }
        match self.device(id).service {
            Service::Open | Service::Probing => match seat.state {
                SlotState::Reclaiming { restart_at, .. } => Next::Restart(restart_at.since(now)),
                SlotState::Waiting { until } => Next::Restart(until.since(now)),
                SlotState::Busy { .. }
                | SlotState::Killed { .. }
                | SlotState::Ready { .. }
                | SlotState::Standby
                | SlotState::Starting { .. }
                | SlotState::Stopped
                | SlotState::Stopping { .. }
                | SlotState::Unkillable { .. } => Next::Nothing,
            },
            Service::Quarantined { probe_at } => Next::Out(probe_at.map(|at| at.since(now))),
        }
    }

    /// Why the pool has killed a worker, if it has.
    #[must_use]
    pub fn kill_reason(&self, worker: WorkerId) -> Option<KillReason> {
        self.slots.iter().find(|slot| slot.worker() == worker)?.killed
    }

    /// Whether a device has a process, or one is ordered, that is not this worker.
    pub(super) fn has_other_process(&self, id: DeviceId, worker: WorkerId) -> bool {
        self.seats(id).any(|slot| slot.has_process() && slot.worker() != worker)
    }

    /// The worker that a device has lost, if that was so lately that what the driver says now may be
    /// about its death.
    #[must_use]
    pub fn lost_lately(&self, now: Timestamp, id: DeviceId) -> Option<WorkerId> {
        let device = self.devices.iter().find(|device| device.id == id)?;
        let (at, worker) = device.lost.as_ref()?;
        (now.since(*at) <= self.config.incident_window).then_some(*worker)
    }
}

/// What a worker has in hand, and whether it waits behind the rest.
fn sent_to(outstanding: &Outstanding) -> impl Iterator<Item = (&Sent, bool)> {
    let second = outstanding.second.iter().flat_map(|batch| &batch.sent);
    outstanding.front.sent.iter().map(|sent| (sent, false)).chain(second.map(|sent| (sent, true)))
}
