//! Bytes that are not messages: they end their connection with a sentence, and nothing else.

use std::net::Shutdown;

use gridpool_ipc::frame;
use gridpool_protocol::codec;
use gridpool_protocol::limits::{FRAME_BYTES_MAX, PROTOCOL_VERSION};
use gridpool_protocol::message::{ClientMessage, ServerMessage};
use gridpool_tests::oracle::samples::SplitMix64;

use crate::jobs::{answer, serves, small_job, submit};
use crate::pool::warm;
use crate::raw::{Raw, dev_null, times};

fn hello(version: u32) -> Vec<u8> {
    codec::encode(&ClientMessage::Hello { version }).expect("it fits a frame")
}

fn header(magic: &[u8; 4], descriptors: u8, length: u32) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend([descriptors, 0, 0, 0]);
    bytes.extend(length.to_le_bytes());
    bytes
}

/// Bytes that end a connection at any time, and words of its error.
fn hostile() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let mut rng = SplitMix64::new(9);
    let too_long = u32::try_from(FRAME_BYTES_MAX).expect("it fits") + 1;
    let mut trailing = hello(PROTOCOL_VERSION);
    trailing.push(0);
    vec![
        (
            "noise",
            (0..5_000).map(|_| rng.number().to_le_bytes()[0] | 0x80).collect(),
            "not a gridpool frame: it starts with",
        ),
        ("HTTP", b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "not a gridpool frame"),
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00".to_vec(),
            "not a gridpool frame",
        ),
        ("another magic", header(b"GPL2", 0, 4), "not a gridpool frame"),
        ("4 GiB", header(b"GPL1", 0, u32::MAX), "a frame of 4294967295 bytes; at most 262144"),
        ("one byte too long", header(b"GPL1", 0, too_long), "a frame of 262145 bytes"),
        ("a descriptor announced", header(b"GPL1", 1, 0), "a frame with 1 descriptors where 0"),
        ("no body", frame::pack(&[], 0), "malformed message"),
        ("a body of noise", frame::pack(&[0xff; 999], 0), "malformed message"),
        ("a byte too many", frame::pack(&trailing, 0), "1 bytes after the end of the message"),
    ]
}

#[test]
fn bytes_that_are_not_messages_end_their_connection_with_a_sentence() {
    let (pool, before) = warm();
    for (name, bytes, words) in hostile() {
        for mut raw in [Raw::connect(&pool.socket()), Raw::greeted(&pool.socket())] {
            raw.send(&bytes);
            let sentence = raw.hear_closing();
            assert!(sentence.contains(words), "{name}: {sentence}");
        }
    }
    pool.is_unharmed(before);
}

#[test]
fn a_first_message_other_than_a_hello_of_this_version_ends_the_connection() {
    let (pool, before) = warm();
    let status =
        codec::encode(&ClientMessage::Status { request: 1, token: None }).expect("it fits a frame");
    let versions = |client: u32| {
        format!("the client speaks protocol {client}, this supervisor {PROTOCOL_VERSION}")
    };
    let cases = [
        (hello(PROTOCOL_VERSION + 1), versions(PROTOCOL_VERSION + 1)),
        (hello(0), versions(0)),
        (hello(u32::MAX), "use a client and a supervisor of one version".to_owned()),
        (status, "the first message must be a hello".to_owned()),
    ];
    for (body, words) in cases {
        let mut raw = Raw::connect(&pool.socket());
        raw.send(&frame::pack(&body, 0));
        let sentence = raw.hear_closing();
        assert!(sentence.contains(&words), "{sentence}");
    }
    pool.is_unharmed(before);
}

#[test]
fn an_incomplete_frame_ends_the_connection() {
    let (pool, before) = warm();
    let whole = frame::pack(&hello(PROTOCOL_VERSION), 0);
    for length in 1..whole.len() {
        for mut raw in [Raw::connect(&pool.socket()), Raw::greeted(&pool.socket())] {
            raw.send(&whole[..length]);
            raw.socket().shutdown(Shutdown::Write).expect("it is open");
            let sentence = raw.hear_closing();
            assert!(sentence.contains("closed inside a frame"), "{length} bytes: {sentence}");
        }
    }
    // Again with a client that has closed its end.
    for length in 0..whole.len() {
        Raw::connect(&pool.socket()).send(&whole[..length]);
        Raw::greeted(&pool.socket()).send(&whole[..length]);
    }
    pool.is_unharmed(before);
}

#[test]
fn unexpected_descriptors_are_closed_and_end_the_connection() {
    let (pool, before) = warm();
    let file = dev_null();
    let frame = frame::pack(&hello(PROTOCOL_VERSION), 0);
    let announced = {
        let mut bytes = frame.clone();
        bytes[4] = 1;
        bytes
    };
    for bytes in [frame, announced] {
        for count in [1, 2, 200] {
            for mut raw in [Raw::connect(&pool.socket()), Raw::greeted(&pool.socket())] {
                raw.send_with(&bytes, &times(&file, count));
                let sentence = raw.hear_closing();
                assert!(sentence.contains("descriptors where 0 were announced"), "{sentence}");
            }
        }
    }
    pool.is_unharmed(before);
}

#[test]
fn silence_ends_the_connection_after_its_timeout() {
    let (pool, before) = warm();
    let mut silent = Raw::connect(&pool.socket());
    let mut halves = [Raw::connect(&pool.socket()), Raw::greeted(&pool.socket())];
    for half in &halves {
        half.send(b"GPL1\0");
    }
    serves(&pool.client());
    let sentence = silent.hear_closing();
    assert!(sentence.contains("no hello within 5s"), "{sentence}");
    for half in &mut halves {
        let sentence = half.hear_closing();
        assert!(sentence.contains("not completed within 5s"), "{sentence}");
    }
    drop((silent, halves));
    pool.is_unharmed(before);
}

#[test]
fn bytes_may_come_one_by_one_and_messages_together() {
    let (pool, before) = warm();
    let mut raw = Raw::connect(&pool.socket());
    for byte in frame::pack(&hello(PROTOCOL_VERSION), 0) {
        raw.send(&[byte]);
    }
    assert_eq!(raw.hear(), ServerMessage::Welcome { version: PROTOCOL_VERSION });
    let status = |request| {
        let message = ClientMessage::Status { request, token: None };
        frame::pack(&codec::encode(&message).expect("it fits a frame"), 0)
    };
    raw.send(&(0..50).flat_map(status).collect::<Vec<_>>());
    for want in 0..50 {
        match raw.hear() {
            ServerMessage::Reply { request, .. } => assert_eq!(request, want),
            other => panic!("expected a status, got {other:?}"),
        }
    }
    raw.say(&ClientMessage::Hello { version: PROTOCOL_VERSION });
    assert_eq!(raw.hear_closing(), "a second hello");
    drop(raw);
    pool.is_unharmed(before);
}

#[test]
fn a_job_is_not_disturbed_by_hostile_neighbours() {
    let (pool, _) = warm();
    pool.stop("cpu0");
    let client = pool.client();
    let running = submit(&client, small_job(1));
    pool.until_busy("cpu0");
    for (_, bytes, _) in hostile() {
        let mut raw = Raw::greeted(&pool.socket());
        raw.send(&bytes);
        raw.hear_closing();
    }
    pool.go_on("cpu0");
    assert!(answer(running).outputs().is_some());
}
