//! What a connection says to its client.

use gridpool_protocol::message::{Refusal, Reply, ServerMessage};

use super::{Connection, Refused};

impl Connection {
    pub(super) fn reply(&self, request: u64, result: Result<String, Refusal>) {
        self.outbox.tell(&answer(request, result));
    }

    pub(super) fn say(&self, request: u64, reply: Reply) {
        self.outbox.tell(&ServerMessage::Reply { request, reply });
    }

    pub(super) fn say_closing(&self, reason: String) {
        self.outbox.tell(&ServerMessage::Closing { reason });
        self.outbox.close();
    }

    /// Counts a refusal.
    pub(super) fn note(&self, refused: Refused) {
        self.shared.users.refusals.note(refused, &self.who.account);
    }

    /// Counts that the client broke the protocol.
    pub(super) fn note_broken(&self, refused: Refused, reason: &str) {
        let whom = self.who.account;
        self.shared.users.refusals.note(refused, &format_args!("{whom}: {reason}"));
    }
}

/// The answer to an order.
pub(in crate::shell) fn answer(request: u64, result: Result<String, Refusal>) -> ServerMessage {
    match result {
        Ok(what) => ServerMessage::Granted { request, what },
        Err(refusal) => ServerMessage::Denied { request, refusal },
    }
}
