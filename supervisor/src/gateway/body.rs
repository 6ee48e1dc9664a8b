//! Bodies of requests and responses, and the memory that they may hold.
//!
//! The gateway reads a body piece by piece, in time and at a least speed. All bodies share one budget; what has
//! come counts, not what is announced. A request keeps its share until its response is sent, so a client that
//! does not read costs only that share.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use gridpool_client::Principal;
use gridpool_ipc::clock;
use tokio::time::timeout;

use super::failure::Failure;
use super::limits::{
    BODIES_BYTES_MAX, BODIES_EACH_MAX, BODIES_SMALL, BODY_BYTES_MAX, BODY_TIMEOUT,
    DOCUMENT_BYTES_MAX, GRACE, HELD_PER_BYTE, RATE_MIN, SMALL_BYTES_MAX,
};
use super::pace::Pace;
use super::reason::Reason;
use super::seats::{Seat, Turn};
use super::shares::{Full, Portions, Share, Shares};

/// The memory that all bodies together may hold.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget(Arc<Shares>);

/// One request's share of the budget, from the first byte of its body to the last of its response.
#[derive(Debug)]
pub(super) struct HeldBytes {
    share: Share,
    /// The share of the request's own body.
    bytes: usize,
}

/// A response on its way. The connection drops it once it is sent.
struct Sent {
    bytes: Vec<u8>,
    _held: HeldBytes,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyBudget {
    pub(super) fn new() -> Self {
        Self(Shares::new(Portions {
            all: BODIES_BYTES_MAX,
            each: BODIES_EACH_MAX,
            for_small: BODIES_SMALL,
            small_max: SMALL_BYTES_MAX,
        }))
    }

    /// A share of a request of which nothing has come.
    pub(super) fn held(&self, principal: &Principal) -> HeldBytes {
        HeldBytes { share: self.0.share(principal.clone()), bytes: 0 }
    }

    /// What all bodies hold.
    pub(super) fn bytes(&self) -> usize {
        self.0.sum()
    }

    /// Whether a small body of a client, or of any, has been refused and would be now.
    pub(super) fn why_full(&self, principal: Option<&Principal>) -> Option<Full> {
        self.0.why_full(principal)
    }

    /// Reads a whole body. A failure ends the connection.
    pub(super) async fn read(
        &self,
        (principal, seat): (&Principal, &Seat),
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Vec<u8>, HeldBytes), Failure> {
        self.read_all((principal, seat), headers, body).await.map_err(Failure::unread)
    }

    /// The same for a body that is no inference request. It is small, and has given its share back: what it asks for
    /// may wait for long.
    pub(super) async fn read_document(
        &self,
        client: (&Principal, &Seat),
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Vec<u8>, Failure> {
        // Once it is read, its JSON may take far more memory than it has bytes.
        let (body, _) = self.read(client, headers, body).await?;
        if body.len() <= DOCUMENT_BYTES_MAX {
            return Ok(body);
        }
        let bytes = body.len();
        let why = format!("the body has {bytes} bytes; here it has at most {DOCUMENT_BYTES_MAX}");
        Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, why))
    }

    /// Reads a whole body and forgets it, by the same limits.
    pub(super) async fn discard(
        seat: &Seat,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(), Failure> {
        // A client that waits for 100 Continue need not send it.
        if headers.contains_key(header::EXPECT) {
            return Err(Failure::bad("the body is not read"));
        }
        let mut bytes = 0;
        each_piece(seat, body, |data| {
            bytes += data.len();
            if bytes > BODY_BYTES_MAX { Err(too_long()) } else { Ok(()) }
        })
        .await
    }

    async fn read_all(
        &self,
        (principal, seat): (&Principal, &Seat),
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Vec<u8>, HeldBytes), Failure> {
        if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            let why = "compressed bodies are not served: send it without Content-Encoding";
            return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        // Refuse before the client sends the body, if it waits for 100 Continue.
        if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
            return Err(too_long());
        }
        let mut held = self.held(principal);
        let mut bytes = Vec::new();
        each_piece(seat, body, |data| {
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                return Err(too_long());
            }
            held.hold_request(bytes.len() + data.len())?;
            bytes.extend_from_slice(data);
            Ok(())
        })
        .await?;
        Ok((bytes, held))
    }
}

/// Gives each piece of a body to `take`, in time.
async fn each_piece(
    seat: &Seat,
    body: Body,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut pieces = Pieces::new(seat.into(), body);
    while let Some(data) = pieces.next().await? {
        take(&data)?;
    }
    Ok(())
}

/// The pieces of a body, each of which must come in time. The seat knows how far the client is behind.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    turn: Turn<'a>,
    body: Body,
    until: Instant,
    pace: Pace,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(turn: Turn<'a>, body: Body) -> Self {
        Self { turn, body, until: clock::now() + BODY_TIMEOUT, pace: Pace::new() }
    }

    /// From now on the client has the time of a new body.
    pub(super) fn renew(&mut self) {
        (self.until, self.pace) = (clock::now() + BODY_TIMEOUT, Pace::new());
        self.turn.works();
    }

    /// The first piece of the next message, for which the client has `idle`. From then on it has the time of a new
    /// body.
    pub(super) async fn first(&mut self, idle: Duration) -> Result<Option<Bytes>, Failure> {
        let Ok(piece) = timeout(idle, self.data()).await else {
            let seconds = idle.as_secs();
            return Err(Failure::unavailable(format!(
                "the stream was idle for {seconds} s: open another when there is something to send"
            )));
        };
        self.renew();
        piece
    }

    /// The next piece; `None` at the end of the body.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        self.turn.sends_body(self.pace.behind());
        let (mut began, mut left) = (clock::now(), self.pace.left().min(clock::until(self.until)));
        let piece = loop {
            let came = timeout(left, self.data()).await;
            if came.is_ok() || !self.turn.is_held_up() {
                break came;
            }
            // We do not read other calls of its connection, so it may be unable to send.
            (began, left) = (clock::now(), GRACE);
            self.until = self.until.max(began + GRACE);
        };
        let Ok(piece) = piece else {
            let why = format!(
                "the body came too slowly: send it within {} s, at {RATE_MIN} bytes a second and with no pause of \
                 {} s",
                BODY_TIMEOUT.as_secs(),
                GRACE.as_secs()
            );
            let failure = Failure::new(StatusCode::REQUEST_TIMEOUT, why);
            return Err(failure.because(Reason::SlowBody));
        };
        match &piece {
            Ok(Some(data)) => self.pace.moved(began.elapsed(), data.len()),
            Ok(None) => self.turn.works(),
            Err(_) => {}
        }
        piece
    }

    /// For tests: the client has no time left.
    #[cfg(test)]
    pub(super) fn runs_out(&mut self) {
        self.until = clock::now();
        self.pace.moved(GRACE, 0);
    }

    /// For tests: how far the client may fall behind.
    #[cfg(test)]
    pub(super) fn left(&self) -> Duration {
        self.pace.left()
    }

    async fn data(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            let Some(frame) = frame else { return Ok(None) };
            let frame =
                frame.map_err(|error| Failure::bad(format!("the body ended early: {error}")))?;
            // Ignore trailers, and frames that have nothing.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
    }
}

pub(super) fn too_long() -> Failure {
    let why = format!("the body has more than {BODY_BYTES_MAX} bytes: send fewer items at once");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, why)
}

impl HeldBytes {
    /// Holds what a request of so many bytes takes.
    pub(super) fn hold_request(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes = bytes * HELD_PER_BYTE;
        self.hold(0)
    }

    /// Whether the request is known and has at most so many bytes.
    pub(super) fn is_at_most(&self, bytes: usize) -> bool {
        self.bytes <= bytes * HELD_PER_BYTE
    }

    /// Holds so many bytes more for the request.
    pub(super) fn hold_more(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes += bytes;
        self.hold(0)
    }

    /// Holds so many bytes, and no more of what it held.
    pub(super) fn shrink(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.share.shrink(bytes);
    }

    /// Holds the request's share and `of_answer` bytes of its response.
    pub(super) fn hold(&mut self, of_answer: usize) -> Result<(), Failure> {
        self.share.grow(self.bytes + of_answer).map_err(|full| match full {
            Full::All => Failure::busy(format!(
                "BUSY: the requests in progress hold most of {BODIES_BYTES_MAX} bytes already"
            ))
            .because(Reason::BodiesFull),
            Full::Own => Failure::busy(format!(
                "BUSY: your requests in progress hold most of your {BODIES_EACH_MAX} bytes already"
            ))
            .because(Reason::BodiesOwn),
        })
    }

    /// A body that returns its share to the budget once it is sent or dropped.
    pub(super) fn answer(self, bytes: Vec<u8>) -> Body {
        Body::from(self.bytes(bytes))
    }

    /// Bytes that return the share to the budget once they are sent or dropped.
    pub(super) fn bytes(self, bytes: Vec<u8>) -> Bytes {
        // Not with the body: the connection drops that once it has taken the bytes to send.
        Bytes::from_owner(Sent { bytes, _held: self })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::access::Peer;
    use super::super::draft::Draft;
    use super::super::limits::REPLY_BYTES_MAX;
    use super::super::seats::Seats;
    use super::*;

    fn held(budget: &BodyBudget) -> HeldBytes {
        HeldBytes { share: budget.0.share(Principal::Uid(1)), bytes: 0 }
    }

    #[test]
    fn a_response_holds_memory_as_it_grows_and_ends_at_its_limit() {
        let budget = BodyBudget::new();
        let mut held = held(&budget);
        let mut draft = Draft::new(&mut held);
        let mebibyte = vec![1; 1 << 20];
        for _ in 0..3 {
            draft.write_all(&mebibyte).unwrap();
        }
        assert!(budget.bytes() >= 3 << 20);
        let bytes = draft.finish(Ok(())).unwrap();
        assert_eq!(bytes.len(), 3 << 20);
        let mut draft = Draft::new(&mut held);
        let written = (0..=REPLY_BYTES_MAX >> 20).try_for_each(|_| draft.write_all(&mebibyte));
        assert_eq!(draft.len(), REPLY_BYTES_MAX, "to the last byte");
        let why = draft.finish(written).unwrap_err();
        assert!(why.message().contains("more than 134217728 bytes: send fewer rows"), "{why:?}");
        drop(held);
        assert_eq!(budget.bytes(), 0, "all of it is given back");
    }

    #[tokio::test]
    async fn a_document_has_given_its_share_back_once_it_is_read() {
        let (budget, seats) = (BodyBudget::new(), Seats::new(Arc::default()));
        let seat = seats.take(Peer::Unix { uid: 1 }, false).unwrap();
        let client = (&Principal::Uid(1), &seat);
        let body = budget.read_document(client, &HeaderMap::new(), Body::from("{}")).await;
        assert_eq!((body.unwrap().as_slice(), budget.bytes()), (&b"{}"[..], 0));
    }

    #[test]
    fn a_response_that_exceeds_the_budget_is_busy() {
        let budget = BodyBudget::new();
        let mut others = [2, 3].map(|user| budget.0.share(Principal::Uid(user)));
        others[0].grow(BODIES_EACH_MAX - BODIES_SMALL).unwrap();
        others[1].grow(BODIES_BYTES_MAX - BODIES_EACH_MAX - 20 * SMALL_BYTES_MAX).unwrap();
        let mut held = held(&budget);
        let mut draft = Draft::new(&mut held);
        draft.reserve(20 * SMALL_BYTES_MAX).unwrap();
        let why = draft.reserve(21 * SMALL_BYTES_MAX).unwrap_err();
        assert!(why.message().starts_with("BUSY: the requests in progress"), "{why:?}");
        assert!(budget.0.share(Principal::Uid(4)).grow(SMALL_BYTES_MAX).is_ok(), "a small one");
    }

    #[test]
    fn a_response_holds_its_share_until_its_last_byte_is_sent() {
        let budget = BodyBudget::new();
        let mut held = held(&budget);
        held.hold(1_000).unwrap();
        let mut body = held.answer(vec![7; 1_000]);
        let frame = std::pin::pin!(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)))
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        let std::task::Poll::Ready(Some(Ok(frame))) = frame else { panic!("no frame") };
        let mut bytes = frame.into_data().unwrap();
        // As the connection does once it has a frame.
        drop(body);
        assert_eq!(budget.bytes(), 1_000, "nothing is sent yet");
        drop(bytes.split_to(999));
        assert_eq!(budget.bytes(), 1_000, "not all is sent");
        drop(bytes);
        assert_eq!(budget.bytes(), 0);
    }
}
