//! Who is at the other end of a connection, and what it may do.

use std::io;
use std::os::unix::net::UnixStream;

use gridpool_ipc::account::Account;
use gridpool_protocol::principal::Principal;

use super::super::Shared;

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shell) enum Peer {
    /// It submits jobs and asks.
    Client,
    /// The pool's own gateway. It submits for others, and names them.
    Gateway,
    /// It may also change the pool.
    Operator,
}

/// Why a client may not name another principal.
const NOT_FOR_OTHERS: &str = "a job is for the user who submits it: only the pool's own gateway may name \
                              another principal";

impl Peer {
    /// The peer of a connection, and its user. Waits while a gateway is being started.
    pub(super) fn of(shared: &Shared, socket: &UnixStream) -> io::Result<(Self, Principal)> {
        let (account, pid) = Account::and_pid_of_peer(socket)?;
        let peer = match shared.gateway.get() {
            Some(gateway) if gateway.is(pid) => Self::Gateway,
            _ if account == Account::mine() => Self::Operator,
            _ => Self::Client,
        };
        Ok((peer, Principal::Uid(account.uid())))
    }

    /// The principal of a job: the user of the connection, or the one that the gateway names.
    pub(super) fn principal(
        self,
        user: &Principal,
        named: Option<&Principal>,
    ) -> Result<Principal, String> {
        match (self, named) {
            (_, None) => Ok(user.clone()),
            (Self::Gateway, Some(named)) => named.check().map(|()| named.clone()),
            (Self::Client | Self::Operator, Some(_)) => Err(NOT_FOR_OTHERS.to_owned()),
        }
    }
}
