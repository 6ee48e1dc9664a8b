//! Inputs and outputs of one run at a time. `seam.rs` says why runs may overlap.

use std::ffi::CString;
use std::ptr::{self, NonNull};

use gridpool_protocol::tensor::DataType;
use ort::AsPointer;
use ort::memory::{Allocator, MemoryInfo, MemoryType};
use ort::sys;

use super::{HostMemory, Manner, OwnedAllocator, RuntimeFault, SharedSession, Stop, Value};

/// What one thread runs: inputs in memory of its own, outputs in memory of the runtime.
#[derive(Debug)]
pub(crate) struct Binding {
    // Dropped in this order: tensors before the allocator that made them, all before the session.
    inputs: Vec<Option<Value>>,
    /// None if inputs go with the run.
    bound: Option<Bound>,
    allocator: OwnedAllocator,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
    session: SharedSession,
}

/// An `OrtIoBinding`, and where its outputs go.
#[derive(Debug)]
struct Bound {
    binding: NonNull<sys::OrtIoBinding>,
    output_memory: MemoryInfo<'static>,
}

// SAFETY: nothing in it belongs to a thread: ONNX Runtime's objects may be used by one thread after
// another. It is not `Sync`, so by one at a time.
#[expect(unsafe_code, reason = "raw addresses are not Send by themselves")]
unsafe impl Send for Binding {}

impl Binding {
    /// A binding for the inputs and outputs of these names.
    pub(crate) fn new(
        session: &SharedSession,
        input_names: Vec<CString>,
        output_names: Vec<CString>,
    ) -> Result<Self, RuntimeFault> {
        let plain = HostMemory::Plain.info(MemoryType::Default)?;
        let allocator = match session.host {
            HostMemory::Plain => OwnedAllocator::new(session, &plain)?,
            HostMemory::Pinned => {
                let pinned = session.host.info(MemoryType::CPUOutput)?;
                OwnedAllocator::new(session, &pinned).or_else(|fault| {
                    // Pageable memory gives the same result, more slowly.
                    tracing::warn!(%fault, "inputs are copied from memory that is not pinned");
                    OwnedAllocator::new(session, &plain)
                })?
            }
        };
        let bound = match session.manner {
            Manner::Bound => Some(Bound::new(session)?),
            Manner::Fed => None,
        };
        let inputs = input_names.iter().map(|_| None).collect();
        Ok(Self { inputs, bound, allocator, input_names, output_names, session: session.clone() })
    }

    /// The memory of an input of this type and shape: the previous memory if both are unchanged, else new.
    pub(crate) fn input(
        &mut self,
        input: usize,
        datatype: DataType,
        shape: &[i64],
    ) -> Result<&mut [u8], RuntimeFault> {
        let place = &mut self.inputs[input];
        if !place.as_ref().is_some_and(|value| value.is(datatype, shape)) {
            // Free the old one first: both together may be too much.
            *place = None;
            *place = Some(Value::new(&self.allocator, datatype, shape, &self.session)?);
        }
        let value = place.as_mut().expect("it was put there");
        value.bytes_mut(&self.session)
    }

    /// Sets an input of BYTES.
    pub(crate) fn input_texts(
        &mut self,
        input: usize,
        shape: &[i64],
        texts: &[&[u8]],
    ) -> Result<(), RuntimeFault> {
        // Free the old one first: both together may be too much.
        self.inputs[input] = None;
        self.inputs[input] = Some(Value::of_texts(shape, texts, &self.session)?);
        Ok(())
    }

    /// Runs the model over the current inputs, unless `stop` ends it; returns its outputs in order.
    pub(crate) fn run(&mut self, stop: &Stop) -> Result<Vec<Value>, RuntimeFault> {
        let outputs = match self.bound.take() {
            Some(bound) => {
                let ran = self.bind(&bound).and_then(|()| self.run_bound(&bound, stop));
                // Otherwise the next run would reuse these outputs, and it may have other shapes.
                bound.clear();
                self.bound = Some(bound);
                ran
            }
            None => self.run_fed(stop),
        }?;
        assert_eq!(outputs.len(), self.output_names.len(), "a run gives all outputs or fails");
        Ok(outputs)
    }

    /// The inputs' addresses, in order.
    fn addresses(&self) -> Vec<*const sys::OrtValue> {
        let inputs = self.inputs.iter();
        inputs
            .map(|value| value.as_ref().expect("every input was given memory").address())
            .collect()
    }

    fn bind(&self, bound: &Bound) -> Result<(), RuntimeFault> {
        for (name, address) in self.input_names.iter().zip(self.addresses()) {
            #[expect(unsafe_code, reason = "see the top of seam.rs")]
            // SAFETY: nothing runs with this binding, which is ours alone; the tensor lives in self.
            let status =
                unsafe { (ort::api().BindInput)(bound.binding.as_ptr(), name.as_ptr(), address) };
            self.session.check("BindInput", status)?;
        }
        for name in &self.output_names {
            let (binding, memory) = (bound.binding.as_ptr(), bound.output_memory.ptr());
            #[expect(unsafe_code, reason = "see the top of seam.rs")]
            // SAFETY: as above; the description of the memory lives in `bound`.
            let status = unsafe { (ort::api().BindOutputToDevice)(binding, name.as_ptr(), memory) };
            self.session.check("BindOutputToDevice", status)?;
        }
        Ok(())
    }

    fn run_bound(&mut self, bound: &Bound, stop: &Stop) -> Result<Vec<Value>, RuntimeFault> {
        let (session, binding) = (self.session.address(), bound.binding.as_ptr());
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
            outputs.extend(Value::taken(value));
        }
        #[expect(unsafe_code, reason = "the end of the array that GetBoundOutputValues gave")]
        // SAFETY: it came from this allocator; freeing a null is allowed.
        unsafe {
            allocator.free(values);
        }
        Ok(outputs)
    }

    fn run_fed(&mut self, stop: &Stop) -> Result<Vec<Value>, RuntimeFault> {
        let names = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
        let (input_names, output_names) = (names(&self.input_names), names(&self.output_names));
        let inputs = self.addresses();
        let mut outputs = vec![ptr::null_mut(); output_names.len()];
        #[expect(unsafe_code, reason = "see the top of seam.rs")]
        // SAFETY: the session may be run by others at the same time; names and tensors live in self, and
        // no other run has these inputs. `stop` is as above. Each null is replaced by a tensor that is ours.
        let status = unsafe {
            (ort::api().Run)(
                self.session.address(),
                stop.address(),
                input_names.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                output_names.as_ptr(),
                output_names.len(),
                outputs.as_mut_ptr(),
            )
        };
        // Done before a failure is returned, so that values that a failed run left are freed.
        let outputs: Vec<_> = outputs.into_iter().filter_map(Value::taken).collect();
        self.session.check("Run", status)?;
        Ok(outputs)
    }
}

impl Bound {
    fn new(session: &SharedSession) -> Result<Self, RuntimeFault> {
        let output_memory = session.host.info(MemoryType::CPUOutput)?;
        let mut binding = ptr::null_mut();
        #[expect(unsafe_code, reason = "ort's IoBinding runs only with its own &mut Session")]
        // SAFETY: the session lives as long as the binding, whose owner keeps a share of it.
        let status = unsafe { (ort::api().CreateIoBinding)(session.address(), &raw mut binding) };
        session.check("CreateIoBinding", status)?;
        let binding = NonNull::new(binding).expect("CreateIoBinding gives one or an error");
        Ok(Self { binding, output_memory })
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
        #[expect(unsafe_code, reason = "the end of what CreateIoBinding gave")]
        // SAFETY: nothing runs with it, and it is not used again.
        unsafe {
            (ort::api().ReleaseIoBinding)(self.binding.as_ptr());
        }
    }
}
