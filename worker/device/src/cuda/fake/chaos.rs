//! Injected faults over the fake driver: what the device launches for them, and that it launches nothing
//! for other jobs.

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::{ChaosFault, DeviceFault};
use gridpool_protocol::program::{Program, Ties};

use super::*;
use crate::chaos::FaultInjector;
use crate::self_test::run_batch;

const KERNELS: [DeviceFault; 5] = [
    DeviceFault::Assert,
    DeviceFault::Endless,
    DeviceFault::Misaligned,
    DeviceFault::Oob,
    DeviceFault::Trap,
];

/// A device whose buffers exist already, and the calls of its next run.
fn warm() -> (FaultInjector, Vec<&'static str>) {
    let mut device = FaultInjector::new(Box::new(open(IDLE).unwrap()));
    run(&mut device).unwrap();
    take_calls();
    run(&mut device).unwrap();
    (device, take_calls())
}

fn run(device: &mut FaultInjector) -> Result<u32, Fault> {
    let program = Program::compile("rot90", Ties::Cpython).unwrap();
    let batch = GridBatch::from_grids([&Grid::from_rows(&[[1, 2, 3]]).unwrap()]).unwrap();
    let (_, work) = run_batch(device, &program, &batch)?;
    Ok(work.kernels.iter().map(|kernel| kernel.launches).sum())
}

#[test]
fn a_fault_is_one_launch_of_another_module_before_the_run_and_is_not_waited_for() {
    let (mut device, usual) = warm();
    for fault in KERNELS {
        device.arm(Some(ChaosFault::Device(fault)));
        assert_eq!(run(&mut device), Ok(1), "the report is of the job's own kernels");
        let mut want = vec!["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"];
        want.extend(&usual);
        assert_eq!(take_calls(), want, "{fault:?}");
        run(&mut device).unwrap();
        assert_eq!(take_calls(), usual, "once, and not again");
    }
}

#[test]
fn the_run_that_meets_a_fault_ends_with_its_code_and_without_another_call() {
    for (fault, code) in KERNELS.into_iter().zip([710, 702, 716, 700, 719]) {
        let (mut device, _) = warm();
        device.arm(Some(ChaosFault::Device(fault)));
        fail("cuStreamSynchronize", code);
        let met = run(&mut device).unwrap_err();
        assert_eq!(met, Fault::Cuda { call: "cuStreamSynchronize", code });
        assert!(met.ends_worker());
        assert_eq!(take_calls().last(), Some(&"cuStreamSynchronize"));
        set_script(IDLE);
    }
}

#[test]
fn memory_is_used_up_to_the_last_piece_and_given_back() {
    const PIECES: usize = 3;
    let (mut device, usual) = warm();
    device.arm(Some(ChaosFault::Device(DeviceFault::Memory)));
    set_script(&format!("call=cuMemAlloc from={} code=2", PIECES + 1));
    let met = run(&mut device).unwrap_err();
    assert_eq!(met, Fault::Cuda { call: "cuMemAlloc", code: 2 });
    assert!(!met.ends_worker());
    let calls = take_calls();
    // 1 GiB, then half of it and so on to 64 KiB.
    assert_eq!(count(&calls, "cuMemAlloc"), PIECES + 15);
    assert_eq!(count(&calls, "cuMemFree"), PIECES);
    assert_eq!(calls.len(), 2 * PIECES + 15, "nothing of the job was begun");
    set_script(IDLE);
    run(&mut device).unwrap();
    assert_eq!(take_calls(), usual);
}

#[test]
fn a_context_that_is_lost_while_memory_is_used_up_gets_no_further_call() {
    let (mut device, _) = warm();
    device.arm(Some(ChaosFault::Device(DeviceFault::Memory)));
    set_script("call=cuMemAlloc from=3 code=700");
    assert_eq!(run(&mut device), Err(Fault::Cuda { call: "cuMemAlloc", code: 700 }));
    assert_eq!(take_calls(), ["cuMemAlloc"; 3]);
    set_script(IDLE);
}
