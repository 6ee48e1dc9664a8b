//! Jobs that kill workers: the evidence, the content hash, the verdict, and the denylist.

use std::collections::VecDeque;

use gridpool_core::event::{JobRequest, Release, Timestamp, Work};
use gridpool_protocol::ids::{ContentHash, JobId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::jobs::Job;
use super::{Broken, Model, holds};

/// A job on the denylist.
#[derive(Clone, Debug)]
pub(super) struct Denied {
    content: ContentHash,
    work: Work,
    items: u32,
}

/// The oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Denylist(VecDeque<Denied>);

impl Denylist {
    pub(super) fn knows(&self, content: ContentHash) -> bool {
        self.0.iter().any(|denied| denied.content == content)
    }

    pub(super) fn knows_one_of(&self, work: &Work) -> bool {
        self.0.iter().any(|denied| denied.work == *work)
    }

    fn knows_one_like(&self, request: &JobRequest) -> bool {
        self.0.iter().any(|denied| denied.work == request.work && denied.items == request.items)
    }
}

impl Model {
    /// A worker that ran only this job died of it. From the first death on, the job is a suspect.
    pub(super) fn worker_died_of(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("only a live job is suspect");
        job.evidence += 1;
        if job.evidence == 1 && !job.request.is_bundle() {
            self.due.hashes.insert(id);
        }
    }

    /// Whether enough workers died of it.
    pub(super) fn is_guilty(&self, job: &Job) -> bool {
        job.evidence >= self.deaths_max(job)
    }

    /// One death is enough to take a bundle apart.
    pub(super) fn deaths_max(&self, job: &Job) -> u32 {
        if job.request.is_bundle() { 1 } else { self.config.poison_deaths }
    }

    /// It never runs again. The verdict waits for the content hash.
    pub(super) fn is_denylisted(&mut self, now: Timestamp, id: JobId) {
        if self.jobs[&id].orphaned {
            self.coverage.hit("denylisted: job of a client that is gone");
        }
        self.cut_off(now, id, AttemptOutcome::Preempted);
        let job = self.jobs.get_mut(&id).expect("it is live");
        if job.request.is_bundle() {
            return self.end(id, Verdict::Poison);
        }
        job.denylisted = true;
        self.groups.get_mut(&job.group).expect("groups stay").fair.leaves(job);
        if job.content.is_some() {
            self.coverage.hit("denylisted: its content was known");
            self.verdict_is_poison(id);
        } else {
            self.coverage.hit("denylisted: waits for its content");
        }
    }

    fn verdict_is_poison(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        if let Some(Some(content)) = job.content {
            let (work, items) = (job.request.work.clone(), job.request.items);
            self.is_remembered(Denied { content, work, items });
        }
        self.end(id, Verdict::Poison);
    }

    fn is_remembered(&mut self, denied: Denied) {
        let is_known = self.denylist.knows(denied.content);
        self.coverage.hit(match is_known {
            true => "denylist: known already",
            false => "denylist: remembered",
        });
        // One that is convicted again is the newest.
        self.denylist.0.retain(|other| other.content != denied.content);
        self.denylist.0.push_back(denied);
        while self.denylist.0.len() > self.config.denylist_max {
            self.coverage.hit("denylist: forgotten for a newer one");
            self.denylist.0.pop_front();
        }
    }

    pub(super) fn content_hashed(&mut self, id: JobId, content: Option<ContentHash>) {
        self.coverage.hit(if content.is_some() {
            "content: hashed"
        } else {
            "content: could not be read"
        });
        let Some(job) = self.jobs.get_mut(&id) else {
            self.coverage.hit("content: of a job that has its verdict");
            return;
        };
        job.content = Some(content);
        if job.denylisted {
            self.coverage.hit("denylisted: its content came");
            self.verdict_is_poison(id);
        }
    }

    /// An operator releases something; returns whether that succeeded.
    pub(super) fn released(&mut self, now: Timestamp, release: Release) -> bool {
        match release {
            Release::Content(content) => {
                let is_there = self.denylist.knows(content);
                self.coverage.hit(match is_there {
                    true => "release: a content",
                    false => "release: no such content",
                });
                self.denylist.0.retain(|denied| denied.content != content);
                is_there
            }
            Release::Contents => {
                if !self.denylist.0.is_empty() {
                    self.coverage.hit("release: all contents");
                }
                self.denylist.0.clear();
                true
            }
            Release::Device(id) => self.device_released(now, id),
        }
    }

    /// `told`: whether the pool requires a content hash.
    pub(crate) fn a_content_hash_is_required_if_a_similar_job_is_denylisted(
        &mut self,
        request: &JobRequest,
        told: Option<&Work>,
    ) -> Result<(), Broken> {
        let rule = "a_content_hash_is_required_if_a_similar_job_is_denylisted";
        let request = JobRequest { work: self.bound(&request.work), ..request.clone() };
        let due = self.denylist.knows_one_like(&request).then_some(&request.work);
        if due.is_some() {
            self.coverage.hit("content: asked for at submission");
        }
        holds(rule, told == due, || format!("{request:?}: {told:?}, {:?}", self.denylist))
    }

    pub(super) fn hash_requested(&mut self, id: JobId, work: &Work) -> Result<(), Broken> {
        self.coverage.hit("content: hash requested");
        self.a_job_is_hashed_with_the_work_it_was_accepted_for(id, work)?;
        self.a_job_is_hashed_once_at_its_first_death_alone(id)?;
        self.due.hashes.remove(&id);
        Ok(())
    }

    fn a_job_is_hashed_with_the_work_it_was_accepted_for(
        &self,
        id: JobId,
        work: &Work,
    ) -> Result<(), Broken> {
        let rule = "a_job_is_hashed_with_the_work_it_was_accepted_for";
        let due = self.jobs.get(&id).map(|job| &job.request.work);
        holds(rule, due.is_none_or(|due| work == due), || format!("{id}: {work}, due {due:?}"))
    }

    fn a_job_is_hashed_once_at_its_first_death_alone(&self, id: JobId) -> Result<(), Broken> {
        let rule = "a_job_is_hashed_once_at_its_first_death_alone";
        holds(rule, self.due.hashes.contains(&id), || format!("{id}: {:?}", self.due))
    }

    pub(super) fn a_payload_is_hashed_before_it_is_forgotten(
        &self,
        id: JobId,
    ) -> Result<(), Broken> {
        let rule = "a_payload_is_hashed_before_it_is_forgotten";
        holds(rule, !self.due.hashes.contains(&id), || format!("{id} has its verdict"))
    }

    pub(super) fn a_job_is_poison_only_after_poison_deaths_deaths_alone(
        &self,
        id: JobId,
        job: &Job,
        verdict: Verdict,
    ) -> Result<(), Broken> {
        let rule = "a_job_is_poison_only_after_poison_deaths_deaths_alone";
        let enough = job.evidence == self.config.poison_deaths;
        holds(rule, verdict != Verdict::Poison || enough, || {
            format!("{id}: {} deaths", job.evidence)
        })
    }
}
