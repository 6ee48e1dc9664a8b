//! Who sends a request, and whether they may: the first station of every request.
//!
//! A web page that a user has open can send requests to this machine in the user's name. Three checks stop it:
//! `Host` must be a name of ours (a page can make its own name mean our address), `Origin` must be allowed, and a
//! content type that a page may send without asking first is refused. Then the token decides.

mod scopes;

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gridpool_client::Principal;
use gridpool_ipc::clock;
use tokio::time::timeout;

use super::Server;
use super::body::BodyBudget;
use super::door::Door;
use super::failure::Failure;
use super::grpc;
use super::limits::{
    CONNECTIONS_EACH_MAX, CONNECTIONS_MAX, CONNECTIONS_UNNAMED_MAX, HEAD_BYTES_MAX, REFUSAL_TIMEOUT,
};
use super::page;
use super::reason::Reason;
use super::record::Record;
use super::seats::{Kind, Seat, Turn};
use super::tokens::{self, Scope, TokenHash};
use super::turns::Rate;
use scopes::scopes_of;

/// Says how a browser came to send a request. Pages cannot set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Says what a browser does with the answer: `navigate` shows it.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// The content types that a page may send anywhere without asking.
const SIMPLE_TYPES: [&str; 3] =
    ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];
/// What is served whoever has taken the other connections.
const RESERVED_PATHS: [&str; 3] = ["/metrics", "/v2/health/live", "/v2/health/ready"];
/// How long a browser may remember that an origin is allowed.
const PREFLIGHT_AGE: HeaderValue = HeaderValue::from_static("600");

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A TCP connection: our address and that of the client.
    Tcp { ours: IpAddr, theirs: IpAddr },
    /// A Unix connection, and the client's user.
    Unix { uid: u32 },
}

impl Peer {
    /// The address of ours that it came to, if it has one.
    fn ours(&self) -> Option<IpAddr> {
        match *self {
            Self::Tcp { ours, .. } => Some(ours),
            Self::Unix { .. } => None,
        }
    }

    /// The client's user, if the kernel says who it is.
    pub(super) fn uid(&self) -> Option<u32> {
        match *self {
            Self::Unix { uid } => Some(uid),
            Self::Tcp { .. } => None,
        }
    }

    /// Who its requests without a token are for.
    pub(super) fn principal(&self) -> Principal {
        match *self {
            Self::Tcp { theirs, .. } => Principal::of_address(theirs),
            Self::Unix { uid } => Principal::Uid(uid),
        }
    }
}

/// Middleware that admits requests, and counts those that are refused here or later.
pub(super) async fn admit(
    State(gateway): State<Arc<Server>>,
    mut request: Request,
    next: Next,
) -> Response {
    let seat = request.extensions().get::<Arc<Seat>>().expect("every connection has one");
    let seat = Arc::clone(seat);
    Turn::from(&*seat).works();
    seat.is_unnamed();
    let door = gateway.door.current();
    let allowed = allowed_origin(&door, request.headers());
    let is_preflight = request.method() == Method::OPTIONS && allowed.is_some();
    let turn = Turn::from(&*seat);
    let admitted = check(&door, turn, &request)
        .and_then(|principal| check_seat(turn, request.uri().path()).map(|()| principal));
    let rate = Rate::of(request.method(), request.uri().path());
    // A browser asks once before each request.
    let rate = rate.filter(|_| !is_preflight);
    gateway.turns.wait_before(turn, &admitted, rate).await;
    let mut response = match admitted {
        Ok(_) if is_preflight => StatusCode::NO_CONTENT.into_response(),
        Ok(principal) => {
            if let Some(record) = request.extensions().get::<Arc<Record>>() {
                record.is_of(&principal);
            }
            request.extensions_mut().insert(principal.clone());
            let response = next.run(request).await;
            if rate.is_none() && response.status().is_client_error() {
                gateway.turns.wait(turn, &principal, Rate::Document).await;
            }
            response
        }
        Err(failure) => refuse(failure, request, &seat).await,
    };
    if let Some(origin) = allowed {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        if is_preflight {
            let methods = HeaderValue::from_static("GET, POST");
            let names = "authorization, content-type, inference-header-content-length, traceparent, tracestate";
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE);
        }
    }
    if let Some(&reason) = response.extensions().get::<Reason>() {
        seat.note(reason);
    }
    seat.answers();
    response
}

/// Answers, once the client has sent its body: a connection that is closed before loses the answer.
async fn refuse(failure: Failure, request: Request, seat: &Seat) -> Response {
    let (parts, body) = request.into_parts();
    let reading = BodyBudget::discard(seat, &parts.headers, body);
    let read = match seat.kind() {
        Kind::Ordinary => reading.await,
        Kind::Reserved(_) => {
            let late = |_| Err(Failure::bad("the body was not read"));
            timeout(REFUSAL_TIMEOUT, reading).await.unwrap_or_else(late)
        }
    };
    if read.is_ok() { failure.into_response() } else { failure.unread().into_response() }
}

/// Whether the connection has a seat for this request.
pub(super) fn check_seat(turn: Turn<'_>, path: &str) -> Result<(), Failure> {
    match turn.seat.kind() {
        Kind::Reserved(reason) if !is_reserved(path) || !turn.is_alone() => {
            turn.refuses();
            Err(Failure::busy(why_reserved(reason)))
        }
        Kind::Reserved(_) | Kind::Ordinary => Ok(()),
    }
}

/// Whether a path is served whoever has taken the other connections.
fn is_reserved(path: &str) -> bool {
    RESERVED_PATHS.contains(&path)
        || grpc::Method::find(path).is_some_and(grpc::Method::is_reserved)
}

/// Why a connection has a reserved seat.
pub(super) fn why_reserved(reason: Reason) -> String {
    if reason == Reason::ConnectionsOwn {
        return format!("BUSY: {CONNECTIONS_EACH_MAX} connections of yours are open already");
    }
    if reason == Reason::ConnectionsUnnamed {
        return format!(
            "BUSY: {CONNECTIONS_UNNAMED_MAX} connections of your address that have sent no token are open already"
        );
    }
    format!("BUSY: {CONNECTIONS_MAX} connections are open already")
}

/// The principal of a request that may go on.
pub(super) fn check(
    door: &Door,
    turn: Turn<'_>,
    request: &Request<Body>,
) -> Result<Principal, Failure> {
    check_head(request)?;
    check_host(door, &turn.seat.peer, request)?;
    check_page(door, &turn.seat.peer, request)?;
    check_content_type(request.headers())?;
    if request.method() == Method::OPTIONS && allowed_origin(door, request.headers()).is_some() {
        // A browser sends no token with its question.
        return Ok(turn.seat.peer.principal());
    }
    check_token(door, turn, request)
}

/// Checks the length of the head. The HTTP library reads at most some more, and ends the connection then.
fn check_head(request: &Request<Body>) -> Result<(), Failure> {
    // As it is written: `METHOD TARGET HTTP/1.1`, lines of `name: value`, and an empty one.
    let line = |bytes: usize| bytes + 4;
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let first = line(request.method().as_str().len() + target + "HTTP/1.1".len());
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| line(name.as_str().len() + value.len()));
    let bytes = first + headers.sum::<usize>() + 2;
    if bytes <= HEAD_BYTES_MAX {
        return Ok(());
    }
    let why = format!("the head has {bytes} bytes; at most {HEAD_BYTES_MAX} are read");
    Err(Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why))
}

// ---- web pages ----

/// Checks that the client meant this server.
fn check_host(door: &Door, peer: &Peer, request: &Request<Body>) -> Result<(), Failure> {
    // No page can reach a Unix socket.
    let Peer::Tcp { ours, .. } = peer else { return Ok(()) };
    let Some(whole) = host_of(request)? else { return Ok(()) };
    let host = bare(whole);
    if is_ours(&host, Some(*ours)) || is_named(door, &host) {
        return Ok(());
    }
    let shown: String = host.chars().take(100).collect();
    let why = format!(
        "this server does not answer to the name `{shown}`: use its address, or have the pool started with \
         --http-host {shown}"
    );
    Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, why).because(Reason::Host))
}

/// A host without its port, as names are compared.
fn bare(host: &str) -> String {
    without_port(host).trim_end_matches('.').to_ascii_lowercase()
}

/// Whether a host is this machine, or the address of ours that a connection came to.
fn is_ours(host: &str, ours: Option<IpAddr>) -> bool {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || ours.is_some_and(|ours| address == ours.to_canonical())
        }
        Err(_) => host == "localhost",
    }
}

/// Whether `--http-host` names a host.
fn is_named(door: &Door, host: &str) -> bool {
    door.hosts.iter().any(|name| name == host.trim_matches(['[', ']']))
}

/// The name and the port that the client meant; `None` if the request need not say.
fn host_of(request: &Request<Body>) -> Result<Option<&str>, Failure> {
    let mut named = request.headers().get_all(header::HOST).iter();
    let named = (named.next(), named.next());
    match (request.uri().authority(), named) {
        // The target of the request comes first, as the protocol says.
        (Some(authority), (_, None)) => Ok(Some(authority.as_str())),
        (None, (Some(host), None)) => Ok(Some(host.to_str().unwrap_or_default())),
        // Health checks of HTTP/1.0 send none; a browser does not speak HTTP/1.0.
        (None, (None, _)) if request.version() == Version::HTTP_10 => Ok(None),
        (None, (None, _)) => Err(Failure::bad("the request has no Host")),
        (_, (_, Some(_))) => Err(Failure::bad("the request has more than one Host")),
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => authority,
    }
}

/// The request's origin, if it is allowed.
fn allowed_origin(door: &Door, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let text = origin.to_str().ok()?.to_ascii_lowercase();
    door.origins.contains(&text).then(|| origin.clone())
}

/// Whether the page of this server sent the request. Its origin is then the scheme, the name and the port that the
/// request was sent to, which no other server has all. The name must be ours on a Unix socket too: behind a proxy it
/// is what a browser says, and a page can make its own name mean the proxy.
fn is_own_page(door: &Door, peer: &Peer, request: &Request<Body>) -> bool {
    let origin = request.headers().get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let origin = origin.and_then(|text| text.split_once("://"));
    let (Some((scheme, origin)), Ok(Some(whole))) = (origin, host_of(request)) else {
        return false;
    };
    let host = bare(whole);
    let is_named = is_named(door, &host);
    let is_scheme = match scheme {
        // TLS may also end at a proxy, which has a name.
        "https" => door.tls.is_some() || is_named,
        "http" => door.tls.is_none(),
        _ => false,
    };
    let site = request.headers().get(FETCH_SITE).map(HeaderValue::as_bytes);
    is_scheme
        && (is_named || is_ours(&host, peer.ours()))
        && origin.eq_ignore_ascii_case(whole)
        && site.is_none_or(|site| site == b"same-origin")
}

/// Whether a browser follows a link to the page, whose files hold nothing and are shown in no frame.
fn is_visit(request: &Request<Body>) -> bool {
    let mode = request.headers().get(FETCH_MODE).map(HeaderValue::as_bytes);
    mode == Some(b"navigate") && request.method() == Method::GET && page::has(request.uri().path())
}

/// Checks that no web page sent the request, unless it is ours or its origin is allowed.
fn check_page(door: &Door, peer: &Peer, request: &Request<Body>) -> Result<(), Failure> {
    let headers = request.headers();
    let refuse = |what: &str| {
        let why = format!(
            "requests of web pages are not served ({what}): have the pool started with --http-origin and the \
             page's origin, such as https://app.example.org"
        );
        Err(Failure::new(StatusCode::FORBIDDEN, why).because(Reason::WebPage))
    };
    if headers.contains_key(header::ORIGIN) {
        if headers.get_all(header::ORIGIN).iter().nth(1).is_some() {
            return Err(Failure::bad("the request has more than one Origin"));
        }
        let is_allowed =
            allowed_origin(door, headers).is_some() || is_own_page(door, peer, request);
        return if is_allowed { Ok(()) } else { refuse("the request has an Origin") };
    }
    // A browser leaves out Origin where a page has an image or a link; `none` is an address that a user typed.
    match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
        None | Some(b"none" | b"same-origin") => Ok(()),
        Some(_) if is_visit(request) => Ok(()),
        Some(_) => refuse("Sec-Fetch-Site says so"),
    }
}

/// Refuses the content types that a page may send without asking. A browser that sends none adds an Origin.
fn check_content_type(headers: &HeaderMap) -> Result<(), Failure> {
    let types = headers.get_all(header::CONTENT_TYPE).iter();
    let is_simple = |text: &str| {
        let mut parts = text.split([';', ',']).map(str::trim);
        parts.any(|part| SIMPLE_TYPES.iter().any(|simple| part.eq_ignore_ascii_case(simple)))
    };
    match types.map(|value| value.to_str().unwrap_or("text/plain")).find(|text| is_simple(text)) {
        None => Ok(()),
        Some(text) => {
            let why = format!(
                "bodies of the type `{text}` are not served, since a web page may send them to any server: send \
                 Content-Type: application/json, as `curl --json @FILE` does"
            );
            Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why).because(Reason::ContentType))
        }
    }
}

// ---- tokens ----

/// Checks that a token whose name was found before may still do this, and, if `token` says which it was, that it is not
/// another of that name.
pub(super) fn check_again(
    door: &Door,
    (principal, token): (&Principal, Option<&TokenHash>),
    scopes: &[Scope],
) -> Result<(), Failure> {
    let (Some(tokens), Principal::Token(name)) = (&door.tokens, principal) else {
        return if door.tokens.is_none() { Ok(()) } else { Err(no_token()) };
    };
    match tokens.named(name, clock::time_of_day()) {
        Some(known) if known.may(scopes) && token.is_none_or(|token| known.is(token)) => Ok(()),
        Some(_) | None => {
            let why =
                format!("the token `{name}` was taken back, or has expired, or lost its scope");
            Err(unauthorized(", error=\"invalid_token\"", &why))
        }
    }
}

/// Whether a principal has a token that may change the pool.
pub(super) fn may_operate(door: &Door, principal: &Principal) -> bool {
    door.tokens.is_some() && check_again(door, (principal, None), &[Scope::Operate]).is_ok()
}

/// The same as it is known by, for what goes on after the request.
pub(super) fn shown(headers: &HeaderMap) -> Option<TokenHash> {
    bearer(headers).ok().map(|token| tokens::hash(&token))
}

/// The token that a request shows.
pub(super) fn bearer(headers: &HeaderMap) -> Result<String, Failure> {
    let token = match headers.get(header::AUTHORIZATION).map(HeaderValue::to_str) {
        None => return Err(no_token()),
        Some(Ok(text)) => match text.split_once(' ').or(Some((text, ""))) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            Some(_) | None => {
                let why =
                    "the scheme of Authorization must be Bearer: send Authorization: Bearer TOKEN";
                return Err(unauthorized("", why));
            }
        },
        Some(Err(_)) => "",
    };
    Ok(token.to_owned())
}

fn check_token(door: &Door, turn: Turn<'_>, request: &Request<Body>) -> Result<Principal, Failure> {
    if request.headers().get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        return Err(Failure::bad("the request has more than one Authorization"));
    }
    let (Some(tokens), Some(scopes)) = (&door.tokens, scopes_of(request.uri().path())) else {
        return Ok(turn.seat.peer.principal());
    };
    let token = bearer(request.headers())?;
    let Some(known) = tokens.find(&token, clock::time_of_day()) else {
        let why = "the token is unknown or has expired: get another from the pool's operator, who makes one with \
                   `gridpool token new`";
        return Err(unauthorized(", error=\"invalid_token\"", why));
    };
    let principal = Principal::Token(known.name.clone());
    turn.is_of(&principal);
    if known.may(scopes) {
        return Ok(principal);
    }
    let names: Vec<_> = scopes.iter().map(|scope| scope.name()).collect();
    let why = format!(
        "the token `{}` may not do this: it needs the scope {}",
        known.name,
        names.join(" or ")
    );
    let challenge = format!(", error=\"insufficient_scope\", scope=\"{}\"", names.join(" "));
    Err(challenged(StatusCode::FORBIDDEN, &challenge, &why).because(Reason::Scope))
}

fn no_token() -> Failure {
    unauthorized("", "this needs a token: send Authorization: Bearer TOKEN")
}

fn unauthorized(error: &str, why: &str) -> Failure {
    challenged(StatusCode::UNAUTHORIZED, error, why).because(Reason::Token)
}

fn challenged(status: StatusCode, error: &str, why: &str) -> Failure {
    let challenge = format!("Bearer realm=\"gridpool\"{error}");
    let challenge = HeaderValue::try_from(challenge).expect("its words are plain");
    Failure::new(status, why).with_header(header::WWW_AUTHENTICATE, challenge)
}
