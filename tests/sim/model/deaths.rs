//! What is told of a death: once for each process that ends, with all that it had in hand and what has
//! become of that.

use gridpool::pool::event::{Event, ExitStatus};
use gridpool::pool::{ATTEMPTS_TOLD_MAX, Death, Fate};
use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::ids::{AttemptId, JobId, JobKey, WorkerId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::jobs::Job;
use super::seats::{State, Why};
use super::{Broken, Model, Phase, holds};

/// A process that ends by the event that is handled.
#[derive(Debug)]
pub(super) struct Dying {
    worker: WorkerId,
    is_expected: bool,
    attempts: Vec<AttemptId>,
}

/// The verdict of a job, and who gave its last answer.
#[derive(Debug)]
pub(super) struct Given {
    key: JobKey,
    verdict: Verdict,
    by: Option<WorkerId>,
    /// The job's client was gone.
    orphaned: bool,
    /// At which event.
    step: u64,
}

impl Model {
    /// Remembers what a process has that ends by this event.
    pub(super) fn notes_dying(&mut self, event: &Event) {
        self.dying = None;
        let Event::WorkerExited { worker, ref exit } = *event else { return };
        let Some(at) = self.seat_of(worker) else { return };
        let seat = self.seat(at);
        if !seat.has_process() {
            return;
        }
        let is_killed = matches!(
            seat.state,
            State::Killed { why: Why::Leaving, .. } | State::Unkillable { why: Why::Leaving }
        );
        let is_told_to = matches!(seat.state, State::Stopping { .. })
            || matches!(self.phase, Phase::Leaving | Phase::Left);
        let is_well = exit.status == ExitStatus::Code(exit_code::OK);
        let attempts = seat.hands().iter().flat_map(|batch| &batch.attempts);
        self.dying = Some(Dying {
            worker,
            is_expected: is_killed || (is_told_to && is_well),
            attempts: attempts.map(|sent| sent.attempt).collect(),
        });
    }

    /// Remembers a verdict for the deaths that are told later.
    pub(super) fn notes_given(&mut self, id: JobId, key: JobKey, job: &Job, verdict: Verdict) {
        let answered = |&&(_, outcome, _): &&(_, AttemptOutcome, _)| outcome == AttemptOutcome::Ok;
        let last = job.attempts.iter().rev().find(answered).map(|&(worker, ..)| worker);
        let (by, step) = (last.filter(|_| verdict == Verdict::Ok), self.steps);
        self.given.insert(id, Given { key, verdict, by, orphaned: job.orphaned, step });
    }

    /// Holds what is told after an event against what has happened.
    pub(crate) fn told_of_death(&mut self, told: Option<&Death>) -> Result<(), Broken> {
        let rule = "each_end_of_a_process_is_told_once";
        let Some((dying, death)) = self.dying.take().zip(told) else {
            let ok = self.dying.is_none() && told.is_none();
            return holds(rule, ok, || format!("{:?}, told {told:?}", self.dying));
        };
        holds(rule, death.worker == dying.worker, || format!("{dying:?}, told {death:?}"))?;
        let ok = death.is_expected == dying.is_expected;
        holds("only_an_end_as_ordered_is_expected", ok, || format!("{dying:?}, told {death:?}"))?;
        let told: Vec<_> = death.attempts.iter().map(|lost| lost.attempt).collect();
        let (some, more) = dying.attempts.split_at(dying.attempts.len().min(ATTEMPTS_TOLD_MAX));
        let ok = told == some && death.attempts_more == more.len();
        let rule = "a_death_is_told_with_all_that_the_worker_had";
        holds(rule, ok, || format!("{dying:?}, told {death:?}"))?;
        death.attempts.iter().try_for_each(|lost| {
            let rule = "a_death_is_told_with_what_becomes_of_each_job";
            let job = lost.attempt.job;
            holds(rule, self.is_fate(job, lost.fate), || {
                let (live, given) = (self.jobs.get(&job), self.given.get(&job));
                format!("told {lost:?}; live: {live:?}, given: {given:?}")
            })
        })
    }

    fn is_fate(&self, id: JobId, told: Fate) -> bool {
        let Some(job) = self.jobs.get(&id) else { return told == self.fate_before(id) };
        if job.convicted {
            return told == Fate::Convicted;
        }
        let runs_on = |on| {
            let mut running = job.parts.iter().filter_map(|part| part.running);
            running.any(|(_, worker)| worker == on)
        };
        match told {
            Fate::Runs(worker) => runs_on(worker),
            Fate::Waits { suspects } => {
                let same = |other: &&Job| other.group == job.group && job.group != 0;
                job.waits() && suspects == self.jobs.values().filter(same).count()
            }
            // One of many, or of a client that is gone.
            Fate::PartOver => job.parts_due > 1,
            Fate::Convicted | Fate::Over { .. } | Fate::Unheard | Fate::Verdict(_) => false,
        }
    }

    /// Of a job that has its verdict: by this event, or by one before.
    fn fate_before(&self, id: JobId) -> Fate {
        let given = &self.given[&id];
        if given.step == self.steps {
            return Fate::Verdict(given.verdict);
        }
        // A key whose verdict was forgotten may be another job's since.
        let remembered = self.memory.get(&given.key);
        let is_known = !given.orphaned && remembered.is_some_and(|other| other.job == id);
        match is_known {
            true => Fate::Over { verdict: given.verdict, by: given.by },
            false => Fate::Unheard,
        }
    }
}
