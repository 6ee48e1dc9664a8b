//! Messages on a Unix stream socket, with file descriptors.
//!
//! ```text
//! [ "GPL1" ] [ descriptors: u8 ] [ 0 0 0 ] [ body bytes: u32, little-endian ] [ body ]
//! ```
//!
//! The reader checks lengths before it allocates. It takes ownership of every received descriptor before it
//! looks at it. A descriptor that no frame announced is an error.

mod arrived;
mod error;
mod room;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gridpool_protocol::codec::{self, EncodeError};
use gridpool_protocol::limits::{FRAME_BYTES_MAX, FRAME_FDS_MAX, FRAME_TIMEOUT};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use nix::sys::time::TimeSpec;
use serde::Serialize;

use crate::clock;
use crate::spin::{Ask, SpinWait};
pub use error::FrameError;
pub use room::has_room;

const MAGIC: [u8; 4] = *b"GPL1";
/// Bytes before the body.
pub const HEADER_BYTES: usize = 12;
/// Size of one read. It may bring several small messages.
const READ_BYTES: usize = 32 * 1024;
/// A long frame may enlarge the buffer. The reader frees one larger than this as soon as it is empty.
const KEPT_BYTES_MAX: usize = 2 * READ_BYTES;
/// How long a read sleeps in `recvmsg` before it reads the clock. One constant, so that a wait until another deadline
/// needs no system call to set the socket's timeout.
const SLEEP: Duration = Duration::from_secs(1);
/// The kernel's limit of descriptors in one message (`SCM_MAX_FD`). The reader accepts as many, so that it
/// owns each and can close it.
const MESSAGE_FDS_MAX: usize = 253;
/// Descriptors that may be waiting: those of an unfinished frame, and those of the next.
const WAITING_FDS_MAX: usize = 2 * FRAME_FDS_MAX;

/// One message and its descriptors.
#[derive(Debug)]
pub struct Frame {
    /// The encoded message.
    pub body: Vec<u8>,
    /// Descriptors, at most [`FRAME_FDS_MAX`].
    pub fds: Vec<OwnedFd>,
}

impl Frame {
    fn copied(body: &[u8], fds: Vec<OwnedFd>) -> Self {
        Self { body: body.to_vec(), fds }
    }
}

/// The frame of a message that goes with so many descriptors.
///
/// # Errors
/// [`EncodeError`] if the message cannot be encoded.
///
/// # Panics
/// As for [`append`].
pub fn of(message: &impl Serialize, fds: usize) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::new();
    append(message, fds, &mut bytes).map(|()| bytes)
}

/// Appends the frame of a message that goes with so many descriptors.
///
/// # Errors
/// [`EncodeError`] if the message cannot be encoded. `bytes` is then as it was.
///
/// # Panics
/// If there are more descriptors than a frame may have.
pub fn append(
    message: &impl Serialize,
    fds: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = bytes.len();
    bytes.extend(header(0, fds));
    match codec::append(message, bytes) {
        Ok(length) => {
            bytes[start..][..HEADER_BYTES].copy_from_slice(&header(length, fds));
            Ok(())
        }
        Err(error) => {
            bytes.truncate(start);
            Err(error)
        }
    }
}

/// A frame with any bytes in it.
///
/// # Panics
/// If there are more bytes than a frame may have.
#[must_use]
pub fn pack(body: &[u8], fds: usize) -> Vec<u8> {
    let mut bytes = header(body.len(), fds).to_vec();
    bytes.extend(body);
    bytes
}

fn header(length: usize, fds: usize) -> [u8; HEADER_BYTES] {
    assert!(length <= FRAME_BYTES_MAX && fds <= FRAME_FDS_MAX, "a frame over its limits");
    let fds = u8::try_from(fds).expect("FRAME_FDS_MAX fits a byte");
    let length = u32::try_from(length).expect("FRAME_BYTES_MAX fits u32");
    let ([m0, m1, m2, m3], [l0, l1, l2, l3]) = (MAGIC, length.to_le_bytes());
    [m0, m1, m2, m3, fds, 0, 0, 0, l0, l1, l2, l3]
}

/// Sends as many bytes as the socket takes without blocking, perhaps 0. Descriptors go with the first byte.
///
/// # Errors
/// The system's, for instance that the peer is gone.
pub fn send_some(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send(socket, bytes, fds, MsgFlags::MSG_DONTWAIT)
}

/// Sends a whole packed frame. Blocks while the socket is full.
///
/// # Errors
/// The system's, for instance that the peer is gone.
pub fn send_all(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        let fds = if sent == 0 { fds } else { &[] };
        match send(socket, &bytes[sent..], fds, MsgFlags::empty())? {
            // The socket's write timeout has passed.
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
    /// Reused. `filled` is the range with bytes that were read.
    buffer: Vec<u8>,
    filled: Range<usize>,
    fds: VecDeque<OwnedFd>,
    /// Buffer for control messages. If `None`, the kernel drops all descriptors.
    control: Option<Vec<u8>>,
    wait: SpinWait,
    sleeps_in_poll: bool,
    /// The socket's read timeout, as far as this reader has set it.
    timeout: Option<Duration>,
}

impl FrameReader {
    /// A reader that accepts no descriptors. If a peer sends one, the kernel drops it and the connection ends.
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            buffer: Vec::new(),
            filled: 0..0,
            fds: VecDeque::new(),
            control: None,
            wait: SpinWait::new(Duration::ZERO),
            sleeps_in_poll: false,
            timeout: None,
        }
    }

    /// A reader that accepts up to [`FRAME_FDS_MAX`] descriptors with each frame.
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

    /// Whether the peer has closed the connection or is gone, even if bytes wait to be read.
    ///
    /// # Errors
    /// The system's.
    pub fn is_hung_up(&self) -> io::Result<bool> {
        self.hangs_up_within(Duration::ZERO)
    }

    /// The same, waiting for that; a signal may end the wait.
    ///
    /// # Errors
    /// The system's.
    pub fn hangs_up_within(&self, wait: Duration) -> io::Result<bool> {
        let mut sockets = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        match ppoll(&mut sockets, Some(TimeSpec::from_duration(wait)), None) {
            Ok(ended) => Ok(ended > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sets how long a read may poll before it sleeps, perhaps beyond its timeout: see [`crate::spin`]. The
    /// default is not to poll.
    pub fn set_spin(&mut self, spin: Duration) {
        self.wait.set_limit(spin);
    }

    /// Has reads sleep in `poll`. The kernel wakes a sleeping `recvmsg` also whenever the peer has read what was sent
    /// on this socket, so use this where other threads send much. Otherwise it costs a system call a frame.
    pub fn sleep_in_poll(&mut self) {
        self.sleeps_in_poll = true;
    }

    /// Reads the next frame; `None` if none begins within `timeout`. Without a timeout it waits forever. The
    /// rest of a frame must arrive within [`FRAME_TIMEOUT`].
    ///
    /// # Errors
    /// [`FrameError`]; the connection is then of no further use.
    pub fn read(&mut self, timeout: Option<Duration>) -> Result<Option<Frame>, FrameError> {
        self.read_with(timeout, Frame::copied)
    }

    /// As [`FrameReader::read`], but hands the body to `with` where it lies.
    ///
    /// # Errors
    /// As for [`FrameReader::read`].
    pub fn read_with<T>(
        &mut self,
        timeout: Option<Duration>,
        with: impl FnOnce(&[u8], Vec<OwnedFd>) -> T,
    ) -> Result<Option<T>, FrameError> {
        if self.await_frame(timeout)? { self.take_frame_with(with) } else { Ok(None) }
    }

    /// Reads until the buffer has a whole frame; `false` if none begins within `timeout`.
    fn await_frame(&mut self, timeout: Option<Duration>) -> Result<bool, FrameError> {
        let first = timeout.map(|timeout| clock::now() + timeout);
        let mut finish: Option<Instant> = None;
        loop {
            if self.next_frame()?.is_some() {
                return Ok(true);
            }
            let begun = !self.filled.is_empty();
            if begun && finish.is_none() {
                finish = Some(clock::now() + FRAME_TIMEOUT);
            }
            match self.receive_until(if begun { finish } else { first })? {
                None if begun => return Err(FrameError::Stalled),
                None => return Ok(false),
                Some(0) if begun => return Err(FrameError::Truncated),
                Some(0) => return Err(FrameError::Closed),
                Some(_) => {}
            }
        }
    }

    /// Takes a whole frame that was read together with an earlier one, if there is one.
    ///
    /// # Errors
    /// As for [`FrameReader::read`].
    pub fn take_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        self.take_frame_with(Frame::copied)
    }

    /// As [`FrameReader::take_frame`], but hands the body to `with` where it lies.
    ///
    /// # Errors
    /// As for [`FrameReader::read`].
    pub fn take_frame_with<T>(
        &mut self,
        with: impl FnOnce(&[u8], Vec<OwnedFd>) -> T,
    ) -> Result<Option<T>, FrameError> {
        let Some((body, want)) = self.next_frame()? else { return Ok(None) };
        self.filled.start = body.end;
        let fds = self.fds.drain(..want).collect();
        Ok(Some(with(&self.buffer[body], fds)))
    }

    /// Where the body of the next frame lies, and its descriptors' number, once it is whole.
    fn next_frame(&self) -> Result<Option<(Range<usize>, usize)>, FrameError> {
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
        if rest.len() < bytes {
            return Ok(None);
        }
        if self.fds.len() < want {
            return Err(FrameError::Descriptors { got: self.fds.len(), want });
        }
        let start = self.filled.start + HEADER_BYTES;
        Ok(Some((start..start + bytes, want)))
    }

    /// Reads once into the buffer; `Some(0)` at the end of the stream, `None` if nothing arrives by
    /// `deadline`.
    fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Option<usize>, FrameError> {
        self.make_room();
        let mut wait = self.wait;
        let received = wait.receive(|ask| match ask {
            Ask::Now => self.receive(MsgFlags::MSG_DONTWAIT),
            Ask::Sleeping => self.sleep_until(deadline),
        });
        self.wait = wait;
        received
    }

    /// Reads once, and sleeps until `deadline` if needed.
    fn sleep_until(&mut self, deadline: Option<Instant>) -> Result<Option<usize>, FrameError> {
        loop {
            let left = deadline.map(clock::until);
            let received = if self.sleeps_in_poll || left.is_some_and(|left| left < SLEEP) {
                self.poll(left)?;
                self.receive(MsgFlags::MSG_DONTWAIT)?
            } else {
                self.set_timeout(left.map(|_| SLEEP))?;
                self.receive(MsgFlags::empty())?
            };
            match received {
                None if left.is_none_or(|left| !left.is_zero()) => {}
                received => return Ok(received),
            }
        }
    }

    /// Sleeps until there is something to read, at most for `left`.
    fn poll(&self, left: Option<Duration>) -> Result<(), FrameError> {
        let mut sockets = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut sockets, left.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sets how long `recvmsg` sleeps; `None` is forever.
    fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), FrameError> {
        if timeout != self.timeout {
            self.socket.set_read_timeout(timeout).map_err(FrameError::Io)?;
            self.timeout = timeout;
        }
        Ok(())
    }

    /// Makes room in the buffer for one more read.
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

    /// Appends one read to the buffer; `None` if nothing has arrived within the socket's timeout, or at once.
    fn receive(&mut self, wait: MsgFlags) -> Result<Option<usize>, FrameError> {
        let flags = wait | MsgFlags::MSG_CMSG_CLOEXEC;
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

    /// The number of descriptors that one frame may carry.
    fn fds_allowed(&self) -> usize {
        if self.control.is_some() { FRAME_FDS_MAX } else { 0 }
    }
}

/// Takes ownership of a descriptor that `recvmsg` has just installed.
fn own(fd: RawFd) -> OwnedFd {
    #[expect(unsafe_code, reason = "SCM_RIGHTS hands over descriptors as plain numbers")]
    // SAFETY: the kernel has just installed it for this call alone; it has no other owner.
    unsafe {
        OwnedFd::from_raw_fd(fd)
    }
}
