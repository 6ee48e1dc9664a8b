//! The least speed of a client, in sending bodies and in reading answers.
//!
//! A client may fall behind by [`GRACE`]. While the gateway waits for it, it falls behind; each byte brings it
//! forward by the time that [`RATE_MIN`] gives a byte. So it may pause, but it cannot go on dribbling.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep_until};

use super::limits::{GRACE, RATE_MIN};
use super::seats::Seat;

/// How far a client may still fall behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    left: Duration,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { left: GRACE }
    }

    /// How long the gateway waits for the next byte.
    pub(super) fn left(self) -> Duration {
        self.left
    }

    /// How far the client is behind.
    pub(super) fn behind(self) -> Duration {
        GRACE.saturating_sub(self.left)
    }

    /// The gateway waited, and then `bytes` came or went.
    pub(super) fn moved(&mut self, waited: Duration, bytes: usize) {
        let earned = Duration::from_secs(bytes as u64) / RATE_MIN;
        self.left = GRACE.min(self.left.saturating_sub(waited) + earned);
    }
}

/// A connection that ends if its client reads too slowly.
pub(super) struct Paced<S> {
    /// It is there until this is dropped.
    stream: Option<S>,
    /// Who gets the stream then.
    heir: Option<oneshot::Sender<S>>,
    seat: Arc<Seat>,
    pace: Pace,
    /// Since when the client does not read.
    blocked: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, seat: Arc<Seat>) -> Self {
        let timer = Box::pin(sleep_until(clock::now().into()));
        let (stream, heir) = (Some(stream), None);
        Self { stream, heir, seat, pace: Pace::new(), blocked: None, timer }
    }

    /// The same, and the stream once this is dropped.
    pub(super) fn lent(stream: S, seat: Arc<Seat>) -> (Self, oneshot::Receiver<S>) {
        let (heir, back) = oneshot::channel();
        let mut own = Self::new(stream, seat);
        own.heir = Some(heir);
        (own, back)
    }

    fn stream(&mut self) -> Pin<&mut S>
    where
        S: Unpin,
    {
        Pin::new(self.stream.as_mut().expect("it is there until this is dropped"))
    }

    /// Whether the client has its time still. Called again when it has not.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.blocked.is_none() {
            let now = clock::now();
            self.blocked = Some(now);
            self.seat.block(true);
            let until = (now + self.pace.left()).min(self.seat.answer_until(now));
            self.timer.as_mut().reset(until.into());
        }
        ready!(self.timer.as_mut().poll(cx));
        self.seat.reads_slowly();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn wrote(&mut self, bytes: usize) {
        let waited = self.blocked.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.seat.block(false);
        self.pace.moved(waited, bytes);
    }

    fn after(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.wrote(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_patience(cx),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.stream().poll_read(cx, buffer);
        self.seat.takes(buffer.filled().len() - before);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write(cx, bytes);
        self.after(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write_vectored(cx, slices);
        self.after(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(self.stream().poll_flush(cx));
        self.seat.flushed();
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

impl<S> Drop for Paced<S> {
    fn drop(&mut self) {
        if let (Some(heir), Some(stream)) = (self.heir.take(), self.stream.take()) {
            // If nobody waits for it, it closes here.
            drop(heir.send(stream));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_dribbles_ends_and_one_that_pauses_does_not() {
        let mut pace = Pace::new();
        // A byte each second.
        let second = Duration::from_secs(1);
        let mut seconds = 0;
        while pace.left() >= second {
            pace.moved(second, 1);
            seconds += 1;
        }
        assert_eq!(seconds, 10, "then the next byte is too late");
        let mut pace = Pace::new();
        for _ in 0..1_000 {
            // Nothing for 8 s, and then half a second's worth for each second.
            pace.moved(Duration::from_secs(8), RATE_MIN as usize * 8);
            assert!(pace.left() >= Duration::from_secs(8));
        }
        // What came fast long ago does not count for ever.
        pace.moved(Duration::ZERO, 1 << 30);
        assert_eq!(pace.left(), GRACE);
    }
}
