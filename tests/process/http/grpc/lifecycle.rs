//! gRPC while gateways and supervisors end and others take their place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use tonic::Code;

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
                    is_turned(&grpc.ask("ModelInfer", one()).expect("no call fails"));
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
