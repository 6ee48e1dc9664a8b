//! Bodies of requests and responses, and the memory that they may hold.
//!
//! The gateway reads a body piece by piece, within a time limit. All bodies share one budget. A request
//! keeps its share until its response is sent, so a client that does not read costs only that share.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use gridpool_ipc::clock;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::failure::Failure;
use super::limits::{
    BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_SILENCE, BODY_TIMEOUT, HELD_PER_BYTE, REPLY_BYTES_MAX,
};

/// Bytes of one permit of the budget.
const PERMIT_BYTES: usize = 1 << 10;

/// The memory that all bodies together may hold.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget(Arc<Semaphore>);

/// One request's share of the budget, from the first byte of its body to the last of its response.
#[derive(Debug)]
pub(super) struct HeldBytes {
    budget: Arc<Semaphore>,
    permits: Option<OwnedSemaphorePermit>,
    /// The share of the request's own body.
    bytes: usize,
}

/// A response body that is being written. It holds memory as it grows, up to a limit.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    bytes: Vec<u8>,
    held: &'a mut HeldBytes,
    /// Why writing stopped.
    failure: Option<Failure>,
}

impl BodyBudget {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BODIES_BYTES_MAX / PERMIT_BYTES)))
    }

    /// Reads a whole body. A failure ends the connection.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Vec<u8>, HeldBytes), Failure> {
        self.read_all(headers, body).await.map_err(Failure::unread)
    }

    /// Reads a whole body and forgets it, by the same limits.
    pub(super) async fn discard(&self, headers: &HeaderMap, body: Body) -> Result<(), Failure> {
        // A client that waits for 100 Continue need not send it.
        if headers.contains_key(header::EXPECT) {
            return Err(Failure::bad("the body is not read"));
        }
        let mut bytes = 0;
        each_piece(body, |data| {
            bytes += data.len();
            if bytes > BODY_BYTES_MAX { Err(too_long()) } else { Ok(()) }
        })
        .await
    }

    async fn read_all(
        &self,
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
        let mut held = HeldBytes { budget: Arc::clone(&self.0), permits: None, bytes: 0 };
        let mut bytes = Vec::new();
        each_piece(body, |data| {
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                return Err(too_long());
            }
            held.bytes = (bytes.len() + data.len()) * HELD_PER_BYTE;
            held.hold(0)?;
            bytes.extend_from_slice(data);
            Ok(())
        })
        .await?;
        Ok((bytes, held))
    }
}

/// Gives each piece of a body to `take`, in time.
async fn each_piece(
    mut body: Body,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let until = clock::now() + BODY_TIMEOUT;
    loop {
        let next = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let left = BODY_SILENCE.min(clock::until(until));
        let Ok(frame) = timeout(left, next).await else {
            let why = format!(
                "the body came too slowly: send it within {} s, without a pause of {} s",
                BODY_TIMEOUT.as_secs(),
                BODY_SILENCE.as_secs()
            );
            return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, why));
        };
        let Some(frame) = frame else { return Ok(()) };
        let frame =
            frame.map_err(|error| Failure::bad(format!("the body ended early: {error}")))?;
        // Ignore trailers.
        let Ok(data) = frame.into_data() else { continue };
        take(&data)?;
    }
}

fn too_long() -> Failure {
    let why = format!("the body has more than {BODY_BYTES_MAX} bytes: send fewer items at once");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, why)
}

impl HeldBytes {
    /// Holds the request's share and `of_answer` bytes of its response.
    fn hold(&mut self, of_answer: usize) -> Result<(), Failure> {
        let bytes = self.bytes + of_answer;
        let have = self.permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(PERMIT_BYTES).saturating_sub(have);
        let more = u32::try_from(more).expect("a body is bounded");
        let permits = Arc::clone(&self.budget).try_acquire_many_owned(more).map_err(|_| {
            Failure::unavailable(format!(
                "BUSY: the requests in progress hold {BODIES_BYTES_MAX} bytes already"
            ))
        })?;
        match &mut self.permits {
            Some(held) => held.merge(permits),
            None => self.permits = Some(permits),
        }
        Ok(())
    }

    /// A body that returns its share to the budget once it is sent or dropped.
    pub(super) fn answer(self, bytes: Vec<u8>) -> Body {
        Body::new(ResponseBody { bytes: Some(bytes.into()), _held: self })
    }
}

impl<'a> Draft<'a> {
    pub(super) fn new(held: &'a mut HeldBytes) -> Self {
        Self { bytes: Vec::new(), held, failure: None }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for `more` bytes, so that writing them moves nothing.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), Failure> {
        let bytes = self.bytes.len() + more;
        if bytes > REPLY_BYTES_MAX {
            return Err(Failure::bad(format!(
                "the answer would have more than {REPLY_BYTES_MAX} bytes: send fewer rows at once, name the \
                 outputs that you want, or ask for them with binary_data, which takes less"
            )));
        }
        if bytes > self.bytes.capacity() {
            self.held.hold(bytes)?;
            self.bytes.reserve_exact(more);
        }
        Ok(())
    }

    /// The body, or why there is none. `written` is the writer's result.
    pub(super) fn finish(self, written: io::Result<()>) -> Result<Vec<u8>, Failure> {
        match (self.failure, written) {
            (Some(failure), _) => Err(failure),
            // A tensor holds a number that JSON cannot express.
            (None, Err(error)) => Err(Failure::bad(error.to_string())),
            (None, Ok(())) => Ok(self.bytes),
        }
    }
}

impl io::Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (have, more) = (self.bytes.len(), bytes.len());
        if have + more > self.bytes.capacity() {
            // Double the size, so that many small pieces cause few moves.
            let ample = more.max(have.min(REPLY_BYTES_MAX.saturating_sub(have)));
            if let Err(failure) = self.reserve(ample) {
                self.failure = Some(failure);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        self.bytes.extend_from_slice(bytes);
        Ok(more)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ResponseBody {
    bytes: Option<Bytes>,
    _held: HeldBytes,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn held(budget: &BodyBudget) -> HeldBytes {
        HeldBytes { budget: Arc::clone(&budget.0), permits: None, bytes: 0 }
    }

    #[test]
    fn a_response_holds_memory_as_it_grows_and_ends_at_its_limit() {
        let budget = BodyBudget::new();
        let all = budget.0.available_permits();
        let mut held = held(&budget);
        let mut draft = Draft::new(&mut held);
        let mebibyte = vec![1; 1 << 20];
        for _ in 0..3 {
            draft.write_all(&mebibyte).unwrap();
        }
        assert!(all - budget.0.available_permits() >= 3 << 10, "in kibibytes");
        let bytes = draft.finish(Ok(())).unwrap();
        assert_eq!(bytes.len(), 3 << 20);
        let mut draft = Draft::new(&mut held);
        let written = (0..=REPLY_BYTES_MAX >> 20).try_for_each(|_| draft.write_all(&mebibyte));
        assert_eq!(draft.len(), REPLY_BYTES_MAX, "to the last byte");
        let why = draft.finish(written).unwrap_err();
        assert!(why.message().contains("more than 134217728 bytes: send fewer rows"), "{why:?}");
        drop(held);
        assert_eq!(budget.0.available_permits(), all, "all of it is given back");
    }

    #[test]
    fn a_response_that_exceeds_the_budget_is_busy() {
        let budget = BodyBudget::new();
        let _others = Arc::clone(&budget.0)
            .try_acquire_many_owned(u32::try_from(BODIES_BYTES_MAX / PERMIT_BYTES - 1).unwrap())
            .unwrap();
        let mut held = held(&budget);
        let mut draft = Draft::new(&mut held);
        draft.write_all(&[1; PERMIT_BYTES]).unwrap();
        let written = draft.write_all(&[1; 1]);
        let why = draft.finish(written).unwrap_err();
        assert!(why.message().starts_with("BUSY: "), "{why:?}");
        assert!(Draft::new(&mut held).reserve(2 * PERMIT_BYTES).is_err());
    }
}
