//! The supervisor's own memory, full and in a flood, as the kernel reports it.

use std::io::Write;

use gridpool_ipc::frame;
use gridpool_protocol::codec;
use gridpool_protocol::limits::JOIN_MAX;
use gridpool_protocol::message::{ClientMessage, ServerMessage};
use gridpool_tests::oracle::samples::random_grids;

use crate::jobs::serves;
use crate::pool::{Pool, cpu};
use crate::processes;
use crate::raw::{Raw, inline};

/// Most that a supervisor may take with 1,024 jobs waiting.
const FULL_BYTES_MAX: u64 = 12 << 20;
/// Most that a flood of eight clients may add.
const FLOOD_BYTES_MAX: u64 = 8 << 20;
const CLIENTS: u128 = 16;
const JOBS_EACH: u128 = 64;
const FLOODERS: u128 = 8;
/// What each of those writes at a time, without reading a single answer.
const FLOOD_MESSAGES: usize = 2_000;

fn most_held(pool: &Pool) -> u64 {
    processes::most_held(pool.status().supervisor.pid)
}

fn submission(key: u128) -> Vec<u8> {
    let message = ClientMessage::Submit(Box::new(inline(key, &random_grids(1, 4))));
    frame::pack(&codec::encode(&message).expect("it fits a frame"), 0)
}

#[test]
fn a_supervisor_takes_little_with_a_thousand_jobs_waiting_and_hardly_more_in_a_flood() {
    let pool = cpu(1).limits("queue_jobs_max = 1024").start();
    serves(&pool.client());
    pool.stop("cpu0");
    let mut clients: Vec<Raw> = Vec::new();
    for client in 0..CLIENTS {
        let mut raw = Raw::greeted(&pool.socket());
        let messages = (0..JOBS_EACH).flat_map(|job| submission(client * JOBS_EACH + job));
        let messages: Vec<u8> = messages.collect();
        (&mut raw.socket()).write_all(&messages).expect("the pool reads");
        for _ in 0..JOBS_EACH {
            assert!(matches!(raw.hear(), ServerMessage::Accepted { .. }));
        }
        clients.push(raw);
    }
    // The stopped worker has two dispatches of what came together.
    let queue = pool.status().queue;
    let sent = 2 * JOIN_MAX as u64;
    assert!(u128::from(queue.jobs + sent) >= CLIENTS * JOBS_EACH, "{queue:?}");
    let full = most_held(&pool);
    assert!(full < FULL_BYTES_MAX, "{full} bytes");

    let flooders: Vec<Raw> = (0..FLOODERS).map(|_| Raw::greeted(&pool.socket())).collect();
    for (number, raw) in (1_u128..).zip(&flooders) {
        raw.socket().set_nonblocking(true).expect("a mode can be set");
        let messages = submission(number << 64).repeat(FLOOD_MESSAGES);
        let mut written = 0;
        while let Ok(bytes) = (&mut raw.socket()).write(&messages[written..]) {
            written += bytes;
        }
    }
    // This request is answered after all of those.
    pool.status();
    let flooded = most_held(&pool);
    assert!(flooded < full + FLOOD_BYTES_MAX, "{} bytes more than {full}", flooded - full);
    drop(flooders);

    pool.go_on("cpu0");
    for raw in &mut clients {
        (0..JOBS_EACH).for_each(|_| drop(raw.hear_done()));
    }
}
