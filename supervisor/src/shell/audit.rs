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

use super::clients::Peer;
use crate::logging::AUDIT;

/// Orders of one user in a minute.
const ORDERS_MAX: u32 = 250;
/// The same of a user who may give none.
const REFUSED_MAX: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// Bytes of the lines of one user's orders in a minute.
const LINES_BYTES_MAX: usize = 200 << 10;
/// Bytes of a line at most, in either format, beside names, what the order is about and what came of it.
const LINE_BYTES: usize = 256;
/// Bytes of what came of it beside what the order is about, which it may name once more.
const OUTCOME_BYTES: usize = 400;

/// Most bytes of a text that a client chose, as a line has it.
const TEXT_BYTES_MAX: usize = 256;
/// Those of a character that is written as its number.
const ESCAPED_BYTES: usize = 6;

/// At the end of a text that was cut.
const CUT: char = '…';

/// Bytes of a character in a line at most, in either format.
fn written(it: char) -> usize {
    match it.is_control() {
        true => ESCAPED_BYTES,
        false => it.escape_debug().map(char::len_utf8).sum(),
    }
}

/// The same of a text.
fn all_written(text: &str) -> usize {
    text.chars().map(written).sum()
}

/// A text, or as much of it as takes so many bytes of a line, with a mark at its end.
fn cut(text: &str, bytes_max: usize) -> String {
    if all_written(text) <= bytes_max {
        return text.to_owned();
    }
    let mut bytes = written(CUT);
    let fits = |it: &char| {
        bytes += written(*it);
        bytes <= bytes_max
    };
    text.chars().take_while(fits).chain([CUT]).collect()
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
            | ClientMessage::Timeline { .. }
            | ClientMessage::Verdicts { .. } => return None,
            ClientMessage::Drain { request } => (request, "drain", "drain it", String::new()),
            ClientMessage::Upgrade { request, one_by_one } => {
                let on = if *one_by_one { "one by one" } else { "" };
                (request, "upgrade", "upgrade it", on.to_owned())
            }
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
                (request, what, "change its models", cut(command.name(), TEXT_BYTES_MAX))
            }
            ClientMessage::Repository { request, command } => {
                let what = match command {
                    RepositoryCommand::Load { .. } => "repository load",
                    RepositoryCommand::Unload { .. } => "repository unload",
                };
                (request, what, "change its models", cut(command.name(), TEXT_BYTES_MAX))
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

    /// Bytes of its line at most.
    pub(super) fn line_bytes(&self) -> usize {
        let texts = [&self.user, &self.on].into_iter().chain(&self.token);
        LINE_BYTES + texts.map(|text| all_written(text)).sum::<usize>() + self.outcome_bytes()
    }

    fn outcome_bytes(&self) -> usize {
        OUTCOME_BYTES + all_written(&self.on)
    }

    /// Writes the line.
    pub(super) fn ended(&self, result: Result<&str, &Refusal>) {
        self.came_to(result, false);
    }

    /// The same. `has_failed`: it was carried out, without success.
    pub(super) fn came_to(&self, result: Result<&str, &Refusal>, has_failed: bool) {
        let Self { who: Who { account, pid, client }, user, what, on, token, .. } = self;
        let token = token.as_deref();
        let uid = account.uid();
        match result {
            Ok(outcome) => {
                let outcome = cut(outcome, self.outcome_bytes());
                tracing::info!(target: AUDIT, uid, user, pid, %client, token, what, on, outcome, "order");
            }
            Err(why) => {
                let why = cut(&why.to_string(), self.outcome_bytes());
                if has_failed {
                    tracing::warn!(target: AUDIT, uid, user, pid, %client, token, what, on, why, "order failed");
                    return;
                }
                tracing::warn!(target: AUDIT, uid, user, pid, %client, token, what, on, why, "order refused");
            }
        }
    }
}

/// The orders of each user in this minute. Those that the pool's own gateway and bridge pass on are counted apart,
/// and so are those of connections that may give none.
#[derive(Debug, Default)]
pub(super) struct Orders(Mutex<BTreeMap<(u32, Peer, bool), OrdersOfMinute>>);

#[derive(Debug)]
struct OrdersOfMinute {
    began: Instant,
    count: u32,
    /// Of their lines.
    bytes: usize,
}

impl Orders {
    /// Whether a user has not yet given as many orders as may be in a minute, nor those whose lines take as much of the
    /// log; counts this one, whose line has so many bytes.
    pub(super) fn take(
        &self,
        (account, peer): (Account, Peer),
        may: bool,
        line_bytes: usize,
    ) -> bool {
        let now = clock::now();
        let max = if may { ORDERS_MAX } else { REFUSED_MAX };
        let mut users = self.0.lock();
        users.retain(|_, own| now.duration_since(own.began) < MINUTE);
        let none = OrdersOfMinute { began: now, count: 0, bytes: 0 };
        let own = users.entry((account.uid(), peer, may)).or_insert(none);
        if own.count >= max || own.bytes + line_bytes > LINES_BYTES_MAX {
            return false;
        }
        own.count += 1;
        own.bytes += line_bytes;
        true
    }
}

/// Why an order over the limit is refused.
pub(super) fn too_many() -> Refusal {
    let why = format!(
        "a user may give {ORDERS_MAX} orders in a minute, fewer with long names: try again later"
    );
    Refusal::Unable(why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_user_has_its_own_limit_of_orders_which_is_low_if_it_may_give_none() {
        let orders = Orders::default();
        let taken = |uid, peer, may| {
            let line_bytes = LINE_BYTES + OUTCOME_BYTES;
            let take = |_: &u32| orders.take((Account::new(uid), peer), may, line_bytes);
            (0..3_000).filter(take).count()
        };
        let counts = [
            taken(1, Peer::Operator, true),
            taken(2, Peer::Client, false),
            taken(3, Peer::Client, false),
            taken(3, Peer::Operator, true),
        ];
        assert_eq!(counts, [250, 20, 20, 250]);
        // Those that come over HTTP do not count as the operator's whose user the gateway has.
        assert_eq!([true, false].map(|may| taken(1, Peer::Gateway, may)), [250, 20]);
        orders.0.lock().values_mut().for_each(|own| own.began -= MINUTE);
        assert_eq!(taken(1, Peer::Operator, true), 250);
        // Those that fill a line.
        let most = LINE_BYTES + OUTCOME_BYTES + 2 * TEXT_BYTES_MAX;
        let long = || orders.take((Account::new(4), Peer::Operator), true, most);
        assert_eq!((0..3_000).filter(|_| long()).count(), LINES_BYTES_MAX / most);
    }

    /// The line that the audit writes of an order.
    fn line(order: &Order, result: Result<&str, &Refusal>, is_json: bool) -> String {
        let file = tempfile::tempfile().unwrap();
        let lines =
            tracing_subscriber::fmt::layer().with_writer(Arc::new(file.try_clone().unwrap()));
        let write = || order.ended(result);
        if is_json {
            let lines = lines.json().flatten_event(true);
            let lines = lines.with_current_span(false).with_span_list(false);
            with_default(tracing_subscriber::registry().with(lines), write);
        } else {
            let lines = lines.with_ansi(false);
            with_default(tracing_subscriber::registry().with(lines), write);
        }
        let mut text = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut text, 0).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_line_takes_no_more_bytes_than_are_counted_whatever_a_client_names() {
        let who =
            Who { account: Account::new(u32::MAX), pid: u32::MAX, client: ClientId(u64::MAX) };
        for text in ["a", "\u{1}", "\"", "\u{9f}", "\u{200b}", "\u{10ffff}", "𝔵"] {
            let name = text.repeat(1_000);
            let message = ClientMessage::Repository {
                request: 1,
                command: RepositoryCommand::Unload { name: name.clone() },
            };
            let (_, order) = Order::of(who, &message).unwrap();
            let order = order.by_token(text.repeat(64));
            let refusal = Refusal::Unable(format!("no model {name:?}"));
            for (result, is_json) in [
                (Ok(&*name), false),
                (Ok(&*name), true),
                (Err(&refusal), false),
                (Err(&refusal), true),
            ] {
                let line = line(&order, result, is_json);
                assert!(line.contains("order"), "{line}");
                assert!(line.len() <= order.line_bytes(), "{text:?}: {line}");
            }
        }
    }

    #[test]
    fn what_came_of_an_order_is_whole_or_ends_with_a_mark() {
        let who = Who { account: Account::new(1), pid: 2, client: ClientId(3) };
        let (_, order) = Order::of(who, &ClientMessage::Drain { request: 1 }).unwrap();
        let why = |length| Refusal::Unable("x".repeat(length));
        let whole = line(&order, Err(&why(300)), true);
        assert!(whole.contains(&"x".repeat(300)) && !whole.contains(CUT), "{whole}");
        let long = line(&order, Err(&why(500)), true);
        assert!(long.contains(&format!("x{CUT}\"")) && !long.contains(&"x".repeat(400)), "{long}");
    }

    #[test]
    fn a_text_of_a_client_is_cut_by_the_bytes_that_a_line_takes() {
        for (text, chars) in [("a", 254), ("𝔵", 64), ("\u{1}", 43), ("\"", 127)] {
            let kept = cut(&text.repeat(1_000), TEXT_BYTES_MAX);
            assert_eq!(kept.chars().count(), chars, "{text:?}");
            assert!(kept.ends_with(CUT), "{kept:?}");
            assert_eq!(cut(text, TEXT_BYTES_MAX), text);
        }
    }
}
