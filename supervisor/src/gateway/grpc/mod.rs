//! gRPC: the same service as over HTTP, in the messages of [`gridpool_inference`].
//!
//! A call passes the stations of an HTTP request: `access` admits it, `exchange` runs it. This folder reads its
//! messages (`messages`, `scan`), and writes the answer (`body`, `status`). Messages are framed here, and not by a
//! library, because every byte that comes or waits to be read counts against the memory for bodies.

mod body;
mod connection;
mod documents;
mod infer;
mod messages;
mod method;
mod scan;
mod status;
mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use gridpool_client::Principal;
use gridpool_inference::ModelInferRequest;
use gridpool_ipc::clock;
use tokio::time::timeout;
use tonic::Code;

use super::Server;
use super::access;
use super::body::BodyBudget;
use super::exchange::ParsedRequest;
use super::failure::Failure;
use super::metrics::CountedCall;
use super::models::{GridModel, Model};
use super::seats::Seat;
use body::{Answers, Outcome};
use infer::InferCall;
use messages::Messages;

pub(super) use connection::greet;
pub(super) use method::{Method, SERVED};

/// The content type of calls and answers.
const CONTENT_TYPE: &str = "application/grpc";
/// How long the client waits for the answer.
const TIMEOUT: &str = "grpc-timeout";
/// The longest `grpc-timeout`: eight digits and a unit.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// A call that was admitted.
pub(super) struct Admitted {
    gateway: Arc<Server>,
    seat: Arc<Seat>,
    principal: Principal,
    /// When the client gives up.
    until: Option<Instant>,
}

/// Answers a call.
async fn answer(
    gateway: Arc<Server>,
    seat: Arc<Seat>,
    unwanted: Option<Arc<str>>,
    request: Request<Body>,
) -> Response<Answers> {
    let call = seat.call();
    let path = request.uri().path();
    let method = Method::find(path);
    let mut counted = CountedCall::new(Arc::clone(&gateway), method);
    if let Some(status) = why_no_call(&request) {
        counted.ends(Code::Unimplemented);
        let mut response = Response::new(Answers::empty(call, counted));
        *response.status_mut() = status;
        return response;
    }
    let admitted = match unwanted {
        Some(why) => Err(Failure::new(StatusCode::FORBIDDEN, &*why)),
        None => admit(&gateway, &seat, &request),
    };
    let done = match (admitted, method) {
        (Ok(admitted), Some(method)) => admitted.run(method, request).await,
        (Ok(_), None) => Err(method::unknown(path)),
        (Err(failure), _) => Err(failure),
    };
    if let Err(failure) = &done
        && let Some(reason) = failure.reason()
    {
        seat.note(reason);
    }
    match done {
        Ok(outcome) => {
            let mut response = Response::new(Answers::new(outcome, seat, (call, counted)));
            let kind = HeaderValue::from_static(CONTENT_TYPE);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Err(failure) => Answers::failed(&failure, call, counted),
    }
}

/// The status of HTTP for what is no call.
fn why_no_call(request: &Request<Body>) -> Option<StatusCode> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let rest = kind.and_then(|kind| kind.to_str().ok()?.strip_prefix(CONTENT_TYPE));
    match rest {
        Some(rest) if rest.is_empty() || rest.starts_with(['+', ';']) => {
            let is_post = request.method() == axum::http::Method::POST;
            (!is_post).then_some(StatusCode::METHOD_NOT_ALLOWED)
        }
        Some(_) | None => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
    }
}

fn admit(
    gateway: &Arc<Server>,
    seat: &Arc<Seat>,
    request: &Request<Body>,
) -> Result<Admitted, Failure> {
    seat.is_unnamed();
    let principal = access::check(&gateway.door.current(), seat, request)?;
    access::check_seat(seat, request.uri().path())?;
    let until = timeout_of(request.headers())?.map(|timeout| clock::now() + timeout);
    Ok(Admitted { gateway: Arc::clone(gateway), seat: Arc::clone(seat), principal, until })
}

/// What `grpc-timeout` says.
fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, Failure> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let parse = |text: &str| {
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let count: u64 = digits.parse().ok()?;
        let within = is_number && digits.len() <= TIMEOUT_DIGITS_MAX;
        Some(match unit {
            _ if !within => return None,
            "H" => Duration::from_secs(count * 3_600),
            "M" => Duration::from_secs(count * 60),
            "S" => Duration::from_secs(count),
            "m" => Duration::from_millis(count),
            "u" => Duration::from_micros(count),
            "n" => Duration::from_nanos(count),
            _ => return None,
        })
    };
    let timeout = value.to_str().ok().and_then(parse);
    timeout.map(Some).ok_or_else(|| {
        Failure::bad(format!(
            "{TIMEOUT} is {value:?}; it has at most {TIMEOUT_DIGITS_MAX} digits and one of the units H, M, S, m, u, n"
        ))
    })
}

impl Admitted {
    async fn run(self, method: Method, request: Request<Body>) -> Result<Outcome, Failure> {
        let body = request.into_body();
        match method {
            Method::ModelStreamInfer => Ok(stream::begin(self, body)),
            Method::ModelInfer => self.infer(body).await,
            Method::Unserved(why) => Err(Failure::new(StatusCode::NOT_IMPLEMENTED, why)),
            Method::Served(document) => {
                let until = self.until;
                let asked = self.document(document, body);
                match until {
                    None => asked.await,
                    Some(until) => timeout(clock::until(until), asked)
                        .await
                        .unwrap_or_else(|_| Err(late("the answer was not there in time"))),
                }
            }
        }
    }

    async fn infer(self, body: Body) -> Result<Outcome, Failure> {
        let (message, mut held) = self.messages(body).one().await?;
        let request: ModelInferRequest = scan::decode(message, &mut held)?;
        let Self { gateway, principal, until, .. } = self;
        let model = find(&gateway, &request.model_name, &request.model_version).await?;
        let call = InferCall { request, until, is_of_stream: false };
        gateway.ask(model, call, (principal, held)).await.map(Outcome::One)
    }

    fn messages(&self, body: Body) -> Messages<'_> {
        Messages::new(&self.gateway.budget, (&self.principal, &self.seat), body)
    }
}

/// The model of a request. An empty version is any.
async fn find(gateway: &Server, name: &str, version: &str) -> Result<Model, Failure> {
    let version = Some(version).filter(|version| !version.is_empty());
    gateway.observer.find(name, version).await
}

/// Parses a request for a built-in model into a job, and returns its number of items.
pub(super) fn check(message: Vec<u8>) -> Result<u64, Failure> {
    let mut held = BodyBudget::new().held(&Principal::Uid(0));
    let request = scan::decode(message.into(), &mut held)?;
    let name = &request.model_name;
    let none = || Failure::unknown(format!("there is no model `{name}`"));
    let model = GridModel::find(name).map(Model::Grid).ok_or_else(none)?;
    let call = InferCall { request, until: None, is_of_stream: false };
    ParsedRequest::read(&model, &call).map(|(parsed, _)| parsed.items)
}

/// The client's deadline has passed.
fn late(why: &str) -> Failure {
    Failure::new(StatusCode::GATEWAY_TIMEOUT, format!("DEADLINE: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_number_and_a_unit() {
        let read = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            timeout_of(&HeaderMap::from_iter([(TIMEOUT.parse().unwrap(), value)]))
        };
        assert_eq!(read("5S"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(read("99999999H"), Ok(Some(Duration::from_secs(99_999_999 * 3_600))));
        assert_eq!(read("250m"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(timeout_of(&HeaderMap::new()), Ok(None));
        for wrong in ["", "5", "S", "5s", "-5S", "123456789S", "5 S", "é"] {
            let value = HeaderValue::from_bytes(wrong.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(TIMEOUT.parse().unwrap(), value)]);
            let why = timeout_of(&headers).unwrap_err();
            assert!(why.message().contains("at most 8 digits"), "{wrong}: {why:?}");
        }
    }
}
