//! TLS. Only this file names rustls.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::limits::HANDSHAKE_TIMEOUT;
use super::reason::Reason;
use super::seats::Seat;
use super::turns::{Rate, Turns};

/// Makes TLS connections of others, with one certificate.
#[derive(Clone)]
pub(super) struct Acceptor(TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

/// Reads the certificates, the server's own first, and their key, for a protocol by its name in TLS.
pub(super) fn acceptor(certificates: &str, key: &str, speaks: &[u8]) -> Result<Acceptor, String> {
    let chain = CertificateDer::pem_slice_iter(certificates.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("the file of certificates is not PEM: {error}"))?;
    if chain.is_empty() {
        let why = "the file of certificates has none: it begins with -----BEGIN CERTIFICATE-----";
        return Err(why.to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("the file of the key has no private key in PEM: {error}"))?;
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config =
        config.map_err(|error| format!("the certificate cannot be used with the key: {error}"))?;
    config.alpn_protocols = vec![speaks.to_vec()];
    Ok(Acceptor(TlsAcceptor::from(Arc::new(config))))
}

impl Acceptor {
    /// Shakes hands within [`HANDSHAKE_TIMEOUT`], once it is the turn of the client's address. `None` if that fails.
    pub(super) async fn accept<S>(
        &self,
        stream: S,
        seat: &Seat,
        turns: &Turns,
    ) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        turns.wait_seated(&seat.peer.principal(), Rate::Handshake).await;
        let shaken = timeout(HANDSHAKE_TIMEOUT, self.0.accept(stream)).await;
        let shaken = shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        shaken
            .inspect_err(|error| {
                seat.note(Reason::Handshake);
                tracing::debug!(%error, "a TLS handshake failed");
            })
            .ok()
    }
}
