//! The policy's effects on a CUDA code: whether the worker stays, and whether the job has another attempt.

use gridpool_protocol::receipt::AttemptOutcome::{
    DeviceError, Ok as Answered, Refused, WorkerDied,
};
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};
use gridpool_protocol::status::WorkerState;

use super::{gpus, make};
use crate::jobs::{answer, serves, small_job, submit};

/// One job that meets "out of memory" under these rules: its verdict, what came of its attempts, and
/// the process that serves afterwards.
fn out_of_memory(rules: &str) -> (Verdict, Vec<AttemptOutcome>, u32) {
    let rule = "call=cuLaunchKernel once-file=DIR/once while-file=DIR/go nth=1 code=2";
    let pool = gpus(1, rule).limits(&format!("[policy]\n{rules}\n")).start();
    make(pool.folder(), "go");
    let answer = answer(submit(&pool.client(), small_job(71)));
    serves(&pool.client());
    let slot = pool.until("gpu0", "ready", |slot| slot.state == WorkerState::Ready);
    let outcomes = answer.receipt.attempts.iter().map(|attempt| attempt.outcome);
    (answer.verdict(), outcomes.collect(), slot.generation)
}

#[test]
fn a_policy_decides_whether_a_worker_survives_a_code_and_its_job_gets_another_attempt() {
    assert_eq!(out_of_memory(""), (Verdict::Ok, vec![DeviceError, Answered], 1));
    assert_eq!(out_of_memory("'cuda 2' = 'fail_job'"), (Verdict::Failed, vec![Refused], 1));
    let restarted = (Verdict::Ok, vec![WorkerDied, Answered], 2);
    assert_eq!(out_of_memory("'cuda 2' = 'restart'"), restarted);
}
