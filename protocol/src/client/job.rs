//! A job as its client describes it, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use super::LoadedBatch;
use super::task::Terms;
use crate::batch::{BatchError, BatchLayout, GridBatch, Source};
use crate::chaos::Chaos;
use crate::ids::JobKey;
use crate::message::Priority;
use crate::output::{Bytes, MalformedOutput, OutputLayout, Outputs};
use crate::program::Program;
use crate::receipt::{Receipt, Verdict};

/// A program over a batch, and how it should be run.
#[derive(Clone, Debug)]
pub struct Job {
    pub(super) program: Arc<Program>,
    pub(super) source: Source,
    pub(super) layout: BatchLayout,
    pub(super) output_layout: OutputLayout,
    pub(super) terms: Terms,
    pub(super) chaos: Option<Chaos>,
}

impl Job {
    /// `program` over `batch`, with the default deadline of 30 s from submission. A small batch travels
    /// in the message; any other is packed into shared memory when it is submitted.
    ///
    /// # Errors
    /// [`BatchError`] if the batch is empty, its items are not what the program takes, or their
    /// results may be too large for one job.
    pub fn new(program: Program, batch: GridBatch) -> Result<Self, BatchError> {
        Self::of(program, Source::Private(Arc::new(batch)))
    }

    /// The same over a batch that lies in shared memory already, of the client that will be told to
    /// submit the job. Nothing is copied, however many jobs there are.
    ///
    /// # Errors
    /// As for [`Job::new`].
    pub fn over(program: Program, batch: &LoadedBatch) -> Result<Self, BatchError> {
        Self::of(program, Source::Packed(Arc::clone(&batch.batch)))
    }

    fn of(program: Program, source: Source) -> Result<Self, BatchError> {
        let layout = source.layout()?;
        Ok(Self {
            layout,
            output_layout: OutputLayout::new(&program, layout)?,
            program: Arc::new(program),
            source,
            terms: Terms::default(),
            chaos: None,
        })
    }

    /// Names the job. While its verdict is known, a second submission under the same key is
    /// answered from memory and not run again. Without this, a random key is drawn.
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

    /// Its first attempts meet a fault on purpose. A pool refuses it unless it was started with
    /// `--allow-chaos`.
    #[must_use]
    pub fn with_chaos(mut self, chaos: Chaos) -> Self {
        self.chaos = Some(chaos);
        self
    }

    /// A full queue is an error at once. Without this, `submit` tries again until the deadline.
    #[must_use]
    pub fn refuse_if_busy(mut self) -> Self {
        self.terms.wait_if_busy = false;
        self
    }

    /// The results, where they lie.
    pub(super) fn outputs(&self, bytes: Bytes) -> Result<Outputs, MalformedOutput> {
        let (program, source) = (Arc::clone(&self.program), self.source.clone());
        Outputs::placed(program, self.output_layout, source, bytes)
    }
}

/// The one answer to a job.
#[derive(Debug)]
pub struct JobAnswer {
    /// Verdict and proof.
    pub receipt: Receipt,
    /// The results; there if and only if the verdict is OK.
    pub outputs: Option<Outputs>,
}

impl JobAnswer {
    /// How the job ended.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.receipt.verdict
    }
}
