//! Every job that has no verdict: by its number, by its key, by its deadline, and by its client.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::{Index, IndexMut};

use gridpool_protocol::handover::JobName;
use gridpool_protocol::ids::{AttemptId, ClientId, Group, JobId, JobKey};
use gridpool_protocol::principal::Principal;

use super::job::Job;
use crate::event::Timestamp;
use crate::maps::{ByKey, ByNumber};

/// Fewer deadlines are not worth looking through.
const DEADLINES_MIN: usize = 64;

/// All live jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Boxed, since a map moves what it holds.
    live: ByNumber<JobId, Box<Job>>,
    keys: ByKey<JobName, JobId>,
    /// The same by connection: what it sends about a job names the key alone.
    own: ByKey<(ClientId, JobKey), JobId>,
    /// The next first; those of jobs that are no longer live too, until they come first or are the most.
    deadlines: BinaryHeap<Reverse<(Timestamp, JobId)>>,
    /// How many jobs every open connection has of a group, if any.
    counts: BTreeMap<(ClientId, Group), usize>,
}

impl Jobs {
    pub(super) fn insert(&mut self, job: Job) {
        let id = job.request.job;
        self.keys.insert(job.name(), id);
        self.own.insert((job.client, job.request.key), id);
        self.deadlines.push(Reverse((job.deadline, id)));
        *self.counts.entry((job.client, job.group)).or_default() += job.request.jobs as usize;
        self.live.insert(id, Box::new(job));
    }

    /// A job has its verdict.
    pub(super) fn remove(&mut self, id: JobId) -> Box<Job> {
        let job = self.live.remove(&id).expect("a verdict is for a live job");
        self.keys.remove(&job.name());
        self.own.remove(&(job.client, job.request.key));
        if self.deadlines.len() > DEADLINES_MIN.max(2 * self.live.len()) {
            self.deadlines.retain(|Reverse((_, id))| self.live.contains_key(id));
        }
        let place = (job.client, job.group);
        if let Some(count) = self.counts.get_mut(&place) {
            *count -= job.request.jobs as usize;
            if *count == 0 {
                self.counts.remove(&place);
            }
        }
        job
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Job> {
        self.live.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.live.get_mut(&id).map(Box::as_mut)
    }

    /// The job of an attempt that still runs.
    pub(super) fn running(&self, attempt: AttemptId) -> Option<JobId> {
        self.get(attempt.job)?.shard_of(attempt).map(|_| attempt.job)
    }

    /// The job of a principal's key.
    pub(super) fn by_key(&self, principal: &Principal, key: JobKey) -> Option<JobId> {
        self.keys.get(&(principal.clone(), key)).copied()
    }

    /// The job that a connection submitted under a key.
    pub(super) fn own(&self, client: ClientId, key: JobKey) -> Option<JobId> {
        self.own.get(&(client, key)).copied()
    }

    /// All of them, in order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.ids().into_iter().map(|id| &self[id])
    }

    pub(super) fn ids(&self) -> Vec<JobId> {
        in_order(self.live.keys().copied())
    }

    /// All of them, in any order.
    pub(super) fn unordered(&self) -> impl Iterator<Item = &Job> {
        self.live.values().map(Box::as_ref)
    }

    /// How many jobs of a group a client has.
    pub(super) fn count_of(&self, client: ClientId, group: Group) -> usize {
        self.counts.get(&(client, group)).copied().unwrap_or(0)
    }

    /// How many jobs a client has.
    pub(super) fn count_of_client(&self, client: ClientId) -> usize {
        let own = (client, Group::Grid)..=(client, Group::Models(u16::MAX));
        self.counts.range(own).map(|(_, count)| count).sum()
    }

    /// The connection of a client has ended: its jobs are no longer its own. Their numbers, in order.
    pub(super) fn take_of(&mut self, client: ClientId, group: Group) -> Vec<JobId> {
        if self.counts.remove(&(client, group)).is_none() {
            return Vec::new();
        }
        let own = self.unordered().filter(|job| job.client == client && job.group == group);
        in_order(own.map(|job| job.request.job))
    }

    #[cfg(test)]
    pub(super) fn deadlines_kept(&self) -> usize {
        self.deadlines.len()
    }

    /// The next deadline, and whose it is.
    pub(super) fn next_deadline(&mut self) -> Option<(Timestamp, JobId)> {
        while let Some(&Reverse((at, id))) = self.deadlines.peek() {
            if self.live.contains_key(&id) {
                return Some((at, id));
            }
            self.deadlines.pop();
        }
        None
    }
}

fn in_order(ids: impl Iterator<Item = JobId>) -> Vec<JobId> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids
}

impl Index<JobId> for Jobs {
    type Output = Job;

    fn index(&self, id: JobId) -> &Job {
        &self.live[&id]
    }
}

impl IndexMut<JobId> for Jobs {
    fn index_mut(&mut self, id: JobId) -> &mut Job {
        self.live.get_mut(&id).expect("the job is live")
    }
}
