//! Models with a batching delay.

use std::time::Duration;

use gridpool_infer::{ModelOptions, Request};
use gridpool_ipc::clock;
use gridpool_protocol::limits::MODEL_QUEUE_DELAY_US_MAX;

use crate::harness::{Waiter, engine, load, submit, submit_with};
use crate::tensors::{Full, fp32, irregular, model};

/// Longer than everything that a test waits for.
const DELAY: Duration = Duration::from_micros(MODEL_QUEUE_DELAY_US_MAX);

fn delayed() -> ModelOptions {
    ModelOptions { max_queue_delay_us: MODEL_QUEUE_DELAY_US_MAX, ..ModelOptions::default() }
}

fn row() -> [Full; 1] {
    [fp32("x", &[1, 16], &irregular(1, 16))]
}

fn joined(waiter: Waiter) -> u32 {
    waiter.wait().expect("the run succeeds").report.joined_rows
}

#[test]
fn a_free_context_waits_until_a_preferred_number_of_rows_is_there() {
    let Some(engine) = engine() else { return };
    let options = ModelOptions { contexts: 2.into(), preferred_batch: [3].into(), ..delayed() };
    load(&engine, "mlp", &options);
    let began = clock::now();
    for _ in 0..5 {
        let asked = [0, 1, 2].map(|_| submit(&engine, "mlp", &row()).unwrap());
        assert_eq!(asked.map(joined), [3; 3]);
    }
    assert!(began.elapsed() < DELAY, "none of them waited for its time to pass");
}

#[test]
fn a_lone_request_runs_when_the_delay_has_passed() {
    let Some(engine) = engine() else { return };
    let delay = Duration::from_millis(50);
    let options = ModelOptions { max_queue_delay_us: 50_000, ..ModelOptions::default() };
    load(&engine, "mlp", &options);
    let began = clock::now();
    assert_eq!(joined(submit(&engine, "mlp", &row()).unwrap()), 1);
    assert!(began.elapsed() >= delay);
}

#[test]
fn a_request_with_a_near_deadline_is_not_late_because_of_the_delay() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &delayed());
    let deadline = clock::now() + DELAY / 2;
    let by = |request| Request { deadline: Some(deadline), ..request };
    let waits = submit(&engine, "mlp", &row()).unwrap();
    assert_eq!(
        joined(submit_with(&engine, "mlp", &row(), by).unwrap()),
        2,
        "and takes others along"
    );
    assert_eq!(joined(waits), 2);
    assert!(clock::now() < deadline);
}

#[test]
fn a_cancel_or_an_unload_ends_the_wait() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &delayed());
    let began = clock::now();
    let gone = submit(&engine, "mlp", &row()).unwrap();
    let stays = submit(&engine, "mlp", &row()).unwrap();
    assert!(gone.ticket.cancel());
    assert!(gone.wait().is_err());
    assert!(engine.unload("mlp"));
    assert_eq!(joined(stays), 1);
    assert!(began.elapsed() < DELAY);
}

#[test]
fn a_delay_for_requests_that_cannot_share_runs_is_refused() {
    let Some(engine) = engine() else { return };
    let preferred = ModelOptions { preferred_batch: [4].into(), ..ModelOptions::default() };
    for options in [delayed(), preferred] {
        let error = engine.load("steps", &model("not_rows"), &options).unwrap_err().to_string();
        assert!(error.starts_with("leave max_queue_delay_us and preferred_batch out"), "{error}");
        assert!(error.contains("row 1 of `y` changes if two rows share a run"), "{error}");
        let alone = ModelOptions { max_batch: Some(1), ..options };
        let error = engine.load("mlp", &model("mlp"), &alone).unwrap_err().to_string();
        assert!(error.contains("with a max_batch of 1: its requests are never joined"), "{error}");
    }
}
