//! What a connection says to its client.

use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{ClientMessage, Refusal, Reply, ServerMessage};

use super::{Connection, Refused};

impl Connection {
    /// Waits before a question is answered, if its user asks too often. `false` if the client has gone meanwhile: what
    /// it has asked is passed over then.
    pub(super) fn may_answer(&self, message: &ClientMessage) -> Result<bool, String> {
        let asks = matches!(
            message,
            ClientMessage::Deaths { .. }
                | ClientMessage::Job { .. }
                | ClientMessage::Metrics { .. }
                | ClientMessage::Models { .. }
                | ClientMessage::Policy { .. }
                | ClientMessage::Status { .. }
                | ClientMessage::Timeline { .. }
                | ClientMessage::Verdicts { .. }
        );
        if !asks {
            return Ok(true);
        }
        let (questions, asker) = (&self.shared.users.questions, (self.who.account, self.peer));
        let now = clock::now();
        let until = now + questions.take(asker, now);
        while !clock::until(until).is_zero() {
            let left = self.reader.hangs_up_within(clock::until(until));
            if left.map_err(|error| error.to_string())? {
                questions.give_back(asker);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Refuses an invalid submission.
    pub(super) fn refuse(&mut self, key: JobKey, why: String) {
        self.submit_checked();
        let refusal = Refusal::Invalid(why);
        self.outbox.tell(&ServerMessage::Refused { key, refusal });
    }

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
