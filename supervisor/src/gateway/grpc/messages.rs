//! The messages of a call, as they come: each has five bytes before it, a flag and its length. A message counts
//! against the memory for bodies as its bytes come, and nothing of it stays once it is read.

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use gridpool_client::Principal;
use std::time::Duration;

use super::packing::unpack;
use crate::gateway::blocking::run_blocking;
use crate::gateway::body::{BodyBudget, HeldBytes, Pieces, too_long};
use crate::gateway::failure::Failure;
use crate::gateway::limits::{BODY_BYTES_MAX, DOCUMENT_BYTES_MAX};
use crate::gateway::seats::Turn;

/// Bytes before a message: whether it is packed, and its length.
pub(super) const PREFIX_BYTES: usize = 5;
/// The first of them.
pub(super) const PLAIN: u8 = 0;
pub(super) const PACKED: u8 = 1;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    budget: BodyBudget,
    principal: &'a Principal,
    pieces: Pieces<'a>,
    kind: MessageKind,
    /// What has come of a frame and is of the next message.
    rest: Bytes,
}

/// What messages may come.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageKind {
    /// Most bytes, as sent and unpacked.
    most: usize,
    /// Whether they may be packed, as `grpc-encoding` says.
    is_packable: bool,
}

/// A message of which some has come.
#[derive(Debug, Default)]
pub(super) struct Partial {
    prefix: Vec<u8>,
    bytes: Vec<u8>,
}

impl<'a> Messages<'a> {
    /// Requests for inference.
    pub(super) fn new(
        budget: &BodyBudget,
        (principal, turn): (&'a Principal, Turn<'a>),
        (body, is_packable): (Body, bool),
    ) -> Self {
        let kind = MessageKind { most: BODY_BYTES_MAX, is_packable };
        let pieces = Pieces::new(turn, body);
        Self { budget: budget.clone(), principal, pieces, kind, rest: Bytes::new() }
    }

    /// Questions for a document. They are short, and count against nothing that others use.
    pub(super) fn of_document(client: (&'a Principal, Turn<'a>), body: (Body, bool)) -> Self {
        let own = Self::new(&BodyBudget::new(), client, body);
        let kind = MessageKind { most: DOCUMENT_BYTES_MAX, ..own.kind };
        Self { kind, ..own }
    }

    /// The only message of a call, and what it holds of the memory for bodies.
    pub(super) async fn one(mut self) -> Result<(Bytes, HeldBytes), Failure> {
        let one = self.read(None).await?;
        let one = one.ok_or_else(|| Failure::internal("the call has no message: send one"))?;
        match self.read(None).await? {
            None => Ok(one),
            Some(_) => Err(Failure::internal("the call has more than one message: send one")),
        }
    }

    /// The next message of a stream, for whose beginning the client has `idle`.
    pub(super) async fn next(
        &mut self,
        idle: Duration,
    ) -> Result<Option<(Bytes, HeldBytes)>, Failure> {
        self.read(Some(idle)).await
    }

    /// The next message; `None` at the end.
    async fn read(
        &mut self,
        idle: Option<Duration>,
    ) -> Result<Option<(Bytes, HeldBytes)>, Failure> {
        if self.rest.is_empty() {
            let first = match idle {
                Some(idle) => self.pieces.first(idle).await?,
                None => self.pieces.next().await?,
            };
            let Some(first) = first else { return Ok(None) };
            self.rest = first;
        } else {
            // It begins now, however long ago these bytes came with the last message.
            self.pieces.renew();
        }
        let (mut message, mut held) = (Partial::default(), self.budget.held(self.principal));
        loop {
            let rest = std::mem::take(&mut self.rest);
            self.rest = message.take(rest, self.kind, &mut held)?;
            if message.is_whole() {
                break;
            }
            let Some(more) = self.pieces.next().await? else {
                return Err(Failure::internal("the call ended within a message"));
            };
            self.rest = more;
        }
        if !message.is_packed() {
            return Ok(Some((message.bytes.into(), held)));
        }
        let most = self.kind.most;
        let unpacking = move || {
            let whole = unpack(&message.bytes, most, &mut held)?;
            Ok((whole.into(), held))
        };
        run_blocking(unpacking).await.map(Some)
    }
}

impl Partial {
    /// Takes its part of what has come, and returns the rest.
    pub(super) fn take(
        &mut self,
        mut data: Bytes,
        kind: MessageKind,
        held: &mut HeldBytes,
    ) -> Result<Bytes, Failure> {
        let missing = PREFIX_BYTES - self.prefix.len();
        self.prefix.extend(data.split_to(missing.min(data.len())));
        let Some(length) = self.length() else { return Ok(data) };
        check(self.prefix[0], length, kind)?;
        let missing = length - self.bytes.len();
        let part = data.split_to(missing.min(data.len()));
        let bytes = self.bytes.len() + part.len();
        held.hold_request(bytes)?;
        if bytes > self.bytes.capacity() {
            // At most twice what has come, whatever length is announced, and never more than that.
            self.bytes.reserve_exact(self.bytes.len().clamp(part.len(), missing));
        }
        self.bytes.extend_from_slice(&part);
        Ok(data)
    }

    /// Its length, once it is known.
    fn length(&self) -> Option<usize> {
        let length = self.prefix.get(1..PREFIX_BYTES)?;
        Some(u32::from_be_bytes(length.try_into().ok()?) as usize)
    }

    fn is_whole(&self) -> bool {
        self.length() == Some(self.bytes.len())
    }

    fn is_packed(&self) -> bool {
        self.prefix.first() == Some(&PACKED)
    }
}

fn check(flag: u8, length: usize, kind: MessageKind) -> Result<(), Failure> {
    match flag {
        PLAIN => {}
        PACKED if kind.is_packable => {}
        PACKED => {
            let why = "a message says that it is compressed, but grpc-encoding does not say how";
            return Err(Failure::internal(why));
        }
        other => {
            let why = format!("a message has the flag {other}: it is {PLAIN} or {PACKED}");
            return Err(Failure::internal(why));
        }
    }
    if length > kind.most { Err(too_much(kind.most)) } else { Ok(()) }
}

/// A message is too long.
pub(super) fn too_much(most: usize) -> Failure {
    if most == BODY_BYTES_MAX {
        return too_long();
    }
    let why =
        format!("the message has more than {most} bytes, which none that this method reads has");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, why)
}

/// The messages of a body that comes in pieces, each of so many bytes and the last of the rest, or why they end.
pub(in crate::gateway) fn split(
    body: &[u8],
    pieces: &[usize],
) -> (Vec<Vec<u8>>, Result<(), Failure>) {
    let kind = MessageKind { most: BODY_BYTES_MAX, is_packable: true };
    let mut held = BodyBudget::new().held(&Principal::Uid(0));
    let (mut messages, mut message) = (Vec::new(), Partial::default());
    let mut unread = Bytes::copy_from_slice(body);
    for piece in pieces.iter().copied().chain([usize::MAX]) {
        let mut rest = unread.split_to(piece.min(unread.len()));
        while !rest.is_empty() {
            rest = match message.take(rest, kind, &mut held) {
                Ok(rest) => rest,
                Err(failure) => return (messages, Err(failure)),
            };
            if message.is_whole() {
                messages.push(std::mem::take(&mut message).bytes);
            }
        }
    }
    let is_cut = !message.prefix.is_empty();
    let why = || Failure::internal("the call ended within a message");
    (messages, if is_cut { Err(why()) } else { Ok(()) })
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::mpsc;

    use super::*;
    use crate::gateway::access::Peer;
    use crate::gateway::limits::{GRACE, STREAM_IDLE_MAX};
    use crate::gateway::seats::{Seat, Seats};

    fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[flag], &length[..], message].concat()
    }

    #[test]
    fn messages_are_the_same_however_their_bytes_are_cut() {
        let body = [framed(0, b"one"), framed(0, b""), framed(0, &[7; 300])].concat();
        let whole = split(&body, &[]);
        assert_eq!(whole, (vec![b"one".to_vec(), vec![], vec![7; 300]], Ok(())));
        for at in 0..body.len() {
            assert_eq!(split(&body, &[at]), whole, "cut at {at}");
            assert_eq!(split(&body, &vec![1; at]), whole, "{at} pieces of a byte");
        }
        let (some, why) = split(&body[..body.len() - 1], &[4]);
        assert_eq!((some.len(), why.unwrap_err().code()), (2, tonic::Code::Internal));
    }

    #[test]
    fn a_prefix_that_is_wrong_has_the_code_that_grpc_gives_it() {
        let why = |body: &[u8]| split(body, &[]).1.unwrap_err();
        assert_eq!(why(&framed(2, b"")).code(), tonic::Code::Internal);
        let long = why(&[0, 255, 0, 0, 0]);
        assert_eq!(long.code(), tonic::Code::ResourceExhausted);
        assert!(long.message().contains("fewer items"), "{long:?}");
        let plain = MessageKind { most: 9, is_packable: false };
        let mut held = BodyBudget::new().held(&Principal::Uid(0));
        let mut of = |body: Vec<u8>| Partial::default().take(body.into(), plain, &mut held);
        assert!(of(framed(1, b"")).unwrap_err().message().contains("grpc-encoding"));
        assert!(of(framed(0, &[0; 10])).unwrap_err().message().contains("more than 9 bytes"));
    }

    #[test]
    fn a_byte_of_the_next_message_keeps_nothing_of_this_one() {
        let budget = BodyBudget::new();
        let kind = MessageKind { most: 1 << 20, is_packable: false };
        let (mut message, mut held) = (Partial::default(), budget.held(&Principal::Uid(0)));
        let body = Bytes::from([framed(0, &[7; 100_000]), vec![0]].concat());
        let mut rest = Bytes::new();
        for at in (0..body.len()).step_by(1_000) {
            let piece = body.slice(at..body.len().min(at + 1_000));
            rest = message.take(piece, kind, &mut held).unwrap();
            assert!(message.bytes.capacity() <= 2 * message.bytes.len().max(1_000), "at {at}");
        }
        assert_eq!((rest.len(), message.bytes.capacity()), (1, 100_000), "it has its own memory");
    }

    /// A body whose pieces come when a test sends them.
    struct Piecewise(mpsc::UnboundedReceiver<Bytes>);

    impl axum::body::HttpBody for Piecewise {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            self.0.poll_recv(cx).map(|piece| piece.map(|bytes| Ok(hyper::body::Frame::data(bytes))))
        }
    }

    fn seat() -> Arc<Seat> {
        let seats = Seats::new(Arc::default());
        Arc::new(seats.take(Peer::Unix { uid: 0 }, false).unwrap())
    }

    #[test]
    fn each_message_of_a_stream_has_its_own_time_wherever_its_frames_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (budget, seat) = (BodyBudget::new(), seat());
            let (sender, receiver) = mpsc::unbounded_channel();
            let client = (&Principal::Uid(0), Turn::from(&*seat));
            let body = (Body::new(Piecewise(receiver)), false);
            let mut messages = Messages::new(&budget, client, body);
            let whole = framed(0, b"message");
            for ends in [whole.len(), 3] {
                // A client that is nearly out of time, and whose next message came in part with this one.
                messages.pieces.runs_out();
                sender.send([&whole[..], &whole[..ends % whole.len()]].concat().into()).unwrap();
                let first = messages.next(STREAM_IDLE_MAX).await.unwrap().unwrap();
                assert_eq!(first.0, b"message"[..]);
                if ends < whole.len() {
                    messages.pieces.runs_out();
                    {
                        let mut next = pin!(messages.next(STREAM_IDLE_MAX));
                        let mut cx = Context::from_waker(Waker::noop());
                        assert!(next.as_mut().poll(&mut cx).is_pending(), "it is not late");
                        sender.send(whole[ends..].to_vec().into()).unwrap();
                        assert_eq!(next.await.unwrap().unwrap().0, b"message"[..]);
                    }
                    assert_eq!(messages.pieces.left(), GRACE);
                }
            }
        });
    }
}
