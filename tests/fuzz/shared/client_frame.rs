//! The frame reader, against a model that reads the same bytes from a slice: the same bodies, the same
//! end, and every descriptor closed.

use std::io::{PipeReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use gridpool_ipc::frame::{self, FrameError, FrameReader, HEADER_BYTES};
use gridpool_protocol::codec;
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::limits::{FRAME_BYTES_MAX, FRAME_FDS_MAX, PROTOCOL_VERSION};
use gridpool_protocol::message::{ClientMessage, SharedArena};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Streams that are right, and some that are not.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let packed = |bytes: Vec<u8>, fds| frame::pack(&bytes, fds);
    let hello = ClientMessage::Hello { version: PROTOCOL_VERSION };
    let hello = packed(codec::encode(&hello).expect("a seed fits a frame"), 0);
    let arena = SharedArena { arena: ArenaId(1), bytes: 4096 };
    let arena = packed(codec::encode(&arena).expect("a seed fits a frame"), 1);
    vec![
        [&[0][..], &hello].concat(),
        [&[0x31][..], &hello, &hello, &hello].concat(),
        [&[0b0000_0011][..], &arena, &hello].concat(),
        [&[0b0101_1001][..], &arena].concat(),
        [&[1][..], &hello[..7]].concat(),
        b"\x01GPL1\0\0\0\0\xff\xff\xff\x7f".to_vec(),
    ]
}

/// More than this need not lie in a socket at once.
const STREAM_BYTES_MAX: usize = 64 * 1024;

/// How a stream of frames ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Closed,
    Descriptors,
    Magic,
    TooLong,
    Truncated,
}

/// The first byte says whether descriptors are taken, how many are sent, and with which write; the
/// others are the stream.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&how, stream)) = bytes.split_first() else { return };
    let stream = &stream[..stream.len().min(STREAM_BYTES_MAX)];
    let takes = how & 1 == 1;
    let sent = [0, 1, 2, 3, 200][usize::from(how >> 1 & 7) % 5];
    let second = usize::from(how >> 4);
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let (pipe, copied) = std::io::pipe().expect("a pipe");
    write(&ours, stream, second, sent, copied.as_fd());
    ours.shutdown(Shutdown::Write).expect("it is open");
    drop(copied);

    let mut reader =
        if takes { FrameReader::with_descriptors(theirs) } else { FrameReader::new(theirs) };
    let mut bodies = Vec::new();
    let end = loop {
        match reader.read(None) {
            Ok(Some(frame)) => {
                assert!(frame.fds.len() <= FRAME_FDS_MAX, "{} descriptors", frame.fds.len());
                bodies.push(frame.body);
            }
            Ok(None) => unreachable!("it waits for ever"),
            Err(error) => break end(&error),
        }
    };
    drop(reader);
    // Descriptors that were sent unread go with their socket.
    drop(ours);
    none_stays_open(pipe);
    if sent == 0 || stream.is_empty() {
        assert_eq!((bodies, end), model(stream, usize::from(takes)));
    }
}

/// Checks that every copy of a pipe's writing end is closed.
pub(super) fn none_stays_open(mut pipe: PipeReader) {
    // Without this, a copy that stays open would be waited for, and not reported.
    fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("it is a pipe");
    assert!(matches!(pipe.read(&mut [0]), Ok(0)), "a descriptor stays open");
}

/// Two writes: the first `at` bytes, then the rest with the descriptors.
fn write(socket: &UnixStream, stream: &[u8], at: usize, count: usize, fd: BorrowedFd<'_>) {
    let (first, rest) = stream.split_at(at.min(stream.len()));
    (&*socket).write_all(first).expect("there is room");
    let fds = vec![fd; count];
    frame::send_all(socket, rest, &fds).expect("there is room");
}

fn end(error: &FrameError) -> End {
    match error {
        FrameError::Closed => End::Closed,
        FrameError::Descriptors { .. } => End::Descriptors,
        FrameError::Magic(_) => End::Magic,
        FrameError::TooLong { .. } => End::TooLong,
        FrameError::Truncated => End::Truncated,
        FrameError::Io(_) | FrameError::Stalled => unreachable!("{error:?}"),
    }
}

/// What a stream without descriptors is to a reader that takes so many with a frame.
fn model(mut stream: &[u8], allowed: usize) -> (Vec<Vec<u8>>, End) {
    let mut bodies = Vec::new();
    loop {
        if stream.is_empty() {
            return (bodies, End::Closed);
        }
        let Some((header, rest)) = stream.split_at_checked(HEADER_BYTES) else {
            return (bodies, End::Truncated);
        };
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if &header[..4] != b"GPL1" {
            return (bodies, End::Magic);
        }
        if length > FRAME_BYTES_MAX {
            return (bodies, End::TooLong);
        }
        let announced = usize::from(header[4]);
        if announced > allowed {
            return (bodies, End::Descriptors);
        }
        let Some((body, rest)) = rest.split_at_checked(length) else {
            return (bodies, End::Truncated);
        };
        // None was sent: the frame is whole and lacks what it announces.
        if announced > 0 {
            return (bodies, End::Descriptors);
        }
        bodies.push(body.to_vec());
        stream = rest;
    }
}
