//! How to reach the servers, and the limits of the streams.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How to reach the NATS servers, and which streams there are the cluster's.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatsOptions {
    /// Addresses such as `nats://a:4222`; `tls://` requires TLS. One of them has to answer.
    pub servers: Vec<String>,
    /// What the names of streams and subjects begin with. Clusters with different ones share servers and nothing else.
    pub prefix: String,
    /// A credentials file, as `nsc` makes it.
    pub credentials: Option<PathBuf>,
    /// A PEM file with the authorities that the servers' certificates are checked with, instead of the system's.
    pub ca: Option<PathBuf>,
}

/// Why a list of servers is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` names no NATS servers: write nats://HOST:PORT, or tls://…; separate more by commas"
)]
pub struct ParseServersError {
    text: String,
}

impl NatsOptions {
    /// The prefix, unless another is set.
    pub const PREFIX_DEFAULT: &str = "gridpool";

    /// Reads a list such as `nats://a,b:4223,c`.
    ///
    /// # Errors
    /// [`ParseServersError`].
    pub fn parse(text: &str) -> Result<Self, ParseServersError> {
        let wrong = || ParseServersError { text: without_secrets(text) };
        let (scheme, _) = text.split_once("://").ok_or_else(wrong)?;
        if !Self::is_address(text) {
            return Err(wrong());
        }
        let server = |part: &str| match part.contains("://") {
            true => part.to_owned(),
            false => format!("{scheme}://{part}"),
        };
        let parts = text.split(',').map(str::trim);
        let servers: Vec<_> = parts.filter(|part| !part.is_empty()).map(server).collect();
        match servers.iter().all(|server| Self::is_address(server) && !server.ends_with("://")) {
            true if !servers.is_empty() => Ok(Self {
                servers,
                prefix: Self::PREFIX_DEFAULT.to_owned(),
                credentials: None,
                ca: None,
            }),
            true | false => Err(wrong()),
        }
    }

    /// Whether a text looks like the address of NATS servers, and not like the path of a socket.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        text.starts_with("nats://") || text.starts_with("tls://")
    }

    /// Checks a prefix: letters, digits, `_` and `-`, as names of streams have them.
    ///
    /// # Errors
    /// A sentence.
    pub fn check_prefix(prefix: &str) -> Result<(), String> {
        let is_right = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        match !prefix.is_empty() && prefix.len() <= 32 && prefix.chars().all(is_right) {
            true => Ok(()),
            false => Err(format!("`{prefix}` is no prefix: use up to 32 letters, digits, _ and -")),
        }
    }

    /// The servers, without passwords.
    #[must_use]
    pub fn shown(&self) -> String {
        without_secrets(&self.servers.join(","))
    }
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NatsOptions({}, {})", self.shown(), self.prefix)
    }
}

/// The addresses without users and passwords.
fn without_secrets(text: &str) -> String {
    let bare = |part: &str| match (part.split_once("://"), part.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (_, None) => part.to_owned(),
    };
    text.split(',').map(bare).collect::<Vec<_>>().join(",")
}

/// The limits of the streams, which the first pool makes. A stream that exists keeps its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamLimits {
    /// Servers that have a copy of every message.
    pub replicas: usize,
    /// Jobs that wait or run. One more is refused as BUSY.
    pub jobs_max: u64,
    /// Their bytes. What would be more is refused as BUSY.
    pub jobs_bytes_max: u64,
    /// Bytes of large batches and results. What would be more is refused as BUSY, or waits.
    pub data_bytes_max: u64,
    /// Bytes of results that nobody has read. What would be more waits.
    pub results_bytes_max: u64,
    /// How long a result that nobody reads is kept.
    pub results_age: Duration,
    /// How long a host may be silent about a job before another gets it.
    pub ack_wait: Duration,
}

impl StreamLimits {
    /// The defaults.
    #[must_use]
    pub fn new(servers: usize) -> Self {
        Self {
            replicas: if servers >= 3 { 3 } else { 1 },
            jobs_max: 100_000,
            jobs_bytes_max: 1 << 30,
            data_bytes_max: 4 << 30,
            results_bytes_max: 2 << 30,
            results_age: Duration::from_secs(3_600),
            ack_wait: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_servers_has_one_scheme_or_one_for_each() {
        let servers = |text: &str| NatsOptions::parse(text).map(|options| options.servers);
        assert_eq!(servers("nats://a").unwrap(), ["nats://a"]);
        assert_eq!(servers("nats://a,b:1,c").unwrap(), ["nats://a", "nats://b:1", "nats://c"]);
        assert_eq!(servers("tls://a,nats://b").unwrap(), ["tls://a", "nats://b"]);
        for wrong in ["", "a", "nats://", "http://a", "nats://a,http://b", "/run/pool.sock"] {
            let said = servers(wrong).unwrap_err().to_string();
            assert!(said.contains("nats://HOST:PORT"), "{wrong}: {said}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let options = NatsOptions::parse("nats://me:secret@a,b").unwrap();
        assert_eq!(options.shown(), "nats://a,nats://b");
        assert!(!format!("{options:?}").contains("secret"));
        assert!(
            !NatsOptions::parse("http://me:secret@a").unwrap_err().to_string().contains("secret")
        );
    }

    #[test]
    fn a_prefix_is_a_name() {
        assert!(NatsOptions::check_prefix("team-1_b").is_ok());
        for wrong in ["", "a.b", "a b", "ä", "*"] {
            assert!(NatsOptions::check_prefix(wrong).is_err(), "{wrong}");
        }
    }
}
