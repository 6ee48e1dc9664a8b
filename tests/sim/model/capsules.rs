//! Capsules: every death that the work may have caused is worth one, and no other.

use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::receipt::{AttemptOutcome, Receipt};

use super::jobs::Job;
use super::losses::Loss;
use super::outstanding::{Dispatch, Sent};
use super::{Broken, Model, holds};

impl Model {
    /// A worker is lost with these in its front dispatch.
    pub(super) fn death_is_suspicious(&mut self, worker: WorkerId, front: &Dispatch, loss: Loss) {
        let ran_on = |sent: &&Sent| sent.free_at.is_some();
        let suspects: Vec<AttemptId> = match loss {
            Loss::Died { from_outside: false, .. } | Loss::Hung { .. } => {
                front.attempts.iter().map(|sent| sent.attempt).collect()
            }
            Loss::Freed { ran_on: true } => {
                front.attempts.iter().filter(ran_on).map(|sent| sent.attempt).collect()
            }
            Loss::Died { from_outside: true, .. } | Loss::Freed { ran_on: false } => Vec::new(),
        };
        if suspects.is_empty() {
            self.coverage.hit("capsule: none");
            return;
        }
        self.coverage.hit(match loss {
            Loss::Died { .. } => "capsule: it died",
            Loss::Freed { .. } => "capsule: it ran on",
            Loss::Hung { .. } => "capsule: it hung",
        });
        self.due.capsules.insert(worker, suspects);
    }

    pub(super) fn capsule_asked(
        &mut self,
        worker: WorkerId,
        name: &str,
        attempts: &[AttemptId],
    ) -> Result<(), Broken> {
        let due = self.due.capsules.remove(&worker);
        let rule = "a_death_gets_a_capsule_if_and_only_if_the_work_may_have_caused_it";
        holds(rule, due.as_deref() == Some(attempts), || {
            format!("{worker}: {attempts:?}, due: {due:?}")
        })?;
        let want = format!("sim-{}-{}", worker.device, worker.generation);
        let rule = "a_capsule_has_a_name_of_its_own";
        holds(rule, name == want, || format!("{name:?} is not {want}"))?;
        self.capsules.insert(worker, attempts.iter().map(|attempt| attempt.job).collect());
        Ok(())
    }

    /// Each attempt that a worker was lost with names the worker's capsule, if there was one with this job by then.
    pub(super) fn a_receipt_names_the_capsules_of_its_deaths(
        &mut self,
        id: JobId,
        job: &Job,
        receipt: &Receipt,
    ) -> Result<(), Broken> {
        let rule = "a_receipt_names_the_capsules_of_its_deaths";
        for (&(worker, outcome, _), told) in job.attempts.iter().zip(&receipt.attempts) {
            let is_lost = matches!(outcome, AttemptOutcome::Hang | AttemptOutcome::WorkerDied);
            let has = self.capsules.get(&worker).is_some_and(|jobs| jobs.contains(&id));
            let want = match is_lost && has {
                true => format!("sim-{}-{}", worker.device, worker.generation),
                false => String::new(),
            };
            match (outcome, want.is_empty()) {
                (AttemptOutcome::Hang, false) => self.coverage.hit("receipt: capsule of a hang"),
                (_, false) => self.coverage.hit("receipt: capsule of a death"),
                (_, true) => {}
            }
            holds(rule, told.capsule == want, || {
                format!("{id} on {worker}: {:?} is not {want:?}", told.capsule)
            })?;
        }
        Ok(())
    }
}
