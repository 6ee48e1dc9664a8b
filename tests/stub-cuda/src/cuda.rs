//! The driver's functions, by the names that a loader asks for. Each follows `cuda.h`, as far as gridpool uses
//! it. Invalid handles, and calls out of order, get a real driver's codes.

#![expect(
    unsafe_code,
    reason = "functions with the driver's own signatures, by the driver's names"
)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use gridpool_kernels::solve::{PREPARE, SEARCH, SOLVE, TEMPLATE};

use crate::kernel::Launch;
use crate::machine::{Job, Machine, Moment, Stream, uuid};
use crate::memory::Origin;

/// Results of calls, except 0.
pub(crate) mod code {
    use gridpool_protocol::chaos::DeviceFault;

    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NOT_INITIALIZED: u32 = 3;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const INVALID_DEVICE: u32 = 101;
    pub(crate) const INVALID_CONTEXT: u32 = 201;
    pub(crate) const INVALID_PTX: u32 = 218;
    pub(crate) const INVALID_HANDLE: u32 = 400;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: u32 = 712;
    pub(crate) const HOST_MEMORY_NOT_REGISTERED: u32 = 713;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;

    /// The codes of kernels that fault on purpose, as on an H200.
    pub(crate) const FAULTS: [(DeviceFault, u32); 4] = [
        (DeviceFault::Assert, 710),
        (DeviceFault::Misaligned, 716),
        (DeviceFault::Oob, 700),
        (DeviceFault::Trap, 719),
    ];
}

const NAME: &CStr = c"gridpool stub GPU";
/// Its attributes, an H200's: the compute capability, multiprocessors, and how many blocks fit each.
const ATTRIBUTES: [(c_uint, c_int); 6] =
    [(75, 9), (76, 0), (16, 132), (81, 233_472), (106, 32), (111, 1_024)];
/// More nodes than a graph has.
const NODES_MAX: usize = 1 << 16;
/// `CU_EVENT_RECORD_EXTERNAL`, only for a stream that is captured.
const RECORD_EXTERNAL: c_uint = 1;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const MEMORY_TYPE: c_uint = 2;
/// `CU_MEMORYTYPE_UNIFIED`: an attribute tells which.
const UNIFIED: c_uint = 4;
/// The context of the one device.
const CONTEXT: usize = 1;

/// An address on the device.
type Address = u64;
/// A context, module, function, stream, event, graph or node.
type Handle = *mut c_void;

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug)]
pub struct Memcpy3d {
    from: CopyEnd,
    to: CopyEnd,
    rest: [usize; 3],
}

#[repr(C)]
#[derive(Debug)]
struct CopyEnd {
    place: [usize; 4],
    kind: c_uint,
    host: usize,
    device: Address,
    array: usize,
    reserved: usize,
    pitch: [usize; 2],
}

impl CopyEnd {
    const NOWHERE: Self =
        Self { place: [0; 4], kind: 0, host: 0, device: 0, array: 0, reserved: 0, pitch: [0; 2] };
}

macro_rules! exports {
    ($table:ident: $($symbol:ident($($argument:ident: $kind:ty),*) $act:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` as its header has it.")]
            ///
            /// # Safety
            /// As the header says: places for results must be valid for writes.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($argument: $kind),*) -> u32 {
                $crate::machine::answer(stringify!($symbol), $act)
            }
        )*

        /// The names of the functions.
        pub const $table: &[&str] = &[$(stringify!($symbol)),*];

        /// The address of a function, as a loader finds it.
        #[must_use]
        pub fn symbol(name: &str) -> Option<*const c_void> {
            match name {
                $(stringify!($symbol) => Some($symbol as *const c_void),)*
                _ => None,
            }
        }
    };
}
pub(crate) use exports;

/// Writes a result.
pub(crate) fn give<T>(to: *mut T, value: T) -> Result<(), u32> {
    if to.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: the caller of the function that this is for vouches for the place.
    unsafe { to.write(value) };
    Ok(())
}

fn handle(number: usize) -> Handle {
    ptr::without_provenance_mut(number)
}

impl Machine {
    fn initialised(&mut self) -> Result<&mut Self, u32> {
        if self.is_initialised { Ok(self) } else { Err(code::NOT_INITIALIZED) }
    }

    fn in_context(&mut self) -> Result<&mut Self, u32> {
        let machine = self.initialised()?;
        if machine.has_context { Ok(machine) } else { Err(code::INVALID_CONTEXT) }
    }

    /// The machine's number of the device that this process knows as `ordinal`.
    fn device(&mut self, ordinal: c_int) -> Result<u32, u32> {
        let visible = &self.initialised()?.visible;
        let at = usize::try_from(ordinal).map_err(|_| code::INVALID_DEVICE)?;
        visible.get(at).copied().ok_or(code::INVALID_DEVICE)
    }

    fn event(&mut self, event: Handle) -> Result<(usize, &mut Moment), u32> {
        let at = event.addr().checked_sub(1).ok_or(code::INVALID_HANDLE)?;
        let moment = self.in_context()?.events.get_mut(at);
        moment.map(|moment| (at, moment)).ok_or(code::INVALID_HANDLE)
    }
}

impl Machine {
    fn graph(&mut self, graph: Handle) -> Result<&mut Vec<Job>, u32> {
        let at = graph.addr().checked_sub(1).ok_or(code::INVALID_HANDLE)?;
        self.in_context()?.graphs.get_mut(at).ok_or(code::INVALID_HANDLE)
    }

    /// What a node of a graph does. Its handle is the number of the graph, times [`NODES_MAX`], and its own.
    fn node(&mut self, node: Handle) -> Result<&Job, u32> {
        let graph = handle(node.addr() / NODES_MAX);
        self.graph(graph)?.get(node.addr() % NODES_MAX).ok_or(code::INVALID_HANDLE)
    }
}

exports! { SYMBOLS:
    cuCtxSetCurrent(context: Handle) |mut machine, _| {
        machine.initialised()?.has_context = context.addr() == CONTEXT;
        if context.addr() <= CONTEXT { Ok(()) } else { Err(code::INVALID_CONTEXT) }
    };
    cuDeviceGet(to: *mut c_int, ordinal: c_int) |mut machine, _| {
        machine.device(ordinal).and_then(|_| give(to, ordinal))
    };
    cuDeviceGetAttribute(to: *mut c_int, attribute: c_uint, device: c_int) |mut machine, effects| {
        machine.device(device)?;
        let known = ATTRIBUTES.iter().find(|(known, _)| *known == attribute);
        let value = effects.value.and_then(|value| c_int::try_from(value).ok());
        let value = value.or_else(|| known.map(|known| known.1));
        give(to, value.ok_or(code::INVALID_VALUE)?)
    };
    cuDeviceGetCount(to: *mut c_int) |mut machine, _| {
        let count = c_int::try_from(machine.initialised()?.visible.len());
        give(to, count.map_err(|_| code::INVALID_VALUE)?)
    };
    cuDeviceGetName(to: *mut c_char, length: c_int, device: c_int) |mut machine, _| {
        machine.device(device)?;
        give_text(to, usize::try_from(length).unwrap_or(0), NAME)
    };
    cuDeviceGetUuid_v2(to: *mut [u8; 16], device: c_int) |mut machine, _| {
        let known = machine.device(device).map(uuid)?;
        give(to, machine.script.uuid.filter(|_| device == 0).unwrap_or(known))
    };
    cuDevicePrimaryCtxRetain(to: *mut Handle, device: c_int) |mut machine, _| {
        let device = machine.device(device)?;
        machine.register_process(device);
        give(to, handle(CONTEXT))
    };
    cuDriverGetVersion(to: *mut c_int) |machine, _| give(to, machine.script.version);
    cuEventCreate(to: *mut Handle, _flags: c_uint) |mut machine, _| {
        let machine = machine.in_context()?;
        machine.events.push(Moment::Never);
        give(to, handle(machine.events.len()))
    };
    cuEventElapsedTime(to: *mut f32, start: Handle, end: Handle) |mut machine, _| {
        let (start, end) = (*machine.event(start)?.1, *machine.event(end)?.1);
        match (start, end) {
            (Moment::At(start), Moment::At(end)) => give(to, end - start),
            (Moment::Never, _) | (_, Moment::Never) => Err(code::INVALID_HANDLE),
            (Moment::Waiting, _) | (_, Moment::Waiting) => Err(code::NOT_READY),
        }
    };
    cuEventRecord(event: Handle, stream: Handle) |mut machine, _| {
        let (at, moment) = machine.event(event)?;
        *moment = Moment::Waiting;
        machine.put_into(stream.addr(), Job::Record(at))
    };
    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) |mut machine, _| {
        let (at, moment) = machine.event(event)?;
        *moment = Moment::Waiting;
        let is_captured = machine.stream(stream.addr())?.captured.is_some();
        match flags == RECORD_EXTERNAL && is_captured {
            true => machine.put_into(stream.addr(), Job::Record(at)),
            false => Err(code::INVALID_VALUE),
        }
    };
    cuGraphDestroy(graph: Handle) |mut machine, _| machine.graph(graph).map(|_| ());
    cuGraphExecDestroy(graph: Handle) |mut machine, _| {
        machine.graph(graph)?.clear();
        Ok(())
    };
    cuGraphGetNodes(graph: Handle, to: *mut Handle, count: *mut usize) |mut machine, _| {
        let nodes = machine.graph(graph)?.len();
        let first = graph.addr() * NODES_MAX;
        for node in (0..nodes).filter(|_| !to.is_null()) {
            // The caller has room for as many nodes as the graph has.
            give(to.wrapping_add(node), handle(first + node))?;
        }
        give(count, nodes)
    };
    cuGraphInstantiateWithFlags(to: *mut Handle, graph: Handle, _flags: u64) |mut machine, _| {
        machine.graph(graph).and_then(|_| give(to, graph))
    };
    cuGraphLaunch(graph: Handle, stream: Handle) |mut machine, _| {
        let jobs = machine.graph(graph)?.clone();
        jobs.into_iter().try_for_each(|job| machine.put_into(stream.addr(), job))
    };
    cuGraphMemcpyNodeGetParams(node: Handle, to: *mut Memcpy3d) |mut machine, _| {
        let Job::Copy { from, to: end, .. } = *machine.node(node)? else { return Err(code::INVALID_HANDLE) };
        let end_at = |address: usize| CopyEnd { kind: UNIFIED, device: address as Address, ..CopyEnd::NOWHERE };
        give(to, Memcpy3d { from: end_at(from), to: end_at(end), rest: [0; 3] })
    };
    cuGraphNodeGetType(node: Handle, to: *mut c_uint) |mut machine, effects| {
        let kind = match machine.node(node)? {
            Job::Launch(..) | Job::Rest(..) => 0,
            Job::Copy { .. } => 1,
            Job::Fill { .. } => 2,
            Job::Record(_) => 7,
        };
        give(to, effects.value.unwrap_or(kind))
    };
    cuInit(_flags: c_uint) |mut machine, _| {
        machine.is_initialised = !machine.visible.is_empty();
        if machine.is_initialised { Ok(()) } else { Err(code::NO_DEVICE) }
    };
    cuLaunchKernel(
        function: Handle, _grid_x: c_uint, _grid_y: c_uint, _grid_z: c_uint, _block_x: c_uint,
        _block_y: c_uint, _block_z: c_uint, _shared: c_uint, stream: Handle,
        arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) |mut machine, effects| {
        let at = function.addr().checked_sub(1).ok_or(code::INVALID_HANDLE)?;
        let name = machine.in_context()?.functions.get(at).ok_or(code::INVALID_HANDLE)?;
        // SAFETY: the caller passes what the parameters of the kernel need.
        let launch = unsafe { Launch::read(name, arguments)? };
        machine.put_into(stream.addr(), Job::Launch(launch, effects.defect))
    };
    cuMemAlloc_v2(to: *mut Address, bytes: usize) |mut machine, _| {
        let start = machine.in_context()?.memory.allocate(bytes, Origin::Device)?;
        give(to, start.expose_provenance() as Address)
    };
    cuMemFreeHost(start: *mut c_void) |mut machine, _| {
        machine.in_context()?.memory.free(start.expose_provenance(), Origin::Pinned)
    };
    cuMemFree_v2(start: Address) |mut machine, _| {
        machine.in_context()?.memory.free(number(start), Origin::Device)
    };
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |mut machine, _| {
        let memory = &machine.in_context()?.memory;
        let (left, all) = (memory.left(), memory.limit());
        give(free, left).and_then(|()| give(total, all))
    };
    cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, _flags: c_uint) |mut machine, _| {
        let start = machine.in_context()?.memory.allocate(bytes, Origin::Pinned)?;
        give(to, start.cast())
    };
    cuMemHostGetDevicePointer_v2(to: *mut Address, start: *mut c_void, _flags: c_uint) |mut machine, _| {
        let start = start.expose_provenance();
        let is_mapped = machine.in_context()?.memory.is_mapped(start);
        if is_mapped { give(to, start as Address) } else { Err(code::INVALID_VALUE) }
    };
    cuMemHostRegister_v2(start: *mut c_void, bytes: usize, _flags: c_uint) |mut machine, _| {
        machine.in_context()?.memory.register(start.expose_provenance(), bytes)
    };
    cuMemHostUnregister(start: *mut c_void) |mut machine, _| {
        machine.in_context()?.memory.unregister(start.expose_provenance())
    };
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Address, bytes: usize, stream: Handle)
    |mut machine, effects| {
        machine.in_context()?.memory.check(number(from), bytes).map_err(|_| code::INVALID_VALUE)?;
        let (on_device, to, defect) = (number(from), to.expose_provenance(), effects.defect);
        let copy = Job::Copy { from: on_device, to, on_device, bytes, defect };
        machine.put_into(stream.addr(), copy)
    };
    cuMemcpyHtoDAsync_v2(to: Address, from: *const c_void, bytes: usize, stream: Handle)
    |mut machine, effects| {
        machine.in_context()?.memory.check(number(to), bytes).map_err(|_| code::INVALID_VALUE)?;
        let (from, on_device, defect) = (from.expose_provenance(), number(to), effects.defect);
        let copy = Job::Copy { from, to: on_device, on_device, bytes, defect };
        machine.put_into(stream.addr(), copy)
    };
    cuMemsetD8Async(to: Address, byte: u8, bytes: usize, stream: Handle) |mut machine, _| {
        machine.in_context()?.memory.check(number(to), bytes).map_err(|_| code::INVALID_VALUE)?;
        machine.put_into(stream.addr(), Job::Fill { to: number(to), byte, bytes })
    };
    cuModuleGetFunction(to: *mut Handle, module: Handle, name: *const c_char) |mut machine, _| {
        let at = module.addr().checked_sub(1).ok_or(code::INVALID_HANDLE)?;
        let entries = machine.in_context()?.modules.get(at).ok_or(code::INVALID_HANDLE)?;
        // SAFETY: the caller passes a text that ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let entry = entries.iter().find(|entry| **entry == name).ok_or(code::NOT_FOUND)?.clone();
        machine.functions.push(entry);
        give(to, handle(machine.functions.len()))
    };
    cuModuleLoadData(to: *mut Handle, image: *const c_void) |mut machine, _| {
        let machine = machine.in_context()?;
        // SAFETY: the caller passes PTX, a text that ends with a zero, or machine code, whose head has zeros.
        let image = unsafe { CStr::from_ptr(image.cast()) };
        machine.modules.push(entries(image.to_bytes())?);
        give(to, handle(machine.modules.len()))
    };
    cuPointerGetAttribute(to: *mut c_void, attribute: c_uint, address: Address) |mut machine, _| {
        let origin = machine.in_context()?.memory.origin(number(address));
        let kind: c_uint = match origin.filter(|_| attribute == MEMORY_TYPE) {
            Some(Origin::Device) => 2,
            Some(Origin::Pinned | Origin::Registered) => 1,
            None => return Err(code::INVALID_VALUE),
        };
        give(to.cast(), kind)
    };
    cuStreamBeginCapture_v2(stream: Handle, _mode: c_uint) |mut machine, _| {
        machine.in_context()?.stream(stream.addr())?.captured = Some(Vec::new());
        Ok(())
    };
    cuStreamCreate(to: *mut Handle, _flags: c_uint) |mut machine, _| {
        let machine = machine.in_context()?;
        machine.streams.push(Stream::default());
        give(to, handle(machine.streams.len()))
    };
    cuStreamEndCapture(stream: Handle, to: *mut Handle) |mut machine, _| {
        let machine = machine.in_context()?;
        let captured = machine.stream(stream.addr())?.captured.take();
        machine.graphs.push(captured.ok_or(code::INVALID_VALUE)?);
        give(to, handle(machine.graphs.len()))
    };
    cuStreamQuery(stream: Handle) |mut machine, _| {
        // A query makes the stream advance.
        if machine.in_context()?.do_one(stream.addr())? { Err(code::NOT_READY) } else { Ok(()) }
    };
    cuStreamSynchronize(stream: Handle) |mut machine, _| {
        while machine.in_context()?.do_one(stream.addr())? {}
        Ok(())
    };
}

fn number(address: Address) -> usize {
    usize::try_from(address).expect("addresses have 64 bits")
}

/// Writes a text and its zero, cut to the buffer.
pub(crate) fn give_text(to: *mut c_char, capacity: usize, text: &CStr) -> Result<(), u32> {
    let text = text.to_bytes();
    let length = text.len().min(capacity.checked_sub(1).ok_or(code::INVALID_VALUE)?);
    let to = to.cast::<u8>();
    // SAFETY: the caller of the function that this is for vouches for the capacity.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to, length) };
    give(to.wrapping_add(length), 0)
}

/// The entry points of a PTX module. The last module is cached, because a test may open many devices.
fn entries(image: &[u8]) -> Result<Arc<[String]>, u32> {
    type Read = Option<(Vec<u8>, Arc<[String]>)>;
    static LAST: Mutex<Read> = Mutex::new(None);
    // Machine code: only solvers and searches have it.
    if image.starts_with(b"\x7fELF") {
        return Ok(Arc::from([SOLVE, SEARCH, TEMPLATE, PREPARE].map(str::to_owned)));
    }
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, entries)) = last.as_ref().filter(|(known, _)| known == image) {
        return Ok(Arc::clone(entries));
    }
    let text = str::from_utf8(image).ok().filter(|text| text.contains("\n.version "));
    let lines = text.ok_or(code::INVALID_PTX)?.lines();
    let named = lines.filter_map(|line| line.strip_prefix(".visible .entry "));
    let name = |line: &str| line.split('(').next().unwrap_or_default().trim().to_owned();
    let entries: Arc<[String]> = named.map(name).collect();
    *last = Some((image.to_owned(), Arc::clone(&entries)));
    Ok(entries)
}
