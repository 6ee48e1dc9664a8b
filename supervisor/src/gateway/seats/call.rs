//! A call of gRPC on its connection, which may have others; and the turn of a request, whichever protocol it came by.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gridpool_client::Principal;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use tokio::sync::Notify;

use super::{Phase, Seat};
use crate::gateway::reason::Reason;

/// A call of gRPC. It is in progress until this is dropped, which is when the last byte of its answer is written.
#[derive(Debug)]
pub(in crate::gateway) struct Call {
    seat: Arc<Seat>,
    number: u64,
    /// Who has sent it, if its token says so.
    principal: Mutex<Option<Principal>>,
    /// Notified if HTTP/2 is to reset the call.
    reset: Arc<Notify>,
}

/// A request on a connection: the only one, or one call of several.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct Turn<'a> {
    pub(in crate::gateway) seat: &'a Seat,
    call: Option<&'a Call>,
}

/// A call that the gateway does not read for now. Dropping this ends that.
#[derive(Debug)]
pub(in crate::gateway) struct Stall<'a>(&'a Seat);

impl Call {
    /// Begins a call. `reset` is notified if it must end and its connection may stay.
    pub(in crate::gateway) fn begin(seat: Arc<Seat>, reset: Arc<Notify>) -> Self {
        seat.has_served.store(true, Ordering::Relaxed);
        let mut table = seat.seats.table.lock();
        let number = table.next;
        table.next += 1;
        if let Some(occupant) = table.taken.get_mut(&seat.number) {
            occupant.calls.insert(number, Phase::Working);
        }
        drop(table);
        Self { seat, number, principal: Mutex::default(), reset }
    }

    pub(in crate::gateway) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// It has nothing to do until its client sends something.
    pub(in crate::gateway) fn waits(&self) {
        self.enter(Phase::Waiting(clock::now()));
    }

    /// The gateway does not read the call, so its bytes may fill the connection's window.
    pub(in crate::gateway) fn stalls(&self) -> Stall<'_> {
        self.seat.stalled.fetch_add(1, Ordering::Relaxed);
        Stall(&self.seat)
    }

    /// Has HTTP/2 reset the call. The others of its connection go on.
    pub(in crate::gateway) fn reset(&self) {
        self.reset.notify_one();
    }

    /// Counts a refusal of its client.
    pub(in crate::gateway) fn note(&self, reason: Reason) {
        let principal = self.principal.lock().clone();
        let principal = principal.unwrap_or_else(|| self.seat.peer.principal());
        self.seat.seats.refusals.note(reason, &principal);
    }

    fn enter(&self, phase: Phase) {
        if let Some(occupant) = self.seat.seats.table.lock().taken.get_mut(&self.seat.number)
            && let Some(own) = occupant.calls.get_mut(&self.number)
        {
            *own = phase;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(occupant) = self.seat.seats.table.lock().taken.get_mut(&self.seat.number) {
            occupant.calls.remove(&self.number);
            if occupant.calls.is_empty() && !matches!(occupant.phase, Phase::Refused) {
                occupant.phase = Phase::Waiting(clock::now());
            }
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.0.stalled.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> From<&'a Seat> for Turn<'a> {
    fn from(seat: &'a Seat) -> Self {
        Self { seat, call: None }
    }
}

impl<'a> From<&'a Call> for Turn<'a> {
    fn from(call: &'a Call) -> Self {
        Self { seat: &call.seat, call: Some(call) }
    }
}

impl Turn<'_> {
    /// The request is worked on.
    pub(in crate::gateway) fn works(self) {
        self.enter(Phase::Working);
    }

    /// The request waits for its turn: others may need the seat more.
    pub(in crate::gateway) fn waits(self) {
        self.enter(Phase::Waiting(clock::now()));
    }

    /// The client sends a body, and is behind.
    pub(in crate::gateway) fn sends_body(self, behind: Duration) {
        let now = clock::now();
        self.enter(Phase::Sending(now.checked_sub(behind).unwrap_or(now)));
    }

    /// There is no seat for the request.
    pub(in crate::gateway) fn refuses(self) {
        self.seat.enter(Phase::Refused);
    }

    /// A token has sent the request. The connection is charged to it from now on; one with several calls to the first.
    pub(in crate::gateway) fn is_of(self, principal: &Principal) {
        self.seat.seats.charge(self.seat.number, principal);
        let own = self.call.map_or(&self.seat.principal, |call| &call.principal);
        *own.lock() = Some(principal.clone());
    }

    /// Whether it is the only one on its connection.
    pub(in crate::gateway) fn is_alone(self) -> bool {
        let table = self.seat.seats.table.lock();
        table.taken.get(&self.seat.number).is_none_or(|occupant| occupant.calls.len() <= 1)
    }

    /// Whether the client may be unable to send, because other calls fill its connection's window.
    pub(in crate::gateway) fn is_held_up(self) -> bool {
        self.call.is_some() && self.seat.stalled.load(Ordering::Relaxed) > 0
    }

    fn enter(self, phase: Phase) {
        match self.call {
            Some(call) => call.enter(phase),
            None => self.seat.enter(phase),
        }
    }
}
