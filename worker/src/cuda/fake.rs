//! A driver for tests without a GPU: it answers as told, keeps device memory on the host, copies
//! for real, and computes nothing. What it cannot test is the kernels; `tests/gpu.rs` does.

#![expect(unsafe_code, reason = "functions with the driver's own signatures")]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream, CUuuid,
};
use gridpool_kernels::module::CUDA_VERSION_MIN;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::program::{Program, Ties};

use super::api::Api;
use super::device::CudaDevice;
use super::driver::Driver;
use crate::fault::{Fault, FaultClass};
use crate::self_test::{run_batch, self_test};

#[derive(Default)]
struct Script {
    /// This call gives this code.
    failure: Option<(&'static str, u32)>,
    /// This byte comes back in the place of every byte of device memory.
    garbage: Option<u8>,
    /// All calls so far.
    calls: Vec<&'static str>,
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::default();
}

fn fail(call: &'static str, code: u32) {
    SCRIPT.with_borrow_mut(|script| script.failure = Some((call, code)));
}

fn take_calls() -> Vec<&'static str> {
    SCRIPT.with_borrow_mut(|script| std::mem::take(&mut script.calls))
}

fn launches(calls: &[&str]) -> usize {
    calls.iter().filter(|call| **call == "cuLaunchKernel").count()
}

/// Notes a call; its code is 0 unless the script says otherwise.
fn answer(call: &'static str) -> u32 {
    SCRIPT.with_borrow_mut(|script| {
        script.calls.push(call);
        script.failure.filter(|(failing, _)| *failing == call).map_or(0, |(_, code)| code)
    })
}

/// Notes a call and, if it succeeds, gives its result.
///
/// # Safety
/// `to` must be valid for a write.
unsafe fn give<T>(call: &'static str, to: *mut T, value: T) -> u32 {
    let code = answer(call);
    if code == 0 {
        // SAFETY: by this function's own contract.
        unsafe { to.write(value) };
    }
    code
}

fn host_memory(bytes: usize) -> *mut u8 {
    Box::leak(vec![0; bytes].into_boxed_slice()).as_mut_ptr()
}

macro_rules! fake {
    ($name:ident($($argument:ident: $kind:ty),*) as $call:literal gives $to:ident: $value:expr) => {
        unsafe extern "C" fn $name($($argument: $kind),*) -> u32 {
            // SAFETY: the caller is `Driver`, which passes a place for the result.
            unsafe { give($call, $to, $value) }
        }
    };
    ($name:ident($($argument:ident: $kind:ty),*) as $call:literal) => {
        unsafe extern "C" fn $name($($argument: $kind),*) -> u32 {
            answer($call)
        }
    };
}

fake!(ctx_set_current(_context: CUcontext) as "cuCtxSetCurrent");
fake!(device_get(to: *mut CUdevice, _ordinal: c_int) as "cuDeviceGet" gives to: 0);
fake!(device_get_count(to: *mut c_int) as "cuDeviceGetCount" gives to: 1);
fake!(
    device_get_name(to: *mut c_char, _length: c_int, _device: CUdevice)
    as "cuDeviceGetName" gives to: 0
);
fake!(
    device_get_uuid(to: *mut CUuuid, _device: CUdevice)
    as "cuDeviceGetUuid" gives to: CUuuid { bytes: [1; 16] }
);
fake!(
    device_primary_ctx_retain(to: *mut CUcontext, _device: CUdevice)
    as "cuDevicePrimaryCtxRetain" gives to: ptr::null_mut()
);
fake!(driver_get_version(to: *mut c_int) as "cuDriverGetVersion" gives to: 12_000);
fake!(event_create(to: *mut CUevent, _flags: c_uint) as "cuEventCreate" gives to: ptr::null_mut());
fake!(
    event_elapsed_time(to: *mut f32, _start: CUevent, _end: CUevent)
    as "cuEventElapsedTime" gives to: 0.5
);
fake!(event_record(_event: CUevent, _stream: CUstream) as "cuEventRecord");
fake!(init(_flags: c_uint) as "cuInit");
fake!(
    mem_alloc(to: *mut CUdeviceptr, bytes: usize)
    as "cuMemAlloc" gives to: host_memory(bytes).expose_provenance() as CUdeviceptr
);
fake!(mem_free(_address: CUdeviceptr) as "cuMemFree");
fake!(mem_free_host(_start: *mut c_void) as "cuMemFreeHost");
fake!(
    mem_host_alloc(to: *mut *mut c_void, bytes: usize, _flags: c_uint)
    as "cuMemHostAlloc" gives to: host_memory(bytes).cast()
);
fake!(mem_host_register(_start: *mut c_void, _bytes: usize, _flags: c_uint) as "cuMemHostRegister");
fake!(mem_host_unregister(_start: *mut c_void) as "cuMemHostUnregister");
fake!(
    module_get_function(to: *mut CUfunction, _module: CUmodule, _name: *const c_char)
    as "cuModuleGetFunction" gives to: ptr::null_mut()
);
fake!(
    module_load_data(to: *mut CUmodule, _image: *const c_void)
    as "cuModuleLoadData" gives to: ptr::null_mut()
);
fake!(
    stream_create(to: *mut CUstream, _flags: c_uint)
    as "cuStreamCreate" gives to: ptr::null_mut()
);
fake!(stream_synchronize(_stream: CUstream) as "cuStreamSynchronize");

unsafe extern "C" fn launch_kernel(
    _function: CUfunction,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    _stream: CUstream,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> u32 {
    answer("cuLaunchKernel")
}

unsafe extern "C" fn memcpy_dtoh_async(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    _stream: CUstream,
) -> u32 {
    let from = ptr::with_exposed_provenance::<u8>(usize::try_from(from).unwrap());
    // SAFETY: the address came from `mem_alloc`, and `Lane` keeps to its buffers.
    unsafe { ptr::copy_nonoverlapping(from, to.cast::<u8>(), bytes) };
    if let Some(byte) = SCRIPT.with_borrow(|script| script.garbage) {
        // SAFETY: as for the copy.
        unsafe { to.cast::<u8>().write_bytes(byte, bytes) };
    }
    answer("cuMemcpyDtoHAsync")
}

unsafe extern "C" fn memcpy_htod_async(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    _stream: CUstream,
) -> u32 {
    let to = ptr::with_exposed_provenance_mut::<u8>(usize::try_from(to).unwrap());
    // SAFETY: the address came from `mem_alloc`, and `Lane` keeps to its buffers.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to, bytes) };
    answer("cuMemcpyHtoDAsync")
}

const FAKE: Api = Api {
    ctx_set_current,
    device_get,
    device_get_count,
    device_get_name,
    device_get_uuid,
    device_primary_ctx_retain,
    driver_get_version,
    event_create,
    event_elapsed_time,
    event_record,
    init,
    launch_kernel,
    mem_alloc,
    mem_free_host,
    mem_free,
    mem_host_alloc,
    mem_host_register,
    mem_host_unregister,
    memcpy_dtoh_async,
    memcpy_htod_async,
    module_get_function,
    module_load_data,
    stream_create,
    stream_synchronize,
};

fn open() -> Result<CudaDevice, Fault> {
    CudaDevice::over(Driver::over(FAKE, CUDA_VERSION_MIN)?, 0, None)
}

fn program() -> Program {
    Program::compile("rot90 | replace(1, 2) | rot90", Ties::Cpython).unwrap()
}

fn batch() -> GridBatch {
    GridBatch::from_grids([&Grid::from_rows(&[[1, 2, 3]]).unwrap()]).unwrap()
}

#[test]
fn reported_launches_are_the_launch_calls_that_were_made() {
    let mut device = open().unwrap();
    take_calls();
    let (_, work) = run_batch(&mut device, &program(), &batch()).unwrap();
    let reported: u32 = work.kernels.iter().map(|kernel| kernel.launches).sum();
    assert_eq!(reported as usize, launches(&take_calls()));
    let rows: Vec<_> =
        work.kernels.iter().map(|k| (k.name.as_str(), k.launches, k.device_us)).collect();
    let want = [("gp_validate", 1, 500.0), ("gp_rot90", 2, 1_000.0), ("gp_replace", 1, 500.0)];
    assert_eq!(rows, want);
}

#[test]
fn a_packed_result_takes_its_kernels_and_a_second_copy_for_what_they_found() {
    let program = Program::compile("crop(0, 0, 1, 2) | ofcolor(1)", Ties::Cpython).unwrap();
    let mut device = open().unwrap();
    take_calls();
    let (_, work) = run_batch(&mut device, &program, &batch()).unwrap();
    let names: Vec<_> = work.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let want = ["gp_validate", "gp_crop", "gp_ofcolor", "gp_add_areas", "gp_place", "gp_pack"];
    assert_eq!(names, want);
    let calls = take_calls();
    assert_eq!(launches(&calls), want.len());
    // Nothing was computed, so there are no cells to copy.
    assert_eq!(calls.iter().filter(|call| **call == "cuMemcpyDtoHAsync").count(), 2);
}

#[test]
fn an_area_that_no_result_has_is_a_fault_and_never_a_length() {
    for text in ["crop(0, 0, 1, 2)", "ofcolor(1)", "upscale(2) | objects(true, true, true)"] {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        let mut device = open().unwrap();
        for byte in [1, 127, 128, 255] {
            SCRIPT.with_borrow_mut(|script| script.garbage = Some(byte));
            let error = run_batch(&mut device, &program, &batch()).unwrap_err();
            assert!(matches!(error, Fault::WrongResult { .. }), "{error}");
            assert!(error.ends_worker());
        }
        SCRIPT.with_borrow_mut(|script| script.garbage = None);
        run_batch(&mut device, &program, &batch()).unwrap();
    }
}

#[test]
fn a_device_that_launches_and_computes_nothing_fails_the_self_test() {
    let error = self_test(&mut open().unwrap()).unwrap_err();
    assert!(matches!(error, Fault::WrongAnswer { .. }), "{error}");
}

#[test]
fn every_code_that_a_driver_could_give_is_a_fault_with_that_number() {
    let mut device = open().unwrap();
    for call in ["cuStreamSynchronize", "cuLaunchKernel", "cuMemcpyHtoDAsync", "cuEventRecord"] {
        for code in (1..=1_100).chain([u32::MAX]) {
            fail(call, code);
            let error = run_batch(&mut device, &program(), &batch()).unwrap_err();
            assert_eq!(error, Fault::Cuda { call, code });
        }
    }
}

#[test]
fn after_a_fault_that_ends_the_worker_no_call_is_made() {
    let mut device = open().unwrap();
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
    let mut device = open().unwrap();
    fail("cuMemcpyDtoHAsync", 701);
    take_calls();
    let error = run_batch(&mut device, &program(), &batch()).unwrap_err();
    assert_eq!(error.class(), FaultClass::Transient);
    assert_eq!(take_calls().last(), Some(&"cuStreamSynchronize"));
    fail("", 0);
    let (_, work) = run_batch(&mut device, &program(), &batch()).unwrap();
    assert_eq!(work.kernels.iter().map(|kernel| kernel.launches).sum::<u32>(), 4);
}

#[test]
fn any_call_may_fail_while_the_device_opens() {
    take_calls();
    open().unwrap();
    let mut calls = take_calls();
    calls.sort_unstable();
    calls.dedup();
    assert!(calls.len() > 10, "{calls:?}");
    for call in calls {
        fail(call, 999);
        assert_eq!(open().unwrap_err(), Fault::Cuda { call, code: 999 });
    }
}

#[test]
fn a_driver_that_is_too_old_is_not_initialised() {
    take_calls();
    let error = Driver::over(FAKE, 12_010).unwrap_err();
    assert_eq!(error, Fault::DriverTooOld { have: 12_000, need: 12_010 });
    assert_eq!(take_calls(), ["cuDriverGetVersion"]);
}
