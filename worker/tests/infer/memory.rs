//! A model's memory comes with it and goes with it, on a process that goes on.
//!
//! On a GPU (`GRIDPOOL_INFER_DEVICE=gpu`) the same test is about the memory of the device, as NVML counts
//! it: nobody else should use that GPU meanwhile.

use std::fs;

use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::DeviceKind;
use gridpool_worker::wear::Holding;
use nvml_wrapper::Nvml;

use crate::harness::{device, fp32, int64, model};
use crate::lone::{Lone, load, plan, unload};
use crate::onnx::{Folder, fills, tables};

const MIB: u64 = 1 << 20;
/// Tables of 4 MiB, and of 256 KiB.
const LARGE: u16 = 25;
const SMALL: u16 = 400;
const WEIGHTS: u64 = LARGE as u64 * 4 * MIB + SMALL as u64 * (MIB / 4);
/// What twenty more may leave behind: far less than one of them.
const SLACK: u64 = 24 * MIB;
/// What may stay of the first: on a GPU there are kernels that nobody needed before it.
const STAYS_ON_GPU: u64 = 96 * MIB;
const ROUNDS: u64 = 20;

/// Bytes that the worker holds: of its device if that has memory of its own, else of the host.
fn held(worker: &Lone) -> u64 {
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

/// Asks the model for a row, so that all of its weights were used.
fn ask(worker: &mut Lone, job: u64) {
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
    let Some(mut worker) = Lone::start(&[first], &[]) else { return };
    let mut orders = 1..;
    let mut obeys = |worker: &mut Lone, what| {
        assert_eq!(worker.obeys(orders.next().expect("endless"), what), Ok(()));
    };
    let stays = if device() == DeviceKind::Gpu { STAYS_ON_GPU } else { SLACK };
    let before = held(&worker);
    let mut once = 0;
    for round in 1..=ROUNDS {
        obeys(&mut worker, load(plan("tables", &path, 1)));
        ask(&mut worker, round);
        let with = held(&worker);
        obeys(&mut worker, unload("tables"));
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
        assert!(after <= once + SLACK, "round {round}: {after} bytes after, {once} the first time");
    }
}

/// Or a worker would leave for every large model that it is given.
#[test]
fn what_a_worker_was_told_to_load_is_no_wear_and_what_stays_of_it_is() {
    if device() == DeviceKind::Gpu {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("tables.onnx", &tables(LARGE, SMALL));
    let most = (WEIGHTS / 2).to_string();
    let first = plan("mlp", model("mlp"), 1);
    let Some(mut worker) = Lone::start(&[first], &["--memory-growth-max", &most]) else { return };
    assert!(Holding::now().is_ok(), "this system counts it");
    for order in [1, 3] {
        assert_eq!(worker.obeys(order, load(plan("tables", &path, 1))), Ok(()));
        worker.beats(3);
        ask(&mut worker, order);
        assert_eq!(worker.obeys(order + 1, unload("tables")), Ok(()));
        worker.beats(3);
    }
    // The first look after a sign of life is at a message.
    worker.ask(5, "tables", &[int64("at", &[1], &[3])]);
    assert!(worker.answer(5).is_err(), "it is gone, and the worker is not");
    assert_eq!(worker.stop(), Some(0));
}

/// What a model that was unloaded took is no room for something else.
#[test]
fn growth_that_nobody_ordered_is_wear_though_a_model_has_come_and_gone() {
    if device() == DeviceKind::Gpu {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("tables.onnx", &tables(LARGE, SMALL));
    let fills = plan("fills", folder.file("fills.onnx", &fills()), 1);
    let most = (WEIGHTS / 2).to_string();
    let Some(mut worker) = Lone::start(&[fills], &["--memory-growth-max", &most]) else { return };
    let fill = |bytes: u64| [int64("n", &[1], &[i64::try_from(bytes / 4).expect("not so many")])];
    worker.ask(1, "fills", &fill(WEIGHTS / 4));
    assert_eq!(worker.answer(1), Ok(vec![fp32("y", &[1], &[0.0])]));
    worker.beats(3);
    assert_eq!(worker.obeys(1, load(plan("tables", &path, 1))), Ok(()));
    assert_eq!(worker.obeys(2, unload("tables")), Ok(()), "as far as it may grow, it lives");
    worker.ask(2, "fills", &fill(WEIGHTS));
    assert!(worker.answer(2).is_ok());
    worker.beats(3);
    worker.ask(3, "fills", &fill(4));
    assert_eq!(worker.end(), Some(exit::WORN));
}
