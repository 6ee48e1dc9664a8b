//! Whether the cluster is reached, and whether this host may take its jobs: a name is one host's.

use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_nats::{Connection, HostRow};
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

/// Most signs of a reason: a line is written at once, or not at all.
const REASON_MAX: usize = 400;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Reach {
    known: watch::Sender<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    server: String,
    why_not: String,
    since: Instant,
    /// The cluster knows this host by its name, and no other.
    is_named: bool,
}

impl Default for Reach {
    fn default() -> Self {
        let why_not = "no NATS server has answered yet".to_owned();
        let (server, since) = (String::new(), clock::now());
        Self { known: watch::Sender::new(Known { server, why_not, since, is_named: false }) }
    }
}

impl Reach {
    /// A server has taken what this host says of itself.
    pub(crate) fn is_named(&self, server: String) {
        self.note(server, String::new(), |_| true);
    }

    /// Another pool has this host's name. Returns why this one takes no jobs, if that is news.
    pub(crate) fn is_namesake(&self, server: String, other: &HostRow) -> Option<String> {
        let HostRow { host, place, .. } = other;
        let why = format!(
            "another pool is the host `{host}` of this cluster, the one at {place}: give this pool a name of its own \
             (--nats-host NAME, or `host` of [nats]); it takes no jobs until that one has said nothing for 10 s"
        );
        let is_news = self.known.borrow().why_not != shortened(&why);
        self.note(server, why.clone(), |_| false);
        is_news.then_some(why)
    }

    /// No server answers.
    pub(crate) fn is_lost(&self, why: String) {
        self.note(String::new(), why, |before| before);
    }

    fn note(&self, server: String, why_not: String, is_named: impl Fn(bool) -> bool) {
        self.known.send_modify(|known| {
            let is_other = known.why_not.is_empty() != why_not.is_empty()
                || known.server.is_empty() != server.is_empty();
            if is_other {
                known.since = clock::now();
            }
            (known.server, known.why_not) = (server, shortened(&why_not));
            known.is_named = is_named(known.is_named);
        });
    }

    /// Whether this host may take jobs, by its name.
    pub(crate) fn has_name(&self) -> bool {
        self.known.borrow().is_named
    }

    /// Waits until it may.
    pub(crate) async fn naming(&self) {
        let mut known = self.known.subscribe();
        // The sender lives as long as self.
        drop(known.wait_for(|known| known.is_named).await);
    }

    /// What is said to the supervisor.
    pub(crate) fn line<C>(&self, counts: C) -> BridgeLine<C> {
        let Known { server, why_not, since, .. } = self.known.borrow().clone();
        BridgeLine { counts, server, why_not, since_s: since.elapsed().as_secs() }
    }
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
    fn a_host_keeps_its_name_while_no_server_answers_and_not_beside_a_namesake() {
        let reach = Reach::default();
        assert!(!reach.has_name() && reach.line(()).server.is_empty());
        reach.is_named("n0".into());
        assert_eq!(
            reach.line(7),
            BridgeLine { counts: 7, server: "n0".into(), ..BridgeLine::default() }
        );
        reach.is_lost("timed out".into());
        let line = reach.line(());
        assert!(reach.has_name());
        assert_eq!((line.server.as_str(), line.why_not.as_str()), ("", "timed out"));
        let other = HostRow { host: "a".into(), place: "/b".into(), ..HostRow::default() };
        let why = reach.is_namesake("n0".into(), &other).expect("it is news");
        assert!(why.contains("`a`") && why.contains("/b") && why.contains("--nats-host"), "{why}");
        assert!(!reach.has_name() && reach.is_namesake("n0".into(), &other).is_none());
        assert_eq!(reach.line(()).why_not, why);
    }
}
