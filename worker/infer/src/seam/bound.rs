//! An `OrtIoBinding`: a run whose inputs are tensors that lie where they lie, and whose outputs stay where they are
//! made. `seam.rs` says why runs may overlap.

use std::ffi::CString;
use std::ptr::{self, NonNull};

use ort::AsPointer;
use ort::memory::{Allocator, MemoryInfo};
use ort::sys;

use super::{Place, RuntimeFault, SharedSession, Stop, Value};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Bound {
    binding: NonNull<sys::OrtIoBinding>,
    input_names: Vec<CString>,
    /// The outputs, and where each is to lie.
    outputs: Vec<(CString, MemoryInfo<'static>)>,
    // Last, so that it is dropped after the binding.
    session: SharedSession,
}

// SAFETY: nothing in it belongs to a thread: ONNX Runtime's objects may be used by one thread after
// another. It is not `Sync`, so by one at a time.
#[expect(unsafe_code, reason = "raw addresses are not Send by themselves")]
unsafe impl Send for Bound {}

impl Bound {
    /// A binding for the inputs of these names, and for these outputs with the place of each.
    pub(crate) fn new(
        session: &SharedSession,
        input_names: Vec<CString>,
        outputs: Vec<(CString, Place)>,
    ) -> Result<Self, RuntimeFault> {
        let placed = |(name, place): (CString, Place)| Ok((name, place.info(session.host)?));
        let outputs = outputs.into_iter().map(placed).collect::<Result<_, RuntimeFault>>()?;
        let binding = create(session)?;
        Ok(Self { binding, input_names, outputs, session: session.clone() })
    }

    /// Runs the session over these inputs, one for each name, unless `stop` ends it; returns its outputs in order.
    pub(crate) fn run(
        &mut self,
        inputs: &[&Value],
        stop: &Stop,
    ) -> Result<Vec<Value>, RuntimeFault> {
        let ran = self.bind(inputs).and_then(|()| self.run_bound(stop));
        // Otherwise the next run would reuse these outputs, and it may have other shapes.
        self.clear();
        ran
    }

    fn bind(&self, inputs: &[&Value]) -> Result<(), RuntimeFault> {
        assert_eq!(inputs.len(), self.input_names.len(), "a tensor for each input");
        for (name, input) in self.input_names.iter().zip(inputs) {
            let (binding, name) = (self.binding.as_ptr(), name.as_ptr());
            #[expect(unsafe_code, reason = "see the top of seam.rs")]
            // SAFETY: nothing runs with this binding, which is ours alone; it takes a share of the tensor.
            let status = unsafe { (ort::api().BindInput)(binding, name, input.address()) };
            self.session.check("BindInput", status)?;
        }
        for (name, memory) in &self.outputs {
            let (binding, name) = (self.binding.as_ptr(), name.as_ptr());
            #[expect(unsafe_code, reason = "see the top of seam.rs")]
            // SAFETY: as above; the description of the memory lives in `self`.
            let status = unsafe { (ort::api().BindOutputToDevice)(binding, name, memory.ptr()) };
            self.session.check("BindOutputToDevice", status)?;
        }
        Ok(())
    }

    fn run_bound(&self, stop: &Stop) -> Result<Vec<Value>, RuntimeFault> {
        let (session, binding) = (self.session.address(), self.binding.as_ptr());
        #[expect(unsafe_code, reason = "see the top of seam.rs")]
        // SAFETY: the session may be run by others at the same time; the binding is ours alone. `stop` lives, and
        // other threads only set its flag.
        let status = unsafe { (ort::api().RunWithBinding)(session, stop.address(), binding) };
        self.session.check("RunWithBinding", status)?;
        let allocator = Allocator::default();
        let (mut values, mut count) = (ptr::null_mut::<*mut sys::OrtValue>(), 0);
        #[expect(unsafe_code, reason = "see the top of seam.rs")]
        // SAFETY: the run is over; the array that is written is freed below, its values are ours.
        let status = unsafe {
            (ort::api().GetBoundOutputValues)(
                binding,
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
            outputs.extend(Value::taken(value, &self.session));
        }
        #[expect(unsafe_code, reason = "the end of the array that GetBoundOutputValues gave")]
        // SAFETY: it came from this allocator; freeing a null is allowed.
        unsafe {
            allocator.free(values);
        }
        Ok(outputs)
    }

    fn clear(&self) {
        #[expect(unsafe_code, reason = "see the top of seam.rs")]
        // SAFETY: nothing runs with this binding; tensors that others hold have their own share.
        unsafe {
            (ort::api().ClearBoundInputs)(self.binding.as_ptr());
        }
        #[expect(unsafe_code, reason = "see the top of seam.rs")]
        // SAFETY: as above.
        unsafe {
            (ort::api().ClearBoundOutputs)(self.binding.as_ptr());
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        release(self.binding);
    }
}

/// A binding without tensors. Its owner keeps a share of the session.
pub(super) fn create(session: &SharedSession) -> Result<NonNull<sys::OrtIoBinding>, RuntimeFault> {
    let mut binding = ptr::null_mut();
    #[expect(unsafe_code, reason = "ort's IoBinding runs only with its own &mut Session")]
    // SAFETY: the session lives as long as the binding, whose owner keeps a share of it.
    let status = unsafe { (ort::api().CreateIoBinding)(session.address(), &raw mut binding) };
    session.check("CreateIoBinding", status)?;
    Ok(NonNull::new(binding).expect("CreateIoBinding gives one or an error"))
}

/// Ends a binding. Its owner does not use it again.
pub(super) fn release(binding: NonNull<sys::OrtIoBinding>) {
    #[expect(unsafe_code, reason = "the end of what CreateIoBinding gave")]
    // SAFETY: nothing runs with it, and it is not used again.
    unsafe {
        (ort::api().ReleaseIoBinding)(binding.as_ptr());
    }
}
