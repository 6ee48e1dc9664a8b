//! Requests that are withdrawn and models that change: what the engine frees, and when.

use std::sync::Arc;
use std::thread;

use gridpool_infer::{
    ArenaPart, Destination, InferError, ModelOptions, Request, RequestError, Source,
};
use gridpool_ipc::arena::Arena;
use gridpool_protocol::ids::DeviceKind;

use crate::harness::{BlockedContext, contexts, engine, load, submit, submit_with};
use crate::onnx::{Folder, turns};
use crate::row_turns::row_turns;
use crate::tensors::{Full, device, fp32, int64, irregular, model, pack};

fn row() -> [Full; 1] {
    [fp32("x", &[1, 16], &irregular(1, 16))]
}

#[test]
fn a_request_that_was_withdrawn_holds_its_arena_no_longer() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &contexts(1));
    let map = Arc::new(Arena::create(1 << 16).unwrap().map().unwrap());
    let packed = pack(&row());
    map.all().write(0, &packed);
    let part = |offset, bytes| ArenaPart::new(Arc::clone(&map), offset, bytes).unwrap();
    let held = BlockedContext::one(&engine, "mlp", &row());
    let waits = submit_with(&engine, "mlp", &[], |request| Request {
        inputs: Source::Arena(part(0, packed.len() as u64)),
        outputs: Destination::Arena(part(4_096, 4_096)),
        ..request
    });
    let waits = waits.unwrap();
    assert_eq!(Arc::strong_count(&map), 3, "its inputs and its outputs");
    assert!(waits.ticket.cancel());
    assert_eq!(Arc::strong_count(&map), 1, "while the only context is busy");
    assert_eq!(waits.wait().unwrap_err(), InferError::Cancelled);
    held.let_go();
}

#[test]
fn a_run_whose_requests_nobody_wants_is_stopped() {
    const ENDLESS: i64 = 1 << 50;
    let Some(engine) = engine() else { return };
    if device() == DeviceKind::Gpu {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("turns.onnx", &turns());
    engine.load("turns", &path, &ModelOptions::default()).expect("it loads");
    let runs = submit(&engine, "turns", &[int64("n", &[], &[ENDLESS])]).unwrap();
    while engine.waiting("turns") > 0 {
        thread::yield_now();
    }
    assert!(runs.ticket.cancel());
    assert_eq!(runs.wait().unwrap_err(), InferError::Cancelled);
    let next = submit(&engine, "turns", &[int64("n", &[], &[3])]).unwrap();
    assert!(next.wait().is_ok(), "only that run was stopped");
}

#[test]
fn a_run_goes_on_while_one_of_its_requests_is_wanted() {
    const ENDLESS: i64 = 1 << 50;
    let Some(engine) = engine() else { return };
    if device() == DeviceKind::Gpu {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("row_turns.onnx", &row_turns());
    engine.load("turns", &path, &ModelOptions::default()).expect("it loads");
    let ask = |n: i64| submit(&engine, "turns", &[int64("n", &[1, 1], &[n])]).unwrap();
    let first = ask(ENDLESS);
    while engine.waiting("turns") > 0 {
        thread::yield_now();
    }
    // These three share the next run: the longest decides how long it is.
    let shared = [3, ENDLESS, 5].map(ask);
    assert!(first.ticket.cancel());
    assert_eq!(first.wait().unwrap_err(), InferError::Cancelled);
    while engine.waiting("turns") > 0 {
        thread::yield_now();
    }
    let [one, longest, last] = shared;
    assert!(one.ticket.cancel() && longest.ticket.cancel());
    // They are answered while the run goes on for the last.
    for gone in [one, longest] {
        assert_eq!(gone.wait().unwrap_err(), InferError::Cancelled);
    }
    let (ticket, other) = (last.ticket.clone(), ask(2));
    assert_eq!(engine.waiting("turns"), 1, "the context is busy");
    assert!(ticket.cancel());
    assert_eq!(last.wait().unwrap_err(), InferError::Cancelled);
    assert!(other.wait().is_ok() && !ticket.cancel());
}

#[test]
fn a_hundred_requests_that_wait_for_a_model_are_run_before_it_is_unloaded() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &contexts(1));
    let held = BlockedContext::one(&engine, "mlp", &row());
    let ask = || submit(&engine, "mlp", &row());
    let waiting: Vec<_> = (0..100).map(|_| ask().expect("it waits")).collect();
    let unloading = engine.begin_unload("mlp").expect("it is there");
    let refused = ask().err().expect("it takes no more");
    assert!(matches!(refused, RequestError::Unknown { .. }), "{refused}");
    assert!(engine.list().is_empty(), "while it is unloaded");
    assert!(engine.set_contexts("mlp", 2).is_err() && engine.begin_unload("mlp").is_err());
    let withdrawn = waiting[50].ticket.clone();
    assert!(withdrawn.cancel(), "it waits as before");
    // The name is free while the old model still runs.
    load(&engine, "mlp", &contexts(2));
    held.let_go();
    unloading.finish();
    for (at, waiter) in waiting.into_iter().enumerate() {
        let answer = waiter.wait();
        assert_eq!(answer.is_ok(), at != 50, "{at}: {answer:?}");
    }
    drop(ask().expect("the new one serves").outputs());
}

#[test]
fn a_model_that_cannot_be_loaded_is_listed_by_load_and_not_by_try_load() {
    let Some(engine) = engine() else { return };
    let failed = engine.try_load("four_bits", &model("four_bits"), &contexts(1)).unwrap_err();
    assert_eq!(failed.sha256.len(), 64);
    assert!(failed.reason().ends_with(&format!("(sha256 {})", failed.sha256)), "{failed:?}");
    assert!(engine.list().is_empty());
    engine.load("four_bits", &model("four_bits"), &contexts(1)).expect_err("4 bits");
    assert_eq!(engine.list()[0].reason, failed.reason());
    let gone = engine.try_load("four_bits", model("four_bits").parent().unwrap(), &contexts(1));
    assert_eq!(gone.unwrap_err().sha256, "", "a folder has none");
    assert_eq!(engine.list()[0].reason, failed.reason(), "as before");
}
