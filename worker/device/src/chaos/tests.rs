//! The seam changes nothing for jobs without a fault, and wrong results look like results.
//! `tests/process/chaos.rs` tries the faults that end a process on real processes.

use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{Output, OutputLayout, Outputs};
use gridpool_protocol::program::{Program, Ties};

use super::*;
use crate::cpu::CpuDevice;
use crate::self_test::{run_batch, self_test};

const WRONG: ChaosFault = ChaosFault::Reply(ReplyFault::Wrong);

fn injector() -> FaultInjector {
    FaultInjector::new(Box::new(CpuDevice::open(0, 1).unwrap()))
}

fn rot90() -> (Program, GridBatch) {
    let grid = |cells: Vec<u8>| Grid::new(2, 3, cells).unwrap();
    let grids = [grid(vec![1, 2, 3, 4, 5, 6]), grid(vec![9; 6]), grid(vec![0; 6])];
    let program = Program::compile("rot90", Ties::Cpython).unwrap();
    (program, GridBatch::from_grids(&grids).unwrap())
}

/// Where two results differ, bit by bit.
fn bits(one: &Outputs, other: &Outputs) -> u32 {
    let (one, other) = (one.packed(), other.packed());
    assert_eq!(one.len(), other.len());
    one.iter().zip(&*other).map(|(a, b)| (a ^ b).count_ones()).sum()
}

#[test]
fn without_a_fault_and_with_one_that_applies_elsewhere_results_are_right() {
    let mut device = injector();
    for fault in [None, Some(ChaosFault::Reply(ReplyFault::Slow)), None] {
        device.arm(fault);
        self_test(&mut device).unwrap();
    }
}

#[test]
fn wrong_results_differ_in_one_bit_and_are_well_formed() {
    let mut device = injector();
    let (grids, pairs) = (known_answer::batch(), known_answer::pair_batch());
    let mut all = Vec::new();
    for known in KNOWN_ANSWERS {
        let batch = if known.takes_pairs() { &pairs } else { &grids };
        all.push((known, batch, run_batch(&mut device, &known.program(), batch).unwrap().0));
    }
    device.arm(Some(WRONG));
    device.arm(None);
    let mut found = 0;
    for (known, batch, right) in all {
        let (wrong, _) = run_batch(&mut device, &known.program(), batch).unwrap();
        assert_eq!(bits(&wrong, &right), 1, "{}", known.text);
        found += usize::from(known.check(&wrong).is_err());
    }
    // In the others the first item has no value with a visible bit.
    assert!(found > KNOWN_ANSWERS.len() / 2, "{found} of {}", KNOWN_ANSWERS.len());
    assert!(self_test(&mut device).is_err());
    let (program, batch) = rot90();
    let (wrong, _) = run_batch(&mut device, &program, &batch).unwrap();
    let turned = |cells: &[u8]| Ok(Ok(Output::Grid(Grid::new(3, 2, cells.to_vec()).unwrap())));
    assert_eq!(wrong.item(0), turned(&[5, 1, 5, 2, 6, 3]), "the first colour differs: 4 is right");
    assert_eq!(wrong.item(1), turned(&[9; 6]));
}

#[test]
fn a_wrong_bit_for_a_shard_is_in_its_part_of_the_result() {
    let mut device = injector();
    device.arm(Some(WRONG));
    let (program, batch) = rot90();
    let layout = batch.layout().unwrap();
    let result = OutputLayout::new(&program, layout).unwrap();
    let (mut input, mut output) = (vec![0; layout.bytes()], vec![0; result.bytes()]);
    batch.write_to(layout, &SharedSlice::private(&mut input));
    let (place, input) = (SharedSlice::private(&mut output), SharedSlice::private(&mut input));
    let attempt = GridAttempt::new(&program, layout, 1..2, input, place).unwrap();
    device.run(&GridDispatch { program: &program, attempts: &[attempt] }).unwrap();
    let cells = &output[result.cells()];
    assert_eq!((&cells[..6], &cells[12..18]), (&[0; 6][..], &[0; 6][..]), "others' places");
    assert_eq!(cells[6..12], [8, 9, 9, 9, 9, 9]);
}

#[test]
fn a_device_without_memory_fails_the_run_and_not_the_worker() {
    let mut device = injector();
    let (program, batch) = rot90();
    device.arm(Some(ChaosFault::Device(DeviceFault::Memory)));
    let fault = run_batch(&mut device, &program, &batch).unwrap_err();
    assert!(matches!(fault, Fault::Memory { .. }) && !fault.ends_worker(), "{fault}");
    let told = fault.to_string();
    let reason = told.strip_prefix("no memory for 9223372036854775807 bytes: ");
    assert!(reason.is_some_and(|reason| !reason.is_empty()), "{fault}");
    run_batch(&mut device, &program, &batch).unwrap();
}
