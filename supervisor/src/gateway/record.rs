//! What is recorded of a request of HTTP or a call of gRPC: a line of the access log and a span, each if it is asked
//! for. The token of a request is in neither.

use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use axum::http::HeaderMap;
use gridpool_client::{Principal, TraceContext, TraceState};
use gridpool_ipc::clock;
use gridpool_protocol::trace::{HEADER, STATE_HEADER};
use tracing::field::display;

use super::Server;
use crate::logging::ACCESS;
use crate::traces::{Asked, JobSpan, Packet, RequestPacket, unix_ns};

/// A request in progress.
#[derive(Debug)]
pub(super) struct Record {
    gateway: Arc<Server>,
    began: Instant,
    /// The time of day, if there is a span.
    began_at: Option<SystemTime>,
    span: Option<JobSpan>,
    /// Where a job of the request belongs.
    context: Option<TraceContext>,
    /// What systems on the way of its trace have noted.
    state: Option<TraceState>,
    is_logged: bool,
    /// Who sent it, once that is known.
    principal: OnceLock<Principal>,
}

impl Record {
    /// Begins with the head of a request. What is routine has no span: it would hide the others.
    pub(super) fn begin(gateway: &Arc<Server>, headers: &HeaderMap, is_routine: bool) -> Arc<Self> {
        let sent = context_of(headers);
        let traces = gateway.traces.as_ref().filter(|_| !is_routine);
        let span = traces.and_then(|traces| JobSpan::begin(sent, traces.sample));
        let recorded = span.filter(|span| span.own.is_sampled());
        Arc::new(Self {
            gateway: Arc::clone(gateway),
            began: clock::now(),
            began_at: recorded.map(|_| clock::time_of_day()),
            span: recorded,
            context: span.map(|span| span.own).or(sent),
            state: sent.and_then(|_| state_of(headers)),
            is_logged: gateway.door.current().access_log,
            principal: OnceLock::new(),
        })
    }

    /// The trace of the request's jobs.
    pub(super) fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// What belongs to that trace.
    pub(super) fn state(&self) -> Option<TraceState> {
        self.state.clone()
    }

    /// Whether anything is recorded.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_logged || self.span.is_some()
    }

    /// Who sent it.
    pub(super) fn is_of(&self, principal: &Principal) {
        // A request is admitted once.
        self.principal.get_or_init(|| principal.clone());
    }

    /// It was answered with so many bytes, or given up.
    pub(super) fn ends(&self, asked: Asked, model: Option<&str>, bytes: u64) {
        if self.is_logged {
            self.log(&asked, model, bytes);
        }
        if let (Some(span), Some(began_at), Some(traces)) =
            (self.span, self.began_at, &self.gateway.traces)
        {
            let ended_at = began_at + self.began.elapsed();
            let (began_ns, ended_ns) = (unix_ns(began_at), unix_ns(ended_at));
            let user = self.principal.get().map(|principal| principal.kind().to_owned());
            let packet =
                RequestPacket { span, state: self.state(), began_ns, ended_ns, asked, user };
            traces.send(&Packet::Request(packet));
        }
    }

    fn log(&self, asked: &Asked, model: Option<&str>, bytes: u64) {
        let duration_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let principal = self.principal.get().map(display);
        let trace_id = self.context.map(|context| display(context.trace));
        let model = model.map(display);
        match asked {
            Asked::Http { method, route, status } => {
                let status = status.map_or_else(|| "gone".to_owned(), |status| status.to_string());
                tracing::info!(
                    target: ACCESS, %method, %route, model, %status, bytes, duration_us, principal, trace_id,
                    "HTTP"
                );
            }
            Asked::Grpc { service, method, code } => {
                let status = *code;
                tracing::info!(
                    target: ACCESS, %method, route = %service, status, bytes, duration_us, principal, trace_id,
                    "gRPC"
                );
            }
        }
    }
}

/// What `traceparent` says. A wrong one, or two, are none.
fn context_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut all = headers.get_all(HEADER).iter();
    let only = all.next().filter(|_| all.next().is_none())?;
    only.to_str().ok()?.parse().ok()
}

/// What all headers `tracestate` say together. A wrong one is none.
fn state_of(headers: &HeaderMap) -> Option<TraceState> {
    let all = headers.get_all(STATE_HEADER).iter().map(|header| header.to_str().ok());
    let all: Vec<_> = all.collect::<Option<_>>()?;
    all.join(",").parse().ok()
}

/// The route of a path of HTTP, and the model that the path names.
pub(super) fn route_of(path: &str) -> (&'static str, Option<&str>) {
    let parts: Vec<_> = path.split('/').skip(1).collect();
    match *parts.as_slice() {
        [""] => ("/", None),
        ["page.css"] => ("/page.css", None),
        ["page.js"] => ("/page.js", None),
        ["metrics"] => ("/metrics", None),
        ["v2"] => ("/v2", None),
        ["v2", "gridpool", "deaths"] => ("/v2/gridpool/deaths", None),
        ["v2", "gridpool", "status"] => ("/v2/gridpool/status", None),
        ["v2", "gridpool", "drain"] => ("/v2/gridpool/drain", None),
        ["v2", "gridpool", "events"] => ("/v2/gridpool/events", None),
        ["v2", "gridpool", "kill"] => ("/v2/gridpool/kill", None),
        ["v2", "gridpool", "receipts"] => ("/v2/gridpool/receipts", None),
        ["v2", "gridpool", "release"] => ("/v2/gridpool/release", None),
        ["v2", "gridpool", "verdicts"] => ("/v2/gridpool/verdicts", None),
        ["v2", "health", "live"] => ("/v2/health/live", None),
        ["v2", "health", "ready"] => ("/v2/health/ready", None),
        ["v2", "models", "stats"] => ("/v2/models/stats", None),
        ["v2", "models", model, ref rest @ ..] => match *rest {
            [] => ("/v2/models/{model}", Some(model)),
            ["config"] => ("/v2/models/{model}/config", Some(model)),
            ["infer"] => ("/v2/models/{model}/infer", Some(model)),
            ["ready"] => ("/v2/models/{model}/ready", Some(model)),
            ["stats"] => ("/v2/models/{model}/stats", Some(model)),
            ["versions", _] => ("/v2/models/{model}/versions/{version}", Some(model)),
            ["versions", _, "config"] => {
                ("/v2/models/{model}/versions/{version}/config", Some(model))
            }
            ["versions", _, "infer"] => {
                ("/v2/models/{model}/versions/{version}/infer", Some(model))
            }
            ["versions", _, "ready"] => {
                ("/v2/models/{model}/versions/{version}/ready", Some(model))
            }
            ["versions", _, "stats"] => {
                ("/v2/models/{model}/versions/{version}/stats", Some(model))
            }
            _ => ("other", None),
        },
        ["v2", "repository", "index"] => ("/v2/repository/index", None),
        ["v2", "repository", "models", model, "load"] => {
            ("/v2/repository/models/{model}/load", Some(model))
        }
        ["v2", "repository", "models", model, "unload"] => {
            ("/v2/repository/models/{model}/unload", Some(model))
        }
        ["v2", "systemsharedmemory", "status"] => ("/v2/systemsharedmemory/status", None),
        ["v2", "systemsharedmemory", "unregister"] => ("/v2/systemsharedmemory/unregister", None),
        ["v2", "systemsharedmemory", "region", _, what] => match what {
            "register" => ("/v2/systemsharedmemory/region/{region}/register", None),
            "status" => ("/v2/systemsharedmemory/region/{region}/status", None),
            "unregister" => ("/v2/systemsharedmemory/region/{region}/unregister", None),
            _ => ("other", None),
        },
        _ => ("other", None),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::super::page;
    use super::super::routes::PATHS;
    use super::*;

    #[test]
    fn only_one_whole_traceparent_counts() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, HeaderValue::from_str(value).unwrap());
            }
            context_of(&headers)
        };
        assert_eq!(of(&[text]), text.parse().ok());
        for none in [&[][..], &[text, text], &[""], &[&text[1..]]] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn every_path_is_a_route() {
        let listed = PATHS.iter().map(|listed| listed.split_once(' ').unwrap().1);
        for path in listed.chain(page::paths()) {
            let route = path.replace("MODEL", "{model}").replace("REGION", "{region}");
            let model = path.contains("MODEL").then_some("MODEL");
            assert_eq!(route_of(path), (&*route, model), "{path}");
        }
    }

    #[test]
    fn a_route_has_no_name_of_a_model_or_version() {
        assert_eq!(route_of("/v2/models/m/infer"), ("/v2/models/{model}/infer", Some("m")));
        let versioned = "/v2/models/{model}/versions/{version}/infer";
        assert_eq!(route_of("/v2/models/m/versions/3/infer"), (versioned, Some("m")));
        assert_eq!(route_of("/v2/models/stats"), ("/v2/models/stats", None));
        for other in
            ["", "/x", "/v2/gridpool", "/v2/gridpool/x", "/v2x", "/v2/models/m/infer/x", "v2"]
        {
            assert_eq!(route_of(other), ("other", None), "{other}");
        }
    }
}
