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
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};

use crate::clock;
use crate::limits::{FRAME_BYTES_MAX, FRAME_FDS_MAX, FRAME_TIMEOUT};
use crate::spin::{Ask, Vigil};

const MAGIC: [u8; 4] = *b"GPL1";
/// Bytes before the body.
pub const HEADER_BYTES: usize = 12;
/// Room for one read; small messages arrive several at a time.
const READ_BYTES: usize = 32 * 1024;
/// A buffer that a long frame has made larger than this is given up once it is empty.
const KEPT_BYTES_MAX: usize = 2 * READ_BYTES;
/// Longest that one read sleeps before it looks at the clock. All longer waits are the same to the
/// socket, which then need not be told of each.
const SLEEP_MAX: Duration = Duration::from_secs(1);
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
    /// Zeroed once and used again; what has been read lies in `filled`.
    buffer: Vec<u8>,
    filled: Range<usize>,
    fds: VecDeque<OwnedFd>,
    /// Room for control messages; `None` if no descriptor is taken, and the kernel drops them all.
    control: Option<Vec<u8>>,
    /// What the socket was last told of how long a read may sleep.
    sleep: Option<Duration>,
    vigil: Vigil,
}

impl FrameReader {
    /// A reader that takes no descriptors: any that a peer sends end the connection, and were never
    /// ours.
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            buffer: Vec::new(),
            filled: 0..0,
            fds: VecDeque::new(),
            control: None,
            sleep: None,
            vigil: Vigil::new(Duration::ZERO),
        }
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

    /// How long a read may look for bytes before it sleeps, beyond its patience too: see [`crate::spin`].
    /// Without this it sleeps at once.
    pub fn set_spin(&mut self, spin: Duration) {
        self.vigil.set_limit(spin);
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
            let begun = !self.filled.is_empty();
            if begun && finish.is_none() {
                finish = Some(clock::now() + FRAME_TIMEOUT);
            }
            match self.receive_until(if begun { finish } else { first })? {
                None if begun => return Err(FrameError::Stalled),
                None => return Ok(None),
                Some(0) if begun => return Err(FrameError::Truncated),
                Some(0) => return Err(FrameError::Closed),
                Some(_) => {}
            }
        }
    }

    /// A whole frame from the buffer, if there is one.
    fn take_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let bytes = &self.buffer[self.filled.clone()];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
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
        let Some(body) = rest.get(..bytes) else { return Ok(None) };
        if self.fds.len() < want {
            return Err(FrameError::Descriptors { got: self.fds.len(), want });
        }
        let body = body.to_vec();
        self.filled.start += HEADER_BYTES + bytes;
        Ok(Some(Frame { body, fds: self.fds.drain(..want).collect() }))
    }

    /// One read into the buffer; `Some(0)` at the end of the stream, `None` if nothing has come by
    /// `deadline`. A read that sleeps costs one system call, not a poll besides.
    fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Option<usize>, FrameError> {
        self.make_room();
        let mut vigil = self.vigil;
        let received = vigil.wait(|ask| match ask {
            Ask::Now => self.receive(MsgFlags::MSG_DONTWAIT),
            Ask::Sleeping => self.sleep_until(deadline),
        });
        self.vigil = vigil;
        received
    }

    /// One read that sleeps until `deadline`, and may wake up before it to look at the clock.
    fn sleep_until(&mut self, deadline: Option<Instant>) -> Result<Option<usize>, FrameError> {
        loop {
            let left = deadline.map(clock::until);
            let flags = if left == Some(Duration::ZERO) {
                MsgFlags::MSG_DONTWAIT
            } else {
                self.set_sleep(left.map(|left| left.min(SLEEP_MAX)))?;
                MsgFlags::empty()
            };
            let received = self.receive(flags)?;
            match left {
                Some(left) if received.is_none() && !left.is_zero() => {}
                // Only a socket that never sleeps says so, and none of ours is one.
                None if received.is_none() => {
                    return Err(FrameError::Io(io::ErrorKind::WouldBlock.into()));
                }
                Some(_) | None => return Ok(received),
            }
        }
    }

    /// Tells the socket how long a read may sleep; `None` is for ever.
    fn set_sleep(&mut self, sleep: Option<Duration>) -> Result<(), FrameError> {
        if sleep != self.sleep {
            self.socket.set_read_timeout(sleep).map_err(FrameError::Io)?;
            self.sleep = sleep;
        }
        Ok(())
    }

    /// Room for one read behind what has been read.
    fn make_room(&mut self) {
        if self.filled.is_empty() {
            self.filled = 0..0;
            if self.buffer.len() > KEPT_BYTES_MAX {
                self.buffer = Vec::new();
            }
        } else if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        if self.buffer.len() < self.filled.end + READ_BYTES {
            self.buffer.resize(self.filled.end + READ_BYTES, 0);
        }
    }

    /// One read behind what has been read; `None` if nothing has come.
    fn receive(&mut self, flags: MsgFlags) -> Result<Option<usize>, FrameError> {
        let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
        let (bytes, truncated) = loop {
            let mut parts = [IoSliceMut::new(&mut self.buffer[self.filled.end..])];
            let fd = self.socket.as_raw_fd();
            match recvmsg::<UnixAddr>(fd, &mut parts, self.control.as_deref_mut(), flags) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
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
        self.filled.end += bytes;
        Ok(Some(bytes))
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
mod tests;
