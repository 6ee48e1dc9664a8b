//! Connections of gRPC: HTTP/2 with bounds. A connection without calls ends after a while, and so does one whose
//! gateway ends, once its calls have their answers and the client has them. A call whose client does not read it is
//! reset, and the others of its connection go on.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use gridpool_ipc::clock;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep_until, timeout};

use super::body::Answers;
use super::control::{Counted, IsFlood};
use crate::gateway::Server;
use crate::gateway::limits::{
    BREACH_HOLD, CALLS_MAX, CONNECTION_IDLE_MAX, CONNECTION_WINDOW_BYTES, FAREWELL_TIMEOUT,
    FRAME_BYTES, HEAD_BYTES_MAX, HEAD_TIMEOUT, LINGER, PING_EVERY, PING_TIMEOUT, REFUSAL_TIMEOUT,
    RESERVED_HEAD_TIMEOUT, RESETS_MAX, SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES,
};
use crate::gateway::pace::Paced;
use crate::gateway::reason::Reason;
use crate::gateway::seats::{Call, Kind, Seat};
use crate::gateway::serve::Stream;

/// Bytes with which every connection begins: the preface, and the head of a frame of settings.
const GREETING_BYTES: usize = 24 + 9;

tokio::task_local! {
    /// Notified if HTTP/2 is to reset the call that this task answers.
    static RESET: Arc<Notify>;
}

/// Shakes hands if there is a certificate, and serves. Every call is refused if the client is `unwanted`.
pub(in crate::gateway) async fn greet(
    stream: impl Stream,
    gateway: Arc<Server>,
    (seat, unwanted): (Arc<Seat>, Option<String>),
    watcher: Watcher,
) {
    let (stream, back) = Paced::lent(stream, Arc::clone(&seat));
    let visit = Visit {
        seat: Arc::clone(&seat),
        gateway: Arc::clone(&gateway),
        unwanted: unwanted.map(Arc::from),
        closes: Arc::default(),
    };
    let door = gateway.door.current();
    let ended = match &door.grpc_tls {
        None => serve(stream, visit).await,
        Some(acceptor) => match acceptor.accept(stream, &seat, &gateway.turns).await {
            Some(stream) => serve(stream, visit).await,
            None => Ended::Badly,
        },
    };
    let is_stopping = *gateway.closing.borrow() && !gateway.door.current().is_leaving;
    match ended {
        Ended::Well if seat.has_served() && !is_stopping => farewell(back, &seat).await,
        Ended::Breach => {
            seat.note(Reason::Http2);
            drop(watcher);
            return hold(back, &gateway).await;
        }
        Ended::Badly | Ended::Well => {}
    }
    drop((watcher, seat));
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    /// Its client is gone, or did not answer.
    Badly,
    /// Its client broke the rules of HTTP/2, or sent too many control frames.
    Breach,
}

impl Ended {
    fn of(ended: &hyper::Result<()>, is_flood: bool) -> Self {
        let Err(error) = ended else { return Self::Well };
        let library = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
        match is_flood || library.is_some_and(h2::Error::is_library) {
            true => Self::Breach,
            false => Self::Badly,
        }
    }
}

/// Keeps a connection open for a while without reading it. If the gateway ends, that ends too.
async fn hold(back: oneshot::Receiver<impl Stream>, gateway: &Server) {
    let stream = back.await;
    let mut closing = gateway.closing.subscribe();
    // The sender is as old as the gateway, so this is a wait for either.
    drop(timeout(BREACH_HOLD, closing.wait_for(|is| *is)).await);
    drop(stream);
}

/// Waits until the client has read what the kernel has for it, and closes. If the socket were closed before, a byte of
/// the client would make the kernel drop all that.
async fn farewell(back: oneshot::Receiver<impl Stream>, seat: &Seat) {
    let Ok(mut stream) = back.await else { return };
    let most = match seat.kind() {
        Kind::Ordinary => FAREWELL_TIMEOUT,
        Kind::Reserved(_) => REFUSAL_TIMEOUT,
    };
    let to_its_end = async {
        stream.shutdown().await?;
        let mut bytes = [0; 4_096];
        while stream.read(&mut bytes).await? > 0 {}
        io::Result::Ok(())
    };
    match timeout(most, pin!(to_its_end)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection of gRPC was closed by its client"),
        Err(_) => tracing::debug!("a client of gRPC does not close its connection"),
    }
}

/// Serves a connection.
async fn serve(stream: impl Stream, visit: Visit) -> Ended {
    let (seat, gateway, closes) =
        (Arc::clone(&visit.seat), Arc::clone(&visit.gateway), Arc::clone(&visit.closes));
    let came = seat.came();
    let mut http = http2::Builder::new(EachCall);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).expect("a head is short"))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let is_flood = IsFlood::default();
    let stream = TokioIo::new(Counted::new(stream, Arc::clone(&is_flood)));
    let mut connection = pin!(http.serve_connection(stream, visit));
    let mut closed = pin!(until_closed(&seat, &gateway));
    let mut told = pin!(closes.notified());
    let mut idle = pin!(until_idle(&seat, came));
    let mut over = None;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        if over.is_none()
            && (told.as_mut().poll(cx).is_ready()
                || closed.as_mut().poll(cx).is_ready()
                || idle.as_mut().poll(cx).is_ready())
        {
            connection.as_mut().graceful_shutdown();
            over = Some(Box::pin(until_idle_for(&seat, REFUSAL_TIMEOUT)));
            // It must be polled after that.
            cx.waker().wake_by_ref();
        }
        match &mut over {
            // If its client does not close it then, we do.
            Some(over) => over.as_mut().poll(cx).map(Ok),
            None => Poll::Pending,
        }
    });
    let ended = ended.await;
    if let Err(error) = &ended {
        tracing::debug!(%error, "a connection of gRPC ended with an error");
    }
    Ended::of(&ended, is_flood.load(Ordering::Relaxed))
}

/// Waits until the connection is to end because the gateway does. If another gateway takes its place, a connection
/// without a call waits for one: some clients fail a call that they begin just when a connection ends.
async fn until_closed(seat: &Seat, gateway: &Server) {
    let mut closing = gateway.closing.subscribe();
    // The sender is as old as the gateway.
    drop(closing.wait_for(|is| *is).await);
    if gateway.door.current().is_leaving && seat.idle_since().is_some() {
        sleep_until((clock::now() + LINGER).into()).await;
    }
}

/// Waits until the connection has had no call for long. `came` is how many bytes had come before it began.
async fn until_idle(seat: &Seat, came: usize) {
    let (first, is_ordinary) = match seat.kind() {
        Kind::Ordinary => (HEAD_TIMEOUT, true),
        Kind::Reserved(_) => (RESERVED_HEAD_TIMEOUT, false),
    };
    sleep_until((clock::now() + first).into()).await;
    // A client may connect before it has something to ask.
    let has_greeted = seat.came() >= came + GREETING_BYTES;
    if seat.has_served() || is_ordinary && has_greeted {
        until_idle_for(seat, CONNECTION_IDLE_MAX).await;
    } else if !has_greeted {
        seat.note(Reason::SlowHead);
    }
}

async fn until_idle_for(seat: &Seat, most: Duration) {
    loop {
        // One with a call, or whose client has not read all, is looked at again when it could be idle for so long.
        let since = seat.idle_since().filter(|_| !seat.is_blocked());
        let (is_idle, since) = (since.is_some(), since.unwrap_or_else(clock::now));
        if is_idle && since.elapsed() >= most {
            return;
        }
        sleep_until((since + most).into()).await;
    }
}

/// Answers each call in a task of its own.
#[derive(Clone, Copy, Debug)]
struct EachCall;

impl<F> Executor<F> for EachCall
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        let reset = Arc::new(Notify::new());
        let told = Arc::clone(&reset);
        let until_reset = async move {
            let (mut call, mut told) = (pin!(call), pin!(told.notified()));
            // HTTP/2 resets a call whose task is gone.
            poll_fn(|cx| match told.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => call.as_mut().poll(cx),
            })
            .await;
        };
        tokio::spawn(RESET.scope(reset, until_reset));
    }
}

/// Answers the calls of a connection.
struct Visit {
    seat: Arc<Seat>,
    gateway: Arc<Server>,
    /// Why the client is not served.
    unwanted: Option<Arc<str>>,
    /// Told when the connection is to end with the calls that it has.
    closes: Arc<Notify>,
}

impl Service<Request<Incoming>> for Visit {
    type Response = Response<Answers>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (gateway, seat) = (Arc::clone(&self.gateway), Arc::clone(&self.seat));
        let (unwanted, closes) = (self.unwanted.clone(), Arc::clone(&self.closes));
        Box::pin(async move {
            if *gateway.closing.borrow() {
                closes.notify_one();
            }
            let call = Arc::new(Call::begin(Arc::clone(&seat), RESET.with(Arc::clone)));
            if matches!(seat.kind(), Kind::Reserved(_)) {
                closes.notify_one();
            }
            let request = request.map(Body::new);
            let answer = super::answer(gateway, call, unwanted, request).await;
            // A token may have changed its seat.
            if matches!(seat.kind(), Kind::Reserved(_)) {
                closes.notify_one();
            }
            Ok(answer)
        })
    }
}
