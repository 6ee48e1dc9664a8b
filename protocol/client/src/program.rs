//! Jobs that run a program over grids.

use std::sync::Arc;

use gridpool_protocol::batch::{BatchError, BatchLayout, GridBatch};
use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::message::{Packing, Work};
use gridpool_protocol::output::{Bytes, OutputLayout, Outputs};
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::shared::SharedSlice;

use super::connection::Connection;
use super::packed::PackedBatch;
use super::runnable::{Produces, Runnable};
use super::source::Source;
use super::{ClientError, Job, LoadedBatch};

/// A program and the batch that it runs over.
#[derive(Debug)]
pub(super) struct OverGrids {
    program: Arc<Program>,
    source: Source,
    layout: BatchLayout,
    output_layout: OutputLayout,
}

impl Job<Outputs> {
    /// Runs `program` over `batch`. A small batch travels in the message. A larger one is packed into shared
    /// memory when the job is submitted.
    ///
    /// # Errors
    /// [`BatchError`] if the batch is empty, if the program takes other items, or if the results may be too
    /// large for one job.
    pub fn program(program: Program, batch: GridBatch) -> Result<Self, BatchError> {
        Self::of(program, Source::Private(Arc::new(batch)))
    }

    /// Runs `program` over a loaded batch, without copying it if it lies in shared memory. Then the client that loaded
    /// the batch must submit the job.
    ///
    /// # Errors
    /// As for [`Job::program`].
    pub fn over(program: Program, batch: &LoadedBatch) -> Result<Self, BatchError> {
        Self::of(program, batch.source.clone())
    }

    fn of(program: Program, source: Source) -> Result<Self, BatchError> {
        Ok(Self::new(Arc::new(OverGrids::new(Arc::new(program), source)?)))
    }

    /// Injects a fault into the job's first attempts. A pool refuses the job unless it was started with
    /// `--allow-chaos`.
    #[must_use]
    pub fn with_chaos(mut self, chaos: Chaos) -> Self {
        self.options.chaos = Some(chaos);
        self
    }
}

impl OverGrids {
    pub(super) fn new(program: Arc<Program>, source: Source) -> Result<Self, BatchError> {
        let layout = source.layout()?;
        let output_layout = OutputLayout::new(&program, layout)?;
        Ok(Self { program, source, layout, output_layout })
    }

    pub(super) fn program(&self) -> &Arc<Program> {
        &self.program
    }

    pub(super) fn output_layout(&self) -> &OutputLayout {
        &self.output_layout
    }

    /// The batch, if it is in private memory.
    pub(super) fn batch(&self) -> Option<&GridBatch> {
        match &self.source {
            Source::Packed(_) => None,
            Source::Private(batch) => Some(batch),
        }
    }
}

impl Runnable for OverGrids {
    fn private_grids(&self) -> Option<&OverGrids> {
        self.batch().map(|_| self)
    }

    fn work(&self) -> Work {
        Work::Program {
            text: self.program.text().to_owned(),
            ties: self.program.ties(),
            steps: self.program.step_limit(),
        }
    }

    fn packing(&self) -> Packing {
        let count = |n| u32::try_from(n).expect("a layout counts in 32 bits");
        Packing::Grids { items: count(self.layout.items()), cells: count(self.layout.cell_count()) }
    }

    fn input_bytes(&self) -> usize {
        self.layout.bytes()
    }

    fn output_bytes(&self, _connection: &Connection) -> Result<Option<u64>, ClientError> {
        Ok(Some(self.output_layout.bytes() as u64))
    }

    fn loaded(&self) -> Option<&Arc<PackedBatch>> {
        self.source.packed()
    }

    fn write_to(&self, memory: &SharedSlice<'_>) {
        self.source.write_to(self.layout, memory);
    }
}

impl Produces<Outputs> for OverGrids {
    fn outputs(&self, bytes: Bytes) -> Result<Outputs, ClientError> {
        let program = Arc::clone(&self.program);
        Ok(Outputs::placed(program, self.output_layout, self.source.shared(), bytes)?)
    }

    fn partial(&self, bytes: Bytes, done: Vec<ItemRange>) -> Result<Option<Outputs>, ClientError> {
        self.outputs(bytes).map(|outputs| Some(outputs.with_only(done)))
    }
}
