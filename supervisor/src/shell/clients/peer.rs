//! Who is at the other end of a connection, and what it may do.

use gridpool_ipc::account::Account;
use gridpool_protocol::principal::Principal;

use super::super::Shared;
use super::super::audit::{Order, Who};
use super::super::status::Viewer;

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shell) enum Peer {
    /// It submits jobs and asks.
    Client,
    /// The pool's own gateway, or that of the pool before it. It submits for others, and names them.
    Gateway,
    /// It may also change the pool.
    Operator,
}

/// Why a client may not name another principal.
const NOT_FOR_OTHERS: &str = "a job is for the user who submits it: only the pool's own gateway may name \
                              another principal";

impl Peer {
    /// What the process at the other end may do. Waits while a gateway is being started.
    pub(super) fn of(shared: &Shared, who: Who) -> Self {
        match shared.gateway.get() {
            Some(gateway) if gateway.is(who.pid) => Self::Gateway,
            _ if shared.former_gateway.get().is_some_and(|former| former.is(who.pid)) => {
                Self::Gateway
            }
            _ if shared.users.may_order(who.account) => Self::Operator,
            _ => Self::Client,
        }
    }

    /// Whether a peer may give an order, or why not.
    pub(super) fn check(self, order: &Order) -> Result<(), String> {
        let what = order.may;
        match self {
            Self::Operator => Ok(()),
            Self::Gateway if order.is_for_gateway => Ok(()),
            Self::Client => Err(format!(
                "only the user of this pool, root and those whom `gridpool serve --operators` names may {what}"
            )),
            Self::Gateway => Err(format!("the pool's gateway may not {what}")),
        }
    }

    /// Whose programs the status shows to it.
    pub(super) fn viewer(self, user: Account) -> Viewer {
        match self {
            Self::Operator => Viewer::All,
            Self::Client => Viewer::Own(Principal::Uid(user.uid())),
            Self::Gateway => Viewer::Own(Principal::Gateway),
        }
    }

    /// The principal of a job: the user of the connection, or the one that the gateway names. Its other jobs are
    /// its own, and count against nobody's quota.
    pub(super) fn principal(
        self,
        user: Account,
        named: Option<&Principal>,
    ) -> Result<Principal, String> {
        match (self, named) {
            (Self::Gateway, None) => Ok(Principal::Gateway),
            (Self::Client | Self::Operator, None) => Ok(Principal::Uid(user.uid())),
            (Self::Gateway, Some(named)) => named.check().map(|()| named.clone()),
            (Self::Client | Self::Operator, Some(_)) => Err(NOT_FOR_OTHERS.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::ids::{ClientId, WorkerSelector};
    use gridpool_protocol::message::{ClientMessage, ModelCommand, Release};

    use super::*;

    #[test]
    fn only_an_operator_changes_the_pool() {
        let name = "m".to_owned();
        let worker: WorkerSelector = "cpu0".parse().unwrap();
        let orders = [
            ClientMessage::Drain { request: 3 },
            ClientMessage::Kill { request: 3, worker, signal: 9 },
            ClientMessage::Model { request: 3, command: ModelCommand::Unload { name } },
            ClientMessage::Release { request: 3, release: Release::Contents },
            ClientMessage::Upgrade { request: 3 },
        ];
        let who = Who { account: Account::new(1), pid: 2, client: ClientId(3) };
        for message in &orders {
            let (request, order) = Order::of(who, message).unwrap();
            assert_eq!((request, Peer::Operator.check(&order)), (3, Ok(())));
            for peer in [Peer::Gateway, Peer::Client] {
                assert!(peer.check(&order).unwrap_err().contains(" may "), "{order:?}");
            }
        }
        assert!(Order::of(who, &ClientMessage::Status { request: 3 }).is_none());
    }
}
