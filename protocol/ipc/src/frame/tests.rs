//! Frames from a socket, for good and hostile input.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use super::*;
use crate::spin;

fn pair() -> (UnixStream, FrameReader) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (ours, FrameReader::new(theirs))
}

#[test]
fn frames_arrive_whole_in_any_fragments() {
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
fn descriptors_that_no_frame_announced_are_closed() {
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
fn silence_before_a_frame_is_not_an_error() {
    let (_peer, mut reader) = pair();
    assert!(reader.read(Some(Duration::from_millis(1))).unwrap().is_none());
}

#[test]
fn a_long_wait_sleeps_in_the_read_itself_and_ends_in_time() {
    let (peer, mut reader) = pair();
    send_all(&peer, &pack(b"here", 0), &[]).unwrap();
    assert!(reader.read(Some(Duration::from_secs(3_600))).unwrap().is_some());
    assert_eq!(reader.socket().read_timeout().unwrap(), Some(SLEEP));
    let span = SLEEP + Duration::from_millis(20);
    let began = clock::now();
    assert!(reader.read(Some(span)).unwrap().is_none());
    assert!(clock::now() - began >= span);
    send_all(&peer, &pack(b"forever", 0), &[]).unwrap();
    assert_eq!(reader.read(None).unwrap().unwrap().body, b"forever");
    assert_eq!(reader.socket().read_timeout().unwrap(), None);
}

/// How often this thread has slept.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_reader_that_sleeps_in_poll_is_not_woken_when_the_peer_reads_what_was_sent_to_it() {
    const SENT: u64 = 200;
    let (mut peer, mut reader) = pair();
    reader.sleep_in_poll();
    let writer = reader.socket().try_clone().unwrap();
    let (sleeping, asleep) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        sleeping.send(nix::unistd::gettid()).unwrap();
        let before = sleeps();
        reader.read(None).unwrap().unwrap();
        sleeps() - before
    });
    let stat = format!("/proc/self/task/{}/stat", asleep.recv().unwrap());
    let is_asleep = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
    for _ in 0..SENT {
        while !is_asleep() {
            std::thread::yield_now();
        }
        send_all(&writer, b"x", &[]).unwrap();
        peer.read_exact(&mut [0]).unwrap();
    }
    send_all(&peer, &pack(b"frame", 0), &[]).unwrap();
    let slept = waiter.join().unwrap();
    assert!(slept < SENT / 4, "it slept {slept} times for one frame");
}

#[test]
fn a_reader_that_polls_before_it_sleeps_reads_the_same() {
    let (peer, mut reader) = pair();
    reader.wait = spin::tests::eager();
    assert!(reader.read(Some(Duration::ZERO)).unwrap().is_none());
    assert!(reader.read(Some(Duration::from_millis(1))).unwrap().is_none());
    reader.wait = spin::tests::eager();
    send_all(&peer, &pack(b"here", 0), &[]).unwrap();
    assert_eq!(reader.read(Some(Duration::ZERO)).unwrap().unwrap().body, b"here");
    let feeder = std::thread::spawn(move || send_all(&peer, &pack(&[7; 100_000], 0), &[]).unwrap());
    assert_eq!(reader.read(None).unwrap().unwrap().body, [7; 100_000]);
    feeder.join().unwrap();
    assert!(matches!(reader.read(None), Err(FrameError::Closed)));
}

#[test]
fn a_long_frame_does_not_keep_its_memory() {
    let (peer, mut reader) = pair();
    let feeder = std::thread::spawn(move || {
        send_all(&peer, &pack(&[7; FRAME_BYTES_MAX], 0), &[]).unwrap();
        send_all(&peer, &pack(b"short", 0), &[]).unwrap();
    });
    assert_eq!(reader.read(None).unwrap().unwrap().body.len(), FRAME_BYTES_MAX);
    assert_eq!(reader.read(None).unwrap().unwrap().body, b"short");
    assert!(matches!(reader.read(None), Err(FrameError::Closed)));
    assert!(reader.buffer.len() <= KEPT_BYTES_MAX, "{} bytes", reader.buffer.len());
    feeder.join().unwrap();
}

#[test]
fn a_peer_that_is_gone_is_seen_before_what_it_has_sent_is_read() {
    let (peer, mut reader) = pair();
    send_all(&peer, &pack(b"last", 0), &[]).unwrap();
    assert!(!reader.is_hung_up().unwrap());
    drop(peer);
    assert!(reader.is_hung_up().unwrap());
    assert_eq!(reader.read(None).unwrap().unwrap().body, b"last");
}
