//! Jobs that killed their workers: when they get the verdict POISON, and the denylist, which makes the pool
//! refuse the next job with the same content.

use std::collections::{BTreeMap, VecDeque};

use gridpool_protocol::ids::{ContentHash, JobId};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict, poison_reason};
use gridpool_protocol::status::{DENYLIST_SHOWN_MAX, DeniedContent, DenylistStatus};

use super::job::Content;
use super::{Pool, micros};
use crate::action::Action;
use crate::event::{JobRequest, Timestamp, Work};

/// A bounded list of contents; the oldest goes first.
#[derive(Debug)]
pub(super) struct Denylist {
    contents: BTreeMap<ContentHash, Denied>,
    order: VecDeque<ContentHash>,
    max: usize,
}

/// A content on the list: what a submission shows before its content is hashed, and since when.
#[derive(Debug)]
struct Denied {
    work: Work,
    items: u32,
    since: Timestamp,
}

impl Denylist {
    pub(super) fn new(max: usize) -> Self {
        Self { contents: BTreeMap::new(), order: VecDeque::new(), max }
    }

    /// Sets the limit. What is over it goes with the next content.
    pub(super) fn limit(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn has(&self, content: ContentHash) -> bool {
        self.contents.contains_key(&content)
    }

    /// Whether it lists a job with that work and number of items.
    fn has_similar(&self, work: &Work, items: u32) -> bool {
        self.contents.values().any(|own| own.work == *work && own.items == items)
    }

    /// Whether it lists a job with that work.
    pub(super) fn has_of(&self, work: &Work) -> bool {
        self.contents.values().any(|own| own.work == *work)
    }

    fn add(&mut self, now: Timestamp, content: ContentHash, request: &JobRequest) {
        let denied = Denied { work: request.work.clone(), items: request.items, since: now };
        // A content that is convicted again is the newest.
        self.remove(content);
        self.contents.insert(content, denied);
        self.order.push_back(content);
        while self.order.len() > self.max {
            let oldest = self.order.pop_front().expect("it is longer than the limit");
            self.contents.remove(&oldest);
        }
    }

    /// Takes a content off the list; returns whether it was on it.
    pub(super) fn remove(&mut self, content: ContentHash) -> bool {
        let was_there = self.contents.remove(&content).is_some();
        if was_there {
            self.order.retain(|&other| other != content);
        }
        was_there
    }

    /// Empties the list; returns how many contents were on it.
    pub(super) fn clear(&mut self) -> usize {
        let count = self.order.len();
        self.contents.clear();
        self.order.clear();
        count
    }
}

impl Pool {
    /// A worker died while it ran only this job, with evidence against the job. Returns whether that is
    /// enough for the verdict POISON.
    pub(super) fn note_death(&mut self, id: JobId) -> bool {
        let job = &mut self.jobs[id];
        job.deaths += 1;
        let is_enough = job.deaths >= job.deaths_max(&self.config);
        if job.content == Content::Unknown && !job.request.is_bundle() {
            job.content = Content::Requested;
            let work = job.request.work.clone();
            self.act(Action::HashContent { job: id, work });
        }
        is_enough
    }

    /// Enough workers have died of it. It does not run again. Its verdict waits for its hash, so that the
    /// pool refuses the same content as soon as the client knows the verdict.
    pub(super) fn poison(&mut self, now: Timestamp, id: JobId, why: &str) {
        self.unqueue(id);
        self.end_early(now, id, AttemptOutcome::Preempted);
        let job = &mut self.jobs[id];
        if job.request.is_bundle() {
            return self.finish(now, id, Verdict::Poison, why.to_owned());
        }
        job.poison = Some(format!("{} workers died of it alone; {why}", job.deaths));
        self.finish_if_hashed(now, id);
    }

    /// The shell has read the content of a job.
    pub(crate) fn on_hashed(&mut self, now: Timestamp, id: JobId, content: Option<ContentHash>) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.content = Content::Known(content);
            self.finish_if_hashed(now, id);
        }
    }

    fn finish_if_hashed(&mut self, now: Timestamp, id: JobId) {
        let job = &mut self.jobs[id];
        let Content::Known(content) = job.content else { return };
        let Some(mut reason) = job.poison.take() else { return };
        if let Some(content) = content {
            self.denylist.add(now, content, &job.request);
            reason = poison_reason(&reason, content);
        }
        self.finish(now, id, Verdict::Poison, reason);
    }

    /// How many contents are on the denylist, and the latest of them.
    pub(crate) fn denylist(&self, now: Timestamp) -> DenylistStatus {
        let Denylist { contents, order, .. } = &self.denylist;
        let row = |content: &ContentHash| {
            let Denied { work, items, since } = &contents[content];
            DeniedContent {
                content: content.to_string(),
                what: work.to_string(),
                items: *items,
                for_us: micros(now.since(*since)),
            }
        };
        let latest = order.iter().rev().take(DENYLIST_SHOWN_MAX).map(row).collect();
        DenylistStatus { contents: order.len() as u64, latest }
    }

    /// Whether any job is on the denylist.
    pub(crate) fn denies_any(&self) -> bool {
        !self.denylist.contents.is_empty()
    }

    /// Whether a job with that work and number of items is on the denylist: then a submission must carry
    /// its content hash.
    pub(crate) fn asks_for_content(&self, work: &Work, items: u32) -> bool {
        self.denylist.has_similar(work, items)
    }
}
