//! Inputs and outputs of one run at a time. `seam.rs` says why runs may overlap.

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use gridpool_protocol::tensor::DataType;
use ort::sys;

use super::bound::Bound;
use super::{
    Manner, OwnedAllocator, Place, RuntimeFault, SharedSession, Side, Stop, Value, places,
};
use crate::place::LockedRange;

/// What one thread runs: inputs in memory of its own, outputs in memory of the runtime.
#[derive(Debug)]
pub(crate) struct Binding {
    // Dropped in this order: tensors before the allocator that made them, all before the session.
    inputs: Vec<Input>,
    /// None if inputs go with the run.
    bound: Option<Bound>,
    allocator: Arc<OwnedAllocator>,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
    session: SharedSession,
}

/// An input of a run.
#[derive(Debug)]
struct Input {
    /// In memory of its own.
    own: Option<Value>,
    /// In its place in the next run: in memory of a client.
    lent: Option<Value>,
    /// A run takes it on the device, and so copies it there before anything reads it.
    is_on_device: bool,
}

impl Input {
    fn value(&self) -> &Value {
        self.lent.as_ref().or(self.own.as_ref()).expect("every input was given memory")
    }
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
        let allocator = Arc::new(OwnedAllocator::of_host(session)?);
        let (bound, taken) = match session.manner {
            Manner::Bound => {
                let outputs = output_names.iter().map(|name| (name.clone(), Place::Host));
                let bound = Bound::new(session, input_names.clone(), outputs.collect())?;
                (Some(bound), vec![Place::Host; input_names.len()])
            }
            Manner::Fed => (None, places(session, Side::Input, input_names.len())?),
        };
        let input = |place| Input { own: None, lent: None, is_on_device: place == Place::Device };
        let inputs = taken.into_iter().map(input).collect();
        Ok(Self { inputs, bound, allocator, input_names, output_names, session: session.clone() })
    }

    /// The memory of an input of this type and shape: the previous memory if both are unchanged, else new.
    pub(crate) fn input(
        &mut self,
        input: usize,
        datatype: DataType,
        shape: &[i64],
    ) -> Result<&mut [u8], RuntimeFault> {
        let place = &mut self.inputs[input].own;
        if !place.as_ref().is_some_and(|value| value.is(datatype, shape)) {
            // Free the old one first: both together may be too much.
            *place = None;
            *place = Some(Value::new(&self.allocator, datatype, shape, &self.session)?);
        }
        let value = place.as_mut().expect("it was put there");
        value.bytes_mut(&self.session)
    }

    /// Whether a run takes an input on the device: then [`Self::lend`] does it.
    pub(crate) fn is_on_device(&self, input: usize) -> bool {
        self.inputs[input].is_on_device
    }

    /// Has the next run copy an input from a client's memory straight to the device. Returns `false` if it does
    /// not: the input needs memory of its own.
    pub(crate) fn lend(
        &mut self,
        input: usize,
        datatype: DataType,
        shape: &[i64],
        range: LockedRange,
    ) -> Result<bool, RuntimeFault> {
        let place = &mut self.inputs[input];
        if place.is_on_device {
            range.note_loan();
            place.lent = Some(Value::lent(range, datatype, shape, &self.session)?);
        }
        Ok(place.is_on_device)
    }

    /// What was lent is not needed any more, whether a run had it or none came.
    pub(crate) fn return_lent(&mut self) {
        self.inputs.iter_mut().for_each(|input| input.lent = None);
    }

    /// Sets an input of BYTES.
    pub(crate) fn input_texts(
        &mut self,
        input: usize,
        shape: &[i64],
        texts: &[&[u8]],
    ) -> Result<(), RuntimeFault> {
        // Free the old one first: both together may be too much.
        self.inputs[input].own = None;
        self.inputs[input].own = Some(Value::of_texts(shape, texts, &self.session)?);
        Ok(())
    }

    /// Runs the model over the current inputs, unless `stop` ends it; returns its outputs in order.
    pub(crate) fn run(&mut self, stop: &Stop) -> Result<Vec<Value>, RuntimeFault> {
        let outputs = match self.bound.take() {
            Some(mut bound) => {
                let inputs: Vec<_> = self.inputs.iter().map(Input::value).collect();
                let ran = bound.run(&inputs, stop);
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
        self.inputs.iter().map(|input| input.value().address()).collect()
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
        let taken = |output| Value::taken(output, &self.session);
        let outputs: Vec<_> = outputs.into_iter().filter_map(taken).collect();
        self.session.check("Run", status)?;
        Ok(outputs)
    }
}
