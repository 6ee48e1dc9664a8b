//! Who sits on which of the gateway's connections. If all ordinary seats are taken, a client that has not sent a
//! whole head, or is slow in sending a body, gives up its seat. Otherwise the newcomer gets a reserved one, where
//! only health and metrics are served. So whatever many clients do, an operator and a load balancer get an answer.
//!
//! A connection is charged to its address until a head names a token. From then on it is charged to the token, and
//! gets an ordinary seat if the token has room, whatever other connections of the address do. A connection of gRPC has
//! many calls: it is charged to the first token, and gives up its seat if all of its calls wait for their client.

mod call;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gridpool_client::Principal;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::access::Peer;
use super::limits::{
    ANSWER_TIMEOUT, CONNECTIONS_EACH_MAX, CONNECTIONS_MAX, CONNECTIONS_UNNAMED_MAX,
    EVICTABLE_AFTER, EVICTABLE_BEHIND, RESERVED_EACH_MAX, RESERVED_FOR, RESERVED_MAX,
};
use super::reason::Reason;
use crate::refusals::Refusals;

pub(super) use call::{Call, Turn};

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
    /// Since when it has a seat of that kind.
    since: Instant,
    /// What it does, unless it has calls of gRPC.
    phase: Phase,
    /// What each call of gRPC does.
    calls: BTreeMap<u64, Phase>,
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
    /// The client is told that there is no seat for its request. It may go at once.
    Refused,
}

/// Which connection gives up its seat.
#[derive(Clone, Copy, Debug)]
struct Eviction<'a> {
    /// Whether it is one of the reserved seats.
    reserved: bool,
    /// Whose it is; `None` for anybody's.
    whose: Option<&'a Principal>,
    /// Whether only connections without a token are meant, and those that have just come too.
    only_unnamed: bool,
}

/// A seat, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    pub(super) peer: Peer,
    /// Who has sent the latest request, if its token says so.
    principal: Mutex<Option<Principal>>,
    /// Whether the connection was served at all.
    has_served: AtomicBool,
    /// Whether an answer is written.
    is_answering: AtomicBool,
    /// Calls of gRPC that the gateway does not read for now.
    stalled: AtomicUsize,
    /// Bytes that have come.
    came: AtomicUsize,
    /// Whether the client leaves no room for bytes that are to be written.
    is_blocked: AtomicBool,
}

impl Seats {
    pub(super) fn new(refusals: Arc<Refusals<Reason>>) -> Arc<Self> {
        Arc::new(Self { refusals, table: Mutex::default(), emptied: Notify::new() })
    }

    /// Seats a new connection; `None` if it cannot even be told why it is not served. `asks_tokens`: an address is no
    /// client, and its connections without a token have a limit of their own.
    pub(super) fn take(self: &Arc<Self>, peer: Peer, asks_tokens: bool) -> Option<Seat> {
        let principal = peer.principal();
        let mut table = self.table.lock();
        let (most, own) = match asks_tokens {
            true => (CONNECTIONS_UNNAMED_MAX, Reason::ConnectionsUnnamed),
            false => (CONNECTIONS_EACH_MAX, Reason::ConnectionsOwn),
        };
        let full = if table.ordinary(Some(&principal)) >= most {
            Some((own, Some(&principal)))
        } else if table.ordinary(None) >= CONNECTIONS_MAX {
            Some((Reason::ConnectionsFull, None))
        } else {
            None
        };
        let of = |reserved, whose| Eviction { reserved, whose, only_unnamed: false };
        let kind = match full {
            None => Kind::Ordinary,
            Some((_, whose)) if self.evict(&mut table, of(false, whose)) => Kind::Ordinary,
            Some((reason, _)) => {
                self.refusals.note(reason, &principal);
                let own = table.reserved(Some(&principal)) >= RESERVED_EACH_MAX;
                let whose = own.then_some(&principal);
                let is_full = own || table.reserved(None) >= RESERVED_MAX;
                if is_full && !self.evict(&mut table, of(true, whose)) {
                    return None;
                }
                Kind::Reserved(reason)
            }
        };
        let number = table.next;
        table.next += 1;
        let (since, calls, task) = (clock::now(), BTreeMap::new(), None);
        let phase = Phase::Waiting(since);
        table.taken.insert(number, Occupant { kind, principal, since, phase, calls, task });
        let (seats, principal) = (Arc::clone(self), Mutex::default());
        let (has_served, is_answering, is_blocked) = Default::default();
        let (stalled, came) = Default::default();
        Some(Seat {
            seats,
            number,
            peer,
            principal,
            has_served,
            is_answering,
            stalled,
            came,
            is_blocked,
        })
    }

    /// Charges a connection whose request is worked on to a token. It has an ordinary seat afterwards if the token has
    /// room, or else a reserved one.
    fn charge(&self, number: u64, principal: &Principal) {
        let mut table = self.table.lock();
        let Some(occupant) = table.taken.get(&number) else { return };
        let is_ordinary = occupant.kind == Kind::Ordinary;
        let has_token = matches!(occupant.principal, Principal::Token(_));
        let is_charged = has_token && occupant.calls.len() > 1;
        if is_charged || is_ordinary && occupant.principal == *principal {
            return;
        }
        let of = |whose, only_unnamed| Eviction { reserved: false, whose, only_unnamed };
        let has_own = table.ordinary(Some(principal)) < CONNECTIONS_EACH_MAX
            || self.evict(&mut table, of(Some(principal), false));
        let has_one = is_ordinary
            || table.ordinary(None) < CONNECTIONS_MAX
            || self.evict(&mut table, of(None, true))
            || self.evict(&mut table, of(None, false));
        let kind = match (has_own, has_one) {
            (true, true) => Kind::Ordinary,
            (true, false) => Kind::Reserved(Reason::ConnectionsFull),
            (false, _) => Kind::Reserved(Reason::ConnectionsOwn),
        };
        if let Kind::Reserved(reason) = kind {
            self.refusals.note(reason, principal);
            let another = Eviction { reserved: true, whose: None, only_unnamed: false };
            let is_full = table.reserved(None) >= RESERVED_MAX;
            if is_ordinary && is_full && !self.evict(&mut table, another) {
                table.remove(number);
                return;
            }
        }
        if let Some(occupant) = table.taken.get_mut(&number) {
            if occupant.kind != kind {
                (occupant.kind, occupant.since) = (kind, clock::now());
            }
            occupant.principal = principal.clone();
        }
    }

    /// Takes the seat from a connection without a whole head, or with a slow body: of the principal with the most
    /// such connections, the one that is so for longest. One that has just come keeps its seat. A connection whose
    /// request is refused for want of a seat goes first.
    fn evict(&self, table: &mut Table, which: Eviction<'_>) -> bool {
        let now = clock::now();
        let mut waiting: BTreeMap<&Principal, (usize, Instant, u64)> = BTreeMap::new();
        let mut refused = None;
        for (&number, one) in &table.taken {
            let is_meant = (one.kind != Kind::Ordinary) == which.reserved
                && which.whose.is_none_or(|whose| one.principal == *whose)
                && !(which.only_unnamed && matches!(one.principal, Principal::Token(_)));
            if !is_meant {
                continue;
            }
            if matches!(one.phase, Phase::Refused) {
                refused = refused.or(Some(number));
                continue;
            }
            // A reserved seat is needed only for a moment.
            let (since, kept, may_be_new) = match one.waits() {
                Some((since, kept)) => (since, kept, which.reserved || which.only_unnamed),
                None if which.reserved => (one.since, RESERVED_FOR, false),
                None => continue,
            };
            if may_be_new || now.saturating_duration_since(since) >= kept {
                let group = waiting.entry(&one.principal).or_insert((0, since, number));
                let first = if since < group.1 { (since, number) } else { (group.1, group.2) };
                *group = (group.0 + 1, first.0, first.1);
            }
        }
        let most =
            || waiting.values().max_by_key(|&&(count, ..)| count).map(|&(.., number)| number);
        let Some(number) = refused.or_else(most) else { return false };
        if let Some(gone) = table.remove(number) {
            self.refusals.note(Reason::Evicted, &gone);
        }
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
        [table.ordinary(None), table.reserved(None)]
    }
}

impl Occupant {
    /// Since when the connection waits for its client, and how long it may before it gives up its seat; `None` while
    /// anything is worked on or answered.
    fn waits(&self) -> Option<(Instant, Duration)> {
        let own = self.calls.is_empty().then_some(&self.phase);
        let mut all = self.calls.values().chain(own).map(|phase| match *phase {
            Phase::Waiting(since) => Some((since, EVICTABLE_AFTER)),
            Phase::Sending(since) => Some((since, EVICTABLE_BEHIND)),
            Phase::Answering(_) | Phase::Refused | Phase::Working => None,
        });
        let first = all.next()??;
        all.try_fold(first, |last, one| {
            let one = one?;
            Some(if one.0 + one.1 > last.0 + last.1 { one } else { last })
        })
    }
}

impl Table {
    /// The ordinary seats that are taken, by anybody or by one.
    fn ordinary(&self, of: Option<&Principal>) -> usize {
        let is_such = |one: &&Occupant| {
            one.kind == Kind::Ordinary && of.is_none_or(|own| one.principal == *own)
        };
        self.taken.values().filter(is_such).count()
    }

    /// The reserved seats that are taken.
    fn reserved(&self, of: Option<&Principal>) -> usize {
        let all = self.taken.values().filter(|one| of.is_none_or(|own| one.principal == *own));
        all.count() - self.ordinary(of)
    }

    /// Ends a connection. Returns whom it was charged to.
    fn remove(&mut self, number: u64) -> Option<Principal> {
        let gone = self.taken.remove(&number)?;
        if let Some(task) = gone.task {
            task.abort();
        }
        Some(gone.principal)
    }
}

impl Seat {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// For which requests it is.
    pub(super) fn kind(&self) -> Kind {
        let table = self.seats.table.lock();
        // Without an occupant it has ended, and serves nothing more.
        let gone = Kind::Reserved(Reason::Evicted);
        table.taken.get(&self.number).map_or(gone, |occupant| occupant.kind)
    }

    /// The request of that head has no token, as far as is known.
    pub(super) fn is_unnamed(&self) {
        *self.principal.lock() = None;
    }

    /// Since when the connection has no call, if it has none.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let table = self.seats.table.lock();
        let occupant = table.taken.get(&self.number)?;
        match occupant.phase {
            Phase::Waiting(since) if occupant.calls.is_empty() => Some(since),
            Phase::Answering(_)
            | Phase::Refused
            | Phase::Sending(_)
            | Phase::Waiting(_)
            | Phase::Working => None,
        }
    }

    /// Bytes have come.
    pub(super) fn takes(&self, bytes: usize) {
        self.came.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many bytes have come.
    pub(super) fn came(&self) -> usize {
        self.came.load(Ordering::Relaxed)
    }

    /// Whether the client leaves no room for what is to be written.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    pub(super) fn block(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
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

    /// Whether a request was answered.
    pub(super) fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: Phase) {
        if let Some(occupant) = self.seats.table.lock().taken.get_mut(&self.number)
            && !matches!(occupant.phase, Phase::Refused)
        {
            occupant.phase = phase;
        }
    }

    /// When the answer that is written must have been read.
    pub(super) fn answer_until(&self, now: Instant) -> Instant {
        let phase = self.seats.table.lock().taken.get(&self.number).map(|occupant| occupant.phase);
        match phase {
            Some(Phase::Answering(since)) => since + ANSWER_TIMEOUT,
            Some(Phase::Refused | Phase::Sending(_) | Phase::Waiting(_) | Phase::Working)
            | None => now + ANSWER_TIMEOUT,
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

#[cfg(test)]
mod tests;
