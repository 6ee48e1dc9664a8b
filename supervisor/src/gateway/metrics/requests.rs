//! Counts HTTP requests by route and status, and calls of gRPC by method and code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;

use tonic::Code;

use super::super::Server;
use super::super::events;
use super::super::grpc::{Method, SERVED, service_of};
use super::super::page;
use super::super::record::{self, Record};
use super::page::{Labelled, number};
use crate::traces::Asked;

/// The groups of paths.
const ROUTES: [&str; 10] = [
    "health",
    "infer",
    "memory",
    "metrics",
    "model",
    "other",
    "page",
    "repository",
    "server",
    "statistics",
];

fn route_of(path: &str) -> &'static str {
    match path.strip_prefix("/v2").map(|rest| rest.strip_prefix('/').unwrap_or(rest)) {
        None if path == "/metrics" => "metrics",
        None if page::has(path) => "page",
        None => "other",
        Some("") => "server",
        Some("models/stats") => "statistics",
        Some(rest) if rest.starts_with("health/") => "health",
        Some(rest) if rest.starts_with("gridpool/") => "page",
        Some(rest) if rest.starts_with("repository/") => "repository",
        Some(rest) if rest.starts_with("systemsharedmemory/") => "memory",
        Some(rest) if !rest.starts_with("models/") => "other",
        Some(rest) if rest.ends_with("/infer") => "infer",
        Some(rest) if rest.ends_with("/stats") => "statistics",
        Some(_) => "model",
    }
}

/// Every status that the gateway answers with.
const STATUSES: [u16; 17] =
    [200, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 500, 501, 503, 504];
/// Any other status.
const OTHER: (usize, &str) = (STATUSES.len(), "other");
/// The client hung up before the answer.
const GONE: (usize, &str) = (STATUSES.len() + 1, "gone");

/// The counts since this process started.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Requests {
    counts: [[AtomicU64; STATUSES.len() + 2]; ROUTES.len()],
    pub(super) in_flight: AtomicU64,
    calls: [[AtomicU64; CODES.len()]; SERVED.len() + 1],
    pub(super) calls_in_flight: AtomicU64,
}

/// Every code of gRPC, by its number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A call in progress. Dropping this counts and records it; without a code, its client has cancelled it.
pub(in crate::gateway) struct CountedCall {
    gateway: Arc<Server>,
    record: Arc<Record>,
    /// Its place in [`SERVED`], or behind.
    method: usize,
    code: Code,
    /// Bytes of its answers.
    bytes: u64,
}

impl CountedCall {
    pub(in crate::gateway) fn new(
        gateway: Arc<Server>,
        method: Option<Method>,
        record: Arc<Record>,
    ) -> Self {
        gateway.requests.calls_in_flight.fetch_add(1, Ordering::Relaxed);
        let place = SERVED.iter().position(|&(_, served)| Some(served) == method);
        let (method, code) = (place.unwrap_or(SERVED.len()), Code::Cancelled);
        Self { gateway, record, method, code, bytes: 0 }
    }

    /// It has an answer of so many bytes more.
    pub(in crate::gateway) fn answers(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// It ends with this code.
    pub(in crate::gateway) fn ends(&mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        let requests = &self.gateway.requests;
        let code = usize::try_from(i32::from(self.code)).expect("codes are not negative");
        requests.calls[self.method][code].fetch_add(1, Ordering::Relaxed);
        requests.calls_in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.record.is_wanted() {
            let served = SERVED.get(self.method).map_or("other", |&(name, _)| name);
            let (service, method) = (service_of(served).to_owned(), served.to_owned());
            let asked = Asked::Grpc { service, method, code: self.code.into() };
            self.record.ends(asked, None, self.bytes);
        }
    }
}

/// A request in progress. Dropping this counts it.
struct CountedRequest<'a> {
    requests: &'a Requests,
    route: &'static str,
    status: Option<StatusCode>,
}

/// What is recorded of it. Dropping this records it.
struct RecordedRequest {
    record: Arc<Record>,
    method: axum::http::Method,
    path: String,
    status: Option<StatusCode>,
    bytes: u64,
}

impl Drop for RecordedRequest {
    fn drop(&mut self) {
        let ((route, model), status) = (record::route_of(&self.path), self.status);
        let (method, route) = (self.method.as_str().to_owned(), route.to_owned());
        let asked = Asked::Http { method, route, status: status.map(|status| status.as_u16()) };
        self.record.ends(asked, model, self.bytes);
    }
}

impl Requests {
    fn enter(&self, path: &str) -> CountedRequest<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        CountedRequest { requests: self, route: route_of(path), status: None }
    }

    /// Calls by method and code: those that succeeded, and others once there are any.
    pub(super) fn calls(&self) -> Labelled {
        let names = SERVED.iter().map(|&(name, _)| name).chain(["other"]);
        let rows = names.zip(&self.calls).flat_map(|(method, counts)| {
            let counts = CODES.iter().zip(counts).map(|(&code, count)| {
                (vec![method.to_owned(), code.to_owned()], count.load(Ordering::Relaxed))
            });
            let counts = counts.filter(|(labels, count)| *count > 0 || labels[1] == CODES[0]);
            counts.map(|(labels, count)| (labels, number(count)))
        });
        rows.collect()
    }

    /// Requests by route and status.
    pub(super) fn counts(&self) -> Labelled {
        let others = [OTHER.1, GONE.1].map(str::to_owned);
        let statuses = STATUSES.iter().map(u16::to_string).chain(others);
        let rows = ROUTES.iter().zip(&self.counts).flat_map(|(&route, counts)| {
            statuses.clone().zip(counts).map(move |(status, count)| {
                let count = number(count.load(Ordering::Relaxed));
                (vec![route.to_owned(), status], count)
            })
        });
        rows.collect()
    }
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        let place = |status: StatusCode| {
            STATUSES.iter().position(|&known| known == status.as_u16()).unwrap_or(OTHER.0)
        };
        let status = self.status.map_or(GONE.0, place);
        let route = ROUTES.iter().position(|&known| known == self.route);
        let route = route.expect("every route is listed");
        self.requests.counts[route][status].fetch_add(1, Ordering::Relaxed);
        self.requests.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Middleware that counts every request, and records it if that is asked for.
pub(in crate::gateway) async fn count(
    State(gateway): State<Arc<Server>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut counted = gateway.requests.enter(request.uri().path());
    // Programs send these all the time, and so does an open page.
    let path = request.uri().path();
    let is_routine =
        ["health", "metrics"].contains(&counted.route) || page::has(path) || path == events::PATH;
    let record = Record::begin(&gateway, request.headers(), is_routine);
    let mut recorded = record.is_wanted().then(|| RecordedRequest {
        record: Arc::clone(&record),
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        status: None,
        bytes: 0,
    });
    request.extensions_mut().insert(record);
    let response = next.run(request).await;
    counted.status = Some(response.status());
    if let Some(recorded) = &mut recorded {
        recorded.status = counted.status;
        recorded.bytes = response.body().size_hint().exact().unwrap_or(0);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::super::page;
    use super::super::sources::{Load, PageInput};
    use super::*;

    fn text(requests: &Requests) -> String {
        page(&PageInput { metrics: None, requests, load: &Load::default(), models: &[] })
            .text()
            .unwrap()
    }

    #[test]
    fn every_path_is_counted_under_its_route() {
        for (path, route) in [
            ("/metrics", "metrics"),
            ("/v2", "server"),
            ("/v2/", "server"),
            ("/v2/health/live", "health"),
            ("/v2/models/stats", "statistics"),
            ("/v2/models/m/versions/1/stats", "statistics"),
            ("/v2/models/m/infer", "infer"),
            ("/v2/models/m", "model"),
            ("/v2/models/m/ready", "model"),
            ("/v2/repository/index", "repository"),
            ("/v2x", "other"),
            ("/", "page"),
            ("/page.js", "page"),
            ("/v2/gridpool/events", "page"),
            ("/page", "other"),
        ] {
            assert_eq!(route_of(path), route, "{path}");
        }
    }

    #[test]
    fn a_request_is_in_flight_until_it_is_answered_or_given_up() {
        let requests = Requests::default();
        let before = text(&requests);
        assert!(before.contains("{route=\"infer\",status=\"504\"} 0\n"), "{before}");
        let mut counted = requests.enter("/v2/models/m/infer");
        assert!(text(&requests).contains("in_flight 1\n"));
        counted.status = Some(StatusCode::SERVICE_UNAVAILABLE);
        drop(counted);
        drop(requests.enter("/v2"));
        let mut odd = requests.enter("/nowhere");
        odd.status = Some(StatusCode::IM_A_TEAPOT);
        drop(odd);
        let after = text(&requests);
        for row in [
            "{route=\"infer\",status=\"503\"} 1\n",
            "{route=\"server\",status=\"gone\"} 1\n",
            "{route=\"other\",status=\"other\"} 1\n",
            "in_flight 0\n",
        ] {
            assert!(after.contains(row), "{row} in {after}");
        }
        let ones = after.lines().filter(|line| line.ends_with(" 1")).count();
        assert_eq!(ones, 3, "nothing else moved");
    }
}
