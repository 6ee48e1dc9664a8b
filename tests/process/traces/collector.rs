//! A collector for tests: OTLP over HTTP, decoded with the types that OpenTelemetry publishes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message;

use crate::wait::eventually;

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Nothing: it holds the connection.
    Never,
    /// A status, such as 200.
    Status(u16),
}

/// A collector that listens.
#[derive(Debug)]
pub(crate) struct Collector {
    address: SocketAddr,
    batches: Arc<Mutex<Vec<ResourceSpans>>>,
    connections: Arc<AtomicUsize>,
    headers: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Collector {
    pub(crate) fn open(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let (batches, connections) = <(Arc<Mutex<Vec<_>>>, Arc<AtomicUsize>)>::default();
        let headers = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let (kept, counted) = (Arc::clone(&batches), Arc::clone(&connections));
        let heard = Arc::clone(&headers);
        thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                counted.fetch_add(1, Ordering::Relaxed);
                match answers {
                    Answers::Never => held.push(stream),
                    Answers::Status(status) => {
                        let (told, request) = serve(stream, status);
                        *heard.lock().expect("no panic") = told;
                        kept.lock().expect("no panic").extend(request.resource_spans);
                    }
                }
            }
        });
        Self { address, batches, connections, headers }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Connections that it has had.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The headers of the last message.
    pub(crate) fn headers(&self) -> BTreeMap<String, String> {
        self.headers.lock().expect("no panic").clone()
    }

    /// All spans of a trace; of every trace without one.
    fn spans(&self, trace: Option<&str>) -> Vec<Span> {
        let batches = self.batches.lock().expect("no panic");
        let spans = batches.iter().flat_map(|batch| &batch.scope_spans).flat_map(|of| &of.spans);
        let is_of = |span: &&Span| trace.is_none_or(|trace| hex(&span.trace_id) == trace);
        spans.filter(is_of).cloned().collect()
    }

    /// The spans of a trace once it has one of this name. A job's spans come together.
    pub(crate) fn trace(&self, trace: Option<&str>, name: &str) -> Vec<Span> {
        eventually(&format!("a span `{name}` of {trace:?}"), || {
            let spans = self.spans(trace);
            match spans.iter().any(|span| span.name == name) {
                true => Ok(spans),
                false => Err(format!("{:#?}", self.spans(None))),
            }
        })
    }

    /// What the spans were made by.
    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        let batches = self.batches.lock().expect("no panic");
        let resource = batches[0].resource.clone().expect("it says what made them");
        texts(&resource.attributes)
    }
}

/// Takes a request and answers it.
fn serve(stream: TcpStream, status: u16) -> (BTreeMap<String, String>, ExportTraceServiceRequest) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a first line");
    assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_owned(), value.to_owned());
    }
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let mut body = vec![0; headers["content-length"].parse().expect("a number")];
    reader.read_exact(&mut body).expect("a body");
    let answer = format!("HTTP/1.1 {status} As told\r\ncontent-length: 0\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).expect("it reads the answer");
    let request = ExportTraceServiceRequest::decode(&*body);
    (headers, request.expect("it is what OpenTelemetry publishes"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Attributes as texts.
pub(crate) fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|any| any.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|own| (own.key.clone(), text(&own.value))).collect()
}
