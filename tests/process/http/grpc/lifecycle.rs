//! gRPC while gateways and supervisors end and others take their place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use prost::Message;
use tonic::Code;

use super::frames::{DATA, END_STREAM, HEADERS, Http2};
use super::*;
use crate::http::gateway_pid;
use crate::pool::cpu;
use crate::processes::{all_gone, signal};
use crate::wait::eventually;

#[test]
fn a_gateway_that_dies_is_replaced_at_the_same_address() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    is_turned(&grpc.ask("ModelInfer", one()).unwrap());
    let (old, at) = (gateway_pid(&pool), address(&pool));
    signal(old, Signal::SIGKILL);
    all_gone(&[old]);
    let answer = eventually("an answer", || grpc.ask::<ModelInferResponse>("ModelInfer", one()));
    is_turned(&answer);
    assert_eq!(address(&pool), at);
}

#[test]
fn a_busy_stream_is_told_of_an_upgrade_too() {
    let pool = served(cpu(1));
    let old = gateway_pid(&pool);
    let mut stream = Grpc::open(&address(&pool)).stream();
    let nothing = || ModelInferRequest { model_name: "nope".to_owned(), ..Default::default() };
    // More than are in progress at a time, so another is always there.
    (0..200).for_each(|_| stream.send(nothing()));
    let busy = thread::spawn(move || {
        loop {
            match stream.next() {
                Ok(answer) => assert!(answer.is_some(), "the stream ends well"),
                Err(status) => break status,
            }
            stream.offer(nothing());
        }
    });
    pool.cli(&["upgrade"]).run().output();
    let status = busy.join().expect("it ends with a status");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("open another stream"), "{status:?}");
    all_gone(&[old]);
}

#[test]
fn an_answer_that_is_read_late_is_whole_after_an_upgrade() {
    let pool = served(cpu(1));
    let mut slow = Http2::open(&address(&pool), 1 << 24);
    slow.takes_in_all(1 << 24);
    // Once it is answered, both sides know how much the other takes.
    slow.call(1, "ServerLive", &[]);
    slow.message(1, &[]);
    while slow.hear().is_some_and(|frame| frame.flags & END_STREAM == 0) {}
    slow.call(3, "ModelInfer", &[]);
    // What a client may send before the gateway reads, and more than the kernel takes of an answer that is not read.
    slow.message(3, &request(&vec![small(); 280]).encode_to_vec());
    assert_eq!(slow.hear().map(|frame| frame.kind), Some(HEADERS));
    // It connects later, so it is closed later.
    let mut idle = Http2::open(&address(&pool), 1 << 16);
    pool.cli(&["upgrade"]).run().output();
    while idle.hear().is_some() {}
    // If the socket were closed by now, this would make the kernel drop what it has not sent.
    slow.takes_in_all(1);
    let (mut bytes, mut is_whole) = (0, false);
    while let Some(frame) = slow.hear() {
        bytes += if frame.kind == DATA { frame.bytes.len() } else { 0 };
        is_whole |= frame.kind == HEADERS && frame.flags & END_STREAM > 0;
    }
    assert!(is_whole && bytes > 280 * 900, "{bytes} bytes");
}

/// Whether the connection's end says that it has not taken up this call (RFC 9113, 6.8), or the call was not sent at
/// all, because the connection had ended when its turn came.
fn crosses_farewell(status: &tonic::Status) -> bool {
    let has = |what: &str| format!("{status:?}").contains(what);
    match status.code() {
        Code::Unknown => has("GoAway(b\"\", NO_ERROR, Remote)"),
        Code::Cancelled => has("Error(Canceled, \"connection closed\")"),
        _ => false,
    }
}

#[test]
fn no_call_fails_over_an_upgrade_and_a_stream_is_told_to_open_another() {
    let pool = served(cpu(2));
    let (old, at) = (gateway_pid(&pool), address(&pool));
    let mut stream = Grpc::open(&at).stream();
    stream.send(one());
    is_turned(&stream.next().unwrap().expect("an answer").infer_response.unwrap());
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let (at, is_over) = (at.clone(), Arc::clone(&is_over));
            thread::spawn(move || {
                let grpc = Grpc::open(&at);
                let mut calls = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let ask = || grpc.ask("ModelInfer", one());
                    // What crosses the gateway's farewell is not taken up. Most clients ask again then, tonic does not.
                    let again = |status: tonic::Status| match crosses_farewell(&status) {
                        true => ask(),
                        false => Err(status),
                    };
                    is_turned(&ask().or_else(again).expect("no call fails"));
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    pool.cli(&["upgrade"]).run().output();
    all_gone(&[old]);
    let status = stream.next().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("open another stream"), "{status:?}");
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        let calls: u32 = caller.join().expect("no call fails");
        assert!(calls > 0);
    }
    assert_eq!(address(&pool), at);
    is_turned(&ask(&pool, one()).unwrap());
}
