//! The CUDA device over the fake driver: which calls it makes, and how it handles failures.

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::program::{Program, Ties};

use super::*;
use crate::fault::FaultClass;
use crate::self_test::{run_batch, self_test};

fn program() -> Program {
    Program::compile("hsplit(2) | apply(rot90) | hconcat", Ties::Cpython).unwrap()
}

fn batch() -> GridBatch {
    GridBatch::from_grids([&Grid::from_rows(&[[1, 2, 3]]).unwrap()]).unwrap()
}

#[test]
fn reported_launches_are_the_launch_calls_that_were_made() {
    let mut device = open("").unwrap();
    take_calls();
    let (_, work) = run_batch(&mut device, &program(), &batch()).unwrap();
    let reported: u32 = work.kernels.iter().map(|kernel| kernel.launches).sum();
    assert_eq!(reported as usize, launches(&take_calls()));
    let rows: Vec<_> =
        work.kernels.iter().map(|k| (k.name.as_str(), k.launches, k.device_us)).collect();
    let mut want = vec![("gp_chain", 2, 1_000.0)];
    want.extend(["gp_hsplit", "gp_hconcat"].map(|name| (name, 1, 500.0)));
    want.push(("gp_pack", 1, 500.0));
    assert_eq!(rows, want);
}

#[test]
fn a_packed_result_takes_its_kernels_and_no_copy_if_it_is_small() {
    let program = Program::compile("crop(0, 0, 1, 2) | ofcolor(1)", Ties::Cpython).unwrap();
    let mut device = open("").unwrap();
    take_calls();
    let (_, work) = run_batch(&mut device, &program, &batch()).unwrap();
    let names: Vec<_> = work.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let want = ["gp_chain", "gp_pack"];
    assert_eq!(names, want);
    let calls = take_calls();
    assert_eq!(launches(&calls), want.len());
    // The kernels have written it to the host.
    assert_eq!(count(&calls, "cuMemcpyDtoHAsync"), 0);
}

#[test]
fn an_area_that_no_result_has_is_a_fault_and_never_a_length() {
    for text in ["crop(0, 0, 1, 2)", "ofcolor(1)", "upscale(2) | objects(true, true, true)"] {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        let mut device = open("").unwrap();
        device.gpu.staging = NO_STAGING;
        for byte in [1, 127, 128, 255] {
            set_script(&format!("call=cuMemcpyDtoHAsync garbage={byte}"));
            let error = run_batch(&mut device, &program, &batch()).unwrap_err();
            assert!(matches!(error, Fault::WrongResult { .. }), "{error}");
            assert!(error.ends_worker());
        }
        set_script("");
        run_batch(&mut device, &program, &batch()).unwrap();
    }
}

#[test]
fn a_device_that_launches_and_computes_nothing_fails_the_self_test() {
    let error = self_test(&mut open(IDLE).unwrap()).unwrap_err();
    assert!(matches!(error, Fault::WrongAnswer { .. }), "{error}");
}

#[test]
fn after_a_fault_that_ends_the_worker_no_call_is_made() {
    let mut device = open("").unwrap();
    device.gpu.staging = NO_STAGING;
    for call in ["cuLaunchKernel", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize"]
    {
        fail(call, 700);
        take_calls();
        run_batch(&mut device, &program(), &batch()).unwrap_err();
        assert_eq!(take_calls().last(), Some(&call));
    }
    drop(device);
    assert_eq!(take_calls(), [""; 0]);
}

#[test]
fn after_a_lesser_fault_the_stream_is_waited_for_and_the_next_report_is_clean() {
    let mut device = open("").unwrap();
    device.gpu.staging = NO_STAGING;
    fail("cuMemcpyDtoHAsync", 701);
    take_calls();
    let error = run_batch(&mut device, &program(), &batch()).unwrap_err();
    assert_eq!(error.class(), FaultClass::Transient);
    assert_eq!(take_calls().last(), Some(&"cuStreamSynchronize"));
    set_script("");
    let (_, work) = run_batch(&mut device, &program(), &batch()).unwrap();
    assert_eq!(work.kernels.iter().map(|kernel| kernel.launches).sum::<u32>(), 5);
}

#[test]
fn a_driver_that_is_too_old_is_not_initialised() {
    let error = driver("version=11040").unwrap_err();
    assert_eq!(error, Fault::DriverTooOld { have: 11_040, need: CUDA_VERSION_MIN });
    assert_eq!(take_calls(), ["cuDriverGetVersion"]);
}
