//! Clients that ask for too many connections or messages, or too much memory.

use std::io::Write;
use std::net::Shutdown;

use gridpool_ipc::frame;
use gridpool_protocol::codec;
use gridpool_protocol::message::{ClientMessage, Limit, Refusal, ServerMessage};
use gridpool_tests::oracle::samples::random_grids;

use crate::jobs::serves;
use crate::pool::{cpu, warm};
use crate::raw::{Raw, inline};
use crate::wait::eventually;

/// As many connections as may submit.
const CONNECTIONS: usize = 256;
/// Those beside them that may ask.
const KEPT: usize = 16;

#[test]
fn connections_over_the_limit_may_ask_and_order_and_not_submit() {
    let (pool, before) = warm();
    let served = pool.client();
    // Silent connections count too; two connections exist already.
    let mut open: Vec<Raw> = Vec::new();
    for number in 2..CONNECTIONS {
        let raw = match number % 2 {
            0 => Raw::greeted(&pool.socket()),
            _ => Raw::connect(&pool.socket()),
        };
        open.push(raw);
    }
    // Nor do silent ones on the seats that are kept for operators keep any out.
    let mut kept: Vec<_> = (0..2 * KEPT).map(|_| Raw::greeted(&pool.socket())).collect();
    let mut raw = kept.pop().expect("there are some");
    raw.say(&ClientMessage::Submit(Box::new(inline(1, &random_grids(1, 3)))));
    assert_eq!(raw.hear_refused(), Refusal::Busy(Limit::Connections));
    let silent = &mut kept[0];
    let sentence = silent.hear_closing();
    assert_eq!(sentence, format!("BUSY: the pool has {CONNECTIONS} connections already"));
    for _ in 0..2 * KEPT {
        assert_eq!(pool.cli(&["status"]).run().code, Some(0));
    }
    let killed = pool.cli(&["kill", "cpu0", "--signal", "CONT"]).run();
    assert_eq!(killed.code, Some(0), "{}", killed.stderr);
    serves(&served);
    // As soon as a seat is free, a connection may take it.
    let late = pool.client();
    open.truncate(CONNECTIONS / 2);
    serves(&late);
    drop((open, kept, raw, late, served));
    pool.is_unharmed(before);
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    let (pool, before) = warm();
    for _ in 0..100 {
        drop(Raw::connect(&pool.socket()));
        drop(Raw::greeted(&pool.socket()));
        drop(pool.client());
    }
    pool.is_unharmed(before);
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    const WRITTEN_MAX: usize = 4 << 20;
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let question = |request| {
        let message = ClientMessage::Status { request, token: None };
        frame::pack(&codec::encode(&message).expect("it fits a frame"), 0)
    };
    let questions: Vec<u8> = (0..200_000).flat_map(question).collect();
    let other = pool.client();
    raw.socket().set_nonblocking(true).expect("a mode can be set");
    let (mut written, mut quiet) = (0, 0);
    eventually("the pool to stop reading", || {
        let before = written;
        while let Ok(bytes) = (&mut raw.socket()).write(&questions[written..]) {
            written += bytes;
            assert!(written < WRITTEN_MAX, "the pool holds the answers to {written} bytes");
        }
        // Meanwhile the pool answers a client that reads.
        serves(&other);
        // The pool may still answer the messages that it has read.
        quiet = if written == before { quiet + 1 } else { 0 };
        if quiet == 100 { Ok(()) } else { Err(format!("{written} bytes are written")) }
    });
    raw.socket().set_nonblocking(false).expect("a mode can be set");
    // Once it reads, it gets every answer, in order; the last question is incomplete.
    raw.socket().shutdown(Shutdown::Write).expect("it is open");
    let mut answers = 0;
    while let Ok(ServerMessage::Reply { request, .. }) = raw.try_hear() {
        assert_eq!(request, answers);
        answers += 1;
    }
    let asked = (0..200_000).scan(0, |end, request| {
        *end += question(request).len();
        Some(*end)
    });
    assert_eq!(usize::try_from(answers), Ok(asked.take_while(|&end| end <= written).count()));
    drop((raw, other));
    pool.is_unharmed(before);
}

#[test]
fn a_client_that_leaves_without_reading_leaves_nothing() {
    let (pool, before) = warm();
    for _ in 0..20 {
        let raw = Raw::greeted(&pool.socket());
        let message = ClientMessage::Status { request: 0, token: None };
        let question = frame::pack(&codec::encode(&message).expect("it fits a frame"), 0);
        raw.socket().set_nonblocking(true).expect("a mode can be set");
        // The bytes that do not fit do not matter.
        drop((&mut raw.socket()).write(&question.repeat(5_000)));
    }
    pool.is_unharmed(before);
}

#[test]
fn submissions_over_the_limit_are_refused_as_busy_one_by_one() {
    let pool = cpu(1).limits("client_jobs_max = 64").start();
    serves(&pool.client());
    let before = pool.settled();
    pool.stop("cpu0");
    let mut raw = Raw::greeted(&pool.socket());
    let grids = random_grids(1, 2);
    let messages: Vec<u8> = (0..1_000_u128)
        .flat_map(|key| {
            let message = ClientMessage::Submit(Box::new(inline(key, &grids)));
            frame::pack(&codec::encode(&message).expect("it fits a frame"), 0)
        })
        .collect();
    let socket = raw.socket().try_clone().expect("a socket can be cloned");
    let writer = std::thread::spawn(move || (&mut &socket).write_all(&messages));
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..1_000 {
        match raw.hear() {
            ServerMessage::Accepted { .. } => accepted += 1,
            ServerMessage::Refused { refusal: Refusal::Busy(Limit::ClientJobs), .. } => {
                refused += 1
            }
            other => panic!("expected an answer to a submission, got {other:?}"),
        }
    }
    writer.join().expect("no panic").expect("the pool reads on");
    assert_eq!((accepted, refused), (64, 936));
    assert_eq!(pool.status().counters.refused_busy, 936);
    pool.go_on("cpu0");
    for _ in 0..64 {
        raw.hear_done();
    }
    drop(raw);
    pool.is_unharmed(before);
}

#[test]
fn arenas_that_come_and_go_leave_nothing() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    for _ in 0..200 {
        let memory = raw.arena(1 << 20);
        raw.say(&ClientMessage::DropArena { arena: memory.id });
    }
    let high = pool.status().supervisor.arena_bytes_high;
    // The thread that gives memory back may be at one of them.
    assert!(high <= 4 << 20, "{high} bytes at a time");
    // An arena whose descriptor the client never reads.
    let unread = Raw::greeted(&pool.socket());
    unread.say(&ClientMessage::CreateArena { request: 0, bytes: 1 });
    drop((raw, unread));
    pool.until_status("no arena to be left", |status| status.supervisor.arena_bytes == 0);
    pool.is_unharmed(before);
}
