//! Asking a model: the request, its handle, and its outputs where they lie.
//!
//! ```no_run
//! use gridpool_protocol::client::{Client, InferJob};
//! use gridpool_protocol::tensor::{DataType, Tensor};
//!
//! let client = Client::connect("/run/user/1000/gridpool/pool.sock")?;
//! let x = Tensor::new("x", DataType::Fp32, vec![1, 16])?;
//! let numbers = [0.5_f32; 16].iter().flat_map(|number| number.to_le_bytes()).collect();
//! let answer = client.infer(InferJob::new("mlp", vec![(x, numbers)])?)?.wait()?;
//! println!("{} after {} µs", answer.verdict(), answer.receipt.total_us);
//! if let Some(outputs) = answer.outputs {
//!     let y = outputs.find("y").ok_or("the model gives no y")?;
//!     println!("{:?}: {:?}", outputs.tensors()[y].shape(), outputs.data(y));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::handle::Handle;
use super::task::{Task, Terms};
use super::{Canceller, Client, ClientError};
use crate::ids::JobKey;
use crate::message::{Priority, Refusal};
use crate::output::Bytes;
use crate::receipt::{Receipt, Verdict};
use crate::shared::SharedSlice;
use crate::tensor::model::check_model_name;
use crate::tensor::{Packed, Tensor, TensorError, TensorLayout};

/// Room for the outputs of a request that names none, of a model whose outputs have a size that is not
/// known before it has run.
pub const OUTPUT_BYTES_DEFAULT: u64 = 16 << 20;

/// A request of a model, and how it should be run. Clones share the tensors.
#[derive(Clone, Debug)]
pub struct InferJob {
    pub(super) model: String,
    pub(super) inputs: Arc<Inputs>,
    output_bytes: Option<u64>,
    pub(super) terms: Terms,
}

/// Tensors in private memory: kept until there is an answer, to be submitted again.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) layout: TensorLayout,
    data: Vec<Vec<u8>>,
}

impl Inputs {
    /// Packs them to the start of `memory`, which has room for them.
    pub(super) fn write_to(&self, memory: &SharedSlice<'_>) {
        self.layout.write_header(memory).expect("whoever packs them has made room");
        for (at, data) in self.data.iter().enumerate() {
            memory.write(self.layout.range(at).start, data);
        }
    }
}

impl InferJob {
    /// These tensors for `model`, with the default deadline of 30 s from submission. The data of each is
    /// little-endian and row-major. A small set travels in the message; any other is packed into shared
    /// memory when it is submitted.
    ///
    /// # Errors
    /// [`TensorError`] if data is not as long as its tensor says, or the set is beyond a limit.
    pub fn new(
        model: impl Into<String>,
        tensors: Vec<(Tensor, Vec<u8>)>,
    ) -> Result<Self, TensorError> {
        let (tensors, data): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
        let layout = TensorLayout::new(tensors)?;
        layout.check(data.iter().map(Vec::len))?;
        let inputs = Arc::new(Inputs { layout, data });
        Ok(Self { model: model.into(), inputs, output_bytes: None, terms: Terms::default() })
    }

    /// Names the request. While its verdict is known, a second one under the same key is answered from
    /// memory and not run again. Without this, a random key is drawn.
    #[must_use]
    pub fn with_key(mut self, key: JobKey) -> Self {
        self.terms.key = Some(key);
        self
    }

    /// The verdict is DEADLINE if there is no other by then.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.terms.deadline = deadline;
        self
    }

    /// Its place among this client's waiting jobs.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.terms.priority = priority;
        self
    }

    /// It may be attempted once at most: a lost worker means FAILED.
    #[must_use]
    pub fn at_most_once(mut self) -> Self {
        self.terms.idempotent = false;
        self
    }

    /// A full queue is an error at once. Without this, `infer` tries again until the deadline.
    #[must_use]
    pub fn refuse_if_busy(mut self) -> Self {
        self.terms.wait_if_busy = false;
        self
    }

    /// Room for the packed outputs. If it is too little the verdict is FAILED, and the reason says how
    /// much is needed. Without this, the room is what the model's outputs take; where that is not known
    /// before it has run, [`OUTPUT_BYTES_DEFAULT`].
    #[must_use]
    pub fn with_output_bytes(mut self, bytes: u64) -> Self {
        self.output_bytes = Some(bytes);
        self
    }

    /// Room for the packed outputs.
    pub(super) fn room(&self) -> u64 {
        self.output_bytes.unwrap_or(OUTPUT_BYTES_DEFAULT)
    }
}

/// A request that was accepted. Dropping the handle cancels it.
#[derive(Debug)]
pub struct InferHandle {
    handle: Handle,
    model: String,
}

/// The one answer to a request.
#[derive(Debug)]
pub struct InferAnswer {
    /// Verdict and proof.
    pub receipt: Receipt,
    /// The outputs; there if and only if the verdict is OK.
    pub outputs: Option<InferOutputs>,
}

/// What a model gave. The data of a large answer stays in the shared memory that the worker wrote it
/// to, until the last clone is dropped; only then can the memory serve another request.
#[derive(Clone, Debug)]
pub struct InferOutputs {
    layout: TensorLayout,
    bytes: Bytes,
}

impl Client {
    /// Asks a model and waits until the request is accepted. While the pool is BUSY it tries again until
    /// the request's deadline, unless that says [`InferJob::refuse_if_busy`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the pool does not take it, else what the connection says.
    pub fn infer(&self, mut job: InferJob) -> Result<InferHandle, ClientError> {
        check_model_name(&job.model).map_err(|error| Refusal::Invalid(error.to_string()))?;
        let model = job.model.clone();
        if job.output_bytes.is_none() {
            let inputs = job.inputs.layout.tensors();
            job.output_bytes = self.connection.outputs_of(&model, inputs)?;
        }
        let handle = Handle::send(&self.connection, Task::Model(job))?.accepted()?;
        Ok(InferHandle { handle, model })
    }
}

impl InferHandle {
    /// The request's key.
    #[must_use]
    pub fn key(&self) -> JobKey {
        self.handle.key()
    }

    /// Gives the request up: the verdict will be CANCELLED, unless another is under way already.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// The same for another thread, while this one waits.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.handle.canceller()
    }

    /// Waits for the verdict.
    ///
    /// # Errors
    /// As for [`JobHandle::wait`](super::JobHandle::wait); [`ClientError::Tensors`] if what came are no
    /// tensors.
    pub fn wait(self) -> Result<InferAnswer, ClientError> {
        let connection = Arc::clone(&self.handle.connection);
        let (receipt, bytes) = self.handle.answer()?;
        if receipt.verdict != Verdict::Ok {
            connection.known.forget(&self.model);
        }
        let outputs = bytes.map(InferOutputs::read).transpose()?;
        Ok(InferAnswer { receipt, outputs })
    }
}

impl InferAnswer {
    /// How the request ended.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.receipt.verdict
    }
}

impl InferOutputs {
    /// The outputs that these bytes are, packed as a worker packs them.
    ///
    /// # Errors
    /// [`TensorError`] if they are none.
    pub fn new(packed: Vec<u8>) -> Result<Self, TensorError> {
        Self::read(Bytes::Private(Arc::new(packed)))
    }

    fn read(bytes: Bytes) -> Result<Self, TensorError> {
        let layout = match &bytes {
            Bytes::Leased(lease) => TensorLayout::read(&lease.bytes())?,
            Bytes::Private(bytes) => Packed::read(bytes)?.layout().clone(),
        };
        Ok(Self { layout, bytes })
    }

    /// Which tensors there are, in the model's order.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        self.layout.tensors()
    }

    /// Which tensor has that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.layout.find(name)
    }

    /// A copy of the data of a tensor.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn data(&self, tensor: usize) -> Vec<u8> {
        let mut data = vec![0; self.tensors()[tensor].bytes()];
        self.copy_to(tensor, 0, &mut data);
        data
    }

    /// Copies `into.len()` bytes of the data of a tensor, from its byte `at` on, straight from where
    /// they lie.
    ///
    /// # Panics
    /// If there is no such tensor, or it has not so many bytes.
    pub fn copy_to(&self, tensor: usize, at: usize, into: &mut [u8]) {
        let range = self.layout.range(tensor);
        let fits = at.checked_add(into.len()).is_some_and(|end| end <= range.len());
        assert!(fits, "{} bytes at {at} of a tensor of {}", into.len(), range.len());
        self.bytes.read(range.start + at, into);
    }
}

#[cfg(test)]
mod tests;
