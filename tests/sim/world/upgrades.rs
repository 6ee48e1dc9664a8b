//! Upgrades: a successor comes up, takes over or fails, and the pool before this one ends.

use gridpool_core::event::{Event, HandOver, Predecessor, Timestamp};
use gridpool_protocol::ids::ClientId;

use super::{Delivery, World};

impl World {
    /// A successor comes up that gets the devices one by one. At the latest, it fails after a while.
    pub(crate) fn successor_comes_up(&mut self, now: Timestamp) -> Event {
        let at = self.soon(now, 2_000);
        self.tell(at, Event::HandOver(HandOver::Failed));
        Event::HandOver(HandOver::OneByOne)
    }

    /// A device is free: the successor starts its workers there, and takes over.
    pub(super) fn successor_may_start(&mut self, now: Timestamp) {
        let at = self.soon(now, 200);
        self.tell(at, Event::HandOver(HandOver::Begun));
    }

    /// What becomes of a successor that is told of all jobs is on its way.
    pub(super) fn successor_ends_well_or_not(&mut self, now: Timestamp) {
        let at = self.soon(now, 300);
        let event = match self.rng.chance(300) {
            true => Event::HandOver(HandOver::Failed),
            false => self.successor_serves().1,
        };
        self.tell(at, event);
    }

    /// The pool before this one frees some devices, some of them twice, and ends.
    pub(crate) fn predecessor_ends(&mut self) {
        let start = Timestamp::default();
        let end = self.soon(start, 3_000);
        for _ in 0..self.rng.below(5) {
            let freed = Predecessor::Freed(self.some_device());
            let at = self.within(start, end);
            self.tell(at, Event::Predecessor(freed));
        }
        self.tell(end, Event::Predecessor(Predecessor::Gone));
    }

    /// The successor serves, and some connections stay.
    pub(crate) fn successor_serves(&mut self) -> (Vec<ClientId>, Event) {
        let mut stay = self.clients.clone();
        stay.retain(|_| self.rng.chance(300));
        (stay.clone(), Event::HandOver(HandOver::Done { stay }))
    }

    /// A step that was on its way has come.
    pub(super) fn on_hand_over(&mut self, now: Timestamp, step: &HandOver) {
        match step {
            HandOver::Begun => self.successor_ends_well_or_not(now),
            // It takes over no more.
            HandOver::Failed => self.network.retain(|_, delivery| {
                !matches!(delivery, Delivery::Event(Event::HandOver(HandOver::Begun)))
            }),
            HandOver::Done { .. } | HandOver::OneByOne => {}
        }
    }
}
