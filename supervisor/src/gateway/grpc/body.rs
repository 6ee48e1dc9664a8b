//! The body of an answer: messages, then trailers with the status. A client must read it in time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use axum::http::{HeaderMap, Response};
use gridpool_ipc::clock;
use hyper::body::Frame;
use prost::Message;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::messages::{PLAIN, PREFIX_BYTES};
use super::status::status;
use crate::gateway::failure::Failure;
use crate::gateway::limits::ANSWER_TIMEOUT;
use crate::gateway::metrics::CountedCall;
use crate::gateway::pace::Pace;
use crate::gateway::reason::Reason;
use crate::gateway::seats::Call;

/// Bytes of a message that the connection takes at a time. It takes them as the client has room for them.
const PIECE_BYTES: usize = 64 << 10;

/// What a call gives.
#[derive(Debug)]
pub(super) enum Outcome {
    /// One message, with what stands before it.
    One(Bytes),
    /// Messages, from a task that ends with the answer.
    Many(mpsc::Receiver<Part>, EndsWithThis),
}

/// A part of a stream of answers.
#[derive(Debug)]
pub(super) enum Part {
    /// A message, and how much of it is read.
    Message(Bytes, Arc<Reading>),
    /// The end.
    End(Status),
}

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(super) struct EndsWithThis(pub(super) AbortHandle);

impl Drop for EndsWithThis {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How much of a message is not sent yet. The call is in progress until all is.
#[derive(Debug)]
pub(super) struct Reading {
    left: AtomicUsize,
    moved: Notify,
    call: Arc<Call>,
}

/// A piece of a message. The connection drops it once it is sent.
struct Piece {
    bytes: Bytes,
    reading: Arc<Reading>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.reading.took(self.bytes.len());
    }
}

impl Reading {
    pub(super) fn new(message: &Bytes, call: Arc<Call>) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(message.len()), moved: Notify::new(), call })
    }

    fn took(&self, bytes: usize) {
        self.left.fetch_sub(bytes, Ordering::AcqRel);
        self.moved.notify_one();
    }

    /// Waits until the message is read. If that is too slow, ends the call.
    pub(super) async fn watch(&self) {
        let (until, mut pace) = (clock::now() + ANSWER_TIMEOUT, Pace::new());
        let mut left = self.left.load(Ordering::Acquire);
        while left > 0 {
            let began = clock::now();
            let patience = pace.left().min(clock::until(until));
            if timeout(patience, self.moved.notified()).await.is_err() {
                self.call.note(Reason::SlowAnswer);
                return self.call.reset();
            }
            let now = self.left.load(Ordering::Acquire);
            pace.moved(began.elapsed(), left - now);
            left = now;
        }
    }
}

/// See the module's text.
pub(super) struct Answers {
    /// What of the message the connection has not taken.
    message: Bytes,
    reading: Option<Arc<Reading>>,
    more: Option<(mpsc::Receiver<Part>, EndsWithThis)>,
    trailers: Option<HeaderMap>,
    counted: CountedCall,
    _call: Arc<Call>,
}

impl Answers {
    /// The answer of a call that succeeded.
    pub(super) fn new(outcome: Outcome, call: Arc<Call>, mut counted: CountedCall) -> Self {
        if let Outcome::One(_) = outcome {
            counted.ends(Code::Ok);
        }
        let mut answers = Self::empty(Arc::clone(&call), counted);
        match outcome {
            Outcome::One(message) => {
                answers.counted.answers(message.len());
                let reading = Reading::new(&message, call);
                let watched = Arc::clone(&reading);
                tokio::spawn(async move { watched.watch().await });
                answers.message = message;
                answers.reading = Some(reading);
                answers.trailers = Some(trailers(&Status::ok("")));
            }
            Outcome::Many(parts, task) => answers.more = Some((parts, task)),
        }
        answers
    }

    /// An answer without a message.
    pub(super) fn empty(call: Arc<Call>, counted: CountedCall) -> Self {
        let (reading, more, trailers) = Default::default();
        Self { message: Bytes::new(), reading, more, trailers, counted, _call: call }
    }

    /// The answer of a call that failed.
    pub(super) fn failed(
        failure: &Failure,
        call: Arc<Call>,
        mut counted: CountedCall,
    ) -> Response<Self> {
        counted.ends(failure.code());
        let response: Response<()> = status(failure).into_http();
        response.map(|()| Self::empty(call, counted))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.took(self.message.len());
        }
    }
}

impl HttpBody for Answers {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(reading) = self.reading.clone().filter(|_| !self.message.is_empty()) {
                let length = self.message.len().min(PIECE_BYTES);
                let bytes = self.message.split_to(length);
                let piece = Bytes::from_owner(Piece { bytes, reading });
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some((parts, _)) = &mut self.more else { break };
            match parts.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Part::Message(message, reading))) => {
                    self.counted.answers(message.len());
                    self.message = message;
                    self.reading = Some(reading);
                }
                Poll::Ready(Some(Part::End(status))) => {
                    self.more = None;
                    self.counted.ends(status.code());
                    self.trailers = Some(trailers(&status));
                }
                Poll::Ready(None) => {
                    self.more = None;
                    let status = Status::internal("the stream's task has ended");
                    self.counted.ends(status.code());
                    self.trailers = Some(trailers(&status));
                }
            }
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_empty() && self.more.is_none() && self.trailers.is_none()
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if status.add_header(&mut headers).is_err() {
        headers.insert("grpc-status", i32::from(Code::Internal).into());
    }
    headers
}

/// A small message, with what stands before it.
pub(super) fn framed(message: &impl Message) -> Vec<u8> {
    let mut bytes = prefix(message.encoded_len()).to_vec();
    message.encode(&mut bytes).expect("a vector grows");
    bytes
}

/// What stands before a message of so many bytes.
pub(super) fn prefix(bytes: usize) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = u32::try_from(bytes).expect("an answer has a limit").to_be_bytes();
    [PLAIN, a, b, c, d]
}
