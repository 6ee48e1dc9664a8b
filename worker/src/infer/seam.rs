//! The one place that calls ONNX Runtime's C API by hand, and so the one place of inference with
//! `unsafe`: what `ort` has no wrapper for, or wraps more narrowly than the API allows.
//!
//! # Why several threads may run one session
//! `ort` asks for `&mut Session` to run. ONNX Runtime does not: `OrtApi::Run` and `RunWithBinding` are
//! documented to be callable on one session from several threads at once; what belongs to one run (its
//! feeds, fetches, execution frame and stream) is made per call, and the allocators are locked. What is
//! *not* safe is one `OrtIoBinding` under two runs, or bound while it runs. So:
//! - a [`SharedSession`] gives out the session's address only in this file, and only to calls that take
//!   a session that others run: `CreateIoBinding`, `RunWithBinding`, `CreateAllocator`, and readers;
//! - nothing here changes a session after it was made, and `ort`'s own `Session`, whose methods could,
//!   is dropped once the shared part was taken from it;
//! - a [`Binding`] is owned by one thread at a time: every call takes `&mut self`, it is `Send` and not
//!   `Sync`, and the tensors bound to it belong to it alone;
//! - CUDA graphs and user streams, which make runs of one session depend on each other, are never set.

mod placement;
mod value;

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::tensor::DataType;
use ort::AsPointer;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{Session, SharedSessionInner};
use ort::sys;

use super::error::RuntimeFault;

pub(super) use placement::{AssignedNode, assigned_nodes};
pub(super) use value::Value;

/// What an allocator without counts answers.
const NOT_IMPLEMENTED: FaultCode = FaultCode::Onnx(sys::OrtErrorCode::ORT_NOT_IMPLEMENTED as u32);

/// Where tensors of the host lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostMemory {
    /// Ordinary memory, of a cpu device.
    Plain,
    /// Memory that the GPU copies from and to by itself.
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

/// A loaded model, run by several threads at once.
#[derive(Clone, Debug)]
pub(super) struct SharedSession {
    session: Arc<SharedSessionInner>,
    host: HostMemory,
}

impl SharedSession {
    /// The part of a session that can be shared; the rest is gone.
    #[expect(clippy::needless_pass_by_value, reason = "nobody may keep what could change it")]
    pub(super) fn of(session: Session, host: HostMemory) -> Self {
        Self { session: session.inner(), host }
    }

    /// The session for calls of the C API that only read it, or run it.
    fn address(&self) -> *mut sys::OrtSession {
        self.session.ptr().cast_mut()
    }

    fn check(&self, call: &'static str, status: sys::OrtStatusPtr) -> Result<(), RuntimeFault> {
        check(call, status, self.host.is_of_gpu())
    }

    /// Peak of the device memory that runs of this session have taken, and what is taken now. `None` if
    /// its allocator keeps no count.
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
        let status =
            unsafe { (ort::api().AllocatorGetStats)(allocator.0.as_ptr(), &raw mut pairs) };
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

/// Bytes of a session's device allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceMemory {
    /// At most, ever.
    pub(super) peak: u64,
    /// Now.
    pub(super) used: u64,
}

fn number(pairs: NonNull<sys::OrtKeyValuePairs>, key: &CStr) -> Option<u64> {
    #[expect(unsafe_code, reason = "a look-up in what AllocatorGetStats gave")]
    // SAFETY: the pairs live, and the key ends with a zero.
    let value = unsafe { (ort::api().GetKeyValue)(pairs.as_ptr(), key.as_ptr()) };
    text(value).parse().ok()
}

/// An allocator of a session.
#[derive(Debug)]
struct OwnedAllocator(NonNull<sys::OrtAllocator>);

impl OwnedAllocator {
    fn new(session: &SharedSession, info: &MemoryInfo<'_>) -> Result<Self, RuntimeFault> {
        let mut allocator = ptr::null_mut();
        #[expect(unsafe_code, reason = "ort's Allocator::new wants its own Session")]
        // SAFETY: both live, and making an allocator changes nothing that runs of the session use.
        let status = unsafe {
            (ort::api().CreateAllocator)(session.address(), info.ptr(), &raw mut allocator)
        };
        session.check("CreateAllocator", status)?;
        Ok(Self(NonNull::new(allocator).expect("CreateAllocator gives one or an error")))
    }
}

impl Drop for OwnedAllocator {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "the end of what CreateAllocator gave")]
        // SAFETY: it is ours; fields that hold its tensors are declared, and so dropped, before it.
        unsafe {
            (ort::api().ReleaseAllocator)(self.0.as_ptr());
        }
    }
}

/// What one thread binds and runs: inputs in memory of its own, outputs wherever the runtime puts them.
#[derive(Debug)]
pub(super) struct Binding {
    // Dropped in this order: tensors before the allocator that made them, all before the session.
    inputs: Vec<Option<Value>>,
    binding: NonNull<sys::OrtIoBinding>,
    allocator: OwnedAllocator,
    output_memory: MemoryInfo<'static>,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
    session: SharedSession,
}

// SAFETY: nothing in it belongs to a thread: ONNX Runtime's objects may be used by one thread after
// another. It is not `Sync`, so by one at a time.
#[expect(unsafe_code, reason = "raw addresses are not Send by themselves")]
unsafe impl Send for Binding {}

impl Binding {
    /// A binding for the inputs and outputs of these names.
    pub(super) fn new(
        session: &SharedSession,
        input_names: Vec<CString>,
        output_names: Vec<CString>,
    ) -> Result<Self, RuntimeFault> {
        let output_memory = session.host.info(MemoryType::CPUOutput)?;
        let input_memory = match session.host {
            HostMemory::Plain => MemoryType::Default,
            HostMemory::Pinned => MemoryType::CPUOutput,
        };
        let allocator = OwnedAllocator::new(session, &session.host.info(input_memory)?)?;
        let mut binding = ptr::null_mut();
        #[expect(unsafe_code, reason = "ort's IoBinding runs only with its own &mut Session")]
        // SAFETY: the session lives as long as the binding, which keeps a share of it.
        let status = unsafe { (ort::api().CreateIoBinding)(session.address(), &raw mut binding) };
        session.check("CreateIoBinding", status)?;
        let binding = NonNull::new(binding).expect("CreateIoBinding gives one or an error");
        let inputs = input_names.iter().map(|_| None).collect();
        let session = session.clone();
        Ok(Self { inputs, binding, allocator, output_memory, input_names, output_names, session })
    }

    /// The memory of an input of that type and shape: the one it had if it had the same, else new.
    pub(super) fn input(
        &mut self,
        input: usize,
        datatype: DataType,
        shape: &[i64],
    ) -> Result<&mut [u8], RuntimeFault> {
        let place = &mut self.inputs[input];
        if !place.as_ref().is_some_and(|value| value.is(datatype, shape)) {
            // The old one first: both together may be too much.
            *place = None;
            *place = Some(Value::new(&self.allocator, datatype, shape, &self.session)?);
        }
        let value = place.as_mut().expect("it was put there");
        value.bytes_mut(&self.session)
    }

    /// Runs the model over the inputs as they are now; gives its outputs in order.
    pub(super) fn run(&mut self) -> Result<Vec<Value>, RuntimeFault> {
        let ran = self.bind().and_then(|()| self.run_bound());
        // What was bound is kept by the binding: copies of inputs on a GPU, outputs beyond their use.
        self.unbind();
        ran
    }

    fn bind(&mut self) -> Result<(), RuntimeFault> {
        for (name, value) in self.input_names.iter().zip(&self.inputs) {
            let value = value.as_ref().expect("every input was given memory");
            #[expect(unsafe_code, reason = "see the top of this file")]
            // SAFETY: nothing runs with this binding, which is borrowed alone; the tensor lives in it.
            let status = unsafe {
                (ort::api().BindInput)(self.binding.as_ptr(), name.as_ptr(), value.address())
            };
            self.session.check("BindInput", status)?;
        }
        for name in &self.output_names {
            let (binding, memory) = (self.binding.as_ptr(), self.output_memory.ptr());
            #[expect(unsafe_code, reason = "see the top of this file")]
            // SAFETY: as above; the description of the memory lives in self.
            let status = unsafe { (ort::api().BindOutputToDevice)(binding, name.as_ptr(), memory) };
            self.session.check("BindOutputToDevice", status)?;
        }
        Ok(())
    }

    fn unbind(&mut self) {
        #[expect(unsafe_code, reason = "see the top of this file")]
        // SAFETY: nothing runs with this binding; tensors that others hold have their own share.
        unsafe {
            (ort::api().ClearBoundInputs)(self.binding.as_ptr());
        }
        #[expect(unsafe_code, reason = "see the top of this file")]
        // SAFETY: as above.
        unsafe {
            (ort::api().ClearBoundOutputs)(self.binding.as_ptr());
        }
    }

    fn run_bound(&mut self) -> Result<Vec<Value>, RuntimeFault> {
        let (session, binding) = (self.session.address(), self.binding.as_ptr());
        #[expect(unsafe_code, reason = "see the top of this file")]
        // SAFETY: the session may be run by others at the same time; the binding is borrowed alone.
        let status = unsafe { (ort::api().RunWithBinding)(session, ptr::null(), binding) };
        self.session.check("RunWithBinding", status)?;
        self.outputs()
    }

    /// What the last run gave.
    fn outputs(&mut self) -> Result<Vec<Value>, RuntimeFault> {
        let allocator = Allocator::default();
        let (mut values, mut count) = (ptr::null_mut::<*mut sys::OrtValue>(), 0);
        #[expect(unsafe_code, reason = "see the top of this file")]
        // SAFETY: the run is over; the array that is written is freed below, its values are ours.
        let status = unsafe {
            (ort::api().GetBoundOutputValues)(
                self.binding.as_ptr(),
                allocator.ptr().cast_mut(),
                &raw mut values,
                &raw mut count,
            )
        };
        self.session.check("GetBoundOutputValues", status)?;
        let mut outputs = Vec::with_capacity(count);
        for at in 0..count {
            let place = values.wrapping_add(at);
            #[expect(unsafe_code, reason = "reads the array that GetBoundOutputValues gave")]
            // SAFETY: it has `count` values, and each is read once.
            let value = unsafe { place.read() };
            outputs.extend(Value::taken(value));
        }
        #[expect(unsafe_code, reason = "the end of the array that GetBoundOutputValues gave")]
        // SAFETY: it came from this allocator; freeing a null is allowed.
        unsafe {
            allocator.free(values);
        }
        debug_assert_eq!(outputs.len(), self.output_names.len());
        Ok(outputs)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "the end of what CreateIoBinding gave")]
        // SAFETY: nothing runs with it, and it is not used again.
        unsafe {
            (ort::api().ReleaseIoBinding)(self.binding.as_ptr());
        }
    }
}

/// The version that a library says it has. Loads it for good.
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
    // It stays loaded: this is the one that `ort` opens next.
    std::mem::forget(library);
    Ok(version)
}

/// Whether a library could be loaded by that name.
pub(super) fn is_loadable(name: &str) -> bool {
    #[expect(unsafe_code, reason = "loading a library runs code of it")]
    // SAFETY: it is a library of the vendor's that the provider would load next.
    let loaded = unsafe { libloading::Library::new(name) };
    loaded.is_ok()
}

/// A text of the library's, or nothing.
fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    #[expect(unsafe_code, reason = "a text of C")]
    // SAFETY: it ends with a zero, and is copied before whatever owns it can go.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Takes the status that a call gave.
fn check(call: &'static str, status: sys::OrtStatusPtr, on_gpu: bool) -> Result<(), RuntimeFault> {
    #[expect(unsafe_code, reason = "a status is an address until somebody takes it")]
    // SAFETY: it comes from the API, and nobody else takes it.
    let taken = unsafe { ort::Error::result_from_status(status) };
    taken.map_err(|error| fault(call, &error, on_gpu))
}

/// What `ort` says, as a fault.
pub(super) fn fault<R>(call: &'static str, error: &ort::Error<R>, on_gpu: bool) -> RuntimeFault {
    let code = sys::OrtErrorCode::from(error.code()) as i32;
    RuntimeFault::new(call, code.unsigned_abs(), error.message(), on_gpu)
}
