//! Devices that do not start, do not restart, or compute wrong results: the pool puts them out of service with a
//! sentence and without a restart loop, and other devices serve.

use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use nix::sys::signal::Signal;

use super::{SCRIPT, driver_in, gpus, make};
use crate::command::gridpool;
use crate::jobs::{PROGRAM, answer, data, serves, small_job, submit};
use crate::pool::Pool;
use crate::processes::signal;

/// A pool on one GPU that no worker can serve: how it ends, and its log.
fn never_serves(script: &str) -> String {
    let setup = gpus(1, script);
    assert_eq!(setup.serve().exit().code(), Some(73), "{}", setup.log());
    setup.log()
}

/// Kills the worker of a device, after which the script has its rules.
fn kill_and_go(pool: &Pool, device: &str) {
    make(pool.folder(), "go");
    signal(pool.pid(device), Signal::SIGKILL);
}

/// Waits until a device is out of service, and asserts its greatest number of starts.
fn is_given_up(pool: &Pool, device: &str, starts_max: u32) -> WorkerStatus {
    let slot = pool.until(device, "out of service", |slot| slot.state == WorkerState::Quarantined);
    assert!(slot.generation <= starts_max, "{slot:?}");
    slot
}

#[test]
fn a_device_that_computes_wrongly_after_a_restart_is_quarantined_and_the_other_serves() {
    let pool = gpus(2, "call=cuLaunchKernel after-file=DIR/go flip every=40").start();
    kill_and_go(&pool, "gpu0");
    let slot = is_given_up(&pool, "gpu0", 4);
    let words = "exit code 71: the device fails its known-answer test";
    assert!(slot.last_fault.contains(words), "{}", slot.last_fault);
    serves(&pool.client());
    assert_eq!(pool.slot("gpu1").restarts, 0);
}

#[test]
fn a_device_in_a_bad_state_after_a_kill_is_quarantined_and_its_jobs_end_device_lost() {
    let pool = gpus(1, "call=cuDevicePrimaryCtxRetain after-file=DIR/go code=999").start();
    kill_and_go(&pool, "gpu0");
    let slot = is_given_up(&pool, "gpu0", 4);
    let words = "cuDevicePrimaryCtxRetain: CUDA_ERROR_UNKNOWN (999)";
    assert!(slot.last_fault.contains(words), "{}", slot.last_fault);
    let answer = answer(submit(&pool.client(), small_job(51)));
    assert_eq!(answer.verdict(), Verdict::DeviceLost, "{:?}", answer.receipt);
    assert!(answer.receipt.reason.contains(words), "{}", answer.receipt.reason);
}

#[test]
fn a_device_without_memory_at_the_start_says_so_with_exit_code_72_and_is_tried_three_times() {
    let log = never_serves("call=cuMemAlloc code=2");
    let died = |n: u32| log.contains(&format!("worker died worker=gpu0#{n} "));
    assert!((1..=3).all(died) && !log.contains("gpu0#4"), "{log}");
    for words in [
        "exit code 72 (DEVICE_MEMORY): too little device memory",
        "said       cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)",
        "fault      cuda 2 (CUDA_ERROR_OUT_OF_MEMORY): ",
    ] {
        assert_eq!(log.matches(words).count(), 3, "{words}: {log}");
    }
    assert_eq!(log.matches("next       another process starts ").count(), 2, "{log}");
    let out = "next       gpu0 is out of service and tried again in ";
    assert_eq!(log.matches(out).count(), 1, "{log}");
    assert!(log.contains("gridpool: no worker can start"), "{log}");
}

#[test]
fn a_device_that_disappears_is_not_started_in_a_loop_and_the_other_takes_its_jobs() {
    for code in [100, 101] {
        let call = if code == 100 { "cuInit" } else { "cuDeviceGet" };
        let pool = gpus(2, &format!("call={call} after-file=DIR/go code={code}")).start();
        kill_and_go(&pool, "gpu0");
        let slot = is_given_up(&pool, "gpu0", 4);
        assert!(slot.last_fault.contains(&format!("exit code 71: {call}")), "{}", slot.last_fault);
        assert!(slot.last_fault.contains(&format!("({code})")), "{}", slot.last_fault);
        serves(&pool.client());
    }
}

#[test]
fn an_exchanged_driver_waits_for_an_operator_after_one_try() {
    let pool = gpus(1, "call=cuInit after-file=DIR/go code=803").start();
    kill_and_go(&pool, "gpu0");
    let slot = is_given_up(&pool, "gpu0", 2);
    let words = "exit code 75: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)";
    assert!(slot.last_fault.contains(words), "{}", slot.last_fault);
}

#[test]
fn a_driver_that_does_not_fit_at_the_start_ends_the_pool_after_one_try() {
    for (script, words) in [
        ("call=cuInit code=803", "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        ("version=11080", "the driver offers CUDA 11.8; the kernels need 12.0 or newer"),
    ] {
        let log = never_serves(script);
        assert!(log.contains(words) && log.contains("exit code 75"), "{log}");
        assert!(!log.contains("gpu0#2"), "a restart would not help: {log}");
    }
}

#[test]
fn a_bit_that_is_wrong_at_the_start_is_caught_by_the_known_answers_and_the_next_start_serves() {
    let pool = gpus(1, "call=cuLaunchKernel once-file=DIR/once nth=40 flip").start();
    let slot = pool.slot("gpu0");
    assert_eq!(slot.generation, 2);
    let words = "exit code 71: the device fails its known-answer test";
    assert!(slot.last_fault.contains(words), "{}", slot.last_fault);
    serves(&pool.client());
}

#[test]
fn a_gpu_that_computes_nothing_never_serves() {
    let log = never_serves("call=cuLaunchKernel idle");
    assert!(log.contains("the device fails its known-answer test"), "{log}");
}

#[test]
fn a_worker_that_finds_another_gpu_than_nvml_named_is_started_once() {
    let log = never_serves("uuid=GPU-ffffffff-0000-0000-0000-000000000000");
    let words = "started for GPU-01010101-0101-0101-0101-010101010101, found GPU-ffffffff-0000";
    assert!(log.contains(words) && log.contains("exit code 73"), "{log}");
    assert!(!log.contains("gpu0#2"), "a restart would not help: {log}");
}

#[test]
fn a_failing_nvml_is_an_error_and_starts_no_pool() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let run = |script: &str| {
        let arguments = ["run", PROGRAM, "--devices", "0", "--json"];
        let call = gridpool(arguments).arg(data("tasks/lines.json")).env(SCRIPT, script);
        call.env("LD_LIBRARY_PATH", folder.path().join("driver")).run()
    };
    driver_in(folder.path());
    let document = run("").document();
    assert_eq!(document["results"][0]["verdict"], "OK");
    run("call=nvmlInit code=18").complains(69, &["no GPU found"]);
    run("devices=0").complains(69, &["NVML lists none"]);
    let refused = run("call=nvmlMakeCoffee hang");
    assert_eq!(refused.code, Some(69), "a script that is none: {}", refused.stderr);
    assert!(refused.stderr.contains("there is no call nvmlMakeCoffee"), "{}", refused.stderr);
}
