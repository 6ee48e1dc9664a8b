//! The only file that calls ONNX Runtime's C API by hand, and so the only `unsafe` code of inference: calls
//! that `ort` does not wrap, or wraps more narrowly than the API allows.
//!
//! # Why several threads may run one session
//! `ort` asks for `&mut Session` to run. ONNX Runtime does not: its documentation allows `OrtApi::Run` and
//! `RunWithBinding` on one session from several threads at once. Each call makes its own feeds, fetches,
//! execution frame and stream, and the allocators are locked. It is *not* safe to run one `OrtIoBinding`
//! twice at once, or to bind while it runs. So:
//! - A [`SharedSession`] reveals the session's address only in this folder, and only to calls that take a
//!   session that others run: `CreateIoBinding`, `RunWithBinding`, `Run`, `CreateAllocator`, and readers.
//! - Nothing here changes a session after it was made. `ort`'s own `Session` has methods that could, so it
//!   is dropped once the shared part was taken from it.
//! - One thread at a time owns a [`Binding`]: every call takes `&mut self`, it is `Send` and not `Sync`, and
//!   it alone owns its tensors.
//! - CUDA graphs make runs of one session depend on each other, and so do user streams: only the sessions of a
//!   pipeline's context, and those that a context has for its CUDA graphs, have them, and no other context runs those.
//!
//! # Why a capture is alone
//! ONNX Runtime captures a run in CUDA's global mode: a call by any thread of the process that allocates or frees
//! memory of the device or page-locked memory, or that waits for a stream or an event or asks after it, fails meanwhile
//! and spoils the capture. The thread that made it may get the error once more, from the next kernel that it launches.
//! A pipeline is captured by gridpool, in the relaxed mode, and yet some of these calls by another thread spoil that,
//! too.
//! So `quiet.rs` lets a capture begin when no run is under way and no session is made or freed, and lets those wait
//! until it has ended. Of all calls here, these need that:
//! - A session is made, from the first provider on: to add the CUDA provider allocates and frees a byte.
//! - A session is freed. Its allocators free their memory with their last owner, so that must be the session: a
//!   [`Value`] and an [`OwnedAllocator`] keep a share of it (`Held`).
//! - A run, with the tensors that it makes and the waits for it.
//! - Pages of an arena are locked or unlocked (`locked.rs`): at another time if it cannot be now.
//!
//! Streams and events may be made meanwhile, a thread may enter a context, and a tensor's memory goes back to its
//! allocator without a call of CUDA.
//!
//! # Why inputs are not bound on a GPU
//! `BindInput` copies a host tensor to the device at once, on a stream that it borrows from the session's
//! pool. It queues the copy and does not wait for it. If another thread runs the session in between, the run
//! gets another stream than the copy had, and may read old data. `SynchronizeBoundInputs` waits for the whole
//! device and so for all runs. So on a GPU inputs go with the run ([`Manner::Fed`]): `Run` copies them on
//! its own stream, and waits for that. (`CopyOneInputAcrossDevices` and `CopyInputsAcrossDevices` in
//! `core/framework/utils.cc`; microsoft/onnxruntime issue 15438.) On a cpu device nothing is copied, and
//! inputs are bound.
//!
//! An input in an arena whose pages are locked is not copied before: its tensor *is* that memory, and `Run` copies from
//! there. The client may write to it meanwhile, so this is only for inputs that the session takes on the device
//! (`SessionGetMemoryInfoForInputs`): the host reads nothing of it, and the device reads its own copy.
//!
//! The sessions of a pipeline on a GPU have one stream of their own, on which gridpool makes the copies by itself
//! (`place.rs`). What is bound there lies on the device already, so `BindInput` copies nothing.

mod binding;
mod bound;
mod fixed;
mod place;
mod placement;
mod quiet;
mod shapes;
mod value;

use std::ffi::CStr;
use std::fmt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use gridpool_protocol::fault::FaultCode;
use ort::AsPointer;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{RunOptions, Session, SharedSessionInner};
use ort::sys;

use super::error::RuntimeFault;
use super::library::is_new_enough;

pub(super) use binding::Binding;
pub(super) use bound::Bound;
pub(super) use fixed::Fixed;
pub(super) use place::{
    Place, download, on_stream, on_stream_too, places, replay, run_grids, upload,
};
pub(super) use placement::{AssignedNode, assigned_nodes};
pub(super) use quiet::{Alone, Running, alone, alone_soon, changing, changing_now, running};
pub(super) use shapes::{Side, has_shape};
pub(super) use value::Value;

/// The answer of an allocator without counts.
const NOT_IMPLEMENTED: FaultCode = FaultCode::Onnx(sys::OrtErrorCode::ORT_NOT_IMPLEMENTED as u32);

/// The number by which a run of a session with CUDA graphs is neither captured nor replayed.
const NO_GRAPH: &str = "-1";

/// The kind of host memory of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostMemory {
    /// Ordinary memory, of a cpu device.
    Plain,
    /// Page-locked memory, which the GPU copies from and to by itself.
    Pinned,
}

impl HostMemory {
    fn is_of_gpu(self) -> bool {
        self == Self::Pinned
    }

    fn info(self, memory: MemoryType) -> Result<MemoryInfo<'static>, RuntimeFault> {
        let device = match self {
            Self::Plain => AllocationDevice::CPU,
            Self::Pinned => AllocationDevice::CUDA_PINNED,
        };
        MemoryInfo::new(device, 0, AllocatorType::Device, memory)
            .map_err(|error| fault("CreateMemoryInfo", &error, self.is_of_gpu()))
    }
}

/// How the inputs of a run reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// By a binding.
    Bound,
    /// With the run.
    Fed,
}

/// A loaded model that several threads run at once.
#[derive(Clone, Debug)]
pub(super) struct SharedSession {
    session: Arc<Held>,
    host: HostMemory,
    manner: Manner,
}

/// A session that is freed while no run is captured. What has memory of its allocators holds a share of it: the last
/// owner of an allocator frees that memory, and so must be the session.
#[derive(Debug)]
struct Held(Option<Arc<SharedSessionInner>>);

impl Drop for Held {
    fn drop(&mut self) {
        let _changing = changing();
        self.0 = None;
    }
}

impl SharedSession {
    /// Takes the part of a session that can be shared, with what `look` sees in the whole, and drops the rest. A caller
    /// that does not want the session after all drops the shared part, and so frees it while no run is captured.
    pub(super) fn of<T>(
        session: Session,
        host: HostMemory,
        manner: Manner,
        look: impl FnOnce(&Session) -> T,
    ) -> (Self, T) {
        let own = Self { session: Arc::new(Held(Some(session.inner()))), host, manner };
        let seen = look(&session);
        drop(session);
        (own, seen)
    }

    /// The session, for calls of the C API that only read it or run it.
    fn address(&self) -> *mut sys::OrtSession {
        self.session.0.as_ref().expect("only its drop takes it").ptr().cast_mut()
    }

    /// Tells whether the session is freed.
    #[cfg(test)]
    pub(super) fn watch(&self) -> impl Fn() -> bool + 'static {
        let held = Arc::downgrade(&self.session);
        move || held.strong_count() == 0
    }

    fn check(&self, call: &'static str, status: sys::OrtStatusPtr) -> Result<(), RuntimeFault> {
        check(call, status, self.host.is_of_gpu())
    }

    /// The device memory that runs of this session take: the peak, and now. `None` if its allocator keeps no
    /// count.
    pub(super) fn device_memory(&self) -> Result<Option<DeviceMemory>, RuntimeFault> {
        let device = match self.host {
            HostMemory::Plain => AllocationDevice::CPU,
            HostMemory::Pinned => AllocationDevice::CUDA,
        };
        let (kind, memory) = (AllocatorType::Device, MemoryType::Default);
        let info = MemoryInfo::new(device, 0, kind, memory)
            .map_err(|error| fault("CreateMemoryInfo", &error, self.host.is_of_gpu()))?;
        let allocator = OwnedAllocator::new(self, &info)?;
        let mut pairs = ptr::null_mut();
        #[expect(unsafe_code, reason = "ort has no wrapper for an allocator's counts")]
        // SAFETY: the allocator lives, and `pairs` is written before it is read.
        let status = unsafe { (ort::api().AllocatorGetStats)(allocator.address(), &raw mut pairs) };
        match self.check("AllocatorGetStats", status) {
            Err(fault) if fault.code() == NOT_IMPLEMENTED => return Ok(None),
            checked => checked?,
        }
        let Some(pairs) = NonNull::new(pairs) else { return Ok(None) };
        let (peak, used) = (number(pairs, c"MaxInUse"), number(pairs, c"InUse"));
        #[expect(unsafe_code, reason = "the end of what AllocatorGetStats gave")]
        // SAFETY: it is ours, and nothing that was read from it is kept.
        unsafe {
            (ort::api().ReleaseKeyValuePairs)(pairs.as_ptr());
        }
        Ok(peak.zip(used).map(|(peak, used)| DeviceMemory { peak, used }))
    }
}

/// Ends a run from another thread: ONNX Runtime looks at it before each node, also of a loop's body. It does not
/// end a node that runs.
pub(super) struct Stop(RunOptions);

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.address()).finish()
    }
}

impl Stop {
    pub(super) fn new() -> Result<Self, RuntimeFault> {
        RunOptions::new().map(Self).map_err(|error| fault("CreateRunOptions", &error, false))
    }

    /// For runs that return before the device is done with them.
    pub(super) fn of_queued_runs() -> Result<Self, RuntimeFault> {
        let mut own = Self::new()?;
        let queued = own.0.disable_device_sync();
        queued.map_err(|error| fault("AddRunConfigEntry", &error, false))?;
        Ok(own)
    }

    /// For runs of a session with CUDA graphs that are neither captured nor replayed.
    pub(super) fn of_plain_runs() -> Result<Self, RuntimeFault> {
        Self::of_queued_runs()?.with_graph(NO_GRAPH)
    }

    /// For the run that is captured as the graph of this number, in a session that has graphs.
    pub(super) fn of_capture(graph: usize) -> Result<Self, RuntimeFault> {
        Self::of_queued_runs()?.with_graph(&graph.to_string())
    }

    /// For replays of that graph. A run that is no replay ends at once with an error: a replay is the one kind of run
    /// that does not look at whether it is to end.
    pub(super) fn of_replays(graph: usize) -> Result<Self, RuntimeFault> {
        let own = Self::of_capture(graph)?;
        own.0.terminate().map_err(|error| fault("RunOptionsSetTerminate", &error, false))?;
        Ok(own)
    }

    fn with_graph(mut self, graph: &str) -> Result<Self, RuntimeFault> {
        let set = self.0.set("gpu_graph_id", graph);
        set.map_err(|error| fault("AddRunConfigEntry", &error, false))?;
        Ok(self)
    }

    /// The run that has it ends soon, with an error.
    pub(super) fn stop(&self) {
        if let Err(error) = self.0.terminate() {
            tracing::warn!(%error, "a run that nobody wants goes on");
        }
    }

    fn address(&self) -> *const sys::OrtRunOptions {
        self.0.ptr()
    }
}

/// Bytes of a session's device allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceMemory {
    /// The highest ever.
    pub(super) peak: u64,
    /// Now.
    pub(super) used: u64,
}

fn number(pairs: NonNull<sys::OrtKeyValuePairs>, key: &CStr) -> Option<u64> {
    #[expect(unsafe_code, reason = "reads the result of AllocatorGetStats")]
    // SAFETY: the pairs live, and the key ends with a zero.
    let value = unsafe { (ort::api().GetKeyValue)(pairs.as_ptr(), key.as_ptr()) };
    text(value).parse().ok()
}

/// An allocator of a session.
#[derive(Debug)]
pub(super) struct OwnedAllocator {
    allocator: NonNull<sys::OrtAllocator>,
    // Dropped after the allocator: see `Held`.
    _session: Arc<Held>,
}

// SAFETY: an allocator belongs to no thread, and ONNX Runtime's lock themselves.
#[expect(unsafe_code, reason = "a raw address is not Send by itself")]
unsafe impl Send for OwnedAllocator {}

// SAFETY: as above.
#[expect(unsafe_code, reason = "a raw address is not Sync by itself")]
unsafe impl Sync for OwnedAllocator {}

impl OwnedAllocator {
    fn new(session: &SharedSession, info: &MemoryInfo<'_>) -> Result<Self, RuntimeFault> {
        let mut allocator = ptr::null_mut();
        #[expect(unsafe_code, reason = "ort's Allocator::new wants its own Session")]
        // SAFETY: both live, and making an allocator changes nothing that runs of the session use.
        let status = unsafe {
            (ort::api().CreateAllocator)(session.address(), info.ptr(), &raw mut allocator)
        };
        session.check("CreateAllocator", status)?;
        let allocator = NonNull::new(allocator).expect("CreateAllocator gives one or an error");
        Ok(Self { allocator, _session: Arc::clone(&session.session) })
    }

    /// For calls of the C API that use it while it is borrowed.
    fn address(&self) -> *mut sys::OrtAllocator {
        self.allocator.as_ptr()
    }
}

impl Drop for OwnedAllocator {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "the end of what CreateAllocator gave")]
        // SAFETY: it is ours; fields that hold its tensors are declared, and so dropped, before it.
        unsafe {
            (ort::api().ReleaseAllocator)(self.allocator.as_ptr());
        }
    }
}

/// The version of a library. Loads it, and keeps it loaded if it is new enough.
pub(super) fn version(path: &Path) -> Result<String, String> {
    #[expect(unsafe_code, reason = "loading a library runs code of it")]
    // SAFETY: the operator named it, or it lies where ONNX Runtime is installed; ort loads it next.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
    #[expect(unsafe_code, reason = "a symbol has no type")]
    // SAFETY: in every ONNX Runtime the symbol is this function.
    let base = unsafe {
        library.get::<unsafe extern "system" fn() -> *const sys::OrtApiBase>(b"OrtGetApiBase\0")
    };
    let base = base.map_err(|_| "it has no OrtGetApiBase".to_owned())?;
    #[expect(unsafe_code, reason = "the first call of ONNX Runtime's API")]
    // SAFETY: it takes nothing and gives the address of a static.
    let base = unsafe { base() };
    #[expect(unsafe_code, reason = "reads a static of the library")]
    // SAFETY: it is null or valid as long as the library is loaded.
    let base = unsafe { base.as_ref() }.ok_or("its OrtGetApiBase gives nothing")?;
    #[expect(unsafe_code, reason = "a call of ONNX Runtime's API")]
    // SAFETY: it takes nothing and gives a static text.
    let version = unsafe { (base.GetVersionString)() };
    let version = text(version);
    if is_new_enough(&version) {
        // It stays loaded: this is the one that `ort` opens next.
        std::mem::forget(library);
    }
    Ok(version)
}

/// Whether a library of this name can be loaded.
pub(super) fn is_loadable(name: &str) -> bool {
    #[expect(unsafe_code, reason = "loading a library runs code of it")]
    // SAFETY: it is a library of the vendor's that the provider would load next.
    let loaded = unsafe { libloading::Library::new(name) };
    loaded.is_ok()
}

/// A text of the library, or an empty one.
fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    #[expect(unsafe_code, reason = "a text of C")]
    // SAFETY: it ends with a zero, and is copied before its owner can go.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Converts the status of a call.
fn check(call: &'static str, status: sys::OrtStatusPtr, on_gpu: bool) -> Result<(), RuntimeFault> {
    #[expect(unsafe_code, reason = "a status is only an address until it is taken")]
    // SAFETY: it comes from the API, and nothing else takes it.
    let taken = unsafe { ort::Error::result_from_status(status) };
    taken.map_err(|error| fault(call, &error, on_gpu))
}

/// An error of `ort` as a fault.
pub(super) fn fault<R>(call: &'static str, error: &ort::Error<R>, on_gpu: bool) -> RuntimeFault {
    let code = sys::OrtErrorCode::from(error.code()) as i32;
    RuntimeFault::new(call, code.unsigned_abs(), error.message(), on_gpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_no_onnx_runtime_is_refused_without_a_panic() {
        // Any library but ONNX Runtime: here the C library that this process has mapped.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).expect("libc");
        assert_eq!(version(Path::new(libc)).unwrap_err(), "it has no OrtGetApiBase");
        assert!(version(Path::new("/nowhere/libonnxruntime.so")).is_err());
        assert!(!is_loadable("libgridpool-has-no-such-library.so"));
    }
}
