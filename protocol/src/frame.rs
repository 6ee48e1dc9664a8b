//! Messages on a Unix stream socket, with descriptors beside them.
//!
//! ```text
//! [ "GPL1" ] [ descriptors: u8 ] [ 0 0 0 ] [ body bytes: u32, little-endian ] [ body ]
//! ```
//!
//! Lengths are bounded before anything is allocated. Every received descriptor is owned before it is
//! looked at, and one that no frame asked for is an error.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};

use crate::clock;
use crate::limits::{FRAME_BYTES_MAX, FRAME_FDS_MAX, FRAME_TIMEOUT};

const MAGIC: [u8; 4] = *b"GPL1";
/// Bytes before the body.
pub const HEADER_BYTES: usize = 12;
/// Room for one read; small messages arrive several at a time.
const READ_BYTES: usize = 32 * 1024;
/// Most descriptors that the kernel lets one message carry (`SCM_MAX_FD`). There is room for all of
/// them, so that each is owned, and closed, before anything is judged.
const MESSAGE_FDS_MAX: usize = 253;
/// Descriptors that may wait: those of an unfinished frame, whose first part brought them, and of
/// the one behind it.
const WAITING_FDS_MAX: usize = 2 * FRAME_FDS_MAX;

/// Why a socket gives no further frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer closed it between two frames.
    #[error("the connection was closed")]
    Closed,
    /// The peer closed it inside a frame.
    #[error("the connection was closed inside a frame")]
    Truncated,
    /// The bytes are not of this protocol.
    #[error("not a gridpool frame: it starts with {0:02x?}")]
    Magic([u8; 4]),
    /// The frame announces more than a frame may hold.
    #[error("a frame of {bytes} bytes; at most {FRAME_BYTES_MAX} are allowed")]
    TooLong {
        /// Announced.
        bytes: usize,
    },
    /// The descriptors are not those announced.
    #[error("a frame with {got} descriptors where {want} were announced or allowed")]
    Descriptors {
        /// Received.
        got: usize,
        /// Announced, or the most allowed.
        want: usize,
    },
    /// The rest of a frame did not come.
    #[error("a frame was begun and not finished within {FRAME_TIMEOUT:?}")]
    Stalled,
    /// The system says no.
    #[error("socket")]
    Io(#[source] io::Error),
}

impl From<Errno> for FrameError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// One message and the descriptors beside it.
#[derive(Debug)]
pub struct Frame {
    /// The encoded message.
    pub body: Vec<u8>,
    /// Descriptors, at most [`FRAME_FDS_MAX`].
    pub fds: Vec<OwnedFd>,
}

/// The header and body of a frame as one run of bytes.
///
/// # Panics
/// If the body is longer than a frame may be: [`crate::codec::encode`] bounds it.
#[must_use]
pub fn pack(body: &[u8], fds: usize) -> Vec<u8> {
    assert!(body.len() <= FRAME_BYTES_MAX && fds <= FRAME_FDS_MAX, "a frame over its limits");
    let fds = u8::try_from(fds).expect("FRAME_FDS_MAX fits a byte");
    let length = u32::try_from(body.len()).expect("FRAME_BYTES_MAX fits u32");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend([fds, 0, 0, 0]);
    bytes.extend(length.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Sends what the socket takes at once: `Ok(0)` if it takes nothing now. Descriptors go with the
/// first byte.
///
/// # Errors
/// The system's, for instance that the peer is gone.
pub fn send_some(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send(socket, bytes, fds, MsgFlags::MSG_DONTWAIT)
}

/// Sends all of a packed frame, waiting for room.
///
/// # Errors
/// The system's, for instance that the peer is gone.
pub fn send_all(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        let fds = if sent == 0 { fds } else { &[] };
        match send(socket, &bytes[sent..], fds, MsgFlags::empty())? {
            // Only a socket with a time limit for writing says so.
            0 => return Err(io::ErrorKind::TimedOut.into()),
            more => sent += more,
        }
    }
    Ok(())
}

fn send(
    socket: &UnixStream,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: MsgFlags,
) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    loop {
        let part = [IoSlice::new(bytes)];
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        match sendmsg::<UnixAddr>(socket.as_raw_fd(), &part, control, flags, None) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(0),
            other => return other.map_err(Into::into),
        }
    }
}

/// Reads frames from one socket.
#[derive(Debug)]
pub struct FrameReader {
    socket: UnixStream,
    buffer: Vec<u8>,
    fds: VecDeque<OwnedFd>,
    /// Room for control messages; `None` if no descriptor is taken, and the kernel drops them all.
    control: Option<Vec<u8>>,
}

impl FrameReader {
    /// A reader that takes no descriptors: any that a peer sends end the connection, and were never
    /// ours.
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        Self { socket, buffer: Vec::new(), fds: VecDeque::new(), control: None }
    }

    /// A reader that takes up to [`FRAME_FDS_MAX`] descriptors with each frame.
    #[must_use]
    pub fn with_descriptors(socket: UnixStream) -> Self {
        let control = nix::cmsg_space!([RawFd; MESSAGE_FDS_MAX]);
        Self { control: Some(control), ..Self::new(socket) }
    }

    /// The socket, for the writing side.
    #[must_use]
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The next frame; `None` if none has begun within `patience`. Without patience it waits for
    /// ever. A frame that has begun must be finished within [`FRAME_TIMEOUT`].
    ///
    /// # Errors
    /// [`FrameError`]; the connection is then of no further use.
    pub fn read(&mut self, patience: Option<Duration>) -> Result<Option<Frame>, FrameError> {
        let first = patience.map(|patience| clock::now() + patience);
        let mut finish: Option<Instant> = None;
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(Some(frame));
            }
            let begun = !self.buffer.is_empty();
            if begun && finish.is_none() {
                finish = Some(clock::now() + FRAME_TIMEOUT);
            }
            if !self.wait(if begun { finish } else { first })? {
                return if begun { Err(FrameError::Stalled) } else { Ok(None) };
            }
            if self.receive()? == 0 {
                let truncated = !self.buffer.is_empty();
                return Err(if truncated { FrameError::Truncated } else { FrameError::Closed });
            }
        }
    }

    /// A whole frame from the buffer, if there is one.
    fn take_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((header, _)) = self.buffer.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [m0, m1, m2, m3, want, _, _, _, l0, l1, l2, l3] = *header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(FrameError::Magic([m0, m1, m2, m3]));
        }
        let bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { bytes });
        }
        let want = usize::from(want);
        if want > self.fds_allowed() {
            return Err(FrameError::Descriptors { got: want, want: self.fds_allowed() });
        }
        let end = HEADER_BYTES + bytes;
        if self.buffer.len() < end {
            return Ok(None);
        }
        if self.fds.len() < want {
            return Err(FrameError::Descriptors { got: self.fds.len(), want });
        }
        let body = self.buffer[HEADER_BYTES..end].to_vec();
        self.buffer.drain(..end);
        Ok(Some(Frame { body, fds: self.fds.drain(..want).collect() }))
    }

    /// Waits for bytes; `false` if `deadline` passed first.
    fn wait(&self, deadline: Option<Instant>) -> Result<bool, FrameError> {
        let Some(deadline) = deadline else { return Ok(true) };
        loop {
            let left = clock::until(deadline);
            // Rounded up, so that the last millisecond is slept and not spun.
            let left = left.as_nanos().div_ceil(1_000_000);
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) if clock::until(deadline).is_zero() => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// One read into the buffer; 0 at the end of the stream.
    fn receive(&mut self) -> Result<usize, FrameError> {
        let old = self.buffer.len();
        self.buffer.resize(old + READ_BYTES, 0);
        let received = self.receive_into(old);
        self.buffer.truncate(old + *received.as_ref().unwrap_or(&0));
        received
    }

    fn receive_into(&mut self, start: usize) -> Result<usize, FrameError> {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let (bytes, truncated) = loop {
            let mut parts = [IoSliceMut::new(&mut self.buffer[start..])];
            let fd = self.socket.as_raw_fd();
            match recvmsg::<UnixAddr>(fd, &mut parts, self.control.as_deref_mut(), flags) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(message) => {
                    let truncated = message.flags.contains(MsgFlags::MSG_CTRUNC);
                    if !truncated {
                        for control in message.cmsgs()? {
                            if let ControlMessageOwned::ScmRights(fds) = control {
                                self.fds.extend(fds.into_iter().map(own));
                            }
                        }
                    }
                    break (message.bytes, truncated);
                }
            }
        };
        if truncated || self.fds.len() > WAITING_FDS_MAX {
            let got = self.fds.len().max(1);
            self.fds.clear();
            return Err(FrameError::Descriptors { got, want: self.fds_allowed() });
        }
        Ok(bytes)
    }

    /// Descriptors that one frame may carry here.
    fn fds_allowed(&self) -> usize {
        if self.control.is_some() { FRAME_FDS_MAX } else { 0 }
    }
}

/// Takes over a descriptor that `recvmsg` has just installed.
fn own(fd: RawFd) -> OwnedFd {
    #[expect(unsafe_code, reason = "SCM_RIGHTS hands over descriptors as plain numbers")]
    // SAFETY: the kernel has just installed it for this call alone; nobody else owns it.
    unsafe {
        OwnedFd::from_raw_fd(fd)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn pair() -> (UnixStream, FrameReader) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, FrameReader::new(theirs))
    }

    #[test]
    fn frames_arrive_whole_whatever_the_pieces() {
        let (mut peer, mut reader) = pair();
        let mut bytes = pack(b"first", 0);
        bytes.extend(pack(&[7; 70_000], 0));
        let feeder = std::thread::spawn(move || {
            for piece in bytes.chunks(4_999) {
                peer.write_all(piece).unwrap();
            }
        });
        assert_eq!(reader.read(None).unwrap().unwrap().body, b"first");
        assert_eq!(reader.read(None).unwrap().unwrap().body, [7; 70_000]);
        assert!(matches!(reader.read(None), Err(FrameError::Closed)));
        feeder.join().unwrap();
    }

    #[test]
    fn descriptors_arrive_with_their_frame_and_only_where_they_are_allowed() {
        let (peer, reader) = pair();
        let mut reader = FrameReader::with_descriptors(reader.socket);
        let passed = std::fs::File::open("/dev/null").unwrap();
        send_all(&peer, &pack(b"x", 1), &[passed.as_fd()]).unwrap();
        assert_eq!(reader.read(None).unwrap().unwrap().fds.len(), 1);
        send_all(&peer, &pack(b"x", 1), &[]).unwrap();
        assert!(matches!(reader.read(None), Err(FrameError::Descriptors { got: 0, want: 1 })));

        let (peer, mut strict) = pair();
        send_all(&peer, &pack(b"x", 0), &[passed.as_fd(), passed.as_fd()]).unwrap();
        assert!(matches!(strict.read(None), Err(FrameError::Descriptors { .. })));
    }

    #[test]
    fn descriptors_that_nobody_asked_for_are_not_kept() {
        // A pipe's reading end sees the end of the stream once every writing end is closed.
        for with_descriptors in [false, true] {
            let (peer, reader) = pair();
            let mut reader = match with_descriptors {
                true => FrameReader::with_descriptors(reader.socket),
                false => reader,
            };
            let (mut reading, writing) = io::pipe().unwrap();
            send_all(&peer, &pack(b"x", 0), &[writing.as_fd(); 50]).unwrap();
            assert!(matches!(reader.read(None), Err(FrameError::Descriptors { .. })));
            drop(writing);
            assert_eq!(reading.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
    }

    #[test]
    fn two_descriptors_whose_frames_straddle_a_read_both_arrive() {
        let (peer, reader) = pair();
        let mut reader = FrameReader::with_descriptors(reader.socket);
        let passed = std::fs::File::open("/dev/null").unwrap();
        let filler = vec![0; READ_BYTES - HEADER_BYTES - 6];
        send_all(&peer, &pack(&filler, 0), &[]).unwrap();
        send_all(&peer, &pack(b"one", 1), &[passed.as_fd()]).unwrap();
        send_all(&peer, &pack(b"two", 1), &[passed.as_fd()]).unwrap();
        reader.read(None).unwrap();
        for want in [b"one", b"two"] {
            let frame = reader.read(None).unwrap().unwrap();
            assert_eq!((frame.body.as_slice(), frame.fds.len()), (want.as_slice(), 1));
        }
    }

    #[test]
    fn hostile_headers_and_half_frames_are_errors() {
        let cases: [(&[u8], &str); 4] = [
            (b"GET / HTTP/1.1\r\n", "not a gridpool frame"),
            (b"GPL1\0\0\0\0\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
            (b"GPL1\xff\0\0\0\0\0\0\0", "a frame with 255 descriptors"),
            (b"GPL1\0\0\0\0\x05\0\0\0ab", "closed inside a frame"),
        ];
        for (bytes, message) in cases {
            let (mut peer, mut reader) = pair();
            peer.write_all(bytes).unwrap();
            drop(peer);
            let error = reader.read(None).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn silence_before_a_frame_is_no_error() {
        let (_peer, mut reader) = pair();
        assert!(reader.read(Some(Duration::from_millis(1))).unwrap().is_none());
    }
}
