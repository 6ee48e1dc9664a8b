//! The seam: what a job that brings no fault notices of it, which is nothing, and lies that look like
//! results. What ends a process is tried on real ones, in `tests/process/chaos.rs`.

use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::channel::{self, Listener};
use gridpool_protocol::chaos::HostFault;
use gridpool_protocol::output::{Output, OutputLayout, Outputs};
use gridpool_protocol::program::{Program, Ties};

use super::*;
use crate::cpu::CpuDevice;
use crate::self_test::{run_batch, self_test};

const WRONG: ChaosFault = ChaosFault::Reply(ReplyFault::Wrong);

fn saboteur() -> Saboteur {
    Saboteur::new(Box::new(CpuDevice::open(0, 1).unwrap()))
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
fn without_a_fault_and_with_one_that_strikes_elsewhere_results_are_right() {
    let mut device = saboteur();
    for fault in [None, Some(ChaosFault::Reply(ReplyFault::Slow)), None] {
        device.arm(fault);
        self_test(&mut device).unwrap();
    }
}

#[test]
fn a_lie_is_one_bit_of_every_result_from_then_on_and_well_formed_where_cells_are() {
    let mut device = saboteur();
    let (grids, pairs) = (known_answer::batch(), known_answer::pair_batch());
    let mut all = Vec::new();
    for known in KNOWN_ANSWERS {
        let batch = if known.takes_pairs() { &pairs } else { &grids };
        all.push((known, batch, run_batch(&mut device, &known.program(), batch).unwrap().0));
    }
    device.arm(Some(WRONG));
    device.arm(None);
    let mut found_out = 0;
    for (known, batch, truth) in all {
        let (lie, _) = run_batch(&mut device, &known.program(), batch).unwrap();
        assert_eq!(bits(&lie, &truth), 1, "{}", known.text);
        found_out += usize::from(known.check(&lie).is_err());
    }
    // In the others the first item has no value in which a bit could matter.
    assert!(found_out > KNOWN_ANSWERS.len() / 2, "{found_out} of {}", KNOWN_ANSWERS.len());
    assert!(self_test(&mut device).is_err());
    let (program, batch) = rot90();
    let (lie, _) = run_batch(&mut device, &program, &batch).unwrap();
    let turned = |cells: &[u8]| Ok(Ok(Output::Grid(Grid::new(3, 2, cells.to_vec()).unwrap())));
    assert_eq!(lie.item(0), turned(&[5, 1, 5, 2, 6, 3]), "the first colour is another: 4 is right");
    assert_eq!(lie.item(1), turned(&[9; 6]));
}

#[test]
fn a_lie_about_some_items_of_a_batch_is_in_their_part_of_the_result() {
    let mut device = saboteur();
    device.arm(Some(WRONG));
    let (program, batch) = rot90();
    let layout = batch.layout().unwrap();
    let result = OutputLayout::new(&program, layout).unwrap();
    let (mut input, mut output) = (vec![0; layout.bytes()], vec![0; result.bytes()]);
    batch.write_to(layout, &SharedSlice::private(&mut input));
    let (place, input) = (SharedSlice::private(&mut output), SharedSlice::private(&mut input));
    let member = TaskMember::new(&program, layout, 1..2, input, place).unwrap();
    device.run(&Task { program: &program, members: &[member] }).unwrap();
    let cells = &output[result.cells()];
    assert_eq!((&cells[..6], &cells[12..18]), (&[0; 6][..], &[0; 6][..]), "others' places");
    assert_eq!(cells[6..12], [8, 9, 9, 9, 9, 9]);
}

#[test]
fn a_device_without_memory_fails_the_run_and_not_the_worker() {
    let mut device = saboteur();
    let (program, batch) = rot90();
    device.arm(Some(ChaosFault::Device(DeviceFault::Memory)));
    let fault = run_batch(&mut device, &program, &batch).unwrap_err();
    assert!(matches!(fault, Fault::Memory { .. }) && !fault.ends_worker(), "{fault}");
    assert!(fault.to_string().starts_with("no memory for 9223372036854775807 bytes: "), "{fault}");
    run_batch(&mut device, &program, &batch).unwrap();
}

#[test]
fn a_corrupt_answer_is_no_message_and_any_other_fault_leaves_the_answer_alone() {
    let (listener, name) = Listener::open().unwrap();
    let (replies, _requests) = channel::connect(&name).unwrap();
    let (_to_worker, mut heard) = listener.accept().unwrap();
    let exit = ChaosFault::Host(HostFault::Exit);
    for fault in [None, Some(WRONG), Some(exit), Some(ChaosFault::Reply(ReplyFault::Slow))] {
        assert!(before_the_answer(fault, &replies).unwrap());
        assert!(heard.recv_until(clock::now()).unwrap().is_none());
    }
    let corrupt = Some(ChaosFault::Reply(ReplyFault::Corrupt));
    assert!(!before_the_answer(corrupt, &replies).unwrap());
    assert!(matches!(heard.recv(), Err(ChannelError::Decode(_))));
}
