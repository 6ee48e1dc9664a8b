//! The audit: one line in the log for each order, under the target `audit`. It says who gave the order, by the
//! kernel's word, and what came of it. The log drops none of these lines for others, so orders have a limit: one over
//! it is not carried out. If nobody reads the log, it holds some thousands of lines and counts the rest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gridpool_core::event::Helper;
use gridpool_ipc::account::Account;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::ClientId;
use gridpool_protocol::message::{
    ClientMessage, ModelCommand, Refusal, Release, RepositoryCommand,
};

use crate::logging::AUDIT;

/// Orders of one user in a minute.
const ORDERS_MAX: u32 = 2_000;
/// The same of a user who may give none.
const REFUSED_MAX: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// Most characters of a text that a client chose.
const TEXT_MAX: usize = 256;

fn cut(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) account: Account,
    /// Its number when it connected; the process may have ended since.
    pub(super) pid: u32,
    pub(super) client: ClientId,
}

/// An order, and who gave it.
#[derive(Clone, Debug)]
pub(super) struct Order {
    who: Who,
    /// The name of its user, if the system knows one. To look it up takes long, so it is not done under a lock.
    user: String,
    what: &'static str,
    /// What it does to the pool, after "may".
    pub(super) may: &'static str,
    /// The process of the pool that may give it too: the gateway for those of its clients that may.
    pub(super) helper: Option<Helper>,
    /// What it is about; empty for the whole pool.
    on: String,
    /// The name of the token that the gateway has shown for it.
    token: Option<String>,
}

impl Order {
    /// The order in a message, if it is one, and the number of the request.
    pub(super) fn of(who: Who, message: &ClientMessage) -> Option<(u64, Self)> {
        let (request, what, may, on) = match message {
            ClientMessage::ByToken { .. }
            | ClientMessage::Cancel { .. }
            | ClientMessage::CreateArena { .. }
            | ClientMessage::Deaths { .. }
            | ClientMessage::DropArena { .. }
            | ClientMessage::Hello { .. }
            | ClientMessage::Job { .. }
            | ClientMessage::Metrics { .. }
            | ClientMessage::Models { .. }
            | ClientMessage::Policy { .. }
            | ClientMessage::Status { .. }
            | ClientMessage::Submit(_)
            | ClientMessage::Verdicts { .. } => return None,
            ClientMessage::Drain { request } => (request, "drain", "drain it", String::new()),
            ClientMessage::Upgrade { request } => (request, "upgrade", "upgrade it", String::new()),
            ClientMessage::Kill { request, worker, signal } => {
                let on = format!("{worker} with signal {signal}");
                (request, "kill", "send signals to its workers", on)
            }
            ClientMessage::Model { request, command } => {
                let what = match command {
                    ModelCommand::Contexts { .. } => "model contexts",
                    ModelCommand::Load(_) => "model load",
                    ModelCommand::Unload { .. } => "model unload",
                };
                (request, what, "change its models", cut(command.name()))
            }
            ClientMessage::Repository { request, command } => {
                let what = match command {
                    RepositoryCommand::Load { .. } => "repository load",
                    RepositoryCommand::Unload { .. } => "repository unload",
                };
                (request, what, "change its models", cut(command.name()))
            }
            ClientMessage::Release { request, release } => {
                (request, "release", "release what it took away", release.to_string())
            }
        };
        let user = who.account.name().unwrap_or_default();
        let helper = if matches!(message, ClientMessage::Repository { .. }) {
            Some(Helper::Gateway)
        } else {
            // What the cluster's operator has released.
            matches!(message, ClientMessage::Release { release: Release::Content(_), .. })
                .then_some(Helper::Bridge)
        };
        Some((*request, Self { who, user, what, may, helper, on, token: None }))
    }

    /// The same, by a client of the gateway whose token may give it.
    pub(super) fn by_token(self, name: String) -> Self {
        Self { helper: Some(Helper::Gateway), token: Some(name), ..self }
    }

    /// Writes the line.
    pub(super) fn ended(&self, result: Result<&str, &Refusal>) {
        let Self { who: Who { account, pid, client }, user, what, on, token, .. } = self;
        let token = token.as_deref();
        let uid = account.uid();
        match result {
            Ok(outcome) => {
                tracing::info!(target: AUDIT, uid, user, pid, %client, token, what, on, outcome, "order");
            }
            Err(why) => {
                let why = cut(&why.to_string());
                tracing::warn!(target: AUDIT, uid, user, pid, %client, token, what, on, why, "order refused");
            }
        }
    }
}

/// The orders of each user in this minute. Those of its connections that may give none, such as the gateway's, are
/// counted apart.
#[derive(Debug, Default)]
pub(super) struct Orders(Mutex<BTreeMap<(u32, bool), (Instant, u32)>>);

impl Orders {
    /// Whether a user has not yet given as many orders as may be in a minute; counts this one.
    pub(super) fn take(&self, account: Account, may: bool) -> bool {
        let now = clock::now();
        let max = if may { ORDERS_MAX } else { REFUSED_MAX };
        let mut users = self.0.lock();
        users.retain(|_, (began, _)| now.duration_since(*began) < MINUTE);
        let (_, count) = users.entry((account.uid(), may)).or_insert((now, 0));
        *count = count.saturating_add(1);
        *count <= max
    }
}

/// Why an order over the limit is refused.
pub(super) fn too_many() -> Refusal {
    Refusal::Unable(format!("a user may give {ORDERS_MAX} orders in a minute: try again later"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_its_own_limit_of_orders_which_is_low_if_it_may_give_none() {
        let orders = Orders::default();
        let taken = |uid, may| (0..3_000).filter(|_| orders.take(Account::new(uid), may)).count();
        let counts = [taken(1, true), taken(2, false), taken(3, false), taken(3, true)];
        assert_eq!(counts, [2_000, 20, 20, 2_000]);
        orders.0.lock().values_mut().for_each(|(began, _)| *began -= MINUTE);
        assert_eq!(taken(1, true), 2_000);
    }
}
