//! What a successor is told while it comes up that gets the devices one by one.

use std::io;

use gridpool_core::event::{Event, HandOver};
use gridpool_protocol::handover::FromPredecessor;

use super::super::Shared;
use super::super::core::Core;
use super::super::outbox::Outbox;

impl Core {
    /// Tells the successor something, if there is one.
    pub(in crate::shell) fn tell_successor(&self, message: &FromPredecessor) {
        if let Some(successor) = &self.successor {
            successor.tell(message);
        }
    }
}

impl super::Successor<'_> {
    /// The writing side of the link; nothing is written there before `give_devices`, or before everything else is sent.
    pub(super) fn outbox(&self) -> io::Result<Outbox> {
        self.reader.socket().try_clone().map(Outbox::to_successor)
    }

    /// Has the pool vacate its first device, if the successor gets them one by one, and tell when that is free. Nothing
    /// else is told before the successor is ready.
    pub(super) fn give_devices(&self, outbox: &Outbox) {
        if self.one_by_one {
            let shared: &Shared = self.shared;
            let mut core = shared.lock();
            core.successor = Some(outbox.clone());
            core.handle(shared, shared.timestamp(), Event::HandOver(HandOver::OneByOne));
        }
    }
}
