//! Whose turn it is. The model does not use the pool's clocks: it counts what each principal got while another
//! waited, and the same for the clients of one principal.

use std::collections::{BTreeMap, BTreeSet};

use gridpool_core::event::JobRequest;
use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::message::Priority;
use gridpool_protocol::principal::Principal;

use super::jobs::Job;
use super::{Broken, holds};

/// A client of a principal.
type Own = (Principal, ClientId);

/// Fairness among principals, and among the clients of each.
#[derive(Debug, Default)]
pub(super) struct Fair {
    principals: Shares<Principal>,
    clients: Shares<Own>,
}

impl Fair {
    /// A shard of a job waits.
    pub(super) fn waits(&mut self, job: &Job) {
        let cost_max = job.shard_cost_max();
        self.principals.waits(&job.request.principal, &job.request, cost_max);
        self.clients.waits(&own(job), &job.request, cost_max);
    }

    /// No shard of the job waits.
    pub(super) fn leaves(&mut self, job: &Job) {
        self.principals.leaves(&job.request.principal, &job.request);
        self.clients.leaves(&own(job), &job.request);
    }

    pub(super) fn gone(&mut self, client: ClientId) {
        self.clients.waiting.retain(|(_, own), _| *own != client);
        let both = |((_, a), (_, b)): &(Own, Own)| *a != client && *b != client;
        self.clients.ahead.retain(|pair, _| both(pair));
    }

    /// These principals get no turn; returns whether one with jobs that wait gets one again.
    pub(super) fn hold(&mut self, held: &BTreeSet<Principal>) -> bool {
        self.principals.hold(held)
    }

    /// Jobs that wait.
    pub(super) fn waiting(&self) -> usize {
        self.principals.waiting.values().map(BTreeSet::len).sum()
    }

    /// Principals with jobs that wait, and this one.
    pub(super) fn principals_with(&self, principal: &Principal) -> usize {
        let waits =
            |(key, jobs): &(&Principal, &BTreeSet<_>)| *key == principal || !jobs.is_empty();
        let known = self.principals.waiting.contains_key(principal);
        self.principals.waiting.iter().filter(waits).count() + usize::from(!known)
    }

    /// Notes that a job got a device; returns whether another principal waited, and another client of its own.
    pub(super) fn serves(&mut self, job: &Job, cost: u64) -> (bool, bool) {
        let principal = &job.request.principal;
        let principals = self.principals.serves(principal, cost, |_| true);
        (principals, self.clients.serves(&own(job), cost, |(other, _)| other == principal))
    }

    pub(super) fn nobody_starves(&self, join_cost_max: u64) -> Result<(), Broken> {
        self.principals.none_starves("no_principal_starves", join_cost_max)?;
        self.clients.none_starves("no_client_starves", join_cost_max)
    }

    pub(super) fn a_clients_jobs_go_by_priority_and_then_in_order(
        &self,
        job: &Job,
        fresh: impl Fn(JobId) -> bool,
    ) -> Result<(), Broken> {
        let rule = "a_clients_jobs_go_by_priority_and_then_in_order";
        let request = &job.request;
        let first = self.clients.waiting.get(&own(job)).and_then(|jobs| {
            jobs.iter().find(|&&(_, job)| job != request.job && fresh(job)).copied()
        });
        holds(rule, first.is_none_or(|first| (request.priority, request.job) < first), || {
            format!("{} of {} went before {first:?}", request.job, job.client)
        })
    }
}

fn own(job: &Job) -> Own {
    (job.request.principal.clone(), job.client)
}

/// What each of several got.
#[derive(Debug)]
struct Shares<K> {
    waiting: BTreeMap<K, BTreeSet<(Priority, JobId)>>,
    /// For each that waits and each other: how much more the other got since the first began to wait.
    ahead: BTreeMap<(K, K), i128>,
    /// Those that get no turn.
    held: BTreeSet<K>,
    cost_max: u64,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        let (waiting, ahead) = (BTreeMap::new(), BTreeMap::new());
        Self { waiting, ahead, held: BTreeSet::new(), cost_max: 0 }
    }
}

impl<K: Ord + Clone + std::fmt::Debug> Shares<K> {
    /// A shard of a job waits; no shard of it costs more than `cost_max`.
    fn waits(&mut self, key: &K, request: &JobRequest, cost_max: u64) {
        self.cost_max = self.cost_max.max(cost_max);
        if self.waiting.get(key).is_none_or(BTreeSet::is_empty) {
            self.begins(key);
        }
        let own = self.waiting.entry(key.clone()).or_default();
        own.insert((request.priority, request.job));
    }

    /// One begins to wait for its turn.
    fn begins(&mut self, key: &K) {
        self.ahead.retain(|(waiting, _), _| waiting != key);
        for ((_, other), ahead) in &mut self.ahead {
            // None saves up a claim while it is idle.
            if other == key {
                *ahead = (*ahead).max(0);
            }
        }
    }

    /// See [`Fair::hold`].
    fn hold(&mut self, held: &BTreeSet<K>) -> bool {
        let waits = |key: &&K| self.waiting.get(key).is_some_and(|jobs| !jobs.is_empty());
        let back: Vec<K> = self.held.difference(held).filter(waits).cloned().collect();
        back.iter().for_each(|key| self.begins(key));
        self.held.clone_from(held);
        !back.is_empty()
    }

    fn leaves(&mut self, key: &K, request: &JobRequest) {
        if let Some(own) = self.waiting.get_mut(key) {
            own.remove(&(request.priority, request.job));
        }
    }

    /// Notes that `served` got a device; returns whether another waited that it shares with.
    fn serves(&mut self, served: &K, cost: u64, shares_with: impl Fn(&K) -> bool) -> bool {
        let mut others = false;
        let rivals = || self.waiting.iter().filter(|(key, _)| *key != served && shares_with(key));
        let waits = |(key, jobs): &(&K, &BTreeSet<_>)| !jobs.is_empty() && !self.held.contains(key);
        for (key, _) in rivals().filter(waits) {
            let pair = (key.clone(), served.clone());
            *self.ahead.entry(pair).or_default() += i128::from(cost);
            others = true;
        }
        for ((key, _), ahead) in &mut self.ahead {
            if key == served {
                *ahead -= i128::from(cost);
            }
        }
        // The share of `served` counts from its own first dispatch on, also towards those that have got
        // nothing yet.
        for (other, _) in rivals() {
            let pair = (served.clone(), other.clone());
            self.ahead.entry(pair).or_insert_with(|| -i128::from(cost));
        }
        others
    }

    /// While one waits, no other gets two of the most costly shards ahead of it: the bound of start-time fair
    /// queueing. Joining may bring it ahead by the cost of one more joined dispatch.
    fn none_starves(&self, rule: &'static str, join_cost_max: u64) -> Result<(), Broken> {
        let bound = 2 * (i128::from(self.cost_max) + i128::from(join_cost_max));
        for ((key, other), &ahead) in &self.ahead {
            let waits = self.waiting.get(key).is_some_and(|jobs| !jobs.is_empty());
            let waits = waits && !self.held.contains(key);
            holds(rule, !waits || ahead <= bound, || {
                format!("{other:?} was given {ahead} more than {key:?}, which waits")
            })?;
        }
        Ok(())
    }
}
