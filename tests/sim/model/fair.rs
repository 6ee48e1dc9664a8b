//! Whose turn it is. The model does not use the pool's clocks: it counts what each client got while another
//! waited.

use std::collections::{BTreeMap, BTreeSet};

use gridpool_core::event::JobRequest;
use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::message::Priority;

use super::{Broken, holds};

#[derive(Debug, Default)]
pub(super) struct Fair {
    waiting: BTreeMap<ClientId, BTreeSet<(Priority, JobId)>>,
    /// For each waiting client and each other: how much more the other got since the first began to wait.
    ahead: BTreeMap<(ClientId, ClientId), i128>,
    cost_max: u64,
}

impl Fair {
    /// A shard of a job waits; no shard of it costs more than `cost_max`.
    pub(super) fn waits(&mut self, client: ClientId, request: &JobRequest, cost_max: u64) {
        self.cost_max = self.cost_max.max(cost_max);
        let own = self.waiting.entry(client).or_default();
        if own.is_empty() {
            self.ahead.retain(|&(waiting, _), _| waiting != client);
            for (&(_, other), ahead) in &mut self.ahead {
                // No client saves up a claim while it is idle.
                if other == client {
                    *ahead = (*ahead).max(0);
                }
            }
        }
        own.insert((request.priority, request.job));
    }

    /// No shard of the job waits.
    pub(super) fn leaves(&mut self, client: ClientId, request: &JobRequest) {
        if let Some(own) = self.waiting.get_mut(&client) {
            own.remove(&(request.priority, request.job));
        }
    }

    pub(super) fn gone(&mut self, client: ClientId) {
        self.waiting.remove(&client);
        self.ahead.retain(|&(waiting, other), _| waiting != client && other != client);
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// Notes that `served` got a device; returns whether another client waited.
    pub(super) fn serves(&mut self, served: ClientId, cost: u64) -> bool {
        let mut others = false;
        for (&client, _) in self.waiting.iter().filter(|(_, jobs)| !jobs.is_empty()) {
            if client != served {
                *self.ahead.entry((client, served)).or_default() += i128::from(cost);
                others = true;
            }
        }
        for (&(client, _), ahead) in &mut self.ahead {
            if client == served {
                *ahead -= i128::from(cost);
            }
        }
        // The share of `served` counts from its own first dispatch on, also towards clients that have got
        // nothing yet.
        for &other in self.waiting.keys() {
            if other != served {
                self.ahead.entry((served, other)).or_insert_with(|| -i128::from(cost));
            }
        }
        others
    }

    /// While a client waits, no other gets two of the most costly shards ahead of it: the bound of
    /// start-time fair queueing. Joining may bring it ahead by the cost of one more joined dispatch.
    pub(super) fn no_client_starves(&self, join_cost_max: u64) -> Result<(), Broken> {
        let bound = 2 * (i128::from(self.cost_max) + i128::from(join_cost_max));
        for (&(client, other), &ahead) in &self.ahead {
            let waits = self.waiting.get(&client).is_some_and(|jobs| !jobs.is_empty());
            holds("no_client_starves", !waits || ahead <= bound, || {
                format!("{other} was given {ahead} more than {client}, which waits")
            })?;
        }
        Ok(())
    }

    pub(super) fn a_clients_jobs_go_by_priority_and_then_in_order(
        &self,
        client: ClientId,
        request: &JobRequest,
        fresh: impl Fn(JobId) -> bool,
    ) -> Result<(), Broken> {
        let rule = "a_clients_jobs_go_by_priority_and_then_in_order";
        let own = (request.priority, request.job);
        let first = self.waiting.get(&client).and_then(|jobs| {
            jobs.iter().find(|&&(_, job)| job != request.job && fresh(job)).copied()
        });
        holds(rule, first.is_none_or(|first| own < first), || {
            format!("{} of {client} went before {first:?}", request.job)
        })
    }
}
