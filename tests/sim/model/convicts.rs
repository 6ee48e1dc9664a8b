//! Jobs that kill workers: the evidence, what the job is, the verdict, and the memory of it.

use std::collections::VecDeque;

use gridpool::pool::event::{JobRequest, Release, Timestamp};
use gridpool_protocol::ids::{ContentHash, JobId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::jobs::Job;
use super::{Broken, Model, holds};

/// What is known of a job that was convicted.
#[derive(Clone, Debug)]
pub(super) struct Convict {
    content: ContentHash,
    program_hash: String,
    items: u32,
}

/// The oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Convicts(VecDeque<Convict>);

impl Convicts {
    pub(super) fn knows(&self, content: ContentHash) -> bool {
        self.0.iter().any(|convict| convict.content == content)
    }

    fn knows_one_like(&self, request: &JobRequest) -> bool {
        self.0.iter().any(|convict| {
            convict.program_hash == *request.program_hash && convict.items == request.items
        })
    }
}

impl Model {
    /// A worker died of the job, which it was running alone. From the first time on the job is suspect.
    pub(super) fn worker_died_of(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("only a live job is suspect");
        job.evidence += 1;
        if job.evidence == 1 {
            self.due.hashes.insert(id);
        }
    }

    /// Whether enough workers died of it.
    pub(super) fn is_guilty(&self, job: &Job) -> bool {
        job.evidence >= self.config.poison_deaths
    }

    /// It never runs again. The verdict waits until it is known what the job is.
    pub(super) fn is_convicted(&mut self, now: Timestamp, id: JobId) {
        if self.jobs[&id].orphaned {
            self.coverage.hit("conviction: job of a client that is gone");
        }
        self.cut_off(now, id, AttemptOutcome::Preempted);
        let job = self.jobs.get_mut(&id).expect("it is live");
        job.convicted = true;
        self.fair.leaves(job.client, &job.request);
        if job.content.is_some() {
            self.coverage.hit("conviction: its content was known");
            self.verdict_is_poison(id);
        } else {
            self.coverage.hit("conviction: waits for its content");
        }
    }

    fn verdict_is_poison(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        if let Some(Some(content)) = job.content {
            let (program_hash, items) = (job.request.program_hash.to_string(), job.request.items);
            self.is_remembered(Convict { content, program_hash, items });
        }
        self.end(id, Verdict::Poison);
    }

    fn is_remembered(&mut self, convict: Convict) {
        if self.convicts.knows(convict.content) {
            self.coverage.hit("convict: known already");
            return;
        }
        self.coverage.hit("convict: remembered");
        self.convicts.0.push_back(convict);
        if self.convicts.0.len() > self.config.convicts_kept {
            self.coverage.hit("convict: forgotten for a newer one");
            self.convicts.0.pop_front();
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
        if job.convicted {
            self.coverage.hit("conviction: its content came");
            self.verdict_is_poison(id);
        }
    }

    pub(super) fn released(&mut self, now: Timestamp, release: Release) {
        match release {
            Release::Content(content) => {
                self.coverage.hit(if self.convicts.knows(content) {
                    "release: a content"
                } else {
                    "release: no such content"
                });
                self.convicts.0.retain(|convict| convict.content != content);
            }
            Release::Contents => {
                if !self.convicts.0.is_empty() {
                    self.coverage.hit("release: all contents");
                }
                self.convicts.0.clear();
            }
            Release::Device(id) => self.device_released(now, id),
        }
    }

    /// `told`: whether the pool wants to know what is submitted.
    pub(crate) fn a_content_is_asked_for_if_one_like_it_was_convicted(
        &mut self,
        request: &JobRequest,
        told: bool,
    ) -> Result<(), Broken> {
        let rule = "a_content_is_asked_for_if_one_like_it_was_convicted";
        let due = self.convicts.knows_one_like(request);
        if due {
            self.coverage.hit("content: asked for at submission");
        }
        holds(rule, told == due, || format!("{request:?}: {told}, {:?}", self.convicts))
    }

    pub(super) fn hash_ordered(&mut self, id: JobId) -> Result<(), Broken> {
        self.coverage.hit("content: hash ordered");
        self.a_job_is_hashed_at_its_first_death_alone_and_not_again(id)?;
        self.due.hashes.remove(&id);
        Ok(())
    }

    fn a_job_is_hashed_at_its_first_death_alone_and_not_again(
        &self,
        id: JobId,
    ) -> Result<(), Broken> {
        let rule = "a_job_is_hashed_at_its_first_death_alone_and_not_again";
        holds(rule, self.due.hashes.contains(&id), || format!("{id}: {:?}", self.due))
    }

    pub(super) fn a_payload_is_hashed_before_it_is_forgotten(
        &self,
        id: JobId,
    ) -> Result<(), Broken> {
        let rule = "a_payload_is_hashed_before_it_is_forgotten";
        holds(rule, !self.due.hashes.contains(&id), || format!("{id} has its verdict"))
    }

    pub(super) fn nobody_is_convicted_without_poison_deaths_deaths_alone(
        &self,
        id: JobId,
        job: &Job,
        verdict: Verdict,
    ) -> Result<(), Broken> {
        let rule = "nobody_is_convicted_without_poison_deaths_deaths_alone";
        let enough = job.evidence == self.config.poison_deaths;
        holds(rule, verdict != Verdict::Poison || enough, || {
            format!("{id}: {} deaths", job.evidence)
        })
    }
}
