//! Connections: their number, their end; and of HTTP, their time limits.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use gridpool_protocol::handover::Protocol;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use nix::unistd::geteuid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{sleep, timeout};

use super::Server;
use super::access::Peer;
use super::grpc;
use super::limits::{
    ACCEPT_PAUSE, HEAD_BUFFER_BYTES, HEAD_TIMEOUT, LINGER, REFUSAL_TIMEOUT, RESERVED_HEAD_TIMEOUT,
    WRITE_TIMEOUT_MS,
};
use super::pace::Paced;
use super::reason::Reason;
use super::seats::{Kind, Seat};
use crate::refusals::Seldom;

/// The listening socket that the supervisor opened.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// The same on the runtime.
#[derive(Debug)]
pub(super) enum AsyncListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What connections lead to.
#[derive(Clone)]
pub(super) struct Entrance {
    router: Router,
    gateway: Arc<Server>,
    graceful: Arc<GracefulShutdown>,
}

/// A connection of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

impl Listener {
    /// The socket with this descriptor; the error says that it is none.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let listener = std::net::TcpListener::from(descriptor.try_clone()?);
        if listener.local_addr().is_ok() {
            listener.set_nonblocking(true)?;
            return Ok(Self::Tcp(listener));
        }
        let listener = std::os::unix::net::UnixListener::from(descriptor);
        listener.local_addr()?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener))
    }

    pub(super) fn into_async(self) -> io::Result<AsyncListener> {
        Ok(match self {
            Self::Tcp(listener) => AsyncListener::Tcp(TcpListener::from_std(listener)?),
            Self::Unix(listener) => AsyncListener::Unix(UnixListener::from_std(listener)?),
        })
    }
}

impl Entrance {
    pub(super) fn new(
        router: Router,
        gateway: Arc<Server>,
        graceful: Arc<GracefulShutdown>,
    ) -> Self {
        Self { router, gateway, graceful }
    }
}

/// Accepts connections of a protocol until the task is aborted.
pub(super) async fn accept(protocol: Protocol, listener: AsyncListener, entrance: Entrance) {
    let warned = Seldom::default();
    loop {
        let accepted = match &listener {
            AsyncListener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                let peer = prepare(&stream);
                entrance.take_in(protocol, stream, peer);
            }),
            AsyncListener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                let peer = stream.peer_cred().map(|theirs| Peer::Unix { uid: theirs.uid() });
                entrance.take_in(protocol, stream, peer);
            }),
        };
        if let Err(error) = accepted {
            // If the socket is dead, the supervisor opens another.
            if warned.is_due() {
                tracing::warn!(%error, "cannot accept a connection");
            }
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

fn prepare(stream: &tokio::net::TcpStream) -> io::Result<Peer> {
    stream.set_nodelay(true)?;
    // The kernel drops a client that does not read.
    setsockopt(stream, TcpUserTimeout, &WRITE_TIMEOUT_MS)?;
    Ok(Peer::Tcp { ours: stream.local_addr()?.ip(), theirs: stream.peer_addr()?.ip() })
}

impl Entrance {
    /// Gives a new connection a seat and serves it there.
    fn take_in(&self, protocol: Protocol, stream: impl Stream, peer: io::Result<Peer>) {
        let peer = match peer {
            Ok(peer) => peer,
            Err(error) => {
                return tracing::debug!(%error, "a connection ended before it was served");
            }
        };
        let unwanted = why_unwanted(&peer, &self.gateway);
        let asks_tokens = self.gateway.door.current().tokens.is_some();
        let Some(seat) = self.gateway.seats.take(peer, asks_tokens) else { return };
        let (number, seat) = (seat.number(), Arc::new(seat));
        if unwanted.is_some() {
            seat.note(Reason::User);
        }
        let task = match (protocol, unwanted) {
            (Protocol::Grpc, unwanted) => {
                let (gateway, watcher) = (Arc::clone(&self.gateway), self.graceful.watcher());
                tokio::spawn(grpc::greet(stream, gateway, (seat, unwanted), watcher))
            }
            (Protocol::Http, None) => {
                let router = TowerToHyperService::new(self.router.clone());
                let visit =
                    Visit { seat: Arc::clone(&seat), router, gateway: Arc::clone(&self.gateway) };
                let watcher = self.graceful.watcher();
                tokio::spawn(greet(stream, Arc::clone(&self.gateway), visit, watcher))
            }
            (Protocol::Http, Some(why)) => tokio::spawn(turn_away(stream, why, seat)),
        };
        self.gateway.seats.serve(number, task.abort_handle());
    }
}

/// Why a user may not use the Unix socket, if so.
fn why_unwanted(peer: &Peer, gateway: &Server) -> Option<String> {
    const ROOT: u32 = 0;
    let me = geteuid().as_raw();
    match *peer {
        Peer::Unix { uid } if uid != me && uid != ROOT && !gateway.door.current().any_user => {
            Some(format!(
                "the user {uid} may not use this pool, which is the user {me}'s: have it started with \
                 --http-group and a group of yours"
            ))
        }
        Peer::Unix { .. } | Peer::Tcp { .. } => None,
    }
}

/// Shakes hands if there is a certificate, and serves.
async fn greet(stream: impl Stream, gateway: Arc<Server>, visit: Visit, watcher: Watcher) {
    let stream = Paced::new(stream, Arc::clone(&visit.seat));
    let door = gateway.door.current();
    match &door.tls {
        None => serve(stream, visit, watcher).await,
        Some(acceptor) => {
            if let Some(stream) = acceptor.accept(stream, &visit.seat, &gateway.turns).await {
                serve(stream, visit, watcher).await;
            }
        }
    }
}

async fn serve(stream: impl Stream, visit: Visit, watcher: Watcher) {
    let seat = Arc::clone(&visit.seat);
    let (head_timeout, stays) = match seat.kind() {
        Kind::Ordinary => (HEAD_TIMEOUT, true),
        Kind::Reserved(_) => (RESERVED_HEAD_TIMEOUT, false),
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_buf_size(HEAD_BUFFER_BYTES);
    let connection = http.keep_alive(stays).serve_connection(TokioIo::new(stream), visit);
    if let Err(error) = watcher.watch(connection).await {
        if error.is_timeout() && !seat.has_served() {
            seat.note(Reason::SlowHead);
        }
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// Gives each request of a connection its seat.
struct Visit {
    seat: Arc<Seat>,
    router: TowerToHyperService<Router>,
    gateway: Arc<Server>,
}

impl Service<Request<Incoming>> for Visit {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.seat));
        let (answer, gateway) = (self.router.call(request), Arc::clone(&self.gateway));
        let seat = Arc::clone(&self.seat);
        Box::pin(async move {
            let mut answer = answer.await?;
            let is_leaving = gateway.door.current().is_leaving;
            if is_leaving || matches!(seat.kind(), Kind::Reserved(_)) {
                // The next request finds the gateway that takes the place of this one, or a seat if there is one.
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer)
        })
    }
}

/// Answers on a connection that is not served, and closes it.
async fn turn_away(mut stream: impl Stream, why: String, seat: Arc<Seat>) {
    let why = serde_json::json!({ "error": why }).to_string();
    let answer = format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: \
         close\r\n\r\n{why}",
        why.len()
    );
    let farewell = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Read what the client has sent, else the kernel resets the connection and drops the answer.
        let mut bytes = [0; 4_096];
        while stream.read(&mut bytes).await? > 0 {}
        io::Result::Ok(())
    };
    if let Ok(Err(error)) = timeout(REFUSAL_TIMEOUT, pin!(farewell)).await {
        tracing::debug!(%error, "a connection that is not served ended with an error");
    }
    drop(seat);
}

/// Answers the requests in progress, and one more on each connection if it comes soon, and closes every connection.
pub(super) async fn finish_all(graceful: GracefulShutdown, gateway: &Server) {
    // It is out of time, or every client has had its answer.
    drop(timeout(LINGER, gateway.seats.empty()).await);
    graceful.shutdown().await;
}

/// Answers the requests in progress and closes every connection, at the latest after `limit`.
pub(super) async fn finish(graceful: GracefulShutdown, limit: Duration) {
    if timeout(limit, graceful.shutdown()).await.is_err() {
        tracing::warn!("abandoning requests in progress");
    }
}
