//! Suspects: jobs that were lost in one dispatch are bisected until the one that kills its worker is alone.

use super::outstanding::Dispatch;
use super::slots::{SlotId, State};
use super::{Broken, Model, holds};

/// The shared dispatches in which a job was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedLosses {
    /// How many jobs were in the first of them.
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

    /// Splits the jobs that still ran in a lost shared dispatch: the first half, rounded up, becomes a
    /// group of its own.
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
        let groups = [self.next_suspects + 1, self.next_suspects + 2];
        self.next_suspects += 2;
        for (place, id) in ids.iter().enumerate() {
            let job = self.jobs.get_mut(id).expect("it was just found");
            if job.shared.is_some() {
                self.coverage.hit("bisection: suspects are halved again");
            }
            job.suspects = groups[usize::from(place >= half)];
            let first = front.attempts.len();
            let shared = job.shared.get_or_insert(SharedLosses { first, times: 0 });
            shared.times += 1;
        }
    }

    /// Another dispatch waited too long behind these: each becomes its own group.
    pub(super) fn is_bisected(&mut self, front: &Dispatch) {
        for sent in &front.attempts {
            self.next_suspects += 1;
            if let Some(job) = self.jobs.get_mut(&sent.attempt.job) {
                job.suspects = self.next_suspects;
            }
        }
    }

    /// Of `n` jobs in a dispatch, a poisonous one kills at most log2 of `n` workers before it is alone, and
    /// then `poison_deaths`, which its verdict counts.
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
