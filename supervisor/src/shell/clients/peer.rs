//! Who is at the other end of a connection, and what it may do.
//!
//! The processes that the pool starts have its user, and a client's bytes may have taken one over. So a user is an
//! operator only in a process that the pool has not started and that still lives: the number of one that has ended
//! may be another's.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use gridpool_core::event::Helper;
use gridpool_ipc::account::Account;
use gridpool_protocol::principal::Principal;
use procfs::process::Process;

use super::super::Shared;
use super::super::audit::{Order, Who};
use super::super::pidfd::PidFd;
use super::super::status::Viewer;

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::shell) enum Peer {
    /// It submits jobs and asks.
    Client,
    /// The pool's own gateway, or that of the pool before it. It submits for others, and names them.
    Gateway,
    /// The pool's own bridge: a client that may also release what the cluster's operator has released.
    Bridge,
    /// It may also change the pool.
    Operator,
}

/// Why a client may not name another principal.
const NOT_FOR_OTHERS: &str = "a job is for the user who submits it: only the pool's own gateway may name \
                              another principal";

impl Peer {
    /// What the process at the other end may do, or why it is no client. Waits while a process of the pool is being
    /// started.
    pub(super) fn of(shared: &Shared, who: Who, socket: &UnixStream) -> Result<Self, String> {
        let pid = who.pid;
        let former = shared.former_gateway.get();
        if shared.gateway.get().is_some_and(|gateway| gateway.is(pid))
            || former.is_some_and(|former| former.is(pid))
        {
            return Ok(Self::Gateway);
        }
        if shared.bridge.get().is_some_and(|bridge| bridge.is(pid)) {
            return Ok(Self::Bridge);
        }
        if let Some(own) = own_process(shared, pid) {
            return Err(format!("{own} is a process of this pool, and no client of it"));
        }
        if !shared.users.may_order(who.account) {
            return Ok(Self::Client);
        }
        // Last: a process that still lives was alive above, too.
        lives(socket, pid).map(|()| Self::Operator)
    }

    /// Whether a peer may give an order, or why not.
    pub(super) fn check(self, order: &Order) -> Result<(), String> {
        let what = order.may;
        match self {
            Self::Operator => Ok(()),
            Self::Gateway if order.helper == Some(Helper::Gateway) => Ok(()),
            Self::Bridge if order.helper == Some(Helper::Bridge) => Ok(()),
            Self::Client => Err(format!(
                "only the user of this pool, root and those whom `gridpool serve --operators` names may {what}"
            )),
            Self::Bridge => Err(format!("the pool's bridge may not {what}")),
            Self::Gateway => Err(format!("the pool's gateway may not {what}")),
        }
    }

    /// Whose programs the status shows to it.
    pub(super) fn viewer(self, user: Account) -> Viewer {
        match self {
            Self::Operator => Viewer::All,
            Self::Bridge | Self::Client => Viewer::Own(Principal::Uid(user.uid())),
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
            (Self::Bridge | Self::Client | Self::Operator, None) => Ok(Principal::Uid(user.uid())),
            (Self::Gateway, Some(named)) => named.check().map(|()| named.clone()),
            (Self::Bridge | Self::Client | Self::Operator, Some(_)) => {
                Err(NOT_FOR_OTHERS.to_owned())
            }
        }
    }
}

/// The process of the pool, or of the pool before it, that has this number and is no client.
fn own_process(shared: &Shared, pid: u32) -> Option<String> {
    if shared.monitor.get().is_some_and(|monitor| monitor.is(pid)) {
        return Some("the monitor".to_owned());
    }
    if shared.tracer.get().is_some_and(|tracer| tracer.is(pid)) {
        return Some("the tracer".to_owned());
    }
    {
        let _starting = shared.starting.lock();
        let core = shared.lock();
        if let Some((worker, _)) = core.workers.iter().find(|(_, link)| link.pid == pid) {
            return Some(worker.to_string());
        }
    }
    // Those of the pool before end with it.
    let former = shared.former_pool.get()?;
    let parent = || Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok();
    let is_child = former.lives() && u32::try_from(parent()?.ppid) == Ok(former.pid);
    is_child.then(|| format!("process {pid} of the pool before this one"))
}

/// Whether the process that has connected has not ended yet.
fn lives(socket: &UnixStream, pid: u32) -> Result<(), String> {
    // One of another namespace, where the pool starts none.
    if pid == 0 {
        return Ok(());
    }
    let ended = PidFd::of_peer(socket, pid).and_then(|peer| peer.wait(Some(Duration::ZERO)));
    match ended {
        Ok(false) => Ok(()),
        Ok(true) => Err(format!("process {pid}, which has connected, has ended already")),
        Err(error) => {
            Err(format!("process {pid}, which has connected, cannot be looked at: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::ids::{ClientId, ContentHash, WorkerSelector};
    use gridpool_protocol::message::{ClientMessage, ModelCommand, Release};

    use std::os::unix::net::UnixListener;
    use std::process::Command;

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
            ClientMessage::Upgrade { request: 3, one_by_one: false },
        ];
        let who = Who { account: Account::new(1), pid: 2, client: ClientId(3) };
        for message in &orders {
            let (request, order) = Order::of(who, message).unwrap();
            assert_eq!((request, Peer::Operator.check(&order)), (3, Ok(())));
            for peer in [Peer::Bridge, Peer::Gateway, Peer::Client] {
                assert!(peer.check(&order).unwrap_err().contains(" may "), "{order:?}");
            }
        }
        assert!(Order::of(who, &ClientMessage::Status { request: 3, token: None }).is_none());
        let release = Release::Content(ContentHash([7; 32]));
        let (_, order) = Order::of(who, &ClientMessage::Release { request: 3, release }).unwrap();
        let may = [Peer::Operator, Peer::Bridge, Peer::Gateway, Peer::Client];
        assert_eq!(may.map(|peer| peer.check(&order).is_ok()), [true, true, false, false]);
    }

    #[test]
    fn a_process_that_has_connected_and_ended_is_no_operators() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let script = "import socket, sys; socket.socket(1).connect(sys.argv[1])";
        let path = folder.path().join("socket");
        let mut child = Command::new("python3").args(["-c", script]).arg(path).spawn().unwrap();
        let (socket, _) = listener.accept().unwrap();
        PidFd::open(child.id()).unwrap().wait(None).unwrap();
        assert!(lives(&socket, child.id()).unwrap_err().contains("has ended"));
        child.wait().unwrap();
        assert!(lives(&socket, child.id()).is_err());
        let own = UnixStream::connect(folder.path().join("socket")).unwrap();
        assert_eq!(lives(&listener.accept().unwrap().0, std::process::id()), Ok(()));
        drop(own);
    }
}
