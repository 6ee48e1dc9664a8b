//! The users of a pool: who may do what at its socket, how many connections each may have, and what was refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use gridpool_core::event::Event;
use gridpool_core::quota::Quotas;
use gridpool_ipc::account::Account;

use super::Shell;
use super::audit::Orders;
use super::refused::Refused;
use crate::refusals::Refusals;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Users {
    /// Connections that each user may have.
    connections_max: AtomicUsize,
    pub(super) refusals: Refusals<Refused>,
    pub(super) orders: Orders,
}

impl Users {
    pub(super) fn new(connections_max: usize) -> Self {
        let connections_max = AtomicUsize::new(connections_max);
        Self { connections_max, refusals: Refusals::default(), orders: Orders::default() }
    }

    /// Each user may have so many connections from now on.
    pub(super) fn limit_connections(&self, max: usize) {
        self.connections_max.store(max, Ordering::Relaxed);
    }

    /// Whether someone is the user of this pool, or root.
    pub(super) fn is_own(account: Account) -> bool {
        account == Account::mine() || account.uid() == 0
    }

    /// Connections that someone may have.
    pub(super) fn connections_max(&self, account: Account) -> usize {
        match Self::is_own(account) {
            true => usize::MAX,
            false => self.connections_max.load(Ordering::Relaxed),
        }
    }
}

impl Shell {
    /// Whether jobs may make workers fault on purpose, from now on. They may not without a call.
    pub fn allow_chaos(&self, is_allowed: bool) {
        self.shared.allows_chaos.store(is_allowed, Ordering::Relaxed);
    }

    /// What each principal may have from now on. Without a call, there is no quota.
    pub fn set_quotas(&self, quotas: Quotas) {
        self.shared.post(Event::QuotasSet(quotas));
    }
}
