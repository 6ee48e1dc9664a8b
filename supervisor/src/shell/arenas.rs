//! The limits of shared memory, for each client and for all.
//!
//! An arena counts against them until it is really gone: until the pool does not use it and no process could
//! write to it. A thread looks after arenas that have ended. It gives their memory back to the system, and never
//! takes the core's lock.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gridpool_ipc::arena::{Arena, ArenaError};
use gridpool_ipc::memory::available_bytes;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::{Limit, Refusal};

/// Arenas that one connection may have at a time; each costs a descriptor.
pub(super) const CLIENT_ARENAS_MAX: usize = 128;

/// All arenas together may take half of the memory that was available at the start. One client may take half of
/// that.
const POOL_SHARE: u64 = 2;
const CLIENT_SHARE: u64 = 2;

/// How often the pool looks whether an arena that has ended is gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a client that wants an arena waits for such a look.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Memory of all arenas, against its limit.
#[derive(Debug)]
pub(super) struct Budget {
    limit: AtomicU64,
    taken: Arc<Taken>,
    reclaimer: Sender<Request>,
}

/// What all arenas take, those that have ended included.
#[derive(Debug, Default)]
struct Taken {
    bytes: AtomicU64,
    bytes_high: AtomicU64,
    arenas: AtomicUsize,
}

/// An arena that the pool uses.
#[derive(Debug)]
pub(super) struct ClientArena {
    /// `None` only in `drop`.
    arena: Option<Arena>,
    is_given_back: AtomicBool,
    reclaimer: Sender<Request>,
}

/// An arena that the pool does not use any more.
struct EndedArena {
    arena: Arena,
    /// Its client has given it back. If the client's connection has ended instead, the client may still read a
    /// result there.
    is_given_back: bool,
    /// The bytes that it counts for.
    charged: u64,
}

/// What the reclaiming thread is asked.
enum Request {
    Reclaim(EndedArena),
    /// Drop the sender: all before it are reclaimed.
    Pass(Sender<()>),
    /// Look at all ended arenas now, and drop the sender.
    Look(Sender<()>),
}

/// Bytes that all arenas together may take on a machine that has as many available.
#[must_use]
pub fn arena_bytes_max(available: u64) -> u64 {
    available / POOL_SHARE
}

impl Budget {
    /// Half of the memory that is available now, within the limits of the control groups.
    pub(super) fn from_system() -> io::Result<Self> {
        Self::new(arena_bytes_max(available_bytes().unwrap_or(1 << 30)))
    }

    fn new(limit: u64) -> io::Result<Self> {
        let taken = Arc::<Taken>::default();
        // Holds no more than there are arenas and clients.
        let (reclaimer, requests) = crossbeam_channel::unbounded();
        let counts = Arc::clone(&taken);
        let reclaim = move || reclaim_all(&requests, &counts);
        thread::Builder::new().name("arenas".into()).spawn(reclaim)?;
        Ok(Self { limit: limit.into(), taken, reclaimer })
    }

    /// Bytes that all arenas together may take.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Has the limit be at least that of the pool whose place this one takes. That one's arenas made memory look
    /// scarce when this one started.
    pub(super) fn inherit(&self, limit: u64) {
        self.limit.fetch_max(limit, Ordering::Relaxed);
    }

    /// Bytes now, and the most they ever were.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let Taken { bytes, bytes_high, .. } = &*self.taken;
        (bytes.load(Ordering::Relaxed), bytes_high.load(Ordering::Relaxed))
    }

    /// How many there are; each takes a descriptor.
    pub(super) fn arenas(&self) -> usize {
        self.taken.arenas.load(Ordering::Relaxed)
    }

    /// Makes an arena for a client that has `own` bytes in `count` arenas.
    pub(super) fn create(
        &self,
        bytes: u64,
        own: u64,
        count: usize,
    ) -> Result<ClientArena, Refusal> {
        let invalid = |error: ArenaError| Refusal::Invalid(error.to_string());
        let bytes = Arena::rounded(bytes).map_err(invalid)?;
        let client_limit = self.limit() / CLIENT_SHARE;
        if bytes > client_limit {
            return Err(Refusal::Invalid(format!(
                "an arena of {bytes} bytes; one client may have {client_limit} here \
                 (a quarter of the memory that was free at the start): submit smaller batches"
            )));
        }
        if own + bytes > client_limit || count >= CLIENT_ARENAS_MAX {
            return Err(Refusal::Busy(Limit::Arenas));
        }
        self.charge(bytes)?;
        match Arena::create(bytes) {
            Ok(arena) => {
                self.taken.arenas.fetch_add(1, Ordering::Relaxed);
                let (is_given_back, reclaimer) = (AtomicBool::new(false), self.reclaimer.clone());
                Ok(ClientArena { arena: Some(arena), is_given_back, reclaimer })
            }
            Err(error) => {
                self.taken.uncharge(bytes);
                tracing::warn!(error = %Chain(&error), bytes, "no memory for an arena");
                Err(Refusal::Busy(Limit::Arenas))
            }
        }
    }

    /// Has the reclaiming thread do something, and waits for it.
    fn await_reclaimer(&self, request: fn(Sender<()>) -> Request) {
        let (pass, done) = crossbeam_channel::bounded(0);
        if self.reclaimer.send(request(pass)).is_ok() {
            // Nothing is sent: the sender is dropped in the end. Without that in time, the limit stands.
            done.recv_timeout(LOOK_TIMEOUT).unwrap_or_default();
        }
    }

    /// Counts `bytes` more, if the limit allows it once all arenas that are gone are out of the count.
    fn charge(&self, bytes: u64) -> Result<(), Refusal> {
        // What has ended before this request is not there beside it.
        if !self.reclaimer.is_empty() {
            self.await_reclaimer(Request::Pass);
        }
        if self.taken.try_charge(bytes, self.limit()) {
            return Ok(());
        }
        self.await_reclaimer(Request::Look);
        match self.taken.try_charge(bytes, self.limit()) {
            true => Ok(()),
            false => Err(Refusal::Busy(Limit::Arenas)),
        }
    }
}

impl Taken {
    fn try_charge(&self, bytes: u64, limit: u64) -> bool {
        let after = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if after > limit {
            self.uncharge(bytes);
            return false;
        }
        self.bytes_high.fetch_max(after, Ordering::Relaxed);
        true
    }

    fn uncharge(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl ClientArena {
    /// Its client needs it no more.
    pub(super) fn give_back(&self) {
        self.is_given_back.store(true, Ordering::Relaxed);
    }
}

impl Deref for ClientArena {
    type Target = Arena;

    fn deref(&self) -> &Arena {
        self.arena.as_ref().expect("only drop takes it")
    }
}

impl Drop for ClientArena {
    fn drop(&mut self) {
        let Some(arena) = self.arena.take() else { return };
        let (charged, is_given_back) = (arena.bytes(), *self.is_given_back.get_mut());
        // The thread ends after the last sender, so it takes this.
        self.reclaimer
            .send(Request::Reclaim(EndedArena { arena, is_given_back, charged }))
            .unwrap_or_default();
    }
}

/// The body of the reclaiming thread. It ends with the pool.
fn reclaim_all(requests: &Receiver<Request>, taken: &Taken) {
    let mut ended: Vec<EndedArena> = Vec::new();
    loop {
        let request = match ended.is_empty() {
            true => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => requests.recv_timeout(LOOK_EVERY),
        };
        match request {
            Ok(Request::Reclaim(mut arena)) => {
                if !arena.reclaim(taken) {
                    ended.push(arena);
                }
            }
            Ok(Request::Pass(pass)) => drop(pass),
            // `_looked` is dropped after the look.
            Ok(Request::Look(_looked)) => ended.retain_mut(|arena| !arena.reclaim(taken)),
            Err(RecvTimeoutError::Timeout) => ended.retain_mut(|arena| !arena.reclaim(taken)),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl EndedArena {
    /// Gives its memory back, unless a client may still read a result there, and counts what it takes after
    /// that. Returns whether it is gone.
    fn reclaim(&mut self, taken: &Taken) -> bool {
        let writers = self.arena.has_other_writers();
        let is_gone = writers != Ok(true);
        // A descriptor that can only read is not a writer. It keeps the memory, but not what is punched out.
        if self.is_given_back || writers == Ok(false) {
            let punched = self.arena.punch().and_then(|()| self.arena.resident_bytes());
            match punched {
                Ok(bytes) => self.recharge(bytes, taken),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "an arena cannot be given back");
                }
            }
        }
        if is_gone {
            self.recharge(0, taken);
            taken.arenas.fetch_sub(1, Ordering::Relaxed);
        }
        is_gone
    }

    fn recharge(&mut self, bytes: u64, taken: &Taken) {
        taken.bytes.fetch_add(bytes, Ordering::Relaxed);
        taken.uncharge(self.charged);
        self.charged = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 1 << 19;
    const BUSY: Refusal = Refusal::Busy(Limit::Arenas);

    #[test]
    fn a_client_gets_a_share_and_the_pool_a_limit() {
        let budget = Budget::new(1 << 20).unwrap();
        let one = budget.create(HALF, 0, 0).unwrap();
        assert_eq!(budget.create(65_536, HALF, 1).unwrap_err(), BUSY);
        assert!(matches!(budget.create(1 << 20, 0, 0), Err(Refusal::Invalid(_))));
        let _two = budget.create(HALF, 0, 0).unwrap();
        assert_eq!(budget.create(65_536, 0, 0).unwrap_err(), BUSY);
        drop(one);
        let _three = budget.create(65_536, 0, 0).unwrap();
        assert_eq!(budget.bytes(), (HALF + 65_536, 1 << 20));
        assert_eq!(budget.create(1, 0, CLIENT_ARENAS_MAX).unwrap_err(), BUSY);
    }

    /// A client's end of an arena.
    fn map(arena: &ClientArena) -> gridpool_ipc::arena::ArenaMap {
        Arena::accept(arena.share().unwrap(), arena.bytes()).unwrap().map().unwrap()
    }

    #[test]
    fn what_a_client_still_maps_counts_after_its_connection_has_ended_and_can_be_read() {
        let budget = Budget::new(1 << 20).unwrap();
        let (one, two) = (budget.create(HALF, 0, 0).unwrap(), budget.create(HALF, 0, 0).unwrap());
        let (first, second) = (map(&one), map(&two));
        first.all().write(0, &[42]);
        drop((one, two));
        assert_eq!(budget.create(HALF, 0, 0).unwrap_err(), BUSY);
        assert_eq!((budget.bytes().0, budget.arenas()), (1 << 20, 2));
        let mut result = [0];
        first.all().read(0, &mut result);
        assert_eq!(result, [42]);
        drop(second);
        let _three = budget.create(HALF, 0, 0).unwrap();
        assert_eq!((budget.bytes().0, budget.arenas()), (1 << 20, 2));
    }

    #[test]
    fn what_a_client_gives_back_and_keeps_counts_for_what_it_writes_there() {
        let budget = Budget::new(1 << 20).unwrap();
        let (one, two) = (budget.create(HALF, 0, 0).unwrap(), budget.create(HALF, 0, 0).unwrap());
        let first = map(&one);
        first.all().write(0, &[42]);
        one.give_back();
        drop(one);
        let three = budget.create(HALF, 0, 0).unwrap();
        assert_eq!((budget.bytes().0, budget.arenas()), (1 << 20, 3));
        // Its memory is gone, and what it takes now counts until the next look.
        let mut result = [1];
        first.all().read(0, &mut result);
        assert_eq!(result, [0]);
        drop((two, three));
        first.all().write(0, &[42]);
        let _four = budget.create(HALF, 0, 0).unwrap();
        let _five = budget.create(HALF, 0, 0).unwrap();
        assert_eq!(budget.create(65_536, 0, 0).unwrap_err(), BUSY);
        assert_eq!(budget.arenas(), 3);
    }
}
