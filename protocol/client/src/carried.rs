//! Jobs in their packed form: for programs that carry jobs of others, as the bridge of a cluster does. Work, input and
//! result stay the bytes that they are; this client neither compiles the program nor reads the result.

use std::sync::Arc;

use gridpool_protocol::batch::{BatchError, BatchLayout};
use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::message::{Packing, Work};
use gridpool_protocol::output::Bytes;
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::shared::{SharedMemory, SharedSlice};
use gridpool_protocol::tensor::{TensorError, TensorLayout};

use super::connection::Connection;
use super::packed::PackedBatch;
use super::runnable::{Produces, Runnable};
use super::{Client, ClientError, Job, LoadedBatch};

/// The packed input of a job that is carried.
#[derive(Clone, Debug)]
pub enum PackedInput {
    /// A batch of grids that was loaded once: [`Client::load_packed`].
    Loaded(LoadedBatch),
    /// Bytes in private memory.
    Private(Arc<Vec<u8>>),
}

/// The packed result of a job that was carried.
#[derive(Clone, Debug)]
pub struct PackedOutput {
    bytes: Bytes,
    packing: Packing,
    most: usize,
}

impl PackedOutput {
    /// Copies the result.
    ///
    /// # Errors
    /// [`TensorError`] if a model's outputs do not say how long they are.
    pub fn to_vec(&self) -> Result<Vec<u8>, TensorError> {
        let memory = match &self.bytes {
            // Inline, or copied as far as it was written.
            Bytes::Private(bytes) => return Ok(bytes.to_vec()),
            Bytes::Shared(memory) => memory,
        };
        let length = match self.packing {
            Packing::Tensors => TensorLayout::read(&memory.bytes())?.bytes(),
            Packing::Grids { .. } | Packing::Search(_) => self.most,
        };
        let mut copy = vec![0; length.min(self.most)];
        memory.bytes().read(0, &mut copy);
        Ok(copy)
    }
}

#[derive(Debug)]
struct Carried {
    work: Work,
    packing: Packing,
    input: PackedInput,
    output_bytes: u64,
}

impl Job<PackedOutput> {
    /// A job as it was packed by another client, with the size to reserve for its result, and a fault to inject. The
    /// pool checks it as it checks every job.
    #[must_use]
    pub fn packed(
        (work, packing): (Work, Packing),
        input: PackedInput,
        output_bytes: u64,
        chaos: Option<Chaos>,
    ) -> Self {
        let mut job = Self::new(Arc::new(Carried { work, packing, input, output_bytes }));
        job.options.chaos = chaos;
        job
    }
}

impl Client {
    /// Loads a packed batch of grids into shared memory, as [`Client::load`] loads one that is not packed. What is
    /// wrong with it is an error of the jobs that use it.
    ///
    /// # Errors
    /// [`ClientError::Batch`] if it has another length than its layout; else as for [`Client::load`].
    pub fn load_packed(
        &self,
        (items, cells): (u32, u32),
        packed: &[u8],
    ) -> Result<LoadedBatch, ClientError> {
        let of = |grids| BatchLayout::new(items, grids, cells);
        let (single, pairs) = (of(1)?, of(2)?);
        let layout = if packed.len() == single.bytes() { single } else { pairs };
        if packed.len() != layout.bytes() {
            let (got, want) = (packed.len(), layout.bytes());
            return Err(BatchError::Bytes { got, want }.into());
        }
        let lease = self.lease(layout)?;
        let memory = SharedMemory::bytes(&*lease);
        memory.write(0, packed);
        Ok(LoadedBatch::packed(layout, lease))
    }
}

impl Runnable for Carried {
    fn work(&self) -> Work {
        self.work.clone()
    }

    fn packing(&self) -> Packing {
        self.packing
    }

    fn input_bytes(&self) -> usize {
        match &self.input {
            PackedInput::Loaded(batch) => batch.bytes(),
            PackedInput::Private(bytes) => bytes.len(),
        }
    }

    fn output_bytes(&self, _connection: &Connection) -> Result<Option<u64>, ClientError> {
        Ok(Some(self.output_bytes))
    }

    fn loaded(&self) -> Option<&Arc<PackedBatch>> {
        match &self.input {
            PackedInput::Loaded(batch) => batch.source.packed(),
            PackedInput::Private(_) => None,
        }
    }

    fn write_to(&self, memory: &SharedSlice<'_>) {
        match &self.input {
            PackedInput::Loaded(batch) => batch.source.write_to(batch.layout, memory),
            PackedInput::Private(bytes) => memory.write(0, bytes),
        }
    }

    fn clear(&self, output: &SharedSlice<'_>) {
        if self.packing == Packing::Tensors {
            TensorLayout::erase(output);
        }
    }
}

impl Produces<PackedOutput> for Carried {
    fn outputs(&self, bytes: Bytes) -> Result<PackedOutput, ClientError> {
        let most = usize::try_from(self.output_bytes).unwrap_or(usize::MAX);
        Ok(PackedOutput { bytes, packing: self.packing, most })
    }

    fn partial(
        &self,
        bytes: Bytes,
        _done: Vec<ItemRange>,
    ) -> Result<Option<PackedOutput>, ClientError> {
        self.outputs(bytes).map(Some)
    }
}
