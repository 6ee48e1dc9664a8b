//! A job as its client describes it, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{BatchError, BatchLayout, GridBatch};
use crate::ids::JobKey;
use crate::limits::{DEADLINE_DEFAULT, INLINE_BYTES_MAX};
use crate::message::Priority;
use crate::output::{OutputLayout, Outputs};
use crate::program::Program;
use crate::receipt::{Receipt, Verdict};

/// A program over a batch, and how it should be run.
#[derive(Clone, Debug)]
pub struct Job {
    pub(super) program: Program,
    pub(super) batch: Arc<GridBatch>,
    pub(super) layout: BatchLayout,
    pub(super) output_layout: OutputLayout,
    pub(super) key: Option<JobKey>,
    pub(super) deadline: Duration,
    pub(super) priority: Priority,
    pub(super) idempotent: bool,
    pub(super) wait_if_busy: bool,
}

impl Job {
    /// `program` over `batch`, with the default deadline of 30 s from submission.
    ///
    /// # Errors
    /// [`BatchError`] if the batch is empty, its items are not what the program takes, or their
    /// results may be too large for one job.
    pub fn new(program: Program, batch: GridBatch) -> Result<Self, BatchError> {
        let layout = batch.layout()?;
        Ok(Self {
            layout,
            output_layout: OutputLayout::new(&program, layout)?,
            program,
            batch: Arc::new(batch),
            key: None,
            deadline: DEADLINE_DEFAULT,
            priority: Priority::Normal,
            idempotent: true,
            wait_if_busy: true,
        })
    }

    /// Names the job. While its verdict is known, a second submission under the same key is
    /// answered from memory and not run again. Without this, a random key is drawn.
    #[must_use]
    pub fn with_key(mut self, key: JobKey) -> Self {
        self.key = Some(key);
        self
    }

    /// The verdict is DEADLINE if there is no other by then.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Its place among this client's waiting jobs.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// It may be attempted once at most: a lost worker means FAILED.
    #[must_use]
    pub fn at_most_once(mut self) -> Self {
        self.idempotent = false;
        self
    }

    /// A full queue is an error at once. Without this, `submit` tries again until the deadline.
    #[must_use]
    pub fn refuse_if_busy(mut self) -> Self {
        self.wait_if_busy = false;
        self
    }

    /// Bytes of shared memory that it needs; 0 if it travels inline.
    pub(super) fn arena_bytes(&self) -> u64 {
        let (input, output) = (self.layout.bytes(), self.output_layout.bytes());
        if input.max(output) <= INLINE_BYTES_MAX { 0 } else { input as u64 + output as u64 }
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
