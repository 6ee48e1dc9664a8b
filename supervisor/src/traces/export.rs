//! Sends batches of spans to the collector: OTLP over HTTP/1.1, a connection for each batch. A batch that the
//! collector may take later is sent again a few times; then its spans are dropped.
//!
//! Owns what is said over that connection. Knows no job.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use prost::Message;

use super::Counts;
use super::collector::Collector;
use super::otlp::{
    AnyValue, ExportTraceServiceRequest, ExportTraceServiceResponse, KeyValue, Resource,
    ResourceSpans, Scope, ScopeSpans, Span, Value,
};
use super::queue::Queue;

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
    /// What made the spans.
    resource: Resource,
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it answers {0}")]
    Status(u16),
    #[error("its answer is not of HTTP/1")]
    Answer,
}

impl ExportError {
    /// Whether it may take the batch later, as OTLP says.
    fn is_for_now(&self) -> bool {
        match self {
            Self::Io(_) => true,
            Self::Status(status) => [429, 502, 503, 504].contains(status),
            Self::Answer => false,
        }
    }
}

impl Exporter {
    /// `about` are the attributes of what made the spans.
    pub(super) fn new(collector: Collector, about: &[(&str, &str)]) -> Self {
        let attribute = |&(key, value): &(&str, &str)| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(Value::Text(value.to_owned())) }),
        };
        let resource = Resource { attributes: about.iter().map(attribute).collect() };
        Self { collector, resource, exported: AtomicU64::new(0), dropped: AtomicU64::new(0) }
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
        let scope =
            Scope { name: "gridpool".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let of_scope = ScopeSpans { scope: Some(scope), spans };
        let resource = Some(self.resource.clone());
        let of_resource = ResourceSpans { resource, scope_spans: vec![of_scope] };
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
        let until = clock::now() + EXPORT_TIMEOUT;
        let mut stream = self.connect()?;
        let head = format!(
            "POST {}/v1/traces HTTP/1.1\r\nhost: {}\r\nuser-agent: gridpool/{}\r\n\
             content-type: application/x-protobuf\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.collector.base,
            self.collector.authority(),
            env!("CARGO_PKG_VERSION"),
            body.len(),
        );
        let mut timed = Timed { stream: &mut stream, until };
        timed.write_all(head.as_bytes())?;
        timed.write_all(body)?;
        let mut answer = Vec::new();
        timed.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        read_answer(&answer)
    }

    /// Connects to the first address of the collector that takes a connection.
    fn connect(&self) -> io::Result<TcpStream> {
        let Collector { host, port, .. } = &self.collector;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in (&**host, *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Reads the status of an answer, and how many spans it refuses all the same.
fn read_answer(answer: &[u8]) -> Result<usize, ExportError> {
    let status = answer.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    let status = status.and_then(|digits| str::from_utf8(digits).ok()?.parse::<u16>().ok());
    let status = status.ok_or(ExportError::Answer)?;
    if !(200..300).contains(&status) {
        return Err(ExportError::Status(status));
    }
    // One that is sent in chunks does not decode, and then says nothing.
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| &answer[at + 4..]);
    let said = body.and_then(|body| ExportTraceServiceResponse::decode(body).ok());
    let partial = said.and_then(|said| said.partial_success);
    Ok(partial.map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0)))
}

/// A connection that must end in time, however slowly the other end reads and writes.
struct Timed<'a> {
    stream: &'a mut TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        match clock::until(self.until) {
            Duration::ZERO => Err(io::Error::new(io::ErrorKind::TimedOut, "it is too slow")),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::otlp::PartialSuccess;
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_spans_that_were_refused() {
        let read = |text: &str| read_answer(text.as_bytes()).map_err(|error| error.is_for_now());
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n"), Ok(0));
        assert_eq!(read("HTTP/1.0 204 No Content\r\n\r\n"), Ok(0));
        assert_eq!(read("HTTP/1.1 503 Busy\r\n\r\n"), Err(true));
        assert_eq!(read("HTTP/1.1 500 Broken\r\n\r\n"), Err(false));
        for wrong in ["", "HTTP/1.1", "HTTP/1.1 abc", "SMTP", "HTTP/2 200"] {
            assert_eq!(read(wrong), Err(false), "{wrong}");
        }
        let partial = PartialSuccess { rejected_spans: 3, error_message: "no".into() };
        let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let answer = [b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n", &*body].concat();
        assert_eq!(read_answer(&answer).unwrap(), 3);
        let chunked = [&b"HTTP/1.1 200 OK\r\n\r\n1\r\n"[..], &[0xff; 9]].concat();
        assert_eq!(read_answer(&chunked).unwrap(), 0);
    }
}
