//! The device alone: memory that is not allocated, pending work, faults that stay.

#![expect(unsafe_code, reason = "calls the driver's functions")]

use std::ffi::c_void;
use std::ptr;

use super::*;
use crate::cuda::{
    code, cuCtxSetCurrent, cuDevicePrimaryCtxRetain, cuInit, cuMemAlloc_v2, cuMemFree_v2,
    cuMemHostRegister_v2, cuMemHostUnregister, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2,
    cuStreamCreate, cuStreamQuery, cuStreamSynchronize,
};

/// A device of this script with a context and a stream.
fn device(script: &str) -> *mut c_void {
    install(script).unwrap();
    let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: nothing is asked of the caller.
    assert_eq!(unsafe { cuInit(0) }, 0);
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    // SAFETY: the context has just been given.
    assert_eq!(unsafe { cuCtxSetCurrent(context) }, 0);
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuStreamCreate(&raw mut stream, 1) }, 0);
    stream
}

fn allocate(bytes: usize) -> u64 {
    let mut start = 0;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut start, bytes) }, 0);
    start
}

fn there(to: u64, from: &[u8], stream: *mut c_void) -> u32 {
    // SAFETY: the host's end is valid; the device's is looked at.
    unsafe { cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream) }
}

fn back(to: &mut [u8], from: u64, stream: *mut c_void) -> u32 {
    // SAFETY: as for `there`.
    unsafe { cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream) }
}

fn synchronize(stream: *mut c_void) -> u32 {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuStreamSynchronize(stream) }
}

#[test]
fn work_is_pending_until_a_call_waits_for_it() {
    let stream = device("");
    let place = allocate(8);
    let mut came = [0; 8];
    assert_eq!((there(place, &[7; 8], stream), back(&mut came, place, stream)), (0, 0));
    assert_eq!((came, with(|device| device.waiting())), ([0; 8], 2));
    // SAFETY: nothing is asked of the caller.
    let query = || unsafe { cuStreamQuery(stream) };
    assert_eq!([query(), query(), query()], [code::NOT_READY, code::NOT_READY, 0]);
    assert_eq!(came, [7; 8]);
}

#[test]
fn unallocated_memory_is_not_touched() {
    let stream = device("");
    let place = allocate(8);
    assert_eq!(there(place + 1, &[7; 8], stream), code::INVALID_VALUE);
    assert_eq!(there(place, &[7; 8], stream), 0);
    // SAFETY: nothing but the stream uses it, and that is looked at.
    let free = || unsafe { cuMemFree_v2(place) };
    assert_eq!((free(), free()), (0, code::INVALID_VALUE));
    // The copy is pending and its target is gone: as on a real device, that ends the context.
    assert_eq!(synchronize(stream), code::ILLEGAL_ADDRESS);
    assert_eq!(there(place, &[7; 8], stream), code::ILLEGAL_ADDRESS);
}

#[test]
fn an_arena_is_registered_once_and_released_once() {
    device("");
    let mut arena = vec![0_u8; 100];
    let start = arena.as_mut_ptr();
    // SAFETY: nothing is copied.
    let register =
        |from: usize| unsafe { cuMemHostRegister_v2(start.wrapping_add(from).cast(), 50, 2) };
    // SAFETY: nothing is copied.
    let release = || unsafe { cuMemHostUnregister(start.cast()) };
    assert_eq!(
        [register(0), register(49), register(50)],
        [0, code::HOST_MEMORY_ALREADY_REGISTERED, 0]
    );
    assert_eq!([release(), release()], [0, code::HOST_MEMORY_NOT_REGISTERED]);
}

#[test]
fn a_sticky_code_stays_and_a_late_one_comes_later() {
    let stream = device("call=cuMemcpyHtoDAsync nth=1 code=719 later=2");
    let place = allocate(8);
    let mut came = [0; 8];
    assert_eq!((there(place, &[7; 8], stream), back(&mut came, place, stream)), (0, 0));
    assert_eq!([synchronize(stream), synchronize(stream)], [719; 2]);
    assert_eq!(came, [0; 8], "nothing was done any more");
    // As measured on a real device: only this call still works.
    let mut context = ptr::null_mut();
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
}

#[test]
fn the_script_flips_one_bit_of_a_copy() {
    let stream = device("call=cuMemcpyDtoHAsync nth=2 flip");
    let place = allocate(8);
    assert_eq!(there(place, &[7; 8], stream), 0);
    let differ = || {
        let mut came = [0; 8];
        assert_eq!((back(&mut came, place, stream), synchronize(stream)), (0, 0));
        came.iter().map(|byte| (byte ^ 7).count_ones()).sum::<u32>()
    };
    assert_eq!([differ(), differ(), differ()], [0, 1, 0]);
}

#[test]
fn calls_out_of_order_get_the_codes_of_a_driver() {
    install("").unwrap();
    let mut start = 0;
    // SAFETY: the place is valid.
    let allocate = |start: &mut u64| unsafe { cuMemAlloc_v2(start, 8) };
    assert_eq!(allocate(&mut start), code::NOT_INITIALIZED);
    // SAFETY: nothing is asked of the caller.
    assert_eq!(unsafe { cuInit(0) }, 0);
    assert_eq!(allocate(&mut start), code::INVALID_CONTEXT);
    device("");
    assert_eq!(synchronize(ptr::without_provenance_mut(9)), code::INVALID_HANDLE);
    install("devices=0").unwrap();
    // SAFETY: nothing is asked of the caller.
    assert_eq!(unsafe { cuInit(0) }, code::NO_DEVICE);
}

#[test]
fn a_process_sees_its_visible_devices_up_to_the_first_unknown_one() {
    let sees = |names: Option<&str>| {
        let script = Script::parse("devices=3").unwrap();
        Machine::new(script, names).visible
    };
    assert_eq!(sees(None), [0, 1, 2]);
    assert_eq!(sees(Some("")), [0; 0]);
    assert_eq!(sees(Some("2,0")), [2, 0]);
    assert_eq!(sees(Some(&format!("{},7,0", uuid_text(1)))), [1]);
}

#[test]
fn a_delayed_call_takes_its_time_and_is_done() {
    let stream = device("call=cuStreamSynchronize nth=1 delay=20");
    let begun = clock::now();
    assert_eq!(synchronize(stream), 0);
    assert!(begun.elapsed() >= Duration::from_millis(20));
}
