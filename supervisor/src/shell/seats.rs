//! Seats: how many connections the pool has, and which may submit.
//!
//! A client needs a seat to submit jobs and to get shared memory. When none is free, a connection gets one of the few
//! that are kept: it may ask and give orders, and takes a seat with its first job if one is free by then. If all
//! kept ones are taken, the connection that has been silent for longest gives its up. So connections that do
//! nothing keep no operator out, whoever has them. A user other than the pool's own and root has a limit of
//! connections, and one over it gets no seat. Of the free seats such a user gets one only while more are free than it
//! has connections, and some besides, so a few users leave some to the next, and to the pool's own. Where descriptors
//! are few, so are free seats. The gateway has seats of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::ClientId;
use gridpool_protocol::message::ServerMessage;

use super::clients::DESCRIPTORS_PER_CLIENT;
use super::descriptors::{Descriptors, Taken};
use super::outbox::Outbox;

/// Connections that may submit: each takes a thread and descriptors.
pub(super) const CLIENTS_MAX: usize = 256;
/// Connections that may only ask and give orders.
pub(super) const KEPT: usize = 16;
/// Seats that only the pool's own user and root get.
const OWN_SEATS: usize = 4;
/// Connections of the gateway.
const GATEWAY_MAX: usize = 16;
/// Connections that have given up their place and are about to end.
const LEAVING_MAX: usize = 16;

/// Connections beside those of clients, each with its thread and descriptors.
pub(super) const OTHERS_MAX: usize = KEPT + GATEWAY_MAX + LEAVING_MAX;

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sitter {
    pub(super) uid: u32,
    /// Connections that this user may have; `usize::MAX` for the pool's own and root.
    pub(super) own_max: usize,
}

impl Sitter {
    /// Whether it is the pool's own user, or root.
    fn is_own(self) -> bool {
        self.own_max == usize::MAX
    }
}

/// All seats.
#[derive(Debug)]
pub(super) struct Seats {
    state: Mutex<State>,
    /// For connections that may submit. The others' are kept for them.
    descriptors: Arc<Descriptors>,
}

#[derive(Debug, Default)]
struct State {
    clients: usize,
    gateway: usize,
    /// Those on kept seats: when each was last heard.
    kept: BTreeMap<ClientId, (Instant, Outbox)>,
    /// Connections of each user, those of the gateway apart.
    users: BTreeMap<u32, usize>,
    /// Connections without any place: they are about to end.
    leaving: usize,
}

/// The place of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Client,
    Gateway,
    Kept,
}

/// A connection's seat. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: ClientId,
    user: Sitter,
    place: Place,
    /// What a client's place takes.
    descriptors: Option<Taken>,
}

/// Why a connection gets no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSeat {
    /// Too many connections that lost theirs have not ended yet.
    Full,
    /// Its user has as many connections as it may.
    Own,
}

impl Seats {
    pub(super) fn new(descriptors: Arc<Descriptors>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), descriptors })
    }

    /// Connections of each user, those of the gateway apart.
    pub(super) fn users(&self) -> BTreeMap<u32, usize> {
        self.state.lock().users.clone()
    }

    /// A seat for a new connection; a kept one if no other is free.
    pub(super) fn take(
        self: &Arc<Self>,
        id: ClientId,
        outbox: &Outbox,
        user: Sitter,
    ) -> Result<Seat, NoSeat> {
        let mut state = self.state.lock();
        let own = state.users.get(&user.uid).copied().unwrap_or(0);
        if own >= user.own_max {
            return Err(NoSeat::Own);
        }
        let descriptors = self.take_client(&mut state, (user, own));
        let place = if descriptors.is_some() {
            Place::Client
        } else {
            if state.kept.len() >= KEPT {
                // Others never fill all of these places, so they keep no operator out however fast they come.
                let leaving_max = if user.is_own() { LEAVING_MAX } else { LEAVING_MAX / 2 };
                if state.leaving >= leaving_max {
                    return Err(NoSeat::Full);
                }
                state.ends_the_most_silent();
            }
            state.kept.insert(id, (clock::now(), outbox.clone()));
            Place::Kept
        };
        *state.users.entry(user.uid).or_default() += 1;
        Ok(Seat { seats: Arc::clone(self), id, user, place, descriptors })
    }

    /// A client's place, if one is free for a user who has `own` other connections.
    fn take_client(&self, state: &mut State, (user, own): (Sitter, usize)) -> Option<Taken> {
        let free =
            (CLIENTS_MAX - state.clients).min(self.descriptors.left() / DESCRIPTORS_PER_CLIENT);
        let is_free = free > if user.is_own() { 0 } else { own + OWN_SEATS };
        let taken = is_free.then(|| self.descriptors.take(DESCRIPTORS_PER_CLIENT)).flatten()?;
        state.clients += 1;
        Some(taken)
    }
}

impl State {
    fn ends_the_most_silent(&mut self) {
        let silent = self.kept.iter().min_by_key(|(_, (heard, _))| *heard).map(|(&id, _)| id);
        let Some((_, outbox)) = silent.and_then(|id| self.kept.remove(&id)) else { return };
        self.leaving += 1;
        let reason = format!("BUSY: the pool has {CLIENTS_MAX} connections already");
        outbox.tell(&ServerMessage::Closing { reason });
        outbox.close();
    }
}

impl Seat {
    /// The connection is the gateway's: it has a seat of its own, if one is free.
    pub(super) fn is_of_gateway(&mut self) {
        let mut state = self.seats.state.lock();
        if state.gateway < GATEWAY_MAX && state.leave(self.id, self.place) {
            state.counts_no_more(self.user.uid);
            state.gateway += 1;
            self.place = Place::Gateway;
            self.descriptors = None;
        }
    }

    /// The connection has sent something.
    pub(super) fn is_heard(&self) {
        if self.place == Place::Kept
            && let Some((heard, _)) = self.seats.state.lock().kept.get_mut(&self.id)
        {
            *heard = clock::now();
        }
    }

    /// Whether it may submit. One on a kept seat may from now on, if a seat is free.
    pub(super) fn may_submit(&mut self) -> bool {
        if self.place != Place::Kept {
            return true;
        }
        let mut state = self.seats.state.lock();
        if !state.kept.contains_key(&self.id) {
            return false;
        }
        let others = state.users.get(&self.user.uid).map_or(0, |own| own - 1);
        let taken = self.seats.take_client(&mut state, (self.user, others));
        let Some(taken) = taken else { return false };
        state.kept.remove(&self.id);
        (self.place, self.descriptors) = (Place::Client, Some(taken));
        true
    }
}

impl State {
    /// One connection less of a user.
    fn counts_no_more(&mut self, user: u32) {
        if let Some(own) = self.users.get_mut(&user) {
            *own -= 1;
            if *own == 0 {
                self.users.remove(&user);
            }
        }
    }

    /// Gives a place back; `false` if the connection has lost it.
    fn leave(&mut self, id: ClientId, place: Place) -> bool {
        match place {
            Place::Client => self.clients -= 1,
            Place::Gateway => self.gateway -= 1,
            Place::Kept => return self.kept.remove(&id).is_some(),
        }
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.seats.state.lock();
        if self.place != Place::Gateway {
            state.counts_no_more(self.user.uid);
        }
        if !state.leave(self.id, self.place) {
            state.leaving -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The pool's own.
    const OWN: Sitter = Sitter { uid: 7, own_max: usize::MAX };

    fn outbox(id: ClientId) -> Outbox {
        Outbox::new(id, UnixStream::pair().unwrap().0, Arc::default())
    }

    #[test]
    fn whoever_comes_is_heard_and_the_most_silent_gives_its_place_up() {
        let seats = Seats::new(Descriptors::new(usize::MAX));
        let sit = |id| seats.take(ClientId(id), &outbox(ClientId(id)), OWN).unwrap();
        let mut clients: Vec<_> = (0..CLIENTS_MAX as u64).map(sit).collect();
        assert!(clients.iter_mut().all(Seat::may_submit));
        let mut kept: Vec<_> = (1_000..1_000 + KEPT as u64).map(sit).collect();
        assert!(!kept.iter_mut().any(Seat::may_submit));
        kept[0].is_heard();
        let mut late = sit(2_000);
        let state = |id| seats.state.lock().kept.contains_key(&ClientId(id));
        assert_eq!([state(1_000), state(1_001), state(2_000)], [true, false, true]);
        // A seat is free again.
        drop(clients.pop());
        assert!(!kept[1].may_submit(), "it has lost its place");
        assert!(late.may_submit());
        assert!(!kept[2].may_submit());
        let mut gateway = sit(3_000);
        gateway.is_of_gateway();
        assert!(gateway.may_submit());
        drop((clients, kept, late, gateway));
        let left = seats.state.lock();
        assert_eq!((left.clients, left.gateway, left.kept.len(), left.leaving), (0, 0, 0, 0));
        assert!(left.users.is_empty());
    }

    #[test]
    fn a_kept_seat_becomes_a_clients_only_where_descriptors_are_left() {
        let descriptors = Descriptors::new(2 * DESCRIPTORS_PER_CLIENT + 1);
        let seats = Seats::new(Arc::clone(&descriptors));
        let sit = |id| seats.take(ClientId(id), &outbox(ClientId(id)), OWN).unwrap();
        let mut all: Vec<_> = (0..3).map(sit).collect();
        let may_submit =
            |seats: &mut [Seat]| seats.iter_mut().map(Seat::may_submit).collect::<Vec<_>>();
        assert_eq!(may_submit(&mut all), [true, true, false]);
        assert_eq!(seats.state.lock().kept.len(), 1);
        drop(all.remove(0));
        assert_eq!(may_submit(&mut all), [true, true]);
        // The gateway's are kept for it.
        all.iter_mut().for_each(Seat::is_of_gateway);
        assert!(descriptors.take(2 * DESCRIPTORS_PER_CLIENT + 1).is_some());
    }

    #[test]
    fn a_user_has_a_limit_of_connections_whatever_others_have() {
        let seats = Seats::new(Descriptors::new(usize::MAX));
        let sit =
            |id, uid| seats.take(ClientId(id), &outbox(ClientId(id)), Sitter { uid, own_max: 2 });
        let own: Vec<_> = (0..2).map(|id| sit(id, 7).unwrap()).collect();
        assert_eq!(sit(2, 7).unwrap_err(), NoSeat::Own);
        let mut gateway = sit(3, 8).unwrap();
        gateway.is_of_gateway();
        assert_eq!(seats.users(), [(7, 2)].into());
        drop(own);
        let _again = sit(4, 7).unwrap();
        assert_eq!(seats.users(), [(7, 1)].into());
    }
    #[test]
    fn users_who_take_all_that_they_may_leave_seats_to_the_next_and_to_the_pools_own() {
        let seats = Seats::new(Descriptors::new(usize::MAX));
        let ids = std::cell::Cell::new(0);
        let sit = |user| {
            let id = ClientId(ids.replace(ids.get() + 1));
            seats.take(id, &outbox(id), user).unwrap()
        };
        let mut all = Vec::new();
        for uid in 1_000..1_006 {
            let mut own = Vec::new();
            // The last is over its share.
            while own.len() < 64 && own.iter_mut().all(Seat::may_submit) {
                own.push(sit(Sitter { uid, own_max: 64 }));
            }
            all.push(own);
        }
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 63, 32, 17, 9]);
        let mut own: Vec<_> = (0..11).map(|_| sit(OWN)).collect();
        assert!(own.iter_mut().all(Seat::may_submit));
        let mut late = sit(OWN);
        assert!(!late.may_submit(), "all are taken");
        // Once others have left, it may.
        let mut over = all[3].pop().unwrap();
        all.truncate(1);
        assert!(late.may_submit() && over.may_submit());
    }

    #[test]
    fn where_descriptors_are_few_users_leave_seats_too() {
        let seats = Seats::new(Descriptors::new(32 * DESCRIPTORS_PER_CLIENT));
        let ids = std::cell::Cell::new(0);
        let sit = |user| {
            let id = ClientId(ids.replace(ids.get() + 1));
            seats.take(id, &outbox(id), user)
        };
        let mut others = Vec::new();
        for uid in 1_000..1_006 {
            (0..64).for_each(|_| others.extend(sit(Sitter { uid, own_max: 64 })));
        }
        let mut own: Vec<_> = (0..OWN_SEATS).map(|_| sit(OWN).unwrap()).collect();
        assert!(own.iter_mut().all(Seat::may_submit));
        // Connections over the share have gone through all kept seats; some of those have not ended yet.
        assert_eq!(seats.state.lock().leaving, LEAVING_MAX / 2);
        assert_eq!(sit(Sitter { uid: 1_000, own_max: 64 }).unwrap_err(), NoSeat::Full);
        assert!((0..8).all(|_| sit(OWN).is_ok()));
    }
}
