//! Shares of a bounded thing, memory or places, that requests in progress hold. No principal may hold all of it,
//! and the last part is for small holders, so that a few large ones do not turn the others away.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use gridpool_client::Principal;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use tokio::sync::Notify;

use super::limits::SATURATED_FOR;

/// How much there is, and for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portions {
    /// All of it.
    pub(super) all: usize,
    /// The most that one principal may hold.
    pub(super) each: usize,
    /// What of both is left for small shares.
    pub(super) for_small: usize,
    /// The largest small share.
    pub(super) small_max: usize,
}

impl Portions {
    /// Places, of which each share is one.
    pub(super) fn of_places(all: usize, each: usize) -> Self {
        Self { all, each, for_small: 0, small_max: all }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Shares {
    portions: Portions,
    held: Mutex<Held>,
    /// Notified when a share shrinks.
    shrinks: Notify,
}

#[derive(Debug, Default)]
struct Held {
    sum: usize,
    by: BTreeMap<Principal, Holding>,
    /// When a share was last refused because all are held.
    refused: Option<Instant>,
}

#[derive(Debug, Default)]
struct Holding {
    amount: usize,
    /// When a share was last refused because the principal holds its portion.
    refused: Option<Instant>,
}

/// A share, given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    principal: Principal,
    amount: usize,
}

/// Why a share is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All shares are held.
    All,
    /// The principal holds its portion.
    Own,
}

impl Shares {
    pub(super) fn new(portions: Portions) -> Arc<Self> {
        Arc::new(Self { portions, held: Mutex::default(), shrinks: Notify::new() })
    }

    /// An empty share of a principal, which can grow.
    pub(super) fn share(self: &Arc<Self>, principal: Principal) -> Share {
        Share { shares: Arc::clone(self), principal, amount: 0 }
    }

    /// What all hold.
    pub(super) fn sum(&self) -> usize {
        self.held.lock().sum
    }

    /// Whether a small share was refused to a principal lately and still would be; to `None`, whether any
    /// principal's would be.
    pub(super) fn why_full(&self, principal: Option<&Principal>) -> Option<Full> {
        let held = self.held.lock();
        let lately =
            |when: Option<Instant>| when.is_some_and(|when| when.elapsed() < SATURATED_FOR);
        let own = principal.and_then(|principal| held.by.get(principal));
        if lately(held.refused) && held.sum >= self.portions.all {
            return Some(Full::All);
        }
        let is_full = |own: &Holding| lately(own.refused) && own.amount >= self.portions.each;
        own.is_some_and(is_full).then_some(Full::Own)
    }
}

impl Share {
    /// Grows to `amount`.
    pub(super) fn grow(&mut self, amount: usize) -> Result<(), Full> {
        self.try_grow(amount).inspect_err(|full| {
            let (mut held, now) = (self.shares.held.lock(), Some(clock::now()));
            match full {
                Full::All => held.refused = now,
                Full::Own => held.by.entry(self.principal.clone()).or_default().refused = now,
            }
        })
    }

    /// Grows to `amount` as soon as there is room.
    pub(super) async fn grow_in_time(&mut self, amount: usize) {
        let shares = Arc::clone(&self.shares);
        loop {
            let mut shrinks = pin!(shares.shrinks.notified());
            // From now on, and not from when it is first polled.
            shrinks.as_mut().enable();
            if self.try_grow(amount).is_ok() {
                return;
            }
            shrinks.await;
        }
    }

    fn try_grow(&mut self, amount: usize) -> Result<(), Full> {
        let Portions { all, each, for_small, small_max } = self.shares.portions;
        let Some(more) = amount.checked_sub(self.amount).filter(|&more| more > 0) else {
            return Ok(());
        };
        let kept = if amount > small_max { for_small } else { 0 };
        let mut held = self.shares.held.lock();
        let sum = held.sum;
        // In this order: who holds its portion does not make the others' full.
        let own = held.by.get(&self.principal).map_or(0, |own| own.amount);
        if own + more > each - kept {
            return Err(Full::Own);
        }
        if sum + more > all - kept {
            return Err(Full::All);
        }
        held.by.entry(self.principal.clone()).or_default().amount += more;
        held.sum += more;
        self.amount = amount;
        Ok(())
    }

    /// Gives back all but `amount`, if it has more.
    pub(super) fn shrink(&mut self, amount: usize) {
        let less = self.amount.saturating_sub(amount);
        let mut held = self.shares.held.lock();
        held.sum -= less;
        if let Some(own) = held.by.get_mut(&self.principal) {
            own.amount -= less;
            if own.amount == 0 {
                held.by.remove(&self.principal);
            }
        }
        self.amount -= less;
        drop(held);
        self.shares.shrinks.notify_waiters();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn uid(uid: u32) -> Principal {
        Principal::Uid(uid)
    }

    fn shares() -> Arc<Shares> {
        Shares::new(Portions { all: 100, each: 60, for_small: 10, small_max: 5 })
    }

    #[test]
    fn a_principal_leaves_a_part_to_others_and_large_shares_leave_one_to_small_ones() {
        let shares = shares();
        let [mut one, mut other, mut third] = [1, 1, 2].map(|user| shares.share(uid(user)));
        assert_eq!(one.grow(50), Ok(()), "all but what is for small ones");
        assert_eq!(other.grow(6), Err(Full::Own), "not a small one");
        assert_eq!(other.grow(5), Ok(()));
        assert_eq!(third.grow(40), Err(Full::All), "95 of 90 for large ones");
        assert_eq!(third.grow(35), Ok(()));
        assert_eq!(
            (third.grow(3), third.grow(36)),
            (Ok(()), Err(Full::All)),
            "it does not grow less"
        );
        assert_eq!(shares.sum(), 90);
        drop((one, other, third));
        assert_eq!(shares.sum(), 0);
        assert!(shares.held.lock().by.is_empty(), "nothing is kept of those who left");
    }

    #[test]
    fn a_share_that_waits_for_room_grows_when_there_is_some_and_is_not_refused() {
        let shares = shares();
        let [mut one, mut other] = [(); 2].map(|()| shares.share(uid(1)));
        one.grow(50).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let mut grows = pin!(other.grow_in_time(20));
            assert!(grows.as_mut().poll(&mut cx).is_pending());
            assert_eq!(shares.why_full(Some(&uid(1))), None);
            one.shrink(40);
            assert!(grows.as_mut().poll(&mut cx).is_pending(), "not enough");
            one.shrink(20);
            assert!(grows.as_mut().poll(&mut cx).is_ready());
        }
        assert_eq!(shares.sum(), 40);
    }

    #[test]
    fn full_is_said_only_to_whom_a_small_share_was_refused_and_still_would_be() {
        let shares = shares();
        let mut small: Vec<_> = (0..13).map(|_| shares.share(uid(1))).collect();
        assert!(small[..12].iter_mut().all(|share| share.grow(5).is_ok()));
        assert_eq!(shares.why_full(Some(&uid(1))), None, "nothing was refused yet");
        assert_eq!(small[12].grow(1), Err(Full::Own));
        assert_eq!(shares.why_full(Some(&uid(1))), Some(Full::Own));
        assert_eq!((shares.why_full(Some(&uid(2))), shares.why_full(None)), (None, None));
        small.remove(0);
        assert_eq!(shares.why_full(Some(&uid(1))), None, "there is room again");
    }
}
