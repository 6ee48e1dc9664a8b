//! How many workers of a group a principal may cost. A worker that is killed because it did not stop an attempt in time
//! is taken from the budget of the attempt's principal, and given back later, one after the other. Without a budget, a
//! principal's jobs for the group are refused, and those that wait already are held. Its jobs for other groups go on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gridpool_protocol::principal::Principal;

use crate::event::Timestamp;

/// The kills that were not given back.
#[derive(Debug, Default)]
pub(super) struct KillBudget {
    /// When each is given back, in order.
    spent: BTreeMap<Principal, VecDeque<Timestamp>>,
}

impl KillBudget {
    /// A worker is killed for a principal's attempt. No more than `max` are counted.
    pub(super) fn spend(
        &mut self,
        now: Timestamp,
        principal: Principal,
        max: usize,
        refill: Duration,
    ) {
        self.spent.retain(|_, back| back.back().is_some_and(|&at| at > now));
        let own = self.spent.entry(principal).or_default();
        own.retain(|&at| at > now);
        if own.len() < max {
            let from = own.back().map_or(now, |&last| last.max(now));
            own.push_back(from.after(refill));
        }
    }

    /// When a principal that has spent all of its budget has one again.
    pub(super) fn back_at(
        &self,
        now: Timestamp,
        principal: &Principal,
        max: usize,
    ) -> Option<Timestamp> {
        let own = self.spent.get(principal)?;
        own.get(own.len().checked_sub(max)?).copied().filter(|&at| at > now)
    }

    /// The principals that have spent all of their budgets.
    pub(super) fn all_spent(&self, now: Timestamp, max: usize) -> BTreeSet<Principal> {
        let is_spent = |own: &&Principal| self.back_at(now, own, max).is_some();
        self.spent.keys().filter(is_spent).cloned().collect()
    }

    /// How many a principal has spent.
    pub(super) fn count(&self, now: Timestamp, principal: &Principal) -> usize {
        let own = self.spent.get(principal);
        own.map_or(0, |back| back.iter().filter(|&&at| at > now).count())
    }
}
