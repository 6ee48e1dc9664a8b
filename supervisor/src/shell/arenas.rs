//! The limits of shared memory, for each client, for each user, and for all.
//!
//! An arena counts against them until it is really gone: until the pool does not use it and no process could
//! write to it. A thread looks after arenas that have ended. It gives their memory back to the system, and never
//! takes the core's lock.

mod owner;

use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gridpool_ipc::arena::{Arena, ArenaError};
use gridpool_ipc::memory::available_or_assumed_bytes;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::limits::CLIENT_ARENAS_MAX;
use gridpool_protocol::message::{Limit, Refusal};

use super::descriptors::Taken as Descriptors;
use crate::refusals::Seldom;
use owner::OTHERS_SHARE;
pub(super) use owner::{Owner, OwnerLimits};

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
    /// That the system has none left.
    warned: Seldom,
}

/// What all arenas take, those that have ended included.
#[derive(Debug, Default)]
struct Taken(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    all: Sum,
    bytes_high: u64,
    of: BTreeMap<Owner, Sum>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    bytes: u64,
    arenas: usize,
}

/// An arena that the pool uses.
#[derive(Debug)]
pub(super) struct ClientArena {
    /// `None` only in `drop`.
    arena: Option<Arena>,
    owner: Owner,
    descriptor: Option<Descriptors>,
    is_given_back: AtomicBool,
    reclaimer: Sender<Request>,
}

/// An arena that the pool does not use any more.
struct EndedArena {
    arena: Arena,
    owner: Owner,
    _descriptor: Option<Descriptors>,
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
        Self::new(arena_bytes_max(available_or_assumed_bytes()))
    }

    fn new(limit: u64) -> io::Result<Self> {
        let taken = Arc::<Taken>::default();
        // Holds no more than there are arenas and clients.
        let (reclaimer, requests) = crossbeam_channel::unbounded();
        let counts = Arc::clone(&taken);
        let reclaim = move || reclaim_all(&requests, &counts);
        thread::Builder::new().name("arenas".into()).spawn(reclaim)?;
        Ok(Self { limit: limit.into(), taken, reclaimer, warned: Seldom::default() })
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
        let taken = self.taken.0.lock();
        (taken.all.bytes, taken.bytes_high)
    }

    /// Bytes of each user.
    pub(super) fn users(&self) -> BTreeMap<u32, u64> {
        let taken = self.taken.0.lock();
        taken.of.iter().filter_map(|(owner, sum)| Some(((*owner)?, sum.bytes))).collect()
    }

    /// Makes an arena for a client that has `own` bytes in `count` arenas.
    pub(super) fn create(
        &self,
        bytes: u64,
        (own, count): (u64, usize),
        (owner, limits): (Owner, OwnerLimits),
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
        if let Some(max) = limits.bytes_max.filter(|&max| bytes > max) {
            return Err(Refusal::Invalid(format!(
                "an arena of {bytes} bytes; yours may have {max}, by your quota: submit smaller batches"
            )));
        }
        if own + bytes > client_limit || count >= CLIENT_ARENAS_MAX {
            return Err(Refusal::Busy(Limit::Arenas));
        }
        self.charge(bytes, owner, limits).map_err(Refusal::Busy)?;
        match Arena::create(bytes) {
            Ok(arena) => {
                let (is_given_back, reclaimer) = (AtomicBool::new(false), self.reclaimer.clone());
                let descriptor = None;
                Ok(ClientArena { arena: Some(arena), owner, descriptor, is_given_back, reclaimer })
            }
            Err(error) => {
                self.taken.recharge(owner, bytes, 0);
                self.taken.is_gone(owner);
                if self.warned.is_due() {
                    tracing::warn!(error = %Chain(&error), bytes, "an arena could not be made");
                }
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

    /// Counts an arena of `bytes` more, if the limits allow it once all arenas that are gone are out of the count.
    fn charge(&self, bytes: u64, owner: Owner, limits: OwnerLimits) -> Result<(), Limit> {
        // What has ended before this request is not there beside it.
        if !self.reclaimer.is_empty() {
            self.await_reclaimer(Request::Pass);
        }
        self.taken.try_charge(bytes, self.limit(), owner, limits).or_else(|_| {
            self.await_reclaimer(Request::Look);
            self.taken.try_charge(bytes, self.limit(), owner, limits)
        })
    }
}

impl Taken {
    fn try_charge(
        &self,
        bytes: u64,
        limit: u64,
        owner: Owner,
        OwnerLimits { arenas_max, bytes_max }: OwnerLimits,
    ) -> Result<(), Limit> {
        let mut taken = self.0.lock();
        let (all, own) = (taken.all, taken.of.get(&owner).copied().unwrap_or_default());
        let after = own.bytes.saturating_add(bytes);
        if let Some(max) = bytes_max.filter(|&max| after > max) {
            return Err(Limit::QuotaBytes { max });
        }
        if after > limit - limit / OTHERS_SHARE || own.arenas >= arenas_max {
            return Err(Limit::PrincipalArenas);
        }
        if all.bytes.saturating_add(bytes) > limit {
            return Err(Limit::Arenas);
        }
        for sum in taken.both(owner) {
            sum.bytes += bytes;
            sum.arenas += 1;
        }
        taken.bytes_high = taken.bytes_high.max(taken.all.bytes);
        Ok(())
    }

    /// An arena takes so much now, and not what it took before.
    fn recharge(&self, owner: Owner, before: u64, now: u64) {
        for sum in self.0.lock().both(owner) {
            sum.bytes = sum.bytes - before + now;
        }
    }

    /// An arena that took nothing any more is gone.
    fn is_gone(&self, owner: Owner) {
        let mut taken = self.0.lock();
        for sum in taken.both(owner) {
            sum.arenas -= 1;
        }
        taken.of.retain(|_, sum| sum.arenas > 0);
    }
}

impl Sums {
    fn both(&mut self, owner: Owner) -> [&mut Sum; 2] {
        [&mut self.all, self.of.entry(owner).or_default()]
    }
}

impl ClientArena {
    /// The descriptor that it counts as.
    pub(super) fn hold(&mut self, descriptor: Descriptors) {
        self.descriptor = Some(descriptor);
    }

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
        let (owner, _descriptor) = (self.owner, self.descriptor.take());
        let ended = EndedArena { arena, owner, _descriptor, is_given_back, charged };
        // The thread ends after the last sender, so it takes this.
        self.reclaimer.send(Request::Reclaim(ended)).unwrap_or_default();
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
            taken.is_gone(self.owner);
        }
        is_gone
    }

    fn recharge(&mut self, bytes: u64, taken: &Taken) {
        taken.recharge(self.owner, self.charged, bytes);
        self.charged = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 1 << 19;
    const BUSY: Refusal = Refusal::Busy(Limit::Arenas);
    const ANY: OwnerLimits = OwnerLimits { arenas_max: usize::MAX, bytes_max: None };

    impl Budget {
        fn arenas(&self) -> usize {
            self.taken.0.lock().all.arenas
        }

        /// An arena of a user of its own, unless the others' is meant.
        fn take(&self, user: u32, bytes: u64) -> Result<ClientArena, Refusal> {
            self.create(bytes, (0, 0), (Some(user), ANY))
        }
    }

    #[test]
    fn a_client_gets_a_share_and_the_pool_a_limit() {
        let budget = Budget::new(1 << 20).unwrap();
        let one = budget.take(1, HALF).unwrap();
        assert_eq!(budget.create(65_536, (HALF, 1), (Some(1), ANY)).unwrap_err(), BUSY);
        assert!(matches!(budget.take(1, 1 << 20), Err(Refusal::Invalid(_))));
        let _two = budget.take(2, HALF).unwrap();
        assert_eq!(budget.take(3, 65_536).unwrap_err(), BUSY);
        drop(one);
        let _three = budget.take(3, 65_536).unwrap();
        assert_eq!(budget.bytes(), (HALF + 65_536, 1 << 20));
        assert_eq!(budget.create(1, (0, CLIENT_ARENAS_MAX), (Some(1), ANY)).unwrap_err(), BUSY);
        assert_eq!(budget.users(), [(2, HALF), (3, 65_536)].into());
    }

    #[test]
    fn a_user_leaves_a_part_to_others_over_all_its_connections() {
        let budget = Budget::new(1 << 20).unwrap();
        let own = Refusal::Busy(Limit::PrincipalArenas);
        let _one = budget.take(1, HALF).unwrap();
        let second = budget.take(1, HALF / 2).unwrap();
        assert_eq!(budget.take(1, 65_536).unwrap_err(), own);
        let map = map(&second);
        drop(second);
        assert_eq!(budget.take(1, 65_536).unwrap_err(), own, "what it keeps counts");
        let _others = budget.take(2, HALF / 2).unwrap();
        drop(map);
        let _again = budget.take(1, HALF / 2).unwrap();
        let limits = OwnerLimits { arenas_max: 2, bytes_max: Some(131_072) };
        let create = |owner| budget.create(65_536, (0, 0), (owner, limits));
        assert_eq!(create(Some(1)).unwrap_err(), Refusal::Busy(Limit::QuotaBytes { max: 131_072 }));
        let large = budget.create(196_608, (0, 0), (Some(1), limits)).unwrap_err();
        assert!(
            matches!(large, Refusal::Invalid(why) if why.contains("may have 131072, by your quota"))
        );
        let few = OwnerLimits { bytes_max: None, ..limits };
        assert_eq!(budget.create(1, (0, 0), (Some(1), few)).unwrap_err(), own);
        assert_eq!(OwnerLimits::of(100, None).arenas_max, 75);
    }

    /// A client's end of an arena.
    fn map(arena: &ClientArena) -> gridpool_ipc::arena::ArenaMap {
        Arena::accept(arena.share().unwrap(), arena.bytes()).unwrap().map().unwrap()
    }

    #[test]
    fn what_a_client_still_maps_counts_after_its_connection_has_ended_and_can_be_read() {
        let budget = Budget::new(1 << 20).unwrap();
        let (one, two) = (budget.take(1, HALF).unwrap(), budget.take(2, HALF).unwrap());
        let (first, second) = (map(&one), map(&two));
        first.all().write(0, &[42]);
        drop((one, two));
        assert_eq!(budget.take(3, HALF).unwrap_err(), BUSY);
        assert_eq!((budget.bytes().0, budget.arenas()), (1 << 20, 2));
        let mut result = [0];
        first.all().read(0, &mut result);
        assert_eq!(result, [42]);
        drop(second);
        let _three = budget.take(3, HALF).unwrap();
        assert_eq!((budget.bytes().0, budget.arenas()), (1 << 20, 2));
    }

    #[test]
    fn what_a_client_gives_back_and_keeps_counts_for_what_it_writes_there() {
        let budget = Budget::new(1 << 20).unwrap();
        let (one, two) = (budget.take(1, HALF).unwrap(), budget.take(2, HALF).unwrap());
        let first = map(&one);
        first.all().write(0, &[42]);
        one.give_back();
        drop(one);
        let three = budget.take(3, HALF).unwrap();
        assert_eq!((budget.bytes().0, budget.arenas()), (1 << 20, 3));
        // Its memory is gone, and what it takes now counts until the next look.
        let mut result = [1];
        first.all().read(0, &mut result);
        assert_eq!(result, [0]);
        drop((two, three));
        first.all().write(0, &[42]);
        let _four = budget.take(4, HALF).unwrap();
        let _five = budget.take(5, HALF).unwrap();
        assert_eq!(budget.take(6, 65_536).unwrap_err(), BUSY);
        assert_eq!(budget.arenas(), 3);
    }
}
