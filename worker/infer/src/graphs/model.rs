//! The CUDA graph of a model: ONNX Runtime captures and replays it.

use std::path::PathBuf;
use std::sync::Arc;

use gridpool_device::cuda::ComputeStream;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::options::{ModelOptions, Provider, check_file};

use super::GraphsError;
use crate::error::{RuntimeFault, settled};
use crate::load::{LoadError, ModelFile, Opened};
use crate::runtime::Runtime;
use crate::seam::{
    Alone, Bound, Fixed, OwnedAllocator, Place, SharedSession, Side, Stop, Value, download, places,
    running, upload,
};
use crate::signature::Signature;

/// What sessions for graphs are made of.
#[derive(Debug)]
pub(super) struct ModelSource {
    runtime: Runtime,
    name: String,
    path: PathBuf,
    sha256: String,
    options: ModelOptions,
}

impl ModelSource {
    pub(super) fn new(
        runtime: &Runtime,
        name: &str,
        file: &ModelFile,
        options: &ModelOptions,
    ) -> Self {
        let mut options = options.clone();
        options.providers = vec![Provider::Cuda];
        Self {
            runtime: runtime.clone(),
            name: name.to_owned(),
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            options,
        }
    }

    pub(super) fn open(
        &self,
        signature: &Signature,
        stream: &ComputeStream,
    ) -> Result<SharedSession, LoadError> {
        let file = ModelFile::read(&self.path)?;
        check_file(&self.name, &self.path, Some(&self.sha256), &file.sha256)?;
        let (kind, options) = (DeviceKind::Gpu, &self.options);
        let opened = Opened::open(&self.runtime, kind, &file, options, Some(stream))?;
        let (inputs, outputs) = (&signature.inputs, &signature.outputs);
        let takes = places(&opened.session, Side::Input, inputs.len())?;
        let gives = places(&opened.session, Side::Output, outputs.len())?;
        let takes = inputs.iter().zip(takes).map(|(spec, place)| ("input", spec, place));
        let gives = outputs.iter().zip(gives).map(|(spec, place)| ("output", spec, place));
        match takes.chain(gives).find(|&(_, _, place)| place != Place::Device) {
            None => Ok(opened.session),
            Some((kind, spec, _)) => {
                Err(GraphsError::Host { tensor: format!("{kind} `{}`", spec.name) }.into())
            }
        }
    }
}

/// One graph.
#[derive(Debug)]
pub(super) struct ModelGraph {
    // Dropped in this order: the binding and all tensors, then what made them.
    pub(super) fixed: Fixed,
    /// What is copied to the device before a replay.
    inputs: Vec<Value>,
    replays: Stop,
    host: Arc<OwnedAllocator>,
    /// Its number in its session.
    number: usize,
}

impl ModelGraph {
    /// Runs the model over zeros, so that a capture finds its memory.
    pub(super) fn prepare(
        session: &SharedSession,
        signature: &Signature,
        stream: &ComputeStream,
        shapes: &[Vec<i64>],
        number: usize,
    ) -> Result<Self, RuntimeFault> {
        let _running = running();
        stream.enter()?;
        let made = Self::prepared(session, signature, stream, shapes, number);
        // Nothing that was queued outlives what it reads and writes.
        let waited = stream.wait();
        let made = made?;
        waited?;
        Ok(made)
    }

    fn prepared(
        session: &SharedSession,
        signature: &Signature,
        stream: &ComputeStream,
        shapes: &[Vec<i64>],
        number: usize,
    ) -> Result<Self, RuntimeFault> {
        let host = Arc::new(OwnedAllocator::of_host(session)?);
        let device = Arc::new(OwnedAllocator::of_device(session)?);
        let (mut inputs, mut on_device) = (Vec::new(), Vec::new());
        for (spec, shape) in signature.inputs.iter().zip(shapes) {
            let zeros = Value::new(&host, spec.datatype, shape, session)?;
            let to = Value::blank(&device, spec.datatype, shape, session)?;
            upload(&zeros, &to, session, stream)?;
            inputs.push(zeros);
            on_device.push(to);
        }
        let (takes, gives) =
            (Signature::names(&signature.inputs), Signature::names(&signature.outputs));
        let placed = gives.iter().map(|name| (name.clone(), Place::Device)).collect();
        let plain = Stop::of_plain_runs()?;
        // The first run shows the shapes of the outputs and allocates most of what a run needs.
        let mut first = Bound::new(session, takes.clone(), placed)?;
        let outputs = first.run(&on_device.iter().collect::<Vec<_>>(), &plain);
        stream.wait()?;
        let mut fixed = Fixed::new(session, &takes, on_device, &gives, outputs?)?;
        // The second one allocates the rest: a capture must not allocate.
        fixed.run(&plain)?;
        stream.wait()?;
        Ok(Self { fixed, inputs, replays: Stop::of_replays(number)?, host, number })
    }

    /// The memory of an input.
    pub(super) fn input(&mut self, input: usize) -> Result<&mut [u8], RuntimeFault> {
        self.inputs[input].bytes_mut(self.fixed.session())
    }

    /// Captures a run, and replays it.
    pub(super) fn capture(
        &mut self,
        stream: &ComputeStream,
        alone: Alone,
    ) -> Result<(), RuntimeFault> {
        stream.enter()?;
        // This only queues runs: others may go on before the device has done them.
        let captured = Stop::of_capture(self.number).and_then(|how| self.fixed.run(&how));
        if captured.is_err() {
            let waited = stream.wait();
            drop(alone);
            return settled(captured, waited);
        }
        drop(alone);
        let _running = running();
        stream.wait()?;
        // This fails if nothing was captured.
        let replayed = self.fixed.run(&self.replays);
        let waited = stream.wait();
        replayed?;
        Ok(waited?)
    }

    /// Queues copies and the replay.
    pub(super) fn replay(&mut self, stream: &ComputeStream) -> Result<Vec<Value>, RuntimeFault> {
        let session = self.fixed.session().clone();
        for (from, to) in self.inputs.iter().zip(self.fixed.inputs()) {
            upload(from, to, &session, stream)?;
        }
        self.fixed.run(&self.replays)?;
        let mut outputs = Vec::with_capacity(self.fixed.outputs().len());
        for value in self.fixed.outputs() {
            let (datatype, shape) = value.description(&session)?;
            let datatype = datatype.expect("a model with an output of another type was refused");
            let mut output = Value::blank(&self.host, datatype, &shape, &session)?;
            download(value, &mut output, &session, stream)?;
            outputs.push(output);
        }
        Ok(outputs)
    }
}
