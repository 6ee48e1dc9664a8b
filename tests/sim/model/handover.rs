//! How the pool is replaced by a successor: which jobs it gives back, which clients it lets go, and what it tells the
//! successor.

use std::collections::{BTreeMap, BTreeSet};

use gridpool_core::event::{HandOver, Timestamp};
use gridpool_protocol::handover::JobNews;
use gridpool_protocol::ids::{ClientId, Group, JobId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::jobs::Job;
use super::{Broken, Model, Name, Phase, holds};

/// What the model knows of it.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    step: Step,
    /// What the successor was told last of each job.
    heard: BTreeMap<Name, Heard>,
    /// Jobs that were given back: their verdict is not remembered.
    given_back: BTreeSet<JobId>,
    /// Clients that hear nothing of jobs that are given back.
    quiet: BTreeSet<ClientId>,
    /// Clients that were let go.
    let_go: BTreeSet<ClientId>,
    /// Clients that must be let go in this event.
    due: BTreeSet<ClientId>,
}

#[derive(Debug, Default)]
enum Step {
    #[default]
    No,
    Soon,
    Yes {
        stay: BTreeSet<ClientId>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Ended,
    Live,
    Verdict(JobId),
}

impl Model {
    pub(super) fn handed_over(&mut self, now: Timestamp, step: &HandOver) {
        match (step, &self.replaced.step) {
            (HandOver::Begun, Step::No) => {
                self.coverage.hit("hand over: begun");
                self.replaced.step = Step::Soon;
                self.replaced.heard.clear();
            }
            (HandOver::OneByOne, Step::No) if !self.owners.gives => {
                self.coverage.hit("hand over: one by one");
                self.begins_to_give(now);
            }
            (HandOver::Failed, Step::No) if self.owners.gives => {
                self.coverage.hit("hand over: failed before it began");
                self.takes_back();
            }
            (HandOver::Failed, Step::Soon) => {
                self.takes_back();
                self.coverage.hit("hand over: failed");
                self.replaced.step = Step::No;
            }
            (HandOver::Done { stay }, Step::Soon) => {
                self.coverage.hit("hand over: done");
                // Without workers, none can stay.
                let quiet = stay.iter().copied().filter(|_| self.owners.gives).collect();
                let stay = stay.iter().copied().filter(|_| !self.owners.gives);
                self.replaced.step = Step::Yes { stay: stay.collect() };
                self.replaced.quiet = quiet;
                self.drain_requested(now);
                let fresh = |(_, job): &(&JobId, &Job)| {
                    let may = job.request.idempotent && !job.orphaned && job.shards.is_empty();
                    may && self.goes_over(job.client)
                };
                let fresh: Vec<_> = self.jobs.iter().filter(fresh).map(|(&id, _)| id).collect();
                for id in fresh {
                    self.coverage.hit("hand over: a job is given back");
                    self.give_back(id);
                }
            }
            (
                HandOver::Begun | HandOver::Failed | HandOver::Done { .. } | HandOver::OneByOne,
                _,
            ) => {
                self.coverage.hit("hand over: out of order");
            }
        }
    }

    pub(super) fn give_back(&mut self, id: JobId) {
        self.replaced.given_back.insert(id);
        self.end(id, Verdict::Cancelled);
    }

    /// A job has no device here: the successor may have one.
    pub(super) fn has_no_device(&mut self, now: Timestamp, id: JobId) {
        let group = self.jobs[&id].group;
        let given =
            |(at, _): (super::slots::SlotId, &super::slots::Slot)| self.is_given_away(at.device());
        if !self.slots_of(group).any(given) {
            return self.fail(now, id, Verdict::DeviceLost);
        }
        let job = &self.jobs[&id];
        self.coverage.hit(match job.request.idempotent {
            false => "vacate: a job that must not run twice goes over",
            true => "vacate: a job goes over for want of a device",
        });
        self.cut_off(now, id, AttemptOutcome::Preempted);
        self.give_back(id);
    }

    /// A job is cut off at the end of the pool. The successor may run it, if it may run again.
    pub(super) fn note_cut_off(&mut self, id: JobId) {
        if self.is_replaced() && self.jobs[&id].request.idempotent {
            self.coverage.hit("hand over: a job is cut off");
            self.replaced.given_back.insert(id);
        }
    }

    /// Whether a client hears nothing of a job that is given back.
    pub(super) fn is_quiet(&self, client: ClientId) -> bool {
        self.replaced.quiet.contains(&client)
    }

    /// Whether the verdict of a job is not remembered, because it was given back.
    pub(super) fn was_given_back(&mut self, id: JobId) -> bool {
        self.replaced.given_back.remove(&id)
    }

    /// Whether a successor is about to serve, or to fail.
    pub(crate) fn is_being_replaced(&self) -> bool {
        matches!(self.replaced.step, Step::Soon) || (self.gives_devices() && !self.is_replaced())
    }

    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self.replaced.step, Step::Yes { .. })
    }

    /// Whether the client may submit nothing here any more.
    pub(super) fn goes_over(&self, client: ClientId) -> bool {
        matches!(&self.replaced.step, Step::Yes { stay } if !stay.contains(&client))
    }

    /// Whether a group refuses jobs, because the pool is told to end.
    pub(super) fn is_closed(&self, group: Group) -> bool {
        let leaves = matches!(self.group(group).phase, Phase::Leaving | Phase::Left);
        self.is_draining() && (!self.is_replaced() || leaves)
    }

    /// Whether connections stay that may submit.
    pub(super) fn awaits_submissions(&self) -> bool {
        matches!(&self.replaced.step, Step::Yes { stay } if !stay.is_empty())
    }

    pub(super) fn leaves_for_good(&mut self, client: ClientId) {
        self.replaced.let_go.remove(&client);
        if let Step::Yes { stay } = &mut self.replaced.step {
            stay.remove(&client);
        }
    }

    /// At the end of an event: who has no job here any more goes over.
    pub(super) fn clients_go_over(&mut self) {
        let is_busy =
            |client: ClientId| self.jobs.values().any(|job| job.client == client && !job.orphaned);
        let goes = |client: &&ClientId| {
            self.goes_over(**client) && !self.replaced.let_go.contains(client) && !is_busy(**client)
        };
        self.replaced.due = self.clients.iter().filter(goes).copied().collect();
    }

    pub(super) fn let_go(&mut self, client: ClientId) -> Result<(), Broken> {
        self.coverage.hit("hand over: a client goes");
        self.a_client_goes_over_when_its_last_job_here_has_its_verdict(client)?;
        self.replaced.let_go.insert(client);
        Ok(())
    }

    fn a_client_goes_over_when_its_last_job_here_has_its_verdict(
        &mut self,
        client: ClientId,
    ) -> Result<(), Broken> {
        let rule = "a_client_goes_over_when_its_last_job_here_has_its_verdict";
        let is_due = self.replaced.due.remove(&client);
        let mut verdicts = self.due.verdicts.values();
        let waits = verdicts.any(|(job, _)| job.client == client && !job.orphaned);
        holds(rule, is_due && !waits, || format!("{client}: due {is_due}, waits {waits}"))
    }

    pub(super) fn told(&mut self, news: &JobNews) -> Result<(), Broken> {
        let rule = "the_successor_is_told_only_what_is_new";
        let is_no = matches!(self.replaced.step, Step::No);
        let (name, now) = match news {
            JobNews::Ended(name) => (name, Heard::Ended),
            JobNews::Live(name) => (name, Heard::Live),
            JobNews::Verdict { name, job, .. } => (name, Heard::Verdict(*job)),
        };
        let before = self.replaced.heard.insert(name.clone(), now);
        let is_news = before != Some(now) && (now != Heard::Ended || before == Some(Heard::Live));
        holds(rule, is_news && !is_no, || format!("{name:?}: {before:?}, then {now:?}"))
    }

    /// A job gets its verdict: its client may be quick to submit it to the successor.
    pub(super) fn the_successor_is_told_before_the_client(&self, job: &Job) -> Result<(), Broken> {
        let rule = "the_successor_is_told_before_the_client";
        if matches!(self.replaced.step, Step::No) {
            return Ok(());
        }
        let name = (job.request.principal.clone(), job.request.key);
        let heard = self.replaced.heard.get(&name);
        let is_told = heard.is_some_and(|heard| *heard != Heard::Live);
        holds(rule, is_told, || format!("{name:?}: {heard:?}"))
    }

    /// Between events: every due client has gone, and the successor knows which jobs live and which have verdicts.
    pub(super) fn the_successor_knows_what_lives(&self) -> Result<(), Broken> {
        let rule = "a_client_goes_over_when_its_last_job_here_has_its_verdict";
        let due = &self.replaced.due;
        holds(rule, due.is_empty(), || format!("{due:?} did not go"))?;
        if matches!(self.replaced.step, Step::No) {
            return Ok(());
        }
        let rule = "the_successor_knows_what_lives";
        let heard = &self.replaced.heard;
        let told: BTreeSet<_> = heard
            .iter()
            .filter(|(_, heard)| **heard == Heard::Live)
            .map(|(name, _)| name)
            .collect();
        let names: Vec<Name> = self
            .jobs
            .values()
            .map(|job| (job.request.principal.clone(), job.request.key))
            .collect();
        let live: BTreeSet<_> = names.iter().collect();
        holds(rule, told == live, || format!("told {told:?}, live {live:?}"))?;
        let rule = "the_successor_remembers_what_this_pool_remembers";
        let is_wrong = |(name, known): &(&Name, &super::verdicts::Remembered)| {
            !live.contains(name) && heard.get(*name) != Some(&Heard::Verdict(known.job))
        };
        let wrong = self.memory.iter().find(is_wrong);
        holds(rule, wrong.is_none(), || format!("{wrong:?}"))?;
        let is_wrong = |(name, known): &(&Name, &Heard)| {
            let remembered = self.memory.contains_key(name) || self.forgotten.contains(name);
            matches!(known, Heard::Verdict(_)) && !remembered
        };
        let wrong = heard.iter().find(is_wrong);
        holds(rule, wrong.is_none(), || format!("{wrong:?} is not remembered here"))
    }
}
