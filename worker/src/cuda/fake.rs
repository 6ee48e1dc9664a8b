//! A driver for tests without a GPU: it answers as told and keeps device memory on the host. Copies and
//! kernels wait in their stream until somebody waits for that, as late as a real device may be, so that
//! memory used again too early shows in the results.
//!
//! If it is told to compute, a chunk's launches have the reference's results. What it cannot test is
//! the kernels; `tests/gpu.rs` does.

#![expect(unsafe_code, reason = "functions with the driver's own signatures")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream, CUuuid,
};
use gridpool_kernels::module::{CUDA_VERSION_MIN, TILE_VALUES};
use gridpool_kernels::part::{Part, Run};
use gridpool_kernels::reference::Evaluator;
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;

use super::api::Api;
use super::device::CudaDevice;
use super::driver::{DeviceAddress, Driver, Stream};
use super::schedule::Places;
use crate::fault::Fault;

mod chaos;
mod results;
mod tests;

#[derive(Default)]
struct Script {
    /// This call gives this code.
    failure: Option<(&'static str, u32)>,
    /// But for so many of it first.
    spared: usize,
    /// This byte comes back in the place of every byte of device memory.
    garbage: Option<u8>,
    /// Launches have results.
    computes: bool,
    /// The offset of this value of a packed result is said to be another.
    misplaced: Option<(usize, u32)>,
    /// All calls so far.
    calls: Vec<&'static str>,
    /// What the next launch in a stream computes.
    next: Option<(usize, Program, Places)>,
    /// What waits in each stream.
    streams: Vec<VecDeque<Job>>,
}

/// What waits in a stream.
enum Job {
    /// From, to, bytes.
    Copy(usize, usize, usize),
    /// The same, to the host.
    CopyBack(usize, usize, usize),
    Compute(Box<(Program, Places)>),
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

/// How much waits in all streams.
fn waiting() -> usize {
    SCRIPT.with_borrow(|script| script.streams.iter().map(VecDeque::len).sum())
}

/// The next launch in `stream` is the first of those that run `program` over what lies at `places`.
pub(super) fn will_compute(stream: Stream, program: &Program, places: &Places) {
    SCRIPT.with_borrow_mut(|script| {
        script.next =
            script.computes.then(|| (number_of(stream.handle()), program.clone(), *places));
    });
}

/// Streams are numbered from 1: a null one is the driver's own.
fn number_of(stream: CUstream) -> usize {
    stream.expose_provenance() - 1
}

fn put_into(stream: CUstream, job: Job) {
    SCRIPT.with_borrow_mut(|script| script.streams[number_of(stream)].push_back(job));
}

/// Does what is first in a stream; `false` if there is nothing.
fn do_one(stream: CUstream) -> bool {
    let next = SCRIPT.with_borrow_mut(|script| script.streams[number_of(stream)].pop_front());
    let garbage = SCRIPT.with_borrow(|script| script.garbage);
    let Some(job) = next else { return false };
    match job {
        Job::Copy(from, to, bytes) => write(to, &read(from, bytes)),
        Job::CopyBack(from, to, bytes) => {
            let came = read(from, bytes);
            write(to, &garbage.map_or(came, |byte| vec![byte; bytes]));
        }
        Job::Compute(what) => compute(&what.0, &what.1),
    }
    true
}

fn read(from: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    let from = ptr::with_exposed_provenance::<u8>(from);
    // SAFETY: whoever put the copy into a stream vouches for its ends until it is done.
    unsafe { ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), bytes) };
    copy
}

fn write(to: usize, bytes: &[u8]) {
    let to = ptr::with_exposed_provenance_mut::<u8>(to);
    // SAFETY: as for `read`.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

fn number(address: DeviceAddress) -> usize {
    usize::try_from(address.number()).unwrap()
}

/// What the kernels of `program` leave, by the reference. The chunk's tables are held to what is said of
/// them.
fn compute(program: &Program, places: &Places) {
    let (items, per_item) = (places.items, program.grids_per_item());
    let grids = items as usize * per_item as usize;
    let shapes = read(number(places.input.shapes), 2 * grids);
    let offsets = read(number(places.offsets), 4 * (grids + 1));
    let offsets: Vec<_> =
        offsets.as_chunks::<4>().0.iter().map(|o| u32::from_le_bytes(*o) as usize).collect();
    let shapes = shapes.as_chunks::<2>().0;
    let mut end = 0;
    for (&[h, w], &offset) in shapes.iter().zip(&offsets) {
        assert_eq!(offset, end, "offsets of a chunk count from its first cell");
        end += usize::from(h) * usize::from(w);
    }
    assert_eq!((offsets[grids], places.cells), (end, end));
    let cells = read(number(places.input.cells), end);
    let batch = BatchLayout::new(items, per_item, u32::try_from(end).unwrap()).unwrap();
    let layout = OutputLayout::new(program, batch).unwrap();
    let run = Run { items: 0..items as usize, cells: 0..end };
    let mut evaluator = Evaluator::default();
    evaluator.load(per_item as usize, shapes, |to| to.copy_from_slice(&cells));
    evaluator.validate();
    for (at, step) in program.steps().iter().enumerate() {
        evaluator.apply(step, at, program.ties());
    }
    evaluator.finish(&layout, &run);
    for part in Part::ALL {
        let place = place_of(part, places);
        let bytes = evaluator.part(part);
        if place == DeviceAddress::default() || part.range(&layout).is_empty() {
            continue;
        }
        if part != Part::LabelsHigh {
            write(number(place), bytes);
            continue;
        }
        // Only where they are needed.
        let counts = evaluator.part(Part::Counts).as_chunks::<2>().0;
        let packed: Vec<_> = evaluator.part(Part::Offsets).as_chunks::<4>().0.to_vec();
        let start = |value: usize| match packed.get(value) {
            Some(offset) => u32::from_le_bytes(*offset) as usize,
            None if packed.is_empty() => offsets[value],
            None => bytes.len(),
        };
        for value in (0..counts.len()).filter(|&value| counts[value][1] > 0) {
            let labels = start(value)..start(value + 1);
            write(number(place) + labels.start, &bytes[labels]);
        }
    }
    if program.is_packed() {
        let tiles = layout.values_count().div_ceil(TILE_VALUES as usize);
        let part = if layout.cells().is_empty() { Part::LabelsLow } else { Part::Cells };
        let area = u32::try_from(evaluator.part(part).len()).unwrap();
        write(number(places.scratch.sums) + 4 * tiles, &area.to_le_bytes());
        if let Some((value, offset)) = SCRIPT.with_borrow(|script| script.misplaced) {
            write(number(places.result.offsets) + 4 * value, &offset.to_le_bytes());
        }
    }
}

fn place_of(part: Part, places: &Places) -> DeviceAddress {
    let result = &places.result;
    match part {
        Part::Status => result.status,
        Part::Shapes => result.shapes,
        Part::Origins => result.origins,
        Part::Offsets => result.offsets,
        Part::Numbers => result.numbers,
        Part::Palettes => result.palettes,
        Part::Counts => result.counts,
        Part::LabelsLow => result.labels_low,
        Part::LabelsHigh => result.labels_high,
        Part::Cells => result.cells,
    }
}

fn launches(calls: &[&str]) -> usize {
    count(calls, "cuLaunchKernel")
}

fn count(calls: &[&str], name: &str) -> usize {
    calls.iter().filter(|call| **call == name).count()
}

/// Notes a call; its code is 0 unless the script says otherwise.
fn answer(call: &'static str) -> u32 {
    SCRIPT.with_borrow_mut(|script| {
        script.calls.push(call);
        match script.failure {
            Some((failing, _)) if failing == call && script.spared > 0 => {
                script.spared -= 1;
                0
            }
            Some((failing, code)) if failing == call => code,
            Some(_) | None => 0,
        }
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
fake!(
    mem_host_get_device_pointer(to: *mut CUdeviceptr, start: *mut c_void, _flags: c_uint)
    as "cuMemHostGetDevicePointer" gives to: start.expose_provenance() as CUdeviceptr
);
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
    as "cuStreamCreate" gives to: ptr::with_exposed_provenance_mut(new_stream())
);

fn new_stream() -> usize {
    SCRIPT.with_borrow_mut(|script| {
        script.streams.push(VecDeque::new());
        script.streams.len()
    })
}

unsafe extern "C" fn stream_synchronize(stream: CUstream) -> u32 {
    let code = answer("cuStreamSynchronize");
    while code == 0 && do_one(stream) {}
    code
}

/// Work goes on while it is asked for.
unsafe extern "C" fn stream_query(stream: CUstream) -> u32 {
    const NOT_READY: u32 = 600;
    match answer("cuStreamQuery") {
        0 if do_one(stream) => NOT_READY,
        code => code,
    }
}

unsafe extern "C" fn launch_kernel(
    _function: CUfunction,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: CUstream,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> u32 {
    let code = answer("cuLaunchKernel");
    let next = SCRIPT.with_borrow_mut(|script| script.next.take());
    if let Some((_, program, places)) = next.filter(|(at, ..)| *at == number_of(stream)) {
        put_into(stream, Job::Compute(Box::new((program, places))));
    }
    code
}

unsafe extern "C" fn memcpy_dtoh_async(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> u32 {
    let code = answer("cuMemcpyDtoHAsync");
    if code == 0 {
        let from = usize::try_from(from).unwrap();
        put_into(stream, Job::CopyBack(from, to.expose_provenance(), bytes));
    }
    code
}

unsafe extern "C" fn memcpy_htod_async(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> u32 {
    let code = answer("cuMemcpyHtoDAsync");
    if code == 0 {
        let to = usize::try_from(to).unwrap();
        put_into(stream, Job::Copy(from.expose_provenance(), to, bytes));
    }
    code
}

pub(super) const FAKE: Api = Api {
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
    mem_host_get_device_pointer,
    mem_host_register,
    mem_host_unregister,
    memcpy_dtoh_async,
    memcpy_htod_async,
    module_get_function,
    module_load_data,
    stream_create,
    stream_query,
    stream_synchronize,
};

fn open() -> Result<CudaDevice, Fault> {
    CudaDevice::over(Driver::over(FAKE, CUDA_VERSION_MIN)?, 0, None)
}

/// One whose launches have the reference's results.
fn open_computing() -> CudaDevice {
    SCRIPT.with_borrow_mut(|script| script.computes = true);
    open().unwrap()
}
