//! HTTP/2 by hand, so that no library hides what a client may send.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use gridpool_inference::SERVICE;

use crate::wait::TIMEOUT;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
pub(super) const PROTOCOL_ERROR: u8 = 1;
pub(super) const ENHANCE_YOUR_CALM: u8 = 11;
pub(super) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_HEADER_BYTES: usize = 127;

/// A connection.
#[derive(Debug)]
pub(super) struct Http2(TcpStream);

/// A frame of the gateway.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) bytes: Vec<u8>,
}

impl Http2 {
    /// Connects. The gateway may send so many bytes on each call.
    pub(super) fn open(address: &str, window: u32) -> Self {
        let stream = TcpStream::connect(address).expect("the gateway listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        let mut own = Self(stream);
        own.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it takes it");
        own.takes(window);
        own
    }

    /// From now on the gateway may send so many bytes on each call.
    pub(super) fn takes(&mut self, window: u32) {
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
        self.frame((SETTINGS, 0, 0), &setting);
    }

    /// The gateway may send so many bytes more on all calls together.
    pub(super) fn takes_in_all(&mut self, more: u32) {
        self.frame((WINDOW_UPDATE, 0, 0), &more.to_be_bytes());
    }

    /// Sends a frame of a type with flags on a call.
    pub(super) fn frame(&mut self, (kind, flags, call): (u8, u8, u32), bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("it is short").to_be_bytes();
        let head = [&length[1..], &[kind, flags], &call.to_be_bytes()].concat();
        self.0.write_all(&[&head, bytes].concat()).expect("it takes it");
    }

    /// Sends a frame again and again, until the gateway has closed the connection, or so often. Whether it has.
    pub(super) fn floods(
        &mut self,
        (kind, flags, call): (u8, u8, u32),
        bytes: &[u8],
        most: u32,
    ) -> bool {
        self.0.set_write_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        let length = u32::try_from(bytes.len()).expect("it is short").to_be_bytes();
        let head = [&length[1..], &[kind, flags], &call.to_be_bytes()].concat();
        let frame = [&head, bytes].concat();
        (0..most).any(|_| match self.0.write_all(&frame).map_err(|error| error.kind()) {
            Ok(()) => false,
            Err(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => true,
            Err(kind) => panic!("the gateway does not read: {kind}"),
        })
    }

    /// Begins a call.
    pub(super) fn call(&mut self, call: u32, method: &str, more: &[(&str, &str)]) {
        let path = format!("/{SERVICE}/{method}");
        let headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", &*path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let mut bytes = Vec::new();
        for (name, value) in headers.iter().chain(more) {
            // Literal, and not for the table.
            bytes.push(0);
            for text in [name, value] {
                assert!(text.len() < MAX_HEADER_BYTES);
                bytes.push(u8::try_from(text.len()).expect("it is short"));
                bytes.extend(text.as_bytes());
            }
        }
        self.frame((HEADERS, END_HEADERS, call), &bytes);
    }

    /// Sends a whole message on a call.
    pub(super) fn message(&mut self, call: u32, message: &[u8]) {
        self.flagged(call, 0, message);
    }

    /// The same with a flag before it: whether it is compressed.
    pub(super) fn flagged(&mut self, call: u32, flag: u8, message: &[u8]) {
        let length = u32::try_from(message.len()).expect("it is short").to_be_bytes();
        let whole = [&[flag][..], &length, message].concat();
        let mut pieces = whole.chunks(16 << 10).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_STREAM } else { 0 };
            self.frame((DATA, flags, call), piece);
        }
    }

    /// The type and the bytes of the last frame that came before the connection ended. Answers none.
    pub(super) fn last(&mut self) -> Option<(u8, Vec<u8>)> {
        let (mut all, mut piece) = (Vec::new(), [0; 4_096]);
        while let Ok(count @ 1..) = self.0.read(&mut piece) {
            all.extend_from_slice(&piece[..count]);
        }
        let (mut left, mut last) = (&all[..], None);
        while let Some((&[a, b, c, kind, ..], after)) = left.split_first_chunk::<9>() {
            let (bytes, rest) = after.split_at_checked(u32::from_be_bytes([0, a, b, c]) as usize)?;
            last = Some((kind, bytes.to_vec()));
            left = rest;
        }
        last
    }

    /// The next frame, but for settings and pings, which are answered, and room; `None` when the connection is closed.
    pub(super) fn hear(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).ok()?;
            let [a, b, c, kind, flags, ..] = head;
            let mut bytes = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.0.read_exact(&mut bytes).ok()?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.frame((SETTINGS, ACK, 0), &[]),
                PING if flags & ACK == 0 => self.frame((PING, ACK, 0), &bytes),
                SETTINGS | PING | WINDOW_UPDATE => {}
                _ => return Some(Frame { kind, flags, bytes }),
            }
        }
    }
}
