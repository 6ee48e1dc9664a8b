//! `GET /v2/gridpool/events`: the pool as a page sees it, in Server-Sent Events: first the timeline, then the pool
//! several times a second, with what is new of the timeline and of deaths. A stream ends after a while and its page
//! opens another, so no answer lasts long, and a token that is taken back soon shows nothing more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use gridpool_client::Principal;
use gridpool_ipc::clock;
use gridpool_protocol::timeline::Mark;
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Server;
use super::access;
use super::failure::Failure;
use super::limits::{PAGE_STREAM_MAX, PAGES_EACH_MAX, PAGES_MAX};
use super::reason::Reason;
use super::shares::{Full, Share};
use super::tokens::{Scope, TokenHash};
use super::watch::Update;

pub(super) const PATH: &str = "/v2/gridpool/events";
/// The scopes of which a token must have one.
pub(super) const SCOPES: &[Scope] = &[Scope::Metrics, Scope::Operate];

/// Answers with a stream, if there is a place for another page.
pub(super) async fn events(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let mut place = gateway.watch.places.share(principal.clone());
    place.grow(1).map_err(|full| match full {
        Full::All => Failure::busy(format!("BUSY: {PAGES_MAX} pages are open already"))
            .because(Reason::PagesFull),
        Full::Own => {
            Failure::busy(format!("BUSY: {PAGES_EACH_MAX} pages of yours are open already"))
                .because(Reason::PagesOwn)
        }
    })?;
    let (token, updates) = (access::shown(&headers), gateway.watch.subscribe());
    let (until, last) = (clock::now() + PAGE_STREAM_MAX, Last::Nothing);
    let feed = Feed { gateway, principal, token, updates, until, last, death: 0, _place: place };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((headers, Body::new(Events(Some(Box::pin(feed.next()))))).into_response())
}

/// What a page was told last of the timeline.
#[derive(Clone, Copy, Debug)]
enum Last {
    Nothing,
    Point(Mark),
    /// The stream has ended.
    End,
}

/// The events of one page.
struct Feed {
    gateway: Arc<Server>,
    principal: Principal,
    /// The token that it has shown.
    token: Option<TokenHash>,
    updates: watch::Receiver<Arc<Update>>,
    until: Instant,
    last: Last,
    /// The number of the last death that it was told of.
    death: u64,
    _place: Share,
}

impl Feed {
    /// The next events, once there are some; `None` at the end.
    async fn next(mut self) -> (Option<Bytes>, Self) {
        if matches!(self.last, Last::End) {
            return (None, self);
        }
        let changed = timeout(clock::until(self.until), self.updates.changed()).await;
        let Ok(Ok(())) = changed else { return (None, self) };
        let update = Arc::clone(&self.updates.borrow_and_update());
        if update.is_last {
            self.last = Last::End;
            return (Some(event("end", "{}")), self);
        }
        let door = self.gateway.door.current();
        let asks = (&self.principal, self.token.as_ref());
        if let Err(failure) = access::check_again(&door, asks, SCOPES) {
            self.last = Last::End;
            let why = Value::from(failure.message()).to_string();
            return (Some(event("refused", &why)), self);
        }
        let bytes = self.tell(&update);
        (Some(bytes), self)
    }

    fn tell(&mut self, update: &Update) -> Bytes {
        let mut text = Vec::new();
        let watch = &self.gateway.watch;
        if let Last::Point(before) = self.last {
            let (mark, points) = watch.points_after(before);
            for point in points {
                text.extend(event("point", &point.to_string()));
            }
            self.last = Last::Point(mark);
        } else if watch.has_kept_up() {
            // Before the timeline is written: a point that comes meanwhile is told twice, and not never.
            self.last = Last::Point(watch.mark());
            match watch.timeline() {
                Ok(timeline) => text.extend(event("timeline", &timeline)),
                Err(error) => tracing::warn!(%error, "the timeline cannot be written"),
            }
        }
        let deaths = watch.deaths_after(self.death);
        if let Some(last) = deaths.last() {
            self.death = last.number;
            match serde_json::to_string(&deaths) {
                Ok(deaths) => text.extend(event("deaths", &deaths)),
                Err(error) => tracing::warn!(%error, "deaths cannot be written"),
            }
        }
        // Before the first snapshot there is none.
        if !update.state.is_empty() {
            text.extend_from_slice(b"event: state\ndata: ");
            text.extend_from_slice(&update.state);
            text.extend_from_slice(b"\n\n");
        }
        text.into()
    }
}

/// One event. JSON of ours has no line breaks.
fn event(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

type Next = Pin<Box<dyn Future<Output = (Option<Bytes>, Feed)> + Send>>;

/// The body of the answer. It asks for the next events when the connection has taken those before.
struct Events(Option<Next>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(next) = &mut self.0 else { return Poll::Ready(None) };
        let (bytes, feed) = ready!(next.as_mut().poll(cx));
        self.0 = bytes.is_some().then(|| Box::pin(feed.next()) as Next);
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
