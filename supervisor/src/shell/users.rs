//! The users of a pool: who may do what at its socket, how many connections each may have, and what was refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use gridpool_core::event::Event;
use gridpool_core::quota::Quotas;
use gridpool_ipc::account::Account;
use gridpool_ipc::mutex::Mutex;

use super::Shell;
use super::audit::Orders;
use super::claim::{ListenError, SocketName};
use super::questions::Questions;
use super::refused::Refused;
use crate::config::UserOptions;
use crate::refusals::Refusals;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Users {
    options: Mutex<UserOptions>,
    /// Connections that each user may have.
    connections_max: AtomicUsize,
    pub(super) refusals: Refusals<Refused>,
    pub(super) orders: Orders,
    pub(super) questions: Questions,
}

impl Users {
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            options: Mutex::default(),
            connections_max: AtomicUsize::new(connections_max),
            refusals: Refusals::default(),
            orders: Orders::default(),
            questions: Questions::default(),
        }
    }

    /// Each user may have so many connections from now on.
    pub(super) fn limit_connections(&self, max: usize) {
        self.connections_max.store(max, Ordering::Relaxed);
    }

    /// Whether someone is the user of this pool, or root.
    pub(super) fn is_own(account: Account) -> bool {
        account == Account::mine() || account.uid() == 0
    }

    /// Whether someone may give orders.
    pub(super) fn may_order(&self, account: Account) -> bool {
        let is_of = |(_, uid): &(String, u32)| *uid == account.uid();
        Self::is_own(account) || self.options.lock().operators.iter().any(is_of)
    }

    /// Whether someone may connect. For others than the pool's own, the socket's mode has decided that already, if it
    /// is theirs to use.
    pub(super) fn may_connect(&self, account: Account) -> bool {
        let is_shared = |mode: u32| mode & 0o066 != 0;
        self.may_order(account) || self.options.lock().socket_mode().is_some_and(is_shared)
    }

    /// The socket is open: gives it to those who may use it.
    pub(super) fn admit(&self, name: &SocketName) -> Result<(), ListenError> {
        let options = self.options.lock().clone();
        let Some(mode) = options.socket_mode() else { return Ok(()) };
        name.admit(options.group.map(|(_, gid)| gid), mode)
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
    /// Whether jobs may make workers fault on purpose, from now on, and hooks of tests those that start from now on.
    /// Without a call jobs may not.
    pub fn allow_chaos(&self, is_allowed: bool) {
        self.shared.allows_chaos.store(is_allowed, Ordering::Relaxed);
        self.shared.command.lock().allows_chaos = is_allowed;
    }

    /// Who may use the pool from now on, and how much each may have. Without a call, only its own user and root, and
    /// there is no quota. The socket's group and mode stay once it is open.
    pub fn set_users(&self, options: &UserOptions, quotas: Quotas) {
        *self.shared.users.options.lock() = options.clone();
        self.shared.post(Event::QuotasSet(quotas));
    }
}
