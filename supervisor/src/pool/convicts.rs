//! Jobs that killed their workers: who is convicted, and what is remembered of it so that the next job
//! of the same content is refused at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gridpool_protocol::ids::{ContentHash, JobId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};

use super::Pool;
use super::event::{Action, JobRequest, Timestamp};
use super::job::Content;

/// A bounded memory of what was convicted; the oldest goes first.
#[derive(Debug)]
pub(super) struct Convicts {
    contents: BTreeMap<ContentHash, Looks>,
    order: VecDeque<ContentHash>,
    kept: usize,
}

/// What a submission says of itself without being read.
#[derive(Clone, Debug)]
struct Looks {
    program_hash: Arc<str>,
    items: u32,
}

impl Convicts {
    pub(super) fn new(kept: usize) -> Self {
        Self { contents: BTreeMap::new(), order: VecDeque::new(), kept }
    }

    pub(super) fn has(&self, content: ContentHash) -> bool {
        self.contents.contains_key(&content)
    }

    fn remember(&mut self, content: ContentHash, request: &JobRequest) {
        let program_hash = Arc::clone(&request.program_hash);
        let looks = Looks { program_hash, items: request.items };
        if self.contents.insert(content, looks).is_none() {
            self.order.push_back(content);
        }
        while self.order.len() > self.kept {
            let oldest = self.order.pop_front().expect("it is longer than the limit");
            self.contents.remove(&oldest);
        }
    }

    pub(super) fn forget(&mut self, content: ContentHash) {
        if self.contents.remove(&content).is_some() {
            self.order.retain(|&other| other != content);
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.contents.clear();
        self.order.clear();
    }
}

impl Pool {
    /// A worker died while it ran this job and no other, in a way that speaks against the job. Says
    /// whether that is enough to convict it.
    pub(super) fn note_death(&mut self, id: JobId) -> bool {
        let job = self.jobs.get_mut(&id).expect("the job is live");
        job.deaths += 1;
        if job.content == Content::Unknown {
            job.content = Content::Asked;
            self.actions.push_back(Action::HashContent { job: id });
        }
        job.deaths >= self.config.poison_deaths
    }

    /// Enough workers have died of it. Nothing of it runs again; its verdict waits for its hash, so that
    /// whoever hears the verdict and submits the same is refused.
    pub(super) fn convict(&mut self, now: Timestamp, id: JobId, why: &str) {
        self.unqueue(id);
        self.end_early(now, id, AttemptOutcome::Preempted);
        let job = self.jobs.get_mut(&id).expect("the job is live");
        job.convicted = Some(format!("{} workers died of it alone; {why}", job.deaths));
        self.finish_if_hashed(now, id);
    }

    /// The shell has read what the job is.
    pub(super) fn on_hashed(&mut self, now: Timestamp, id: JobId, content: Option<ContentHash>) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.content = Content::Said(content);
            self.finish_if_hashed(now, id);
        }
    }

    fn finish_if_hashed(&mut self, now: Timestamp, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("the job is live");
        let Content::Said(content) = job.content else { return };
        let Some(mut reason) = job.convicted.take() else { return };
        if let Some(content) = content {
            self.convicts.remember(content, &job.request);
            reason += &format!(
                "; the same program and batch is refused until `gridpool release {content}`"
            );
        }
        self.finish(now, id, Verdict::Poison, reason);
    }

    /// Whether some job of that program and that many items was convicted: the next one like it needs
    /// its content said.
    #[must_use]
    pub fn looks_convicted(&self, program_hash: &str, items: u32) -> bool {
        let mut all = self.convicts.contents.values();
        all.any(|looks| *looks.program_hash == *program_hash && looks.items == items)
    }

    /// Whether jobs of that content are refused.
    #[must_use]
    pub fn is_convicted(&self, content: ContentHash) -> bool {
        self.convicts.has(content)
    }

    /// Contents of which jobs are refused, the oldest first.
    pub fn convicts(&self) -> impl Iterator<Item = ContentHash> {
        self.convicts.order.iter().copied()
    }
}
