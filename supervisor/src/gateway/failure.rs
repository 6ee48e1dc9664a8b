//! Why a request has no result: a status of HTTP, a code of gRPC, a sentence, and when to retry. Only this file
//! chooses statuses and codes for failures.
//!
//! | status | code | when |
//! |---|---|---|
//! | 400 | `INVALID_ARGUMENT` | the request is wrong |
//! | 401 | `UNAUTHENTICATED` | there is no token, or none that is known |
//! | 403 | `PERMISSION_DENIED` | a web page sent the request, or the token has not the scope |
//! | 404 | `NOT_FOUND` | no such path, model or version |
//! | 405 | `UNIMPLEMENTED` | a path that has no such method |
//! | 408 | `DEADLINE_EXCEEDED` | the body came too slowly |
//! | 409 | `ALREADY_EXISTS` | a region of shared memory has that name; another file serves than the repository has |
//! | 413, 431 | `RESOURCE_EXHAUSTED` | the body is too long, the head is |
//! | 415 | `UNIMPLEMENTED` | the body is compressed, or of a type that web pages may send without asking |
//! | 421 | `PERMISSION_DENIED` | `Host` is not a name of this server |
//! | 422 | `FAILED_PRECONDITION` | POISON: the job killed its workers, and would do so again |
//! | 500 | `INTERNAL` | FAILED, or a fault of gridpool |
//! | 501 | `UNIMPLEMENTED` | loading and unloading without a model repository; what Triton has and gridpool has not |
//! | 503 | `RESOURCE_EXHAUSTED` | BUSY: the pool's limit, or the gateway's |
//! | 503 | `UNAVAILABLE` | draining, CANCELLED, DEVICE_LOST, no pool |
//! | 504 | `DEADLINE_EXCEEDED` | DEADLINE |
//!
//! A 503 says with Retry-After when to try again if that helps, gRPC with `RetryInfo`.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gridpool_client::ClientError;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::{Receipt, Verdict};
use tonic::Code;

use super::limits::RETRY_AFTER_S;
use super::reason::Reason;

/// The pool's words for when it probes a device: `tried again in 59 s`.
const RETRIED_IN: &str = "tried again in ";
/// The pool's words for a model that it has not, and for one that it cannot run.
const NO_MODEL: [&str; 3] = ["there is no model", "there is no version", "this pool has no models"];
const NOT_LOADED: &str = "could not be loaded";
/// The pool's words for a device, and for a set-up, that waits for its operator.
const OPERATORS: [&str; 2] =
    ["out of service until `gridpool release", "once that is mended, `gridpool release"];

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    status: StatusCode,
    code: Code,
    message: String,
    /// The body was not read to its end, so the connection must close.
    ends_connection: bool,
    /// A header of the response.
    header: Option<(HeaderName, HeaderValue)>,
    /// Under which reason it counts as a refusal.
    reason: Option<Reason>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let (code, message) = (code_of(status), message.into());
        Self { status, code, message, ends_connection: false, header: None, reason: None }
    }

    /// The request is wrong.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// There is no such path, model or version.
    pub(super) fn unknown(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The pool refuses a request for a model, of which the gateway has made everything but the name.
    pub(super) fn of_model(why: String) -> Self {
        // The gateway has just seen the model, so one that is not there is being unloaded, or another comes.
        let is_gone = NO_MODEL.iter().any(|words| why.starts_with(words));
        match is_gone || why.contains(NOT_LOADED) {
            true => Self::unavailable(why),
            false => Self::bad(why),
        }
    }

    /// The service is unavailable for now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// A limit is reached: the pool's, or the gateway's.
    pub(super) fn busy(message: impl Into<String>) -> Self {
        Self { code: Code::ResourceExhausted, ..Self::unavailable(message) }
    }

    /// A fault of gridpool.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// A job ended with another verdict than OK.
    pub(super) fn verdict(receipt: &Receipt) -> Self {
        let status = match receipt.verdict {
            Verdict::Cancelled | Verdict::DeviceLost => StatusCode::SERVICE_UNAVAILABLE,
            Verdict::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Verdict::Failed | Verdict::Ok => StatusCode::INTERNAL_SERVER_ERROR,
            Verdict::Poison => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let Receipt { verdict, reason, job, attempts, items, .. } = receipt;
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let attempts = attempts.len();
        let done = match receipt.items_done().iter().map(|part| part.len()).sum::<u32>() {
            0 => String::new(),
            done => format!(", {done} of {items} items were done and are dropped"),
        };
        // CANCELLED is no `CANCELLED` of gRPC: that says that the caller did it, and is not tried again.
        Self::new(status, format!("{verdict}{reason} (job {job}, {attempts} attempts{done})"))
    }

    /// The body was not read to its end.
    pub(super) fn unread(self) -> Self {
        Self { ends_connection: true, ..self }
    }

    /// It is about this part of a request.
    pub(super) fn of(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Appends `more` to the sentence.
    pub(super) fn with(self, more: &str) -> Self {
        Self { message: self.message + more, ..self }
    }

    /// It counts as a refusal for this reason.
    pub(super) fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Adds a header to the response.
    pub(super) fn with_header(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// Seconds after which to retry: those that the sentence names, else a default. `None` if a retry does
    /// not help, because a device waits for its operator.
    fn retry_after(&self) -> Option<u64> {
        if self.status != StatusCode::SERVICE_UNAVAILABLE {
            return None;
        }
        let words = self.message.split(RETRIED_IN).skip(1);
        let said = words.filter_map(|rest| rest.split_once(" s")?.0.parse().ok()).min();
        match said {
            Some(seconds) => Some(seconds),
            None if OPERATORS.iter().any(|words| self.message.contains(words)) => None,
            None => Some(RETRY_AFTER_S),
        }
    }

    /// Seconds after which to retry, as the header of a response says.
    pub(super) fn retry_in(&self) -> Option<u64> {
        let said = self.header.as_ref().filter(|(name, _)| name == header::RETRY_AFTER);
        let said = said.and_then(|(_, seconds)| seconds.to_str().ok()?.parse().ok());
        said.or_else(|| self.retry_after())
    }

    /// The code of gRPC.
    pub(super) fn code(&self) -> Code {
        self.code
    }

    /// Whether the request was wrong, and not the pool unable to serve it now.
    pub(super) fn is_of_client(&self) -> bool {
        self.status.is_client_error()
    }

    /// Under which reason it counts as a refusal.
    pub(super) fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// The sentence.
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

/// The code that a status stands for, unless the failure says another.
fn code_of(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 | 421 => Code::PermissionDenied,
        404 => Code::NotFound,
        405 | 415 | 501 => Code::Unimplemented,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::AlreadyExists,
        413 | 431 => Code::ResourceExhausted,
        422 => Code::FailedPrecondition,
        503 => Code::Unavailable,
        _ => Code::Internal,
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::Refused(Refusal::Busy(_) | Refusal::Draining)
            | ClientError::NoPool { .. }
            | ClientError::NotAllowed { .. }
            | ClientError::OtherUser { .. }
            | ClientError::Replaceable { .. }
            | ClientError::Lost
            | ClientError::Silent
            | ClientError::Closed(_) => StatusCode::SERVICE_UNAVAILABLE,
            ClientError::Refused(Refusal::NotAllowed(_)) => StatusCode::FORBIDDEN,
            ClientError::Refused(Refusal::Poison(_)) => StatusCode::UNPROCESSABLE_ENTITY,
            ClientError::Refused(Refusal::Bundled | Refusal::Invalid(_) | Refusal::Unable(_))
            | ClientError::Batch(_) => StatusCode::BAD_REQUEST,
            ClientError::Refused(Refusal::KeyInUse(_))
            | ClientError::Version { .. }
            | ClientError::Malformed(_)
            | ClientError::Connection(_)
            | ClientError::Memory(_)
            | ClientError::System(_)
            | ClientError::Taken
            | ClientError::Tensors(_)
            | ClientError::Unexpected(_)
            | _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let failure = Self::new(status, Chain(&error).to_string());
        let ClientError::Refused(Refusal::Busy(limit)) = error else { return failure };
        let failure = Self { code: Code::ResourceExhausted, ..failure };
        let Some(again) = limit.again_in() else { return failure };
        let seconds = again.as_secs_f64().ceil().to_string();
        let seconds = HeaderValue::from_str(&seconds).expect("a number is text");
        failure.with_header(header::RETRY_AFTER, seconds)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.message }).to_string();
        let json = HeaderValue::from_static("application/json");
        let mut response = (self.status, [(header::CONTENT_TYPE, json)], body).into_response();
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        // `access` counts it.
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(reason);
        }
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        if self.ends_connection {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::message::Limit;

    use super::*;

    #[test]
    fn every_verdict_has_the_status_that_tells_a_client_what_to_do() {
        let status = |verdict| {
            let receipt = Receipt {
                host: String::new(),
                job: "job7".to_owned(),
                items: 1,
                verdict,
                reason: "because".to_owned(),
                ..Receipt::default()
            };
            let failure = Failure::verdict(&receipt);
            let (code, retry) = (failure.code(), failure.retry_in());
            let response = failure.into_response();
            let comes_back = response.headers().contains_key(header::RETRY_AFTER);
            assert_eq!(retry.is_some(), comes_back, "both protocols say the same");
            (response.status().as_u16(), code, comes_back)
        };
        assert_eq!(status(Verdict::Deadline), (504, Code::DeadlineExceeded, false));
        let poison = status(Verdict::Poison);
        let why = "another try would kill more workers";
        assert_eq!(poison, (422, Code::FailedPrecondition, false), "{why}");
        assert_eq!(status(Verdict::Failed), (500, Code::Internal, false));
        assert_eq!(status(Verdict::DeviceLost), (503, Code::Unavailable, true));
        assert_eq!(status(Verdict::Cancelled), (503, Code::Unavailable, true));
    }

    #[test]
    fn retry_after_is_the_time_that_the_sentence_names() {
        let after = |why: &str| {
            let response = Failure::unavailable(why).into_response();
            let after = response.headers().get(header::RETRY_AFTER);
            after.map(|after| after.to_str().unwrap().to_owned())
        };
        let one = "cpu0 is out of service and tried again in 59 s (killed)";
        let two = "cpu1 is out of service and tried again in 7 s (killed)";
        let lost = "cpu2 is out of service until `gridpool release cpu2` (exit code 73)";
        assert_eq!(after("BUSY: the queue is full").as_deref(), Some("1"));
        assert_eq!(after(one).as_deref(), Some("59"));
        assert_eq!(after(&[one, two, lost].join("; ")).as_deref(), Some("7"));
        assert_eq!(after(lost), None, "it would wait for its operator");
        let bare = "no worker for models can start on cpu0 (exit code 73); once that is mended, \
                    `gridpool release cpu0`";
        assert_eq!(after(bare), None);
    }

    #[test]
    fn refusals_of_the_pool_keep_their_words() {
        let status = |error: ClientError| {
            let failure = Failure::from(error);
            (failure.status.as_u16(), failure.message().to_owned())
        };
        let draining = (503, "the pool is draining".to_owned());
        assert_eq!(status(Refusal::Draining.into()), draining);
        assert_eq!(status(Refusal::Invalid("no".to_owned()).into()), (400, "no".to_owned()));
        for (limit, seconds) in
            [(Limit::QuotaDeviceTime { again_ms: 6_500 }, 7), (Limit::Kills { back_s: 8 }, 8)]
        {
            let failure = Failure::from(ClientError::from(Refusal::Busy(limit)));
            assert_eq!(failure.code(), Code::ResourceExhausted);
            assert_eq!(failure.retry_in(), Some(seconds));
            let response = failure.into_response();
            let after = &response.headers()[header::RETRY_AFTER];
            assert_eq!((response.status().as_u16(), after), (503, &HeaderValue::from(seconds)));
        }
        assert_eq!(status(ClientError::Lost).0, 503);
        for (why, code) in [
            ("there is no model `m`; there is n", Code::Unavailable),
            ("the model `m` could not be loaded: cpu0: no", Code::Unavailable),
            ("this principal may have no jobs, by its quota", Code::InvalidArgument),
        ] {
            assert_eq!(Failure::of_model(why.to_owned()).code(), code, "{why}");
        }
        assert_eq!(status(ClientError::Unexpected(String::new())).0, 500);
    }
}
