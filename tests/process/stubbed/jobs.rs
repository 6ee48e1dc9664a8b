//! Faults during jobs: which jobs fail, and whether the worker survives.

use std::fs;
use std::time::Duration;

use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::AttemptOutcome::{DeviceError, Ok as Answered, WorkerDied};
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use gridpool_stub_cuda::machine::uuid_text;
use gridpool_tests::oracle::samples::random_grids;

use super::{attempts, gpus, make};
use crate::jobs::{PROGRAM, answer, is_right, job, serves, small_job, submit};
use crate::pool::Pool;
use crate::wait::eventually_so;

/// One process fails, at its third launch from the moment on that the test says go.
const ONE_LAUNCH: &str = "call=cuLaunchKernel once-file=DIR/once while-file=DIR/go nth=1";

fn replaced(slot: &WorkerStatus) -> bool {
    slot.generation == 2 && slot.state == WorkerState::Ready
}

/// Runs a job in whose middle its worker ends, which must go well all the same; gives what was said of
/// the worker that ended.
fn survives(pool: &Pool) -> String {
    let grids = random_grids(41, 5);
    make(pool.folder(), "go");
    let answer = answer(submit(&pool.client(), job(PROGRAM, &grids)));
    is_right(&answer, PROGRAM, &grids);
    assert_eq!(attempts(&answer.receipt), [("gpu0#1", WorkerDied), ("gpu0#2", Answered)]);
    let slot = pool.until("gpu0", "replaced", replaced);
    assert_eq!(slot.restarts, 1);
    serves(&pool.client());
    slot.last_fault
}

#[test]
fn jobs_on_a_stubbed_gpu_give_the_right_results_with_kernels_in_the_receipts() {
    let pool = gpus(2, "").start();
    let programs = [
        (PROGRAM, "gp_images"),
        ("objects(true, false, true)", "gp_lists"),
        ("upscale(2) | hmirror", "gp_pack"),
        ("o_g(5) | first | subgrid", "gp_chain"),
        ("upscale(3) | palette", "gp_chain_large"),
        ("hsplit(2) | hconcat", "gp_hconcat"),
    ];
    for items in [5, 400] {
        let grids = random_grids(40, items);
        for (text, kernel) in programs {
            let answer = answer(submit(&pool.client(), job(text, &grids)));
            is_right(&answer, text, &grids);
            for attempt in &answer.receipt.attempts {
                assert_eq!(attempt.device.kind, DeviceKind::Gpu);
                assert_eq!(attempt.device.uuid, uuid_text(attempt.device.index));
                let launched = attempt.kernels.iter().find(|known| known.name == kernel);
                let launched = launched.unwrap_or_else(|| panic!("{text}: {:?}", attempt.kernels));
                assert!(launched.launches >= 1 && launched.device_us > 0.0, "{launched:?}");
            }
        }
    }
    let pool_uses = pool.status().workers;
    assert_eq!(pool_uses.iter().map(|row| row.generation).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_sticky_fault_in_a_job_costs_that_job_an_attempt_and_no_other_job_anything() {
    let pool = gpus(2, &format!("{ONE_LAUNCH} code=700 sticky")).start();
    // Both GPUs run a job each when one of them fails.
    pool.stop("gpu0");
    pool.stop("gpu1");
    let grids = [random_grids(42, 5), random_grids(43, 5)];
    let texts = [PROGRAM, "o_g(5) | first"];
    let handles = [0, 1].map(|n| submit(&pool.client(), job(texts[n], &grids[n])));
    pool.until_busy("gpu0");
    pool.until_busy("gpu1");
    make(pool.folder(), "go");
    pool.go_on("gpu0");
    pool.go_on("gpu1");
    let answers = handles.map(answer);
    for ((answer, grids), text) in answers.iter().zip(&grids).zip(texts) {
        is_right(answer, text, grids);
    }
    let mut tries: Vec<_> = answers.iter().map(|answer| answer.receipt.attempts.len()).collect();
    tries.sort_unstable();
    assert_eq!(tries, [1, 2], "one job lost an attempt, the other none");
    let lost = answers.iter().flat_map(|answer| &answer.receipt.attempts);
    let lost = lost.clone().find(|attempt| attempt.outcome == WorkerDied).expect("one died");
    // The loss of its beacon may be read before its last words are.
    let said = lost.detail.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    assert!(said || lost.detail == "its worker ended", "{}", lost.detail);
    let device = &lost.worker[..4];
    let slot = pool.until(device, "replaced", replaced);
    assert!(slot.last_fault.contains("exit code 70"), "{}", slot.last_fault);
    serves(&pool.client());
}

#[test]
fn a_fault_that_shows_in_a_later_call_blames_no_job_and_the_suspects_run_alone() {
    // The second job's launch, in which two joined, goes wrong, and the second call after it says so.
    let script = "call=cuLaunchKernel once-file=DIR/once while-file=DIR/go nth=2 code=719 later=2";
    let pool = gpus(1, script).limits("feed_cost_max = 0\n").start();
    pool.stop("gpu0");
    let first = submit(&pool.client(), job("rot180", &random_grids(44, 5)));
    pool.until_busy("gpu0");
    let grids = [random_grids(45, 5), random_grids(46, 6)];
    let suspects = [0, 1].map(|n| submit(&pool.client(), job(PROGRAM, &grids[n])));
    make(pool.folder(), "go");
    pool.go_on("gpu0");
    assert_eq!(attempts(&answer(first).receipt), [("gpu0#1", Answered)], "it was done before");
    for (suspect, grids) in suspects.into_iter().zip(&grids) {
        let answer = answer(suspect);
        is_right(&answer, PROGRAM, grids);
        let receipt = &answer.receipt;
        assert_eq!(attempts(receipt), [("gpu0#1", WorkerDied), ("gpu0#2", Answered)]);
        let detail = &receipt.attempts[0].detail;
        assert!(detail.contains("CUDA_ERROR_LAUNCH_FAILED (719)"), "{detail}");
        assert_eq!(receipt.attempts[1].joined_items as usize, grids.len(), "alone this time");
    }
}

#[test]
fn a_code_that_no_header_names_ends_the_worker_as_a_sticky_one_does() {
    let pool = gpus(1, &format!("{ONE_LAUNCH} code=5000")).start();
    let fault = survives(&pool);
    let words = "cuLaunchKernel: a code that CUDA 13.5 does not name (5000)";
    assert!(fault.contains(words) && fault.contains("exit code 70"), "{fault}");
}

#[test]
fn a_code_newer_than_the_bindings_ends_the_worker_by_its_class() {
    let pool = gpus(1, &format!("{ONE_LAUNCH} code=919")).start();
    let fault = survives(&pool);
    let words = "cuLaunchKernel: CUDA_ERROR_FABRIC_NOT_READY (919)";
    assert!(fault.contains(words) && fault.contains("exit code 71"), "{fault}");
}

#[test]
fn a_job_that_hangs_in_the_driver_ends_at_its_deadline_and_another_worker_takes_its_place() {
    let script = "call=cuStreamSynchronize once-file=DIR/once while-file=DIR/go hang";
    let pool = gpus(1, script).start();
    make(pool.folder(), "go");
    let hung = pool.pid("gpu0");
    let job = small_job(47).with_deadline(Duration::from_millis(300));
    let answer = answer(submit(&pool.client(), job));
    assert_eq!(answer.verdict(), Verdict::Deadline, "{:?}", answer.receipt);
    let slot = pool.until("gpu0", "replaced", replaced);
    assert_ne!(slot.pid, hung);
    serves(&pool.client());
}

#[test]
fn a_device_that_hangs_while_it_is_tested_costs_no_job_its_deadline() {
    let script =
        "call=cuStreamSynchronize once-file=DIR/once while-file=DIR/go mark-file=DIR/hung hang";
    let pool = gpus(1, script).limits("known_answer_every_ms = 10\n").start();
    make(pool.folder(), "go");
    let hung = pool.pid("gpu0");
    eventually_so("the device to hang in its test", || pool.folder().join("hung").exists());
    let grids = random_grids(50, 5);
    let answer = answer(submit(&pool.client(), job(PROGRAM, &grids)));
    is_right(&answer, PROGRAM, &grids);
    assert_eq!(attempts(&answer.receipt), [("gpu0#1", WorkerDied), ("gpu0#2", Answered)]);
    let detail = &answer.receipt.attempts[0].detail;
    assert!(detail.contains("not finished a step between jobs"), "{detail}");
    assert_ne!(pool.pid("gpu0"), hung);
}

#[test]
fn a_gpu_whose_memory_is_used_up_in_a_job_fails_that_attempt_and_the_worker_lives() {
    let pool = gpus(1, "call=cuMemAlloc while-file=DIR/go nth=1 code=2").start();
    make(pool.folder(), "go");
    let grids = random_grids(48, 4_000);
    let answer = answer(submit(&pool.client(), job("trim", &grids)));
    is_right(&answer, "trim", &grids);
    assert_eq!(attempts(&answer.receipt), [("gpu0#1", DeviceError), ("gpu0#1", Answered)]);
    let detail = &answer.receipt.attempts[0].detail;
    assert!(detail.contains("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)"), "{detail}");
    assert_eq!(pool.slot("gpu0").restarts, 0);
}

#[test]
fn a_job_that_never_finds_memory_fails_and_the_worker_serves_others() {
    let pool = gpus(1, "call=cuMemAlloc while-file=DIR/go code=2").start();
    make(pool.folder(), "go");
    let answer = answer(submit(&pool.client(), job("trim", &random_grids(49, 4_000))));
    assert_eq!(answer.verdict(), Verdict::Failed, "{:?}", answer.receipt);
    assert_eq!(attempts(&answer.receipt), [("gpu0#1", DeviceError); 2]);
    fs::remove_file(pool.folder().join("go")).expect("a file can be removed");
    serves(&pool.client());
    assert_eq!(pool.slot("gpu0").restarts, 0);
}
