//! Jobs that run a model over named tensors.

use std::sync::Arc;

use gridpool_protocol::message::{Packing, Refusal, Work};
use gridpool_protocol::output::Bytes;
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::version::ModelRef;
use gridpool_protocol::tensor::{TensorError, TensorLayout};

use super::connection::Connection;
use super::runnable::{Produces, Runnable};
use super::tensors::{ModelInput, TensorOutputs};
use super::{ClientError, Job};

/// The size reserved for the outputs of a model whose output size is known only after the run, bytes.
/// [`Job::with_output_bytes`] sets another.
pub const OUTPUT_BYTES_DEFAULT: u64 = 16 << 20;

/// A model and the tensors that it runs over, in private memory.
#[derive(Debug)]
struct OverTensors {
    model: String,
    layout: TensorLayout,
    inputs: Vec<ModelInput>,
}

impl Job<TensorOutputs> {
    /// Runs `model` over these inputs: `mlp` is the version that serves the name when the job is accepted, `mlp:2`
    /// is version 2. Small inputs travel in the message. Larger ones are packed into
    /// shared memory when the job is submitted.
    ///
    /// # Errors
    /// [`TensorError`] if two inputs have the same name, or the inputs exceed a limit.
    pub fn model(
        model: impl Into<String>,
        inputs: impl IntoIterator<Item = ModelInput>,
    ) -> Result<Self, TensorError> {
        let inputs: Vec<_> = inputs.into_iter().collect();
        let tensors = inputs.iter().map(|input| input.tensor().clone()).collect();
        let layout = TensorLayout::new(tensors)?;
        Ok(Self::new(Arc::new(OverTensors { model: model.into(), layout, inputs })))
    }

    /// Sets the size to reserve for the packed outputs, bytes. If it is too small, the verdict is FAILED,
    /// and the reason says how much is needed. The default is the size of the model's outputs. If that is
    /// known only after the run, the default is [`OUTPUT_BYTES_DEFAULT`].
    #[must_use]
    pub fn with_output_bytes(mut self, bytes: u64) -> Self {
        self.options.output_bytes = Some(bytes);
        self
    }
}

impl Runnable for OverTensors {
    fn work(&self) -> Work {
        Work::Model { name: self.model.clone() }
    }

    fn packing(&self) -> Packing {
        Packing::Tensors
    }

    fn input_bytes(&self) -> usize {
        self.layout.bytes()
    }

    fn output_bytes(&self, connection: &Connection) -> Result<Option<u64>, ClientError> {
        ModelRef::parse(&self.model).map_err(|error| Refusal::Invalid(error.to_string()))?;
        connection.outputs_of(&self.model, self.layout.tensors())
    }

    fn write_to(&self, memory: &SharedSlice<'_>) {
        self.layout.write_header(memory).expect("the memory has the packed size");
        for (at, input) in self.inputs.iter().enumerate() {
            memory.write(self.layout.range(at).start, input.bytes());
        }
    }

    fn clear(&self, output: &SharedSlice<'_>) {
        TensorLayout::erase(output);
    }

    fn has_failed(&self, connection: &Connection) {
        connection.known.forget(&self.model);
    }
}

impl Produces<TensorOutputs> for OverTensors {
    fn outputs(&self, bytes: Bytes) -> Result<TensorOutputs, ClientError> {
        TensorOutputs::read(bytes).map_err(ClientError::Tensors)
    }
}
