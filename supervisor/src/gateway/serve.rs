//! HTTP connections: their number, their time limits, their end.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use gridpool_client::Principal;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::limits::{
    ACCEPT_PAUSE, CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_TIMEOUT, REFUSAL_TIMEOUT, REFUSALS_MAX,
    RETRY_AFTER_S, STOP_TIMEOUT, WRITE_TIMEOUT_MS,
};

/// Accepts connections until the task is aborted.
pub(super) async fn accept(listener: TcpListener, router: Router, graceful: Arc<GracefulShutdown>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    loop {
        let (stream, principal) = match listener.accept().await {
            Ok((stream, peer)) => (stream, Principal::of_address(peer.ip())),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%error, "a connection ended before it was served");
        } else if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
            tokio::spawn(serve((stream, principal), router.clone(), graceful.watcher(), slot));
        } else if let Ok(turn) = Arc::clone(&refusals).try_acquire_owned() {
            tokio::spawn(turn_away(stream, turn));
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // The kernel drops a client that does not read.
    setsockopt(stream, TcpUserTimeout, &WRITE_TIMEOUT_MS)?;
    Ok(())
}

/// Serves a connection, whose requests are for `principal`.
async fn serve(
    (stream, principal): (TcpStream, Principal),
    router: Router,
    watcher: Watcher,
    slot: OwnedSemaphorePermit,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(principal.clone());
        router.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended with an error");
    }
    drop(slot);
}

/// Answers 503 on a connection over the limit, and closes it.
async fn turn_away(mut stream: TcpStream, turn: OwnedSemaphorePermit) {
    let why = format!("{{\"error\":\"BUSY: {CONNECTIONS_MAX} connections are open already\"}}");
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: \
         {}\r\nretry-after: {RETRY_AFTER_S}\r\nconnection: close\r\n\r\n{why}",
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
        tracing::debug!(%error, "a connection over the limit ended with an error");
    }
    drop(turn);
}

/// Answers the requests in progress and closes every connection.
pub(super) async fn finish(graceful: GracefulShutdown) {
    if timeout(STOP_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("abandoning requests in progress");
    }
}
