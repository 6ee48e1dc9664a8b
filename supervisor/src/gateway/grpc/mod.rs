//! gRPC: the same service as over HTTP, in the messages of [`gridpool_inference`].
//!
//! A call passes the stations of an HTTP request: `access` admits it, `exchange` runs it. This folder reads its
//! messages (`messages`, `packing`, `scan`), and writes the answer (`body`, `status`). Messages are framed here, and
//! not by a library, because each counts against the memory for bodies from its first byte until its answer is read.
//! What HTTP/2 itself holds of a connection has a limit of its own.

mod body;
mod connection;
mod control;
mod documents;
mod infer;
mod messages;
mod method;
mod packing;
mod scan;
mod status;
mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use gridpool_client::{Principal, Secret};
use gridpool_inference::ModelInferRequest;
use gridpool_ipc::clock;
use tokio::time::timeout;
use tonic::Code;

use super::Server;
use super::access;
use super::blocking::run_blocking;
use super::body::{BodyBudget, HeldBytes};
use super::exchange::{ParsedRequest, QUICK_BYTES_MAX};
use super::failure::Failure;
use super::limits::{CALLS_ALL_MAX, CALLS_EACH_MAX, REFUSAL_TIMEOUT, STATUS_TIMEOUT};
use super::metrics::CountedCall;
use super::models::{GridModel, Model};
use super::pool::Asker;
use super::reason::Reason;
use super::record::Record;
use super::regions::Memory;
use super::seats::{Call, Kind, Turn};
use super::shares::{Full, Share};
use super::tokens::TokenHash;
use super::turns::Rate;
use body::{Answers, Outcome};
use infer::InferCall;
use messages::Messages;
use packing::Packing;

pub(super) use connection::greet;
pub(super) use messages::split;
pub(super) use method::{Method, SERVED, service_of};

/// The content type of calls and answers.
const CONTENT_TYPE: &str = "application/grpc";
/// How long the client waits for the answer.
const TIMEOUT: &str = "grpc-timeout";
/// The longest `grpc-timeout`: eight digits and a unit.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// A call that was admitted.
pub(super) struct Admitted {
    gateway: Arc<Server>,
    call: Arc<Call>,
    asker: Asker,
    /// The token that it has shown.
    token: Option<TokenHash>,
    /// When the client gives up.
    until: Option<Instant>,
    packing: Packing,
    /// Its share of all calls; health needs none.
    _share: Option<Share>,
}

/// Answers a call.
async fn answer(
    gateway: Arc<Server>,
    call: Arc<Call>,
    unwanted: Option<Arc<str>>,
    request: Request<Body>,
) -> Response<Answers> {
    let path = request.uri().path();
    let method = Method::find(path);
    let is_routine = method.is_some_and(Method::is_reserved);
    let record = Record::begin(&gateway, request.headers(), is_routine);
    let mut counted = CountedCall::new(Arc::clone(&gateway), method, Arc::clone(&record));
    if let Some(status) = why_no_call(&request) {
        delay(&gateway, &call, &call.seat().peer.principal()).await;
        counted.ends(Code::Unimplemented);
        let mut response = Response::new(Answers::empty(call, counted));
        *response.status_mut() = status;
        return response;
    }
    let admitted = match unwanted {
        Some(why) => Err(Failure::new(StatusCode::FORBIDDEN, &*why)),
        None => admit(&gateway, (&call, &record), method, &request),
    };
    let is_packed = admitted.as_ref().is_ok_and(|admitted| admitted.packing.answers);
    // What a document waits for before, inference waits for if it is refused, and whoever is not admitted.
    let late = match &admitted {
        Ok(admitted) if method == Some(Method::ModelInfer) => {
            Some(admitted.asker.principal.clone())
        }
        Ok(_) => None,
        Err(_) => Some(call.seat().peer.principal()),
    };
    let done = match (admitted, method) {
        (Ok(admitted), Some(method)) => admitted.run(method, request).await,
        (Ok(admitted), None) => {
            gateway.turns.wait((&*call).into(), &admitted.asker.principal, Rate::Document).await;
            Err(method::unknown(path))
        }
        (Err(failure), _) => Err(failure),
    };
    if let Err(failure) = &done {
        if let Some(reason) = failure.reason() {
            call.note(reason);
        }
        if let Some(whose) = late.filter(|_| failure.is_of_client()) {
            delay(&gateway, &call, &whose).await;
        }
    }
    let mut response = match done {
        Ok(outcome) => {
            let mut response = Response::new(Answers::new(outcome, call, counted));
            let kind = HeaderValue::from_static(CONTENT_TYPE);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            if is_packed {
                let how = HeaderValue::from_static(packing::GZIP);
                response.headers_mut().insert(packing::ENCODING, how);
            }
            response
        }
        Err(failure) => Answers::failed(&failure, call, counted),
    };
    response.headers_mut().insert(packing::ACCEPTS, packing::ACCEPTED);
    response
}

/// Delays a refusal to whoever calls faster than the rate of documents. Of one that has no room for more calls, none
/// waits: each takes memory.
async fn delay(gateway: &Server, call: &Call, whose: &Principal) {
    if let Ok(_place) = share(gateway, whose) {
        gateway.turns.wait(call.into(), whose, Rate::Document).await;
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
    (call, record): (&Arc<Call>, &Record),
    method: Option<Method>,
    request: &Request<Body>,
) -> Result<Admitted, Failure> {
    let turn = Turn::from(&**call);
    let principal = access::check(&gateway.door.current(), turn, request)?;
    record.is_of(&principal);
    access::check_seat(turn, request.uri().path())?;
    let until = timeout_of(request.headers())?.map(|timeout| clock::now() + timeout);
    let packing = Packing::of(request.headers())?;
    let needs_share = method.is_some_and(|method| !method.is_reserved());
    let share = needs_share.then(|| share(gateway, &principal)).transpose()?;
    let (gateway, call) = (Arc::clone(gateway), Arc::clone(call));
    let asker = Asker { principal, trace: record.context(), trace_state: record.state() };
    let token = access::shown(request.headers());
    Ok(Admitted { gateway, call, asker, token, until, packing, _share: share })
}

/// A share of all calls, for one.
fn share(gateway: &Server, principal: &Principal) -> Result<Share, Failure> {
    let mut share = gateway.calls.share(principal.clone());
    share.grow(1).map_err(|full| match full {
        Full::All => Failure::busy(format!("BUSY: {CALLS_ALL_MAX} calls are in progress already"))
            .because(Reason::RequestsFull),
        Full::Own => {
            Failure::busy(format!("BUSY: {CALLS_EACH_MAX} calls of yours are in progress already"))
                .because(Reason::RequestsOwn)
        }
    })?;
    Ok(share)
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
        // Only the supervisor asks for it once more.
        let registers = matches!(method, Method::Served(method::Document::SharedMemoryRegister));
        let token = registers.then(|| access::bearer(request.headers()).ok()).flatten().map(Secret);
        let (body, until) = (request.into_body(), self.until);
        // A seat for health and metrics alone is needed by the next who asks.
        let most = match self.call.seat().kind() {
            Kind::Ordinary => None,
            Kind::Reserved(_) => Some(clock::now() + REFUSAL_TIMEOUT),
        };
        let until = until.into_iter().chain(most).min();
        match method {
            Method::ModelStreamInfer => Ok(stream::begin(self, body)),
            Method::ModelInfer => self.infer(body).await,
            Method::Unserved(why) => {
                self.wait(Rate::Document).await;
                Err(Failure::new(StatusCode::NOT_IMPLEMENTED, why))
            }
            Method::Served(document) => {
                let answered = async {
                    let rate = if method.is_reserved() { Rate::Health } else { Rate::Document };
                    self.wait(rate).await;
                    self.document(document, body, token).await
                };
                in_time(until, answered).await
            }
        }
    }

    /// Waits until a call that runs no job may be answered.
    async fn wait(&self, rate: Rate) {
        self.gateway.turns.wait((&*self.call).into(), &self.asker.principal, rate).await;
    }

    async fn infer(self, body: Body) -> Result<Outcome, Failure> {
        let turn = Turn::from(&*self.call);
        let body = (body, self.packing.requests);
        let messages = Messages::new(&self.gateway.budget, (&self.asker.principal, turn), body);
        let prepared = in_time(self.until, async {
            let (message, held) = messages.one().await?;
            let slot = self.gateway.slot(&self.asker.principal)?;
            let head = scan::head(&message)?;
            let model = find(&self.gateway, &head.model, &head.version).await?;
            Ok((model, decode(message, held).await?, slot))
        });
        let (model, (request, held), slot) = prepared.await?;
        let (until, is_packed) = (self.until, self.packing.answers);
        let call = InferCall { request, until, is_of_stream: false, is_packed };
        let gateway = Arc::clone(&self.gateway);
        let asked = gateway.ask_in(slot, model, call, (self.asker.clone(), held));
        // The job has the same deadline, and its receipt says more.
        in_time(self.until.map(|until| until + STATUS_TIMEOUT), asked).await.map(Outcome::One)
    }
}

/// What a call waits for, if it is there before its client gives up.
async fn in_time<T>(
    until: Option<Instant>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match until {
        None => work.await,
        Some(until) => timeout(clock::until(until), work)
            .await
            .unwrap_or_else(|_| Err(late("the answer was not there in time"))),
    }
}

/// Decodes a request. A large one is not decoded on a thread that reads and writes sockets.
async fn decode(
    message: Bytes,
    mut held: HeldBytes,
) -> Result<(ModelInferRequest, HeldBytes), Failure> {
    let is_small = message.len() <= QUICK_BYTES_MAX;
    let decode = move || Ok((scan::decode(message, &mut held)?, held));
    if is_small { decode() } else { run_blocking(decode).await }
}

/// The model of a request. An empty version is any.
async fn find(gateway: &Server, name: &str, version: &str) -> Result<Model, Failure> {
    let version = Some(version).filter(|version| !version.is_empty());
    gateway.observer.find(name, version).await
}

/// Parses a request for a built-in model into a job, and returns its number of items.
pub(super) fn check(message: Vec<u8>) -> Result<u64, Failure> {
    let mut held = BodyBudget::new().held(&Principal::Uid(0));
    let message = Bytes::from(message);
    scan::head(&message)?;
    let request = scan::decode(message, &mut held)?;
    let name = &request.model_name;
    let none = || Failure::unknown(format!("there is no model `{name}`"));
    let model = GridModel::find(name).map(Model::Grid).ok_or_else(none)?;
    let call = InferCall { request, until: None, is_of_stream: false, is_packed: false };
    ParsedRequest::read(&model, &call, &mut Memory::none()).map(|(parsed, _)| parsed.items)
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
