//! The death report: one for each process that ends, with its outstanding attempts and their dispositions.

use std::time::Duration;

use gridpool_core::action::{ATTEMPTS_LISTED_MAX, DeathReport, Disposition, KillReason, Next};
use gridpool_core::event::{Event, ExitStatus, Timestamp, WorkerEvent};
use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, JobId, WorkerId, WorkerName};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::jobs::Job;
use super::quarantine::Service;
use super::slots::{SlotId, State, Station, Why};
use super::{Broken, Model, Name, holds};

/// A process that ends by the current event.
#[derive(Debug)]
pub(super) struct Dying {
    at: SlotId,
    worker: WorkerId,
    is_expected: bool,
    killed: Option<KillReason>,
    was_ready: bool,
    lived: Duration,
    ready_after: Option<Duration>,
    answered: u64,
    driver: Option<FaultCode>,
    /// Each with whether it waited behind others.
    attempts: Vec<(AttemptId, bool)>,
}

/// The verdict of a job, and the worker that gave its last answer.
#[derive(Debug)]
pub(super) struct Given {
    name: Name,
    verdict: Verdict,
    by: Option<WorkerName>,
    /// The job's client was gone.
    orphaned: bool,
    /// The number of the event.
    step: u64,
}

impl Model {
    /// Remembers the attempts of a process that ends by this event.
    pub(super) fn notes_dying(&mut self, now: Timestamp, event: &Event) {
        self.dying = None;
        let Event::Worker(worker, WorkerEvent::Exited(ref exit)) = *event else { return };
        let Some(at) = self.slot_of(worker) else { return };
        let slot = self.slot(at);
        if !slot.has_process() {
            return;
        }
        let is_killed = matches!(
            slot.state,
            State::Killed { why: Why::Leaving, .. } | State::Unkillable { why: Why::Leaving }
        );
        let is_stopping = matches!(slot.state, State::Stopping { .. });
        let is_told_to = is_stopping || self.is_ending(worker.group);
        // The shell kills one that it cannot tell yet.
        let is_cut_short =
            is_stopping && slot.took_start.is_none() && exit.status == ExitStatus::Signal(9);
        let is_well = exit.status == ExitStatus::Code(exit_code::OK);
        let waits = |(position, sent): (usize, &super::outstanding::Dispatch)| {
            let attempts = sent.attempts.iter().map(|sent| sent.attempt);
            attempts.map(|attempt| (attempt, position > 0)).collect::<Vec<_>>()
        };
        let lived = now.since(slot.started);
        let longest = lived.min(self.config.incident_window);
        let said = self.facts[&worker.device].driver_report;
        self.dying = Some(Dying {
            at,
            worker,
            is_expected: is_killed || (is_told_to && is_well) || is_cut_short,
            killed: slot.reason.filter(|&reason| reason != KillReason::BeaconLost),
            was_ready: slot.was_ready,
            lived,
            ready_after: slot.took_start,
            answered: slot.answered,
            driver: said.filter(|&(at, _)| now.since(at) <= longest).map(|(_, fault)| fault),
            attempts: slot.outstanding().iter().enumerate().flat_map(waits).collect(),
        });
    }

    /// Remembers a verdict for later death reports.
    pub(super) fn remember_verdict(&mut self, id: JobId, job: &Job, verdict: Verdict) {
        let name = (job.request.principal.clone(), job.request.key);
        let answered = |&&(_, outcome, _): &&(_, AttemptOutcome, _)| outcome == AttemptOutcome::Ok;
        let last = job.attempts.iter().rev().find(answered).map(|&(worker, ..)| worker);
        let (by, step) = (last.filter(|_| verdict == Verdict::Ok).map(WorkerId::name), self.steps);
        self.given.insert(id, Given { name, verdict, by, orphaned: job.orphaned, step });
    }

    /// Checks a death report against the events.
    pub(super) fn death_reported(
        &mut self,
        now: Timestamp,
        told: &DeathReport,
    ) -> Result<(), Broken> {
        let rule = "each_end_of_a_process_is_reported_once";
        let Some(dying) = self.dying.take().filter(|dying| dying.worker == told.worker) else {
            return holds(rule, false, || format!("{:?}, told {told:?}", self.dying));
        };
        let ok = told.is_expected == dying.is_expected;
        holds("only_an_end_on_request_is_expected", ok, || format!("{dying:?}, told {told:?}"))?;
        let rule = "a_death_report_describes_the_worker";
        let name = if dying.was_ready { told.worker.to_string() } else { String::new() };
        let ok = told.killed == dying.killed
            && told.device.name == name
            && told.lived == dying.lived
            && told.ready_after == dying.ready_after
            && told.answered == dying.answered
            && told.driver == dying.driver;
        holds(rule, ok, || format!("{dying:?}, told {told:?}"))?;
        let attempts: Vec<_> =
            told.attempts.iter().map(|lost| (lost.attempt, lost.waited)).collect();
        let (some, more) = dying.attempts.split_at(dying.attempts.len().min(ATTEMPTS_LISTED_MAX));
        let ok = attempts == some && told.attempts_more == more.len();
        let rule = "a_death_report_lists_every_outstanding_attempt";
        holds(rule, ok, || format!("{dying:?}, told {told:?}"))?;
        told.attempts.iter().try_for_each(|lost| {
            let rule = "a_death_report_gives_the_disposition_of_each_job";
            let job = lost.attempt.job;
            holds(rule, self.is_disposition(job, lost.disposition), || {
                let (live, given) = (self.jobs.get(&job), self.given.get(&job));
                format!("told {lost:?}; live: {live:?}, given: {given:?}")
            })
        })?;
        self.a_death_report_says_what_happens_to_the_slot(now, dying.at, told)
    }

    fn a_death_report_says_what_happens_to_the_slot(
        &mut self,
        now: Timestamp,
        at: SlotId,
        told: &DeathReport,
    ) -> Result<(), Broken> {
        let rule = "a_death_report_says_what_happens_to_the_slot";
        let device = &self.devices[&at.station];
        let serves = device.slots.iter().find(|slot| slot.serves());
        let serves = serves.map(|slot| {
            let Station { group, device } = at.station;
            WorkerId { device, group, generation: slot.generation }
        });
        let slot = self.slot(at);
        let wait = slot.next_start().map_or(Duration::ZERO, |not_before| not_before.since(now));
        let next = match device.service {
            _ if !self.starts_workers(at.group()) => Next::Nothing,
            Service::Quarantined { probe_at } => Next::Out(probe_at.map(|at| at.since(now))),
            Service::Open | Service::Probing => Next::Restart(wait),
        };
        let ok = told.served_by == serves && told.next == next;
        holds(rule, ok, || format!("{next:?}, {serves:?} serves, told {told:?}"))?;
        self.coverage.hit(match told.next {
            Next::Nothing => "death: no process follows",
            Next::Out(_) => "death: its device is out of service",
            Next::Restart(wait) if wait.is_zero() => "death: the next may start at once",
            Next::Restart(_) => "death: the next waits",
        });
        Ok(())
    }

    pub(super) fn each_end_of_a_process_is_reported_once(&self) -> Result<(), Broken> {
        let rule = "each_end_of_a_process_is_reported_once";
        holds(rule, self.dying.is_none(), || format!("{:?}", self.dying))
    }

    fn is_disposition(&self, id: JobId, told: Disposition) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return self.disposition_before(id) == Some(told);
        };
        if job.denylisted {
            return told == Disposition::Denylisted;
        }
        let runs_on = |on| {
            let mut running = job.shards.iter().filter_map(|shard| shard.running);
            running.any(|(_, worker)| worker == on)
        };
        match told {
            Disposition::Runs(worker) => runs_on(worker),
            Disposition::Waits { suspects } => {
                let same = |other: &&Job| other.suspects == job.suspects && job.suspects != 0;
                job.waits() && suspects == self.jobs.values().filter(same).count()
            }
            // One of many, or of a client that is gone.
            Disposition::ShardOver => job.shards_due > 1,
            Disposition::Denylisted
            | Disposition::Over { .. }
            | Disposition::Unheard
            | Disposition::Verdict(_) => false,
        }
    }

    /// The disposition of a job with a verdict, given by this event or an earlier one.
    fn disposition_before(&self, id: JobId) -> Option<Disposition> {
        let given = self.given.get(&id)?;
        if given.step == self.steps {
            return Some(Disposition::Verdict(given.verdict));
        }
        // A key whose verdict was forgotten may now belong to another job.
        let remembered = self.memory.get(&given.name);
        let is_known = !given.orphaned && remembered.is_some_and(|other| other.job == id);
        Some(match is_known {
            true => Disposition::Over { verdict: given.verdict, by: given.by },
            false => Disposition::Unheard,
        })
    }
}
