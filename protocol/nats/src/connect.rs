//! Connections to the servers.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError};
use gridpool_protocol::chain::Chain;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;

use crate::refusals::Refusals;
use crate::{NatsError, NatsOptions};

/// How often the server is asked whether it is there; after two questions without an answer the client goes to another.
const PING_EVERY: Duration = Duration::from_secs(2);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest pause between two tries to reconnect.
const RECONNECT_EVERY_MAX: Duration = Duration::from_secs(1);
/// Messages of one subscription that may wait to be read. What would be more is dropped: a client then looks its
/// results up, and a host gets its jobs again. The book has it: docs/src/guide/cluster.md.
const WAITING_MAX: usize = 65_536;

/// A connection to the servers.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The library's.
    pub client: Client,
    /// What the servers have refused to it.
    pub(crate) refusals: Refusals,
    /// The version of its messages.
    pub(crate) version: u32,
    connected: watch::Receiver<bool>,
}

impl Connection {
    /// Whether there is a server at its other end, as far as it is known.
    #[must_use]
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.connected.clone()
    }
}

/// Connects to one of the servers, and stays connected: if it goes, to another one, for as long as it takes.
///
/// # Errors
/// [`NatsError`] if none admits this client now, or a file cannot be read.
pub async fn connect(options: &NatsOptions, name: &str) -> Result<Connection, NatsError> {
    let refusals = Refusals::default();
    let hear = refusals.clone();
    let (tell, told) = watch::channel(true);
    let mut connection = ConnectOptions::new()
        .name(name)
        .ping_interval(PING_EVERY)
        .connection_timeout(CONNECT_TIMEOUT)
        .subscription_capacity(WAITING_MAX)
        .reconnect_delay_callback(|tries| {
            let tries = u32::try_from(tries.min(16)).unwrap_or(16);
            (Duration::from_millis(10) * 2_u32.pow(tries)).min(RECONNECT_EVERY_MAX)
        })
        .event_callback(move |event| {
            note(&event, &hear, &tell);
            async {}
        });
    // The library reads addresses, and takes no user from them.
    if let Some((user, password)) = options.user()? {
        connection = connection.user_and_password(user, password);
    }
    if let Some(path) = &options.credentials {
        let text = read(path)?;
        let wrong = |source| file(path, "has no credentials", source);
        connection = connection.credentials(&text).map_err(wrong)?;
    }
    if let Some(path) = &options.ca {
        // The library reads it later, and says less if it cannot.
        read(path)?;
        connection = connection.add_root_certificates(path.clone());
    }
    if options.cert.is_some() != options.key.is_some() {
        return Err(NatsError::Half);
    }
    if let Some((cert, key)) = options.cert.as_ref().zip(options.key.as_ref()) {
        // The library reads them later, and takes a file without a certificate for one.
        let wrong = |path, what| {
            move |source| file(path, what, io::Error::new(io::ErrorKind::InvalidData, source))
        };
        let certs: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(read(cert)?.as_bytes()).collect();
        let certs = certs.map_err(wrong(cert, "has no certificate in PEM"))?;
        if certs.is_empty() {
            return Err(wrong(cert, "has no certificate in PEM")(pem::Error::NoItemsFound));
        }
        let own = PrivateKeyDer::from_pem_slice(read(key)?.as_bytes());
        own.map_err(wrong(key, "has no private key in PEM"))?;
        connection = connection.add_client_certificate(cert.clone(), key.clone());
    }
    let connected = connection.connect(options.servers.clone()).await;
    let client = connected.map_err(|source| {
        let advice = advice(source.kind(), &Chain(&source).to_string());
        NatsError::Connect { servers: options.shown(), advice, source }
    })?;
    Ok(Connection { client, refusals, version: options.version, connected: told })
}

/// What may help a client that no server admits.
fn advice(kind: ConnectErrorKind, said: &str) -> &'static str {
    let said = said.to_lowercase();
    // An alert is theirs, about the certificate of this client.
    if said.contains("alert") && (said.contains("certificate") || said.contains("unknownca")) {
        return " (they want a client certificate of an authority that they trust: name its file with --nats-cert, and \
            its key's with --nats-key)";
    }
    if said.contains("could not add certificate or key") {
        return " (the key of --nats-key is not that of the certificate of --nats-cert)";
    }
    if said.contains("certificate") {
        return " (their certificate is of no authority that this client trusts: name the right one's file with \
            --nats-ca)";
    }
    match kind {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            " (they do not know this user: name its file with --nats-credentials, or write nats://USER:PASSWORD@HOST)"
        }
        ConnectErrorKind::ServerParse
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => "",
    }
}

fn note(event: &Event, refusals: &Refusals, connected: &watch::Sender<bool>) {
    match event {
        Event::Connected => {
            tracing::debug!("connected to a NATS server");
            connected.send_replace(true);
        }
        Event::Disconnected => {
            tracing::debug!("the connection to a NATS server is lost");
            connected.send_replace(false);
        }
        Event::SlowConsumer(id) => tracing::warn!(id, "messages of NATS were dropped"),
        Event::ServerError(ServerError::Other(said)) if Refusals::is_one(said) => {
            // Who waits for it may end the process.
            tracing::error!(said, "the NATS servers do not allow something to this user");
            refusals.hear(said);
        }
        Event::LameDuckMode
        | Event::Draining
        | Event::Closed
        | Event::ServerError(_)
        | Event::ClientError(_) => tracing::debug!(%event, "NATS"),
    }
}

fn read(path: &Path) -> Result<String, NatsError> {
    fs::read_to_string(path).map_err(|source| file(path, "cannot be read", source))
}

fn file(path: &Path, what: &str, source: io::Error) -> NatsError {
    NatsError::File { what: format!("{} {what}", path.display()), source }
}
