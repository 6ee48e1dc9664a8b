//! Counts the control frames of HTTP/2: all but those that begin or end a call or have some data. The HTTP library
//! takes in any number of most of them. A client sends some with each call and for what it reads, and a few more; a
//! connection with more than that ends.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::gateway::limits::{
    CONTROL_FRAMES_MAX, CONTROL_FRAMES_PER_CALL, CONTROL_FRAMES_PER_S, CONTROL_FRAMES_SAVED_MAX,
    DATA_FRAME_BYTES_MIN, DATA_PER_CONTROL_FRAME,
};

/// The bytes before the first frame of a client.
const PREFACE_BYTES: usize = 24;
/// The head of a frame: its length, type, flags and call.
const HEAD_BYTES: usize = 9;
/// The types of frames that are no control frames, of which data may count as one.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// The flag of data that end a call.
const END_STREAM: u8 = 1;

/// How long it takes until a client may send one more.
const PERIOD: Duration = Duration::from_secs(1).checked_div(CONTROL_FRAMES_PER_S).unwrap();

/// Settings of nothing: the first frame of a server, whatever comes then.
const NO_SETTINGS: [u8; HEAD_BYTES] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// The frame that tells a client why its connection ends: GOAWAY, `ENHANCE_YOUR_CALM`. Any call may have begun.
const CALM: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 11];

/// Why such a connection ends.
#[derive(Debug, thiserror::Error)]
#[error("too many control frames of HTTP/2")]
struct Flood;

/// Whether a connection has ended for that. HTTP/2 keeps only the words of an error.
pub(super) type IsFlood = Arc<AtomicBool>;

/// A connection whose control frames are counted. Reading fails with [`Flood`] once there were too many.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    from_client: Frames,
    to_client: Frames,
    allowance: Allowance,
    is_flood: IsFlood,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, is_flood: IsFlood) -> Self {
        let allowance = Allowance::new(clock::now());
        let from_client = Frames { skip: PREFACE_BYTES, ..Frames::default() };
        Self { stream, from_client, to_client: Frames::default(), allowance, is_flood }
    }
}

/// Finds the frames in the bytes of one direction.
#[derive(Debug, Default)]
struct Frames {
    /// Bytes before the head of the next frame.
    skip: usize,
    /// What there is of that head.
    head: [u8; HEAD_BYTES],
    filled: usize,
    has_begun: bool,
}

impl Frames {
    /// Whether the next byte begins a frame.
    fn is_between(&self) -> bool {
        self.skip == 0 && self.filled == 0
    }

    /// Takes in more bytes, and tells the type and the flags of each frame that begins there, and its length without
    /// the head.
    fn take_in(&mut self, mut bytes: &[u8], mut found: impl FnMut((u8, u8), usize)) {
        self.has_begun |= !bytes.is_empty();
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let more = (HEAD_BYTES - self.filled).min(bytes.len());
            self.head[self.filled..][..more].copy_from_slice(&bytes[..more]);
            self.filled += more;
            bytes = &bytes[more..];
            if self.filled == HEAD_BYTES {
                let [a, b, c, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                self.filled = 0;
                found((kind, flags), self.skip);
            }
        }
    }
}

/// How many control frames a client may still send.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// Since when it has grown by no time.
    since: Instant,
    /// Bytes of data that it has not grown by yet.
    data: usize,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: CONTROL_FRAMES_MAX, since: now, data: 0 }
    }

    /// Grows by a frame of data.
    fn grow_by_data(&mut self, length: usize) {
        self.data += length;
        let more = self.data / DATA_PER_CONTROL_FRAME;
        self.data %= DATA_PER_CONTROL_FRAME;
        self.grow(u32::try_from(more).expect("a frame is short"));
    }

    /// Grows by the time until `now`.
    fn grow_by_time(&mut self, now: Instant) {
        let missing = CONTROL_FRAMES_MAX.saturating_sub(self.left);
        let grown = now.duration_since(self.since).as_nanos() / PERIOD.as_nanos();
        match u32::try_from(grown) {
            Ok(grown) if grown < missing => {
                self.left += grown;
                self.since += PERIOD * grown;
            }
            _ => {
                self.left += missing;
                self.since = now;
            }
        }
    }

    fn grow(&mut self, more: u32) {
        self.left = (self.left + more).min(CONTROL_FRAMES_SAVED_MAX.max(self.left));
    }

    /// Takes in what a client has sent by `now`.
    fn take_in(&mut self, frames: &mut Frames, bytes: &[u8], now: Instant) -> Result<(), Flood> {
        self.grow_by_time(now);
        let mut is_over = false;
        frames.take_in(bytes, |(kind, flags), length| match kind {
            HEADERS => self.grow(CONTROL_FRAMES_PER_CALL),
            DATA if length >= DATA_FRAME_BYTES_MIN => self.grow_by_data(length),
            DATA if flags & END_STREAM != 0 => {}
            _ => match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => is_over = true,
            },
        });
        if is_over { Err(Flood) } else { Ok(()) }
    }
}

impl<S: AsyncWrite + Unpin> Counted<S> {
    /// Tells the client why its connection ends, if no other frame is half written and the system takes this one now:
    /// a client that floods may read nothing, and is not waited for.
    fn calm(&mut self, cx: &mut Context<'_>) {
        if self.to_client.is_between() {
            let settings = if self.to_client.has_begun { &[][..] } else { &NO_SETTINGS };
            let told = Pin::new(&mut self.stream).poll_write(cx, &[settings, &CALM].concat());
            let flushed = Pin::new(&mut self.stream).poll_flush(cx);
            tracing::debug!(?told, ?flushed, "a flood of control frames");
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = &mut *self;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut own.stream).poll_read(cx, buffer))?;
        let came = &buffer.filled()[before..];
        let taken = own.allowance.take_in(&mut own.from_client, came, clock::now());
        own.is_flood.store(taken.is_err(), Ordering::Relaxed);
        if taken.is_err() {
            own.calm(cx);
        }
        Poll::Ready(taken.map_err(io::Error::other))
    }
}

impl<S> Counted<S> {
    /// The client gets so many bytes of these.
    fn wrote(&mut self, bytes: usize, slices: &[IoSlice<'_>]) {
        let mut left = bytes;
        for slice in slices {
            let own = &slice[..left.min(slice.len())];
            left -= own.len();
            let Self { to_client, allowance, .. } = self;
            to_client.take_in(own, |(kind, _), length| {
                if kind == DATA && length >= DATA_FRAME_BYTES_MIN {
                    allowance.grow(1);
                    allowance.grow_by_data(length);
                }
            });
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.wrote(written, &[IoSlice::new(bytes)]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        self.wrote(written, slices);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, length: u16) -> Vec<u8> {
        let [high, low] = length.to_be_bytes();
        let mut frame = vec![0, high, low, kind, 0, 0, 0, 0, 0];
        frame.resize(HEAD_BYTES + usize::from(length), 0xff);
        frame
    }

    /// Data that end a call.
    fn last(length: u16) -> Vec<u8> {
        let mut frame = frame(DATA, length);
        frame[4] = END_STREAM;
        frame
    }

    /// What has to come before a flood ends, of frames that come one after the other.
    fn pings_after(first: &[Vec<u8>], now: Instant) -> u32 {
        let mut own = Counted::new((), IsFlood::default());
        own.allowance.since = now;
        let mut take_in = |bytes: &[u8]| own.allowance.take_in(&mut own.from_client, bytes, now);
        take_in(&[0; PREFACE_BYTES]).unwrap();
        first.iter().for_each(|frame| take_in(frame).unwrap());
        (0..).find(|_| take_in(&frame(PING, 8)).is_err()).unwrap()
    }

    #[test]
    fn a_client_may_send_control_frames_with_its_calls_and_few_without() {
        let now = clock::now();
        assert_eq!(pings_after(&[], now), CONTROL_FRAMES_MAX);
        let call = [frame(HEADERS, 40), last(5)];
        assert_eq!(pings_after(&call, now), CONTROL_FRAMES_MAX + CONTROL_FRAMES_PER_CALL);
        assert_eq!(pings_after(&vec![frame(HEADERS, 1); 10_000], now), CONTROL_FRAMES_SAVED_MAX);
    }

    #[test]
    fn data_go_with_control_frames_by_their_bytes_and_a_few_bytes_are_one() {
        let now = clock::now();
        for (data, count, more) in [
            (frame(DATA, 512), 20, 10),
            (frame(DATA, 64), 15, 0),
            (last(63), 1_000, 0),
            (last(0), 1_000, 0),
        ] {
            assert_eq!(pings_after(&vec![data; count], now), CONTROL_FRAMES_MAX + more);
        }
        for length in [0, 1, 63] {
            assert_eq!(pings_after(&vec![frame(DATA, length); 150], now), CONTROL_FRAMES_MAX - 150);
        }
    }

    #[test]
    fn it_may_send_more_for_what_it_reads_and_as_time_passes() {
        let mut now = clock::now();
        let mut own = Counted::new((), IsFlood::default());
        let written =
            [frame(HEADERS, 9), frame(DATA, 2_100), frame(DATA, 63), frame(PING, 8)].concat();
        let (one, two) = written.split_at(20);
        // Not all of it is written at once.
        own.wrote(23, &[IoSlice::new(one), IoSlice::new(two)]);
        own.wrote(written.len() - 23, &[IoSlice::new(&written[23..])]);
        // One for the frame, and two for its bytes.
        assert_eq!(own.allowance.left, CONTROL_FRAMES_MAX + 3);
        let mut take_in =
            |bytes: &[u8], now| own.allowance.take_in(&mut own.from_client, bytes, now);
        take_in(&[0; PREFACE_BYTES], now).unwrap();
        for _ in 0..CONTROL_FRAMES_MAX + 3 {
            take_in(&frame(PING, 8), now).unwrap();
        }
        // However seldom it is looked, no time is lost.
        now += PERIOD * 3 / 2;
        take_in(&frame(PING, 8), now).unwrap();
        now += PERIOD / 2;
        take_in(&frame(PING, 8), now).unwrap();
        assert!(take_in(&frame(PING, 8), now).is_err());
        now += Duration::from_secs(3_600);
        let many = frame(PING, 8).repeat(CONTROL_FRAMES_MAX as usize);
        take_in(&many, now).unwrap();
        assert!(take_in(&frame(PING, 8), now).is_err());
    }

    #[tokio::test]
    async fn a_flood_is_told_why_it_ends_after_the_first_settings() {
        let flood = [vec![0; PREFACE_BYTES], frame(PING, 8).repeat(1_000)].concat();
        for (written, before) in [(&[][..], &NO_SETTINGS[..]), (&NO_SETTINGS, &NO_SETTINGS)] {
            let (ours, mut theirs) = tokio::io::duplex(1 << 16);
            theirs.write_all(&flood).await.unwrap();
            let mut own = Counted::new(ours, IsFlood::default());
            own.write_all(written).await.unwrap();
            own.read(&mut vec![0; flood.len()]).await.unwrap_err();
            drop(own);
            let mut told = Vec::new();
            theirs.read_to_end(&mut told).await.unwrap();
            assert_eq!(told, [before, &CALM].concat());
        }
    }

    #[test]
    fn frames_are_found_however_their_bytes_come() {
        let kinds = [(HEADERS, 200), (DATA, 0), (PING, 8), (DATA, 255)];
        let bytes = kinds.map(|(kind, length)| frame(kind, length)).concat();
        for size in [1, 2, 8, 9, 10, 300, 1_000] {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.take_in(piece, |(kind, _), length| {
                    found.push((kind, u16::try_from(length).unwrap()));
                });
            }
            assert_eq!(found, kinds, "in pieces of {size}");
        }
    }
}
