//! Every job that has no verdict: by its number, by its key, by its deadline, and by its client.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use gridpool_protocol::ids::{AttemptId, ClientId, Group, JobId, JobKey};
use gridpool_protocol::principal::Principal;

use super::job::Job;
use crate::event::Timestamp;

/// All live jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Boxed, since a map moves what it holds.
    live: BTreeMap<JobId, Box<Job>>,
    keys: BTreeMap<(Principal, JobKey), JobId>,
    /// The same by connection: what it sends about a job names the key alone.
    own: BTreeMap<(ClientId, JobKey), JobId>,
    deadlines: BTreeSet<(Timestamp, JobId)>,
    /// Of every open connection with jobs.
    clients: BTreeMap<(ClientId, Group), BTreeSet<JobId>>,
}

impl Jobs {
    pub(super) fn insert(&mut self, job: Job) {
        let id = job.request.job;
        self.keys.insert((job.request.principal.clone(), job.request.key), id);
        self.own.insert((job.client, job.request.key), id);
        self.deadlines.insert((job.deadline, id));
        self.clients.entry((job.client, job.group)).or_default().insert(id);
        self.live.insert(id, Box::new(job));
    }

    /// A job has its verdict.
    pub(super) fn remove(&mut self, id: JobId) -> Job {
        let job = self.live.remove(&id).expect("a verdict is for a live job");
        self.keys.remove(&(job.request.principal.clone(), job.request.key));
        self.own.remove(&(job.client, job.request.key));
        self.deadlines.remove(&(job.deadline, id));
        let place = (job.client, job.group);
        if let Some(own) = self.clients.get_mut(&place) {
            own.remove(&id);
            if own.is_empty() {
                self.clients.remove(&place);
            }
        }
        *job
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

    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.live.values().map(Box::as_ref)
    }

    pub(super) fn ids(&self) -> Vec<JobId> {
        self.live.keys().copied().collect()
    }

    /// How many jobs of a group a client has.
    pub(super) fn count_of(&self, client: ClientId, group: Group) -> usize {
        self.clients.get(&(client, group)).map_or(0, BTreeSet::len)
    }

    /// How many jobs a client has.
    pub(super) fn count_of_client(&self, client: ClientId) -> usize {
        let own = (client, Group::Grid)..=(client, Group::Models(u16::MAX));
        self.clients.range(own).map(|(_, jobs)| jobs.len()).sum()
    }

    /// The connection of a client has ended: its jobs are no longer its own.
    pub(super) fn take_of(&mut self, client: ClientId, group: Group) -> BTreeSet<JobId> {
        self.clients.remove(&(client, group)).unwrap_or_default()
    }

    /// The next deadline, and whose it is.
    pub(super) fn next_deadline(&self) -> Option<(Timestamp, JobId)> {
        self.deadlines.first().copied()
    }
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
