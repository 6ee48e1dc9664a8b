//! Unloading a model frees its memory, while the process goes on.
//!
//! With `GRIDPOOL_INFER_DEVICE=gpu` the same test measures the device's memory through NVML. No other
//! process should use that GPU meanwhile.

use std::fs;

use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::message::ToWorker;
use gridpool_worker::growth::Holding;
use nvml_wrapper::Nvml;

use crate::harness::{TestWorker, load, plan, unload};
use crate::onnx::Folder;
use crate::tables::{fills, tables};
use crate::tensors::{device, fp32, int64, model};

const MIB: u64 = 1 << 20;
/// Tables of 4 MiB, and of 256 KiB.
const LARGE: u16 = 25;
const SMALL: u16 = 400;
const WEIGHTS: u64 = LARGE as u64 * 4 * MIB + SMALL as u64 * (MIB / 4);
/// What twenty more loads may leave behind: far less than one of them takes.
const SLACK: u64 = 24 * MIB;
/// What glibc may keep of the heap of a thread: `malloc_trim` gives back all free pages but the last ones of a heap
/// that is not the first. It is one heap, however often a model is loaded.
const HEAP: u64 = 64 * MIB;
/// What the first may leave behind on a GPU: kernels that are loaded at their first use.
const STAYS_ON_GPU: u64 = 96 * MIB;
const ROUNDS: u64 = 20;

/// Bytes that the worker holds: of its device if the device has memory of its own, else of the host.
fn held(worker: &TestWorker) -> u64 {
    match device() {
        DeviceKind::Cpu => {
            let status = fs::read_to_string(format!("/proc/{}/status", worker.pid()));
            let status = status.expect("it lives");
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = line.expect("Linux has it").trim().trim_end_matches(" kB").parse::<u64>();
            kib.expect("a number") * 1_024
        }
        DeviceKind::Gpu => {
            let nvml = Nvml::init().expect("a driver");
            let gpu = nvml.device_by_index(0).expect("a GPU");
            gpu.memory_info().expect("it says so").used
        }
    }
}

/// Requests one row, so that all weights of the model were used.
fn ask(worker: &mut TestWorker, job: u64) {
    worker.ask(job, "tables", &[int64("at", &[1], &[3])]);
    let sum = (1..=LARGE + SMALL).map(f32::from).sum::<f32>();
    assert_eq!(worker.answer(job), Ok(vec![fp32("y", &[1, 64], &[sum; 64])]));
}

#[test]
#[expect(clippy::print_stdout, reason = "the numbers are read by people")]
fn a_model_that_is_unloaded_gives_its_memory_back_twenty_times_over() {
    let folder = Folder::new();
    let path = folder.file("tables.onnx", &tables(LARGE, SMALL));
    let first = plan("mlp", model("mlp"), 1);
    let Some(mut worker) = TestWorker::start(&[first], &[]) else { return };
    let mut orders = 1..;
    let mut run_command = |worker: &mut TestWorker, what| {
        assert_eq!(worker.run_command(orders.next().expect("endless"), what), Ok(()));
    };
    let (stays, more) = match device() {
        DeviceKind::Cpu => (HEAP + SLACK, HEAP + SLACK),
        DeviceKind::Gpu => (STAYS_ON_GPU, SLACK),
    };
    let before = held(&worker);
    let mut once = 0;
    for round in 1..=ROUNDS {
        run_command(&mut worker, load(plan("tables", &path, 1)));
        ask(&mut worker, round);
        let with = held(&worker);
        run_command(&mut worker, unload("tables"));
        let after = held(&worker);
        if round == 1 || round == ROUNDS {
            println!(
                "{}, round {round}: {} MiB before, {} MiB with {} MiB of weights, {} MiB after",
                device(),
                before / MIB,
                with / MIB,
                WEIGHTS / MIB,
                after / MIB
            );
        }
        if round == 1 {
            once = after;
        }
        assert!(with >= before + WEIGHTS, "round {round}: {with} bytes with it, {before} before");
        assert!(after <= before + stays, "round {round}: {after} bytes after, {before} before");
        assert!(after <= once + more, "round {round}: {after} bytes after, {once} the first time");
    }
}

/// Otherwise a worker would be recycled for every large model that it loads.
#[test]
fn loaded_models_are_not_growth_and_memory_kept_after_unloading_is() {
    if device() == DeviceKind::Gpu {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("tables.onnx", &tables(LARGE, SMALL));
    let most = (WEIGHTS / 2).to_string();
    let first = plan("mlp", model("mlp"), 1);
    let Some(mut worker) = TestWorker::start(&[first], &["--memory-growth-max", &most]) else {
        return;
    };
    assert!(Holding::now().is_ok(), "this system counts it");
    for order in [1, 3] {
        assert_eq!(worker.run_command(order, load(plan("tables", &path, 1))), Ok(()));
        worker.wait_for_heartbeats(3);
        ask(&mut worker, order);
        assert_eq!(worker.run_command(order + 1, unload("tables")), Ok(()));
        worker.wait_for_heartbeats(3);
    }
    // Growth is checked at the first message after a heartbeat.
    worker.ask(5, "tables", &[int64("at", &[1], &[3])]);
    assert!(worker.answer(5).is_err(), "it is gone, and the worker is not");
    assert_eq!(worker.stop(), Some(0));
}

/// Memory of an unloaded model does not hide later growth.
#[test]
fn growth_without_a_command_counts_after_a_model_has_come_and_gone() {
    if device() == DeviceKind::Gpu {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("tables.onnx", &tables(LARGE, SMALL));
    let fills = plan("fills", folder.file("fills.onnx", &fills()), 1);
    let most = (WEIGHTS / 2).to_string();
    let Some(mut worker) = TestWorker::start(&[fills], &["--memory-growth-max", &most]) else {
        return;
    };
    let fill = |bytes: u64| [int64("n", &[1], &[i64::try_from(bytes / 4).expect("it fits")])];
    worker.ask(1, "fills", &fill(WEIGHTS / 4));
    assert_eq!(worker.answer(1), Ok(vec![fp32("y", &[1], &[0.0])]));
    worker.wait_for_heartbeats(3);
    assert_eq!(worker.run_command(1, load(plan("tables", &path, 1))), Ok(()));
    assert_eq!(worker.run_command(2, unload("tables")), Ok(()), "as far as it may grow, it lives");
    worker.ask(2, "fills", &fill(WEIGHTS));
    assert!(worker.answer(2).is_ok());
    worker.wait_for_heartbeats(3);
    // It looks after a message that leaves nothing in flight, or a minute later.
    worker.say(&ToWorker::Forget { arenas: Vec::new() });
    assert_eq!(worker.end(), Some(exit::WORN));
}
