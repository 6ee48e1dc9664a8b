//! Whom the gateway admits: names of hosts, origins of web pages, tokens, the certificate.
//!
//! The supervisor reads the files and sends their content over the link, as one line of JSON at the start and
//! after each change. So this process opens no file, and can be forbidden to.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::principal::Principal;
use serde::{Deserialize, Serialize};

use super::limits::{ACCESS_LOG_BYTES_PER_MINUTE, LOG_BYTES_PER_MINUTE};
use super::tls::{Acceptor, acceptor};
use super::tokens::{Scope, TokenMark, Tokens};
use crate::logging;

/// Longest line from the supervisor.
const LINE_BYTES_MAX: usize = 1 << 20;
/// How long the supervisor may take to send the first line.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(5);

/// What the supervisor sends.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorPlan {
    /// Names that `Host` may have, besides the address and `localhost`.
    pub hosts: Vec<String>,
    /// Origins of web pages that may send requests.
    pub origins: Vec<String>,
    /// The text of the file of tokens.
    pub tokens: Option<String>,
    /// The texts of the file of certificates and of its key's.
    pub pem: Option<(String, String)>,
    /// Whether every user whom the mode of the Unix socket lets in may use it.
    pub any_user: bool,
    /// Whether the log has a line for each request.
    pub access_log: bool,
    /// Whether another gateway takes the place of this one.
    pub is_leaving: bool,
}

/// What of a plan is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DoorError {
    /// The file of tokens.
    #[error("{0}")]
    Tokens(String),
    /// The file of certificates, or that of the key.
    #[error("{0}")]
    Tls(String),
}

// Tokens and keys must not get into a log.
impl std::fmt::Debug for DoorPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hosts, origins, tokens, pem, any_user, access_log, is_leaving } = self;
        let (tokens, tls) = (tokens.is_some(), pem.is_some());
        write!(
            f,
            "DoorPlan {{ {hosts:?}, {origins:?}, tokens: {tokens}, tls: {tls}, any_user: {any_user}, \
             access_log: {access_log}, is_leaving: {is_leaving} }}"
        )
    }
}

/// A plan in use.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) hosts: Vec<String>,
    pub(super) origins: Vec<String>,
    pub(super) tokens: Option<Tokens>,
    pub(super) tls: Option<Acceptor>,
    /// The same for gRPC, which is another protocol in the handshake.
    pub(super) grpc_tls: Option<Acceptor>,
    pub(super) any_user: bool,
    pub(super) access_log: bool,
    pub(super) is_leaving: bool,
}

impl DoorPlan {
    /// Checks it without using it.
    ///
    /// # Errors
    /// [`DoorError`].
    pub fn check(&self) -> Result<(), DoorError> {
        Door::new(self).map(drop)
    }

    /// Its tokens, read once. A text that cannot be read has none; [`check`](Self::check) refuses it.
    #[must_use]
    pub fn holders(&self) -> Holders {
        let tokens = self.tokens.as_deref().map(Tokens::parse);
        Holders { are_asked_for: tokens.is_some(), tokens: tokens.and_then(Result::ok) }
    }
}

/// Who has a token of a plan.
#[derive(Debug)]
pub struct Holders {
    are_asked_for: bool,
    tokens: Option<Tokens>,
}

impl Holders {
    /// The name of the token of this text, if it has one of these scopes.
    #[must_use]
    pub fn find(&self, token: &str, any: &[Scope]) -> Option<String> {
        let known = self.tokens.as_ref()?.find(token, clock::time_of_day())?;
        known.may(any).then(|| known.name.clone())
    }

    /// The mark of a principal's token.
    #[must_use]
    pub fn mark_of(&self, principal: &Principal) -> Option<TokenMark> {
        match principal {
            Principal::Token(name) => self.tokens.as_ref()?.mark_of(name),
            Principal::Address(_) | Principal::Gateway | Principal::Uid(_) => None,
        }
    }

    /// Whether requests need one and nobody has one.
    #[must_use]
    pub fn let_nobody_in(&self) -> bool {
        self.are_asked_for && self.tokens.as_ref().is_none_or(Tokens::is_empty)
    }

    /// Whether requests need one.
    #[must_use]
    pub fn are_asked_for(&self) -> bool {
        self.are_asked_for
    }
}

impl Door {
    /// What this process may log in a minute.
    pub(super) fn limit_log(&self) {
        logging::limit(match self.access_log {
            true => ACCESS_LOG_BYTES_PER_MINUTE,
            false => LOG_BYTES_PER_MINUTE,
        });
    }

    pub(super) fn new(plan: &DoorPlan) -> Result<Self, DoorError> {
        let tokens = plan.tokens.as_deref().map(Tokens::parse).transpose();
        let tls = |speaks: &[u8]| {
            let pem = plan.pem.as_ref();
            pem.map(|(cert, key)| acceptor(cert, key, speaks)).transpose().map_err(DoorError::Tls)
        };
        Ok(Self {
            hosts: plan.hosts.clone(),
            origins: plan.origins.clone(),
            tokens: tokens.map_err(DoorError::Tokens)?,
            tls: tls(b"http/1.1")?,
            grpc_tls: tls(b"h2")?,
            any_user: plan.any_user,
            access_log: plan.access_log,
            is_leaving: plan.is_leaving,
        })
    }
}

/// The link from the supervisor: the door as of its latest line.
#[derive(Debug)]
pub(super) struct Doorway {
    current: Mutex<Arc<Door>>,
    /// The beginning of the next line.
    unread: Mutex<Vec<u8>>,
}

impl Doorway {
    /// Waits for the supervisor's first line.
    pub(super) fn receive(mut link: &UnixStream) -> io::Result<Self> {
        link.set_read_timeout(Some(FIRST_LINE_TIMEOUT))?;
        let (mut unread, mut bytes) = (Vec::new(), [0; 4_096]);
        loop {
            let count = link.read(&mut bytes)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            unread.extend_from_slice(&bytes[..count]);
            if let Some(door) = next(&mut unread)? {
                return Ok(Self {
                    current: Mutex::new(Arc::new(door)),
                    unread: Mutex::new(unread),
                });
            }
        }
    }

    pub(super) fn current(&self) -> Arc<Door> {
        Arc::clone(&self.current.lock())
    }

    /// Takes in more bytes of the link. The error ends the gateway; the next one begins with a whole line.
    pub(super) fn take_in(&self, bytes: &[u8]) -> io::Result<()> {
        let mut unread = self.unread.lock();
        unread.extend_from_slice(bytes);
        while let Some(door) = next(&mut unread)? {
            *self.current.lock() = Arc::new(door);
            if !self.current().is_leaving {
                tracing::info!(
                    "tokens, certificates, names and the access log are as their settings say now"
                );
                self.current().limit_log();
            }
        }
        Ok(())
    }
}

/// Takes a whole line from the front, if there is one.
fn next(unread: &mut Vec<u8>) -> io::Result<Option<Door>> {
    let Some(end) = unread.iter().position(|&byte| byte == b'\n') else {
        let too_long = io::Error::other("the supervisor sent a line that is too long");
        return if unread.len() > LINE_BYTES_MAX { Err(too_long) } else { Ok(None) };
    };
    let line: Vec<u8> = unread.drain(..=end).collect();
    let plan: DoorPlan = serde_json::from_slice(&line)?;
    Door::new(&plan).map(Some).map_err(io::Error::other)
}
