//! Suspects: jobs that were lost in one launch are halved from launch to launch until the one that
//! kills its worker is alone.

use super::outstanding::Dispatch;
use super::slots::{SlotId, State};
use super::{Broken, Model, holds};

/// The launches of several in which a job was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedLosses {
    /// How many were in the first of them.
    first: usize,
    times: u32,
}

impl Model {
    /// A worker that hung, or is ending, was killed.
    pub(super) fn front_is_split(&mut self, at: SlotId) {
        let front = self.slot(at).outstanding().first().cloned();
        let Some(front) = front.filter(|front| front.attempts.len() > 1) else { return };
        self.is_split(&front);
        if let State::Killed { outstanding, .. } = &mut self.slot_mut(at).state {
            outstanding.0[0].split = true;
        }
    }

    /// The jobs of a lost launch of several that still ran there: the first half of them, or one more,
    /// has nothing to do with the others from now on.
    pub(super) fn is_split(&mut self, front: &Dispatch) {
        let runs = |id, attempt| self.jobs.get(&id).is_some_and(|job| job.runs_attempt(attempt));
        let sent = front.attempts.iter().map(|sent| sent.attempt);
        let ids: Vec<_> = sent.filter(|&sent| runs(sent.job, sent)).map(|sent| sent.job).collect();
        self.coverage.hit(match ids.len() {
            0 => "bisection: none of several is left",
            1 => "bisection: one of several is left",
            _ => "bisection: a dispatch is halved",
        });
        let half = ids.len().div_ceil(2);
        let groups = [self.next_group + 1, self.next_group + 2];
        self.next_group += 2;
        for (place, id) in ids.iter().enumerate() {
            let job = self.jobs.get_mut(id).expect("it was just found");
            if job.shared.is_some() {
                self.coverage.hit("bisection: suspects are halved again");
            }
            job.group = groups[usize::from(place >= half)];
            let first = front.attempts.len();
            let shared = job.shared.get_or_insert(SharedLosses { first, times: 0 });
            shared.times += 1;
        }
    }

    /// Another waited too long behind these: each is on its own from now on.
    pub(super) fn is_bisected(&mut self, front: &Dispatch) {
        for sent in &front.attempts {
            self.next_group += 1;
            if let Some(job) = self.jobs.get_mut(&sent.attempt.job) {
                job.group = self.next_group;
            }
        }
    }

    /// Of `n` jobs in a launch, a poisonous one takes at most the logarithm of `n` workers before it is
    /// alone, and `poison_deaths` then: deaths alone are counted by its verdict.
    pub(super) fn a_job_shares_no_more_losses_than_bisection_takes(&self) -> Result<(), Broken> {
        let rule = "a_job_shares_no_more_losses_than_bisection_takes";
        for (id, job) in &self.jobs {
            let Some(SharedLosses { first, times }) = job.shared else { continue };
            let most = first.next_power_of_two().ilog2();
            holds(rule, times <= most, || format!("{id} was lost {times} times, of {first}"))?;
        }
        Ok(())
    }
}
