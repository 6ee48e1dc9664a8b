//! Sends batches of spans to the collector: OTLP over HTTP. A batch that the collector may take later is sent again a
//! few times; then its spans are dropped.
//!
//! Owns what is said over that connection. Knows no job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use rustls::pki_types::CertificateDer;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::Counts;
use super::collector::Collector;
use super::queue::Queue;
use super::spans::attribute;

/// How long a connection to the collector may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a batch may take, from the connection to the answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a batch is sent.
const TRIES_MAX: u32 = 3;
/// Between the first two tries; doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Sends spans from a queue.
#[derive(Debug)]
pub(super) struct Exporter {
    collector: Collector,
    agent: Agent,
    /// What made the spans.
    resource: Resource,
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("{0}")]
    Http(#[from] ureq::Error),
    #[error("it answers {0}")]
    Status(u16),
}

impl ExportError {
    /// Whether it may take the batch later, as OTLP says.
    fn is_for_now(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Status(status) => [429, 502, 503, 504].contains(status),
        }
    }
}

impl Exporter {
    /// `about` are the attributes of what made the spans.
    pub(super) fn new(collector: Collector, about: &[(&str, &str)]) -> Self {
        let roots = if collector.has_tls() { system_roots() } else { Vec::new() };
        Self::over(agent(&collector, &roots), collector, about)
    }

    fn over(agent: Agent, collector: Collector, about: &[(&str, &str)]) -> Self {
        let attributes = about
            .iter()
            .map(|&(key, value)| attribute(key, Value::StringValue(value.to_owned())))
            .collect();
        let resource = Resource { attributes, ..Resource::default() };
        let (exported, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { collector, agent, resource, exported, dropped }
    }

    pub(super) fn counts(&self) -> Counts {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { exported: count(&self.exported), dropped: count(&self.dropped) }
    }

    /// Counts spans that there was no room for.
    pub(super) fn drops(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Sends what comes into the queue, until that is closed and empty.
    pub(super) fn serve(&self, queue: &Queue) {
        let mut is_failing = false;
        while let Some(batch) = queue.batch() {
            let count = batch.len();
            let body = self.request(batch).encode_to_vec();
            match self.send(&body, queue) {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    self.exported.fetch_add((count - rejected) as u64, Ordering::Relaxed);
                    self.drops(rejected);
                    if std::mem::take(&mut is_failing) {
                        tracing::info!(collector = %self.collector, "the collector takes spans again");
                    }
                }
                Err(error) => {
                    self.drops(count);
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(
                            collector = %self.collector, %error,
                            "the collector takes no spans: they are dropped until it does"
                        );
                    }
                }
            }
        }
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let (name, version) = ("gridpool".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let scope = InstrumentationScope { name, version, ..InstrumentationScope::default() };
        let of_scope = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
        let (resource, scope_spans) = (Some(self.resource.clone()), vec![of_scope]);
        let of_resource = ResourceSpans { resource, scope_spans, ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![of_resource] }
    }

    /// Sends a batch, again if need be, and returns how many of its spans the collector refuses.
    fn send(&self, body: &[u8], queue: &Queue) -> Result<usize, ExportError> {
        let mut pause = PAUSE;
        for _ in 1..TRIES_MAX {
            match self.post(body) {
                // Nobody waits for a second try at the end.
                Err(error) if error.is_for_now() && !queue.is_closed() => {}
                done => return done,
            }
            queue.pause(pause);
            pause *= 2;
        }
        self.post(body)
    }

    fn post(&self, body: &[u8]) -> Result<usize, ExportError> {
        let mut request = self.agent.post(self.collector.endpoint());
        for (name, value) in self.collector.headers().all() {
            request = request.header(name, value);
        }
        let mut answer = request.content_type("application/x-protobuf").send(body)?;
        if !answer.status().is_success() {
            return Err(ExportError::Status(answer.status().as_u16()));
        }
        // The batch is taken. An answer that cannot be read, or is no message, names no span that is not.
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().ok();
        let said = body.and_then(|body| ExportTraceServiceResponse::decode(&*body).ok());
        let partial = said.and_then(|said| said.partial_success);
        Ok(partial.map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0)))
    }
}

/// What sends requests, each over a connection of its own. It follows no redirection and no proxy.
fn agent(collector: &Collector, roots: &[CertificateDer<'_>]) -> Agent {
    let builder = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(0)
        .proxy(None)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(EXPORT_TIMEOUT))
        .user_agent(concat!("gridpool/", env!("CARGO_PKG_VERSION")));
    if !collector.has_tls() {
        return builder.build().into();
    }
    let roots: Vec<_> = roots.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(provider);
    builder.tls_config(tls.build()).build().into()
}

/// The authorities that this machine trusts.
fn system_roots() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!(%error, "a certificate of the system cannot be read");
    }
    found.certs
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    /// What an exporter makes of an answer over TLS by a server of the certificate `name`, which it trusts.
    fn answered(name: &str, head: &str, body: &[u8]) -> Result<usize, ExportError> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([name.to_owned()]).unwrap();
        let root = cert.der().clone();
        let key = signing_key.serialize_der().try_into().unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![root.clone()], key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let length = body.len();
        let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n");
        let answer = [answer.as_bytes(), body].concat();
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
            let mut seen = Vec::new();
            while !seen.ends_with(b"spans") {
                let mut bytes = [0; 1_024];
                let count = stream.read(&mut bytes)?;
                seen.extend_from_slice(&bytes[..count]);
            }
            stream.write_all(&answer)
        });
        let collector: Collector = format!("https://localhost:{port}").parse().unwrap();
        let exporter = Exporter::over(agent(&collector, &[root]), collector, &[]);
        let answered = exporter.post(b"spans");
        // One that is not trusted ends with an error of its own.
        assert_eq!(server.join().unwrap().is_ok(), name == "localhost");
        answered
    }

    #[test]
    fn an_answer_over_tls_is_a_status_and_spans_that_were_refused() {
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "no".into() };
        let refused = ExportTraceServiceResponse { partial_success: Some(partial) };
        assert_eq!(answered("localhost", "200 OK", &refused.encode_to_vec()).unwrap(), 3);
        assert_eq!(answered("localhost", "200 OK", b"").unwrap(), 0);
        assert_eq!(answered("localhost", "200 OK", &[0xff; 9]).unwrap(), 0);
        let long = vec![0; (64 << 10) + 1];
        assert_eq!(answered("localhost", "200 OK", &long).unwrap(), 0, "it is taken all the same");
        assert!(answered("localhost", "503 Busy", b"").unwrap_err().is_for_now());
        assert!(!answered("localhost", "400 Bad", b"").unwrap_err().is_for_now());
    }

    #[test]
    fn a_collector_of_another_name_gets_nothing() {
        let error = answered("example.org", "200 OK", b"").unwrap_err();
        assert!(matches!(error, ExportError::Http(_)), "{error}");
    }
}
