//! An `OrtIoBinding` whose inputs and outputs stay at their addresses: what a CUDA graph reads and writes.

use std::ffi::CString;
use std::ptr::NonNull;

use ort::sys;

use super::{RuntimeFault, SharedSession, Stop, Value, bound};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Fixed {
    // Dropped in this order: the binding, its tensors, the session.
    binding: NonNull<sys::OrtIoBinding>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    session: SharedSession,
}

// SAFETY: nothing in it belongs to a thread: ONNX Runtime's objects may be used by one thread after
// another. It is not `Sync`, so by one at a time.
#[expect(unsafe_code, reason = "raw addresses are not Send by themselves")]
unsafe impl Send for Fixed {}

impl Fixed {
    /// Binds these tensors, one for each name.
    pub(crate) fn new(
        session: &SharedSession,
        input_names: &[CString],
        inputs: Vec<Value>,
        output_names: &[CString],
        outputs: Vec<Value>,
    ) -> Result<Self, RuntimeFault> {
        assert_eq!(input_names.len(), inputs.len(), "a tensor for each input");
        assert_eq!(output_names.len(), outputs.len(), "a tensor for each output");
        let binding = bound::create(session)?;
        let own = Self { binding, inputs, outputs, session: session.clone() };
        for (name, input) in input_names.iter().zip(&own.inputs) {
            let (binding, name) = (own.binding.as_ptr(), name.as_ptr());
            #[expect(unsafe_code, reason = "see the top of seam.rs")]
            // SAFETY: nothing runs with this binding, which is ours alone; it takes a share of the tensor.
            let status = unsafe { (ort::api().BindInput)(binding, name, input.address()) };
            session.check("BindInput", status)?;
        }
        for (name, output) in output_names.iter().zip(&own.outputs) {
            let (binding, name) = (own.binding.as_ptr(), name.as_ptr());
            #[expect(unsafe_code, reason = "see the top of seam.rs")]
            // SAFETY: as above.
            let status = unsafe { (ort::api().BindOutput)(binding, name, output.address()) };
            session.check("BindOutput", status)?;
        }
        Ok(own)
    }

    pub(crate) fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    pub(crate) fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// Bytes of all its tensors.
    pub(crate) fn tensor_bytes(&self) -> Result<u64, RuntimeFault> {
        let all = self.inputs.iter().chain(&self.outputs);
        let sizes = all.map(|value| Ok(value.size(&self.session)? as u64));
        sizes.sum()
    }

    pub(crate) fn session(&self) -> &SharedSession {
        &self.session
    }

    /// Queues a run: over the inputs as they are then, into the outputs.
    pub(crate) fn run(&mut self, how: &Stop) -> Result<(), RuntimeFault> {
        let (session, binding) = (self.session.address(), self.binding.as_ptr());
        #[expect(unsafe_code, reason = "see the top of seam.rs")]
        // SAFETY: no other context runs this session; the binding is ours alone, and its tensors live as long.
        let status = unsafe { (ort::api().RunWithBinding)(session, how.address(), binding) };
        self.session.check("RunWithBinding", status)
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        bound::release(self.binding);
    }
}
