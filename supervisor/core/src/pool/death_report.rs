//! The report of a worker's death: how it ended, its outstanding attempts and what happens to them, which
//! worker serves its device now, and when the next process may start. It reads the pool's state before and
//! after the death is handled, and decides nothing.

use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, JobId, WorkerId, WorkerName};
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, DeviceInfo, Verdict};
use gridpool_protocol::trace::TraceId;

use super::Pool;
use super::job::Job;
use super::kill::KillReason;
use super::outstanding::{Outstanding, Sent};
use super::process::Process;
use super::service::ServiceState;
use super::shard::ShardState;
use super::slots::Slot;
use crate::action::Action;
use crate::event::{Exit, ExitStatus, Timestamp};

/// Attempts that a report lists; it only counts the others.
pub const ATTEMPTS_LISTED_MAX: usize = 16;

/// The death of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct DeathReport {
    /// The worker.
    pub worker: WorkerId,
    /// Its device as it reported it; without a name if it was never READY.
    pub device: DeviceInfo,
    /// How it ended and what it said last.
    pub exit: Exit,
    /// Why the pool killed it, if it did.
    pub killed: Option<KillReason>,
    /// The pool asked it to end, and it did.
    pub is_expected: bool,
    /// From its spawn to its end.
    pub lived: Duration,
    /// From its spawn to READY, if it was READY.
    pub ready_after: Option<Duration>,
    /// Attempts that it answered.
    pub answered: u64,
    /// Its outstanding attempts, the first [`ATTEMPTS_LISTED_MAX`] of them.
    pub attempts: Vec<LostAttempt>,
    /// How many more there were.
    pub attempts_more: usize,
    /// What the driver reported about the device shortly before, during the life of this process.
    pub driver: Option<FaultCode>,
    /// Another worker that serves the device now.
    pub served_by: Option<WorkerId>,
    /// What happens to its slot.
    pub next: Next,
}

/// An attempt that was lost with its worker.
#[derive(Clone, Debug, PartialEq)]
pub struct LostAttempt {
    /// Which.
    pub attempt: AttemptId,
    /// The shard of its job.
    shard: usize,
    /// Its program or model, in words.
    pub label: Arc<str>,
    /// Whether it waited behind others, so that it never began.
    pub waited: bool,
    /// The trace that its job is a part of, unless the job has had its verdict.
    pub trace: Option<TraceId>,
    /// What becomes of its job.
    pub disposition: Disposition,
}

impl LostAttempt {
    /// An attempt at a job of one shard, without a trace.
    #[must_use]
    pub fn new(attempt: AttemptId, label: &str, waited: bool, disposition: Disposition) -> Self {
        Self { attempt, shard: 0, label: label.into(), waited, trace: None, disposition }
    }
}

/// What becomes of the job of a lost attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Enough workers have died of it: POISON, as soon as its content is known.
    Denylisted,
    /// It had its verdict before this death was known.
    Over {
        /// The verdict.
        verdict: Verdict,
        /// The worker that has given the answer, if there was one.
        by: Option<WorkerName>,
    },
    /// It runs again, on this worker.
    Runs(WorkerId),
    /// This shard of it has ended, and the job goes on.
    ShardOver,
    /// It has ended, and no client waits for it: its client is gone, or its verdict is no longer
    /// remembered.
    Unheard,
    /// This death has given it this verdict.
    Verdict(Verdict),
    /// It waits to run again, by itself or with other suspects.
    Waits {
        /// How many jobs are bisected; 0 if no job is a suspect.
        suspects: usize,
    },
}

/// What happens to the slot of a dead worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No process starts there: the pool ends, or its group has no work.
    Nothing,
    /// The device is out of service, and is probed after this time; without one, when an operator releases
    /// it.
    Out(Option<Duration>),
    /// The next process starts after this time, once the device's memory is free.
    Restart(Duration),
}

impl Pool {
    /// A worker has ended: records its attempts, before the pool handles its death.
    pub(super) fn begin_death_report(&mut self, now: Timestamp, index: usize, exit: &Exit) {
        let process = self.slots.process(index);
        let worker = process.worker;
        let all = || process.outstanding().into_iter().flat_map(sent_to);
        let attempts = all().take(ATTEMPTS_LISTED_MAX).map(|(sent, waited)| LostAttempt {
            attempt: sent.attempt,
            shard: sent.shard,
            label: Arc::clone(&sent.label),
            waited,
            trace: self.jobs.get(sent.attempt.job).and_then(|job| job.request.trace),
            disposition: Disposition::Unheard,
        });
        let was_asked = process.is_stopping() || self.groups[worker.group].is_leaving();
        let killed = process.killed().map(|killed| killed.reason);
        let killed = killed.filter(|&reason| reason != KillReason::BeaconLost);
        // One that has not connected cannot be asked to end.
        let is_cut_short = process.is_stopping() && process.took_start().is_none();
        let is_expected = killed == Some(KillReason::Leaving)
            || (was_asked && exit.status == ExitStatus::Code(exit_code::OK))
            || (is_cut_short && exit.status == ExitStatus::KILLED);
        let lived = process.lived(now);
        // An earlier report is about another process.
        let longest = self.config.incident_window.min(lived);
        let said = self.devices.at(worker.device).driver_report;
        let said = said.filter(|&(at, _)| now.since(at) <= longest);
        let report = Box::new(DeathReport {
            worker,
            device: DeviceInfo::clone(&process.device_info()),
            exit: exit.clone(),
            killed,
            is_expected,
            lived,
            ready_after: process.took_start(),
            answered: process.answered_count(),
            attempts: attempts.collect(),
            attempts_more: all().count().saturating_sub(ATTEMPTS_LISTED_MAX),
            driver: said.map(|(_, fault)| fault),
            served_by: None,
            next: Next::Nothing,
        });
        self.death = Some((index, report));
    }

    /// The pool has handled the death: adds the outcome, and reports it.
    pub(super) fn complete_death_report(&mut self, now: Timestamp) {
        let Some((index, mut report)) = self.death.take() else { return };
        for lost in &mut report.attempts {
            lost.disposition = self.disposition_of(lost.attempt.job, lost.shard);
        }
        let WorkerId { device, group, .. } = report.worker;
        let serves = |process: &&Process| process.serves();
        let own = || self.slots.of(device, group);
        let serving = own().filter_map(Slot::process).find(serves);
        report.served_by = serving.map(|process| process.worker);
        report.next = self.next_of(now, &self.slots[index]);
        self.act(Action::DeathReport(report));
    }

    fn disposition_of(&self, id: JobId, shard: usize) -> Disposition {
        let Some(job) = self.jobs.get(id) else {
            let now = self.verdict_just_given(id).map(Disposition::Verdict);
            return now.or_else(|| self.verdict_before(id)).unwrap_or(Disposition::Unheard);
        };
        if job.poison.is_some() {
            return Disposition::Denylisted;
        }
        match job.shards[shard].state {
            ShardState::Ended => Disposition::ShardOver,
            ShardState::Running { worker, .. } => Disposition::Runs(worker),
            ShardState::Queued => {
                let is_suspect =
                    |other: &&Job| other.suspects.is_some() && other.suspects == job.suspects;
                Disposition::Waits { suspects: self.jobs.unordered().filter(is_suspect).count() }
            }
        }
    }

    /// The verdict that a job had before, if it is remembered.
    fn verdict_before(&self, id: JobId) -> Option<Disposition> {
        let receipt = self.verdicts.find_job(id)?;
        let answered = |attempt: &&Attempt| attempt.outcome == AttemptOutcome::Ok;
        let last = receipt.attempts.iter().rev().find(answered);
        let last = last.filter(|_| receipt.verdict == Verdict::Ok);
        let by = last.and_then(|attempt| attempt.worker.parse().ok());
        Some(Disposition::Over { verdict: receipt.verdict, by })
    }

    /// The verdict that the current event gave to a job.
    fn verdict_just_given(&self, id: JobId) -> Option<Verdict> {
        self.actions.iter().rev().find_map(|action| {
            let Action::Finish { job, receipt, .. } = action else { return None };
            (*job == id).then_some(receipt.verdict)
        })
    }

    /// What happens to a slot that has just lost its process.
    fn next_of(&self, now: Timestamp, slot: &Slot) -> Next {
        if self.groups[slot.group].has_nothing_to_do() {
            return Next::Nothing;
        }
        match self.devices.at(slot.device).service(slot.group).state() {
            ServiceState::Quarantined { probe_at } => Next::Out(probe_at.map(|at| at.since(now))),
            // The next process may have started in this same event.
            ServiceState::Open | ServiceState::Probing => {
                Next::Restart(slot.next_due().map_or(Duration::ZERO, |due| due.since(now)))
            }
        }
    }
}

/// A worker's outstanding attempts, and whether each waits behind the front dispatch.
fn sent_to(outstanding: &Outstanding) -> impl Iterator<Item = (&Sent, bool)> {
    let second = outstanding.second.iter().flat_map(|dispatch| &dispatch.sent);
    outstanding.front.sent.iter().map(|sent| (sent, false)).chain(second.map(|sent| (sent, true)))
}
