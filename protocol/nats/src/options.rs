//! How to reach the servers, and the limits of the streams.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::VERSION;

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
    /// A PEM file with the certificate that this program shows to the servers, and those of its authorities.
    pub cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate.
    pub key: Option<PathBuf>,
    /// The version of messages that is written and read, [`VERSION`]. Tests set another one, to be another build.
    #[doc(hidden)]
    pub version: u32,
}

/// Why a list of servers is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseServersError {
    /// It has another form.
    #[error(
        "`{text}` names no NATS servers: write nats://HOST:PORT, or tls://…; separate more by commas"
    )]
    Form {
        /// The text, without users and passwords.
        text: String,
    },
    /// A user or a password cannot be read.
    #[error(
        "the user or the password of {server} cannot be read: a % begins two hexadecimal digits there, which are UTF-8 \
         together; write %25 for a percent sign"
    )]
    User {
        /// The server, without them.
        server: String,
    },
}

impl NatsOptions {
    /// The prefix, unless another is set.
    pub const PREFIX_DEFAULT: &str = "gridpool";

    /// Reads a list such as `nats://a,b:4223,c`.
    ///
    /// # Errors
    /// [`ParseServersError`].
    pub fn parse(text: &str) -> Result<Self, ParseServersError> {
        let wrong = || ParseServersError::Form { text: without_secrets(text) };
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
        let is_right = |server: &String| Self::is_address(server) && !server.ends_with("://");
        if servers.is_empty() || !servers.iter().all(is_right) {
            return Err(wrong());
        }
        servers.iter().try_for_each(|server| user_of(server).map(drop))?;
        // Such as a port that is none.
        if servers.iter().any(|server| server.parse::<async_nats::ServerAddr>().is_err()) {
            return Err(wrong());
        }
        Ok(Self {
            servers,
            prefix: Self::PREFIX_DEFAULT.to_owned(),
            credentials: None,
            ca: None,
            cert: None,
            key: None,
            version: VERSION,
        })
    }

    /// The user and the password of the first address that has them.
    pub(crate) fn user(&self) -> Result<Option<(String, String)>, ParseServersError> {
        self.servers.iter().find_map(|server| user_of(server).transpose()).transpose()
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

    /// The files that a connection reads.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let Self { credentials, ca, cert, key, .. } = self;
        [credentials, ca, cert, key].into_iter().filter_map(|file| file.as_deref())
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

/// The user and the password of an address, as they are before percent signs stand for anything.
fn user_of(server: &str) -> Result<Option<(String, String)>, ParseServersError> {
    let wrong = || ParseServersError::User { server: without_secrets(server) };
    let named = server.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    let Some((named, _)) = named else { return Ok(None) };
    let (user, password) = named.split_once(':').unwrap_or((named, ""));
    let read = |text: &str| {
        let mut signs = text.split('%').skip(1);
        let is_digit = |at: &u8| at.is_ascii_hexdigit();
        let are_right =
            |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(is_digit));
        if !signs.all(are_right) {
            return Err(wrong());
        }
        percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| wrong())
    };
    Ok(Some((read(user)?, read(password)?)))
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
        for wrong in [
            "",
            "a",
            "nats://",
            "http://a",
            "nats://a,http://b",
            "nats://a,b:42x",
            "/run/pool.sock",
        ] {
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
    fn percent_signs_in_users_and_passwords_are_read() {
        let user = |text: &str| NatsOptions::parse(text).map(|options| options.user().unwrap());
        let named = |user: &str, password: &str| Ok(Some((user.to_owned(), password.to_owned())));
        assert_eq!(user("nats://a,b"), Ok(None));
        assert_eq!(user("nats://me:secret@a"), named("me", "secret"));
        assert_eq!(
            user("nats://a,me%40here:p%40s%3As%25%2f%C3%A4@b"),
            named("me@here", "p@s:s%/ä")
        );
        assert_eq!(user("nats://me@a"), named("me", ""));
        for wrong in [
            "nats://m%e:p@a",
            "nats://me:p%@a",
            "nats://a,me:p%4@b",
            "nats://me:p%ff@a",
            "tls://me:%zz@a",
        ] {
            let said = user(wrong).unwrap_err().to_string();
            assert!(said.contains("write %25") && !said.contains("me"), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_prefix_is_a_name() {
        assert!(NatsOptions::check_prefix("team-1_b").is_ok());
        for wrong in ["", "a.b", "a b", "ä", "*"] {
            assert!(NatsOptions::check_prefix(wrong).is_err(), "{wrong}");
        }
    }
}
