//! Whether the cluster is reached, and whether this host may take its jobs: a name is one host's.

use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_nats::{Connection, HOST_AGE, HostRow, NatsError};
use gridpool_protocol::chain::Chain;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What the bridge says to the supervisor, once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeLine<C> {
    /// What it has counted.
    pub counts: C,
    /// The server that answers; empty if none does.
    pub server: String,
    /// Why it takes no jobs of the cluster; empty if it does.
    pub why_not: String,
    /// Seconds since it began or ceased to take them.
    pub since_s: u64,
}

/// Between two words in the log that the cluster is not reached.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// Most signs of a reason: a line is written at once, or not at all.
const REASON_MAX: usize = 400;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Reach {
    known: watch::Sender<Known>,
    told: Mutex<Told>,
}

/// What the log says of it.
#[derive(Debug, Default)]
struct Told {
    /// Why the cluster is not reached; empty if it is.
    lost: String,
    /// When it last said so.
    at: Option<Instant>,
}

/// What is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    server: String,
    /// Why this host is not known by its name now; empty if it is.
    unnamed: String,
    /// Why its lanes give no jobs; empty if they do, or are not asked.
    closed: String,
    since: Instant,
    /// When the cluster last heard of this host by its name, and of no other.
    named: Option<Instant>,
}

impl Default for Reach {
    fn default() -> Self {
        let known = Known {
            server: String::new(),
            unnamed: "no NATS server has answered yet".to_owned(),
            closed: String::new(),
            since: clock::now(),
            named: None,
        };
        Self { known: watch::Sender::new(known), told: Mutex::default() }
    }
}

impl Known {
    fn why_not(&self) -> &str {
        if self.unnamed.is_empty() { &self.closed } else { &self.unnamed }
    }

    /// A name ends for its owner when it ends for the servers.
    fn has_name(&self) -> bool {
        self.named.is_some_and(|at| at.elapsed() < HOST_AGE)
    }
}

impl Reach {
    /// A server has taken what this host says of itself, which it began to say at that time. Returns whether another
    /// pool had its name before.
    pub(crate) fn is_named(&self, server: String, at: Instant) -> bool {
        let mut was_anothers = false;
        self.note(|known| {
            was_anothers = !known.server.is_empty() && !known.unnamed.is_empty();
            (known.server, known.unnamed, known.named) = (server, String::new(), Some(at));
        });
        was_anothers
    }

    /// Another pool has this host's name. Returns why this one takes no jobs, if that is news.
    pub(crate) fn is_namesake(&self, server: String, other: &HostRow) -> Option<String> {
        let why = format!(
            "another pool is the host `{}` of this cluster, {}: give this pool a name of its own (--nats-host NAME, or \
             `host` of [nats]); it takes no jobs until that one has ended, or said nothing for 10 s",
            other.host,
            other.whose()
        );
        let said = shortened(&why);
        let is_news = self.known.borrow().unnamed != said;
        self.note(|known| (known.server, known.unnamed, known.named) = (server, said, None));
        is_news.then_some(why)
    }

    /// What this host says of itself reaches no server, or none takes it.
    pub(crate) fn is_lost(&self, error: &NatsError) {
        self.note(|known| (known.server, known.unnamed) = (String::new(), said(error)));
    }

    /// The library has lost the connection, and seeks another.
    pub(crate) fn is_cut(&self) {
        self.note(|known| {
            let server = std::mem::take(&mut known.server);
            if !server.is_empty() {
                known.unnamed = format!("the connection to the NATS server {server} is lost");
            }
        });
    }

    /// Tells of its changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// The lanes are open and answer.
    pub(crate) fn lanes_answer(&self) {
        // It is said with each round of questions.
        if !self.known.borrow().closed.is_empty() {
            self.note(|known| known.closed.clear());
        }
    }

    /// The lanes cannot be opened.
    pub(crate) fn lanes_are_closed(&self, error: &NatsError) {
        self.note(|known| known.closed = said(error));
    }

    /// The lanes have not answered.
    pub(crate) fn lanes_are_silent(&self) {
        self.note(|known| known.closed = "the lanes of jobs do not answer".to_owned());
    }

    fn note(&self, change: impl FnOnce(&mut Known)) {
        self.known.send_modify(|known| {
            let is_so = |known: &Known| (known.why_not().is_empty(), known.server.is_empty());
            let before = is_so(known);
            change(known);
            if is_so(known) != before {
                known.since = clock::now();
            }
        });
        self.tell();
    }

    /// Says in the log that the cluster is reached no more, or is again; the former at most so often.
    fn tell(&self) {
        let (known, mut told) = (self.known.borrow(), self.told.lock());
        let lost = if known.server.is_empty() { known.unnamed.as_str() } else { "" };
        if lost == told.lost {
            return;
        }
        if lost.is_empty() {
            tracing::info!(server = known.server, "this host reaches the cluster again");
        } else if told.at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            tracing::warn!(why = lost, "this host does not reach the cluster");
            told.at = Some(clock::now());
        } else {
            return;
        }
        lost.clone_into(&mut told.lost);
    }

    /// Whether this host may take jobs, by its name.
    pub(crate) fn has_name(&self) -> bool {
        self.known.borrow().has_name()
    }

    /// Waits until it may.
    pub(crate) async fn naming(&self) {
        let mut known = self.known.subscribe();
        // The sender lives as long as self.
        drop(known.wait_for(Known::has_name).await);
    }

    /// What is said to the supervisor.
    pub(crate) fn line<C>(&self, counts: C) -> BridgeLine<C> {
        let known = self.known.borrow().clone();
        let (why_not, since_s) = (known.why_not().to_owned(), known.since.elapsed().as_secs());
        BridgeLine { counts, server: known.server, why_not, since_s }
    }
}

/// What an error says to those who ask for the status.
fn said(error: &NatsError) -> String {
    let words = Chain(error).to_string();
    let is_silence = error.may_pass() && !matches!(error, NatsError::NoStream { .. });
    shortened(&if is_silence { format!("no server answers: {words}") } else { words })
}

fn shortened(text: &str) -> String {
    text.chars().take(REASON_MAX).collect()
}

/// The server that a connection has at this time.
pub(crate) fn server_of(connection: &Connection) -> String {
    let info = connection.client.server_info();
    let address = format!("{}:{}", info.host, info.port);
    match info.server_name == info.server_id {
        // It was given no name.
        true => address,
        false => format!("{} ({address})", info.server_name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_name_for_a_while_and_not_beside_a_namesake() {
        let reach = Reach::default();
        assert!(!reach.has_name() && reach.line(()).server.is_empty());
        assert!(!reach.is_named("n0".into(), clock::now()), "nobody had it before");
        assert_eq!(
            reach.line(7),
            BridgeLine { counts: 7, server: "n0".into(), ..BridgeLine::default() }
        );
        reach.is_lost(&NatsError::Silent);
        let line = reach.line(());
        assert!(reach.has_name());
        assert!(line.server.is_empty() && line.why_not.starts_with("no server answers: "));
        let other = HostRow { host: "a".into(), place: "/b".into(), ..HostRow::default() };
        let why = reach.is_namesake("n0".into(), &other).expect("it is news");
        assert!(why.contains("`a`") && why.contains("/b") && why.contains("--nats-host"), "{why}");
        assert!(!reach.has_name() && reach.is_namesake("n0".into(), &other).is_none());
        assert_eq!(reach.line(()).why_not, why);
        // The servers have forgotten it by now.
        assert!(reach.is_named("n0".into(), clock::now() - HOST_AGE));
        assert!(!reach.has_name());
    }

    #[test]
    fn the_log_says_that_the_cluster_is_lost_and_is_back_and_not_again_at_once() {
        let reach = Reach::default();
        let lost = || reach.told.lock().lost.clone();
        let named = || reach.is_named("n0".into(), clock::now());
        named();
        reach.is_cut();
        let why = lost();
        assert!(why.contains("n0") && reach.line(()).why_not == why, "{why}");
        // The first reason is the one that helps.
        reach.is_cut();
        reach.is_lost(&NatsError::Silent);
        assert_eq!(lost(), why);
        named();
        assert_eq!(lost(), "");
        // So soon after that, only the status says so.
        reach.is_cut();
        assert_eq!(lost(), "");
        assert!(!reach.line(()).why_not.is_empty());
    }

    #[test]
    fn a_host_whose_lanes_are_closed_says_so_and_no_silence_where_a_server_refuses() {
        let reach = Reach::default();
        reach.is_named("n0".into(), clock::now());
        let refused = || NatsError::NotAllowed { said: "permissions violation".into() };
        reach.lanes_are_closed(&refused());
        let line = reach.line(());
        assert_eq!(line.server, "n0");
        assert!(line.why_not.contains("permissions violation"), "{line:?}");
        reach.lanes_are_silent();
        reach.is_named("n0".into(), clock::now());
        assert!(reach.line(()).why_not.contains("lanes"), "{:?}", reach.line(()));
        reach.lanes_answer();
        assert!(reach.line(()).why_not.is_empty());
        for error in [refused(), NatsError::NoStream { stream: "jobs".into() }] {
            reach.is_lost(&error);
            assert!(!reach.line(()).why_not.contains("answers"), "{:?}", reach.line(()));
        }
    }
}
