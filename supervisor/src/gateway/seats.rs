//! Who sits on which of the gateway's connections. If all ordinary seats are taken, a client that has not sent a
//! whole head, or is slow in sending a body, gives up its seat. Otherwise the newcomer gets a reserved one, where
//! only health and metrics are served. So whatever many clients do, an operator and a load balancer get an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gridpool_client::Principal;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::access::Peer;
use super::limits::{
    ANSWER_TIMEOUT, CONNECTIONS_EACH_MAX, CONNECTIONS_MAX, EVICTABLE_AFTER, EVICTABLE_BEHIND,
    RESERVED_MAX,
};
use super::reason::Reason;
use crate::refusals::Refusals;

/// The seats of one gateway.
#[derive(Debug)]
pub(super) struct Seats {
    refusals: Arc<Refusals<Reason>>,
    table: Mutex<Table>,
    /// Notified when the last seat is given back.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    taken: BTreeMap<u64, Occupant>,
}

#[derive(Debug)]
struct Occupant {
    kind: Kind,
    principal: Principal,
    phase: Phase,
    /// The task of the connection, once there is one.
    task: Option<AbortHandle>,
}

/// What a seat is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For every request.
    Ordinary,
    /// For health and metrics, and why.
    Reserved(Reason),
}

/// What a connection does, and since when.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The client has not sent a whole head.
    Waiting(Instant),
    /// The client sends a body. It would be behind since then if it sent nothing more.
    Sending(Instant),
    /// A request is worked on.
    Working,
    /// An answer is written.
    Answering(Instant),
}

/// A seat, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    pub(super) kind: Kind,
    pub(super) peer: Peer,
    /// Who has sent the latest request, if its token says so.
    principal: Mutex<Option<Principal>>,
    /// Whether the connection was served at all.
    has_served: AtomicBool,
    /// Whether an answer is written.
    is_answering: AtomicBool,
}

impl Seats {
    pub(super) fn new(refusals: Arc<Refusals<Reason>>) -> Arc<Self> {
        Arc::new(Self { refusals, table: Mutex::default(), emptied: Notify::new() })
    }

    /// Seats a new connection; `None` if it cannot even be told why it is not served.
    pub(super) fn take(self: &Arc<Self>, peer: Peer) -> Option<Seat> {
        let principal = peer.principal();
        let mut table = self.table.lock();
        let ordinary = |own: Option<&Principal>| {
            let is_such = |one: &&Occupant| {
                one.kind == Kind::Ordinary && own.is_none_or(|own| one.principal == *own)
            };
            table.taken.values().filter(is_such).count()
        };
        let full = if ordinary(Some(&principal)) >= CONNECTIONS_EACH_MAX {
            Some((Reason::ConnectionsOwn, Some(&principal)))
        } else if ordinary(None) >= CONNECTIONS_MAX {
            Some((Reason::ConnectionsFull, None))
        } else {
            None
        };
        let kind = match full {
            None => Kind::Ordinary,
            Some((_, whose)) if self.evict(&mut table, false, whose) => Kind::Ordinary,
            Some((reason, _)) => {
                self.refusals.note(reason, &principal);
                let reserved = table.taken.values().filter(|one| one.kind != Kind::Ordinary);
                if reserved.count() >= RESERVED_MAX && !self.evict(&mut table, true, None) {
                    return None;
                }
                Kind::Reserved(reason)
            }
        };
        let number = table.next;
        table.next += 1;
        let phase = Phase::Waiting(clock::now());
        table.taken.insert(number, Occupant { kind, principal, phase, task: None });
        let (seats, principal) = (Arc::clone(self), Mutex::default());
        let (has_served, is_answering) = Default::default();
        Some(Seat { seats, number, kind, peer, principal, has_served, is_answering })
    }

    /// Takes the seat from a connection without a whole head, or with a slow body: of the principal with the most
    /// such connections, the one that is so for longest. One that has just come keeps its seat.
    fn evict(&self, table: &mut Table, reserved: bool, whose: Option<&Principal>) -> bool {
        let now = clock::now();
        let mut waiting: BTreeMap<&Principal, (usize, Instant, u64)> = BTreeMap::new();
        for (&number, one) in &table.taken {
            let (since, kept) = match one.phase {
                Phase::Waiting(since) => (since, EVICTABLE_AFTER),
                Phase::Sending(since) => (since, EVICTABLE_BEHIND),
                Phase::Working | Phase::Answering(_) => continue,
            };
            let is_reserved = one.kind != Kind::Ordinary;
            let is_meant = whose.is_none_or(|whose| one.principal == *whose);
            // A reserved seat is needed only for a moment.
            let is_new = !reserved && now.saturating_duration_since(since) < kept;
            if is_reserved == reserved && is_meant && !is_new {
                let group = waiting.entry(&one.principal).or_insert((0, since, number));
                let first = if since < group.1 { (since, number) } else { (group.1, group.2) };
                *group = (group.0 + 1, first.0, first.1);
            }
        }
        let Some(&(_, _, number)) = waiting.values().max_by_key(|&&(count, ..)| count) else {
            return false;
        };
        let Some(gone) = table.taken.remove(&number) else { return false };
        if let Some(task) = gone.task {
            task.abort();
        }
        self.refusals.note(Reason::Evicted, &gone.principal);
        true
    }

    /// Says which task serves a connection. It is aborted if the connection must go.
    pub(super) fn serve(&self, number: u64, task: AbortHandle) {
        // Without an occupant it has ended.
        if let Some(occupant) = self.table.lock().taken.get_mut(&number) {
            occupant.task = Some(task);
        }
    }

    /// Waits until no connection is open, and no more come.
    pub(super) async fn empty(&self) {
        let emptied = self.emptied.notified();
        if !self.table.lock().taken.is_empty() {
            emptied.await;
        }
    }

    /// How many connections are open: ordinary and reserved ones.
    pub(super) fn counts(&self) -> [usize; 2] {
        let table = self.table.lock();
        let ordinary = table.taken.values().filter(|one| one.kind == Kind::Ordinary).count();
        [ordinary, table.taken.len() - ordinary]
    }
}

impl Seat {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// A whole head has come.
    pub(super) fn works(&self) {
        self.enter(Phase::Working);
    }

    /// Whose the request of that head is, if its token says so.
    pub(super) fn is_of(&self, principal: Option<Principal>) {
        *self.principal.lock() = principal;
    }

    /// The answer is there, and is written from now on.
    pub(super) fn answers(&self) {
        self.has_served.store(true, Ordering::Relaxed);
        self.is_answering.store(true, Ordering::Relaxed);
        self.enter(Phase::Answering(clock::now()));
    }

    /// Nothing is left to write. If that was an answer, the client may send the next request.
    pub(super) fn flushed(&self) {
        if self.is_answering.swap(false, Ordering::Relaxed) {
            self.enter(Phase::Waiting(clock::now()));
        }
    }

    /// The client sends a body, and is behind.
    pub(super) fn sends_body(&self, behind: Duration) {
        let now = clock::now();
        self.enter(Phase::Sending(now.checked_sub(behind).unwrap_or(now)));
    }

    /// Whether a request was answered.
    pub(super) fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: Phase) {
        if let Some(occupant) = self.seats.table.lock().taken.get_mut(&self.number) {
            occupant.phase = phase;
        }
    }

    /// When the answer that is written must have been read.
    pub(super) fn answer_until(&self, now: Instant) -> Instant {
        let phase = self.seats.table.lock().taken.get(&self.number).map(|occupant| occupant.phase);
        match phase {
            Some(Phase::Answering(since)) => since + ANSWER_TIMEOUT,
            Some(Phase::Sending(_) | Phase::Waiting(_) | Phase::Working) | None => {
                now + ANSWER_TIMEOUT
            }
        }
    }

    /// The client reads its answer too slowly.
    pub(super) fn reads_slowly(&self) {
        self.note(Reason::SlowAnswer);
    }

    /// Counts a refusal of this client.
    pub(super) fn note(&self, reason: Reason) {
        let principal = self.principal.lock().clone();
        self.seats.refusals.note(reason, &principal.unwrap_or_else(|| self.peer.principal()));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.seats.table.lock();
        table.taken.remove(&self.number);
        if table.taken.is_empty() {
            self.seats.emptied.notify_waiters();
        }
    }
}
