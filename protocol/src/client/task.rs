//! What a connection submits and gets a verdict on: a program over grids, or a request of a model. The
//! one place where what differs between them is told apart.

use std::sync::Arc;
use std::time::Duration;

use super::{InferJob, Job};
use crate::batch::{PackedBatch, Source};
use crate::ids::JobKey;
use crate::limits::{DEADLINE_DEFAULT, INFER_INLINE_BYTES_MAX, INLINE_BYTES_MAX};
use crate::message::{
    Call, ClientMessage, Destination, InferSubmission, Input, ModelCall, Payload, Priority,
    Submission,
};
use crate::shared::SharedSlice;

/// How a task should be run, whatever it is.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) key: Option<JobKey>,
    pub(super) deadline: Duration,
    pub(super) priority: Priority,
    pub(super) idempotent: bool,
    pub(super) wait_if_busy: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            key: None,
            deadline: DEADLINE_DEFAULT,
            priority: Priority::Normal,
            idempotent: true,
            wait_if_busy: true,
        }
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Grids(Job),
    Model(InferJob),
}

/// Bytes of shared memory that a task needs; `None` where the message has room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
}

impl Task {
    pub(super) fn terms(&self) -> &Terms {
        match self {
            Self::Grids(job) => &job.terms,
            Self::Model(job) => &job.terms,
        }
    }

    /// The batch that lay in shared memory before the task was submitted, if there is one.
    pub(super) fn loaded(&self) -> Option<&Arc<PackedBatch>> {
        match self {
            Self::Grids(Job { source: Source::Packed(batch), .. }) => Some(batch),
            Self::Grids(Job { source: Source::Private(_), .. }) | Self::Model(_) => None,
        }
    }

    /// How long the packed input is.
    pub(super) fn input_bytes(&self) -> usize {
        match self {
            Self::Grids(job) => job.layout.bytes(),
            Self::Model(job) => job.inputs.layout.bytes(),
        }
    }

    /// How much room the packed result gets.
    pub(super) fn output_bytes(&self) -> u64 {
        match self {
            Self::Grids(job) => job.output_layout.bytes() as u64,
            Self::Model(job) => job.room(),
        }
    }

    pub(super) fn needs(&self) -> Needs {
        let inline_max = match self {
            Self::Grids(_) => INLINE_BYTES_MAX,
            Self::Model(_) => INFER_INLINE_BYTES_MAX,
        } as u64;
        let (input, output) = (self.input_bytes() as u64, self.output_bytes());
        Needs {
            input: (self.loaded().is_some() || input > inline_max).then_some(input),
            output: (output > inline_max).then_some(output),
        }
    }

    /// Copies the packed input to the start of `memory`, which has room for it.
    pub(super) fn write_to(&self, memory: &SharedSlice<'_>) {
        match self {
            Self::Grids(job) => job.source.write_to(job.layout, memory),
            Self::Model(job) => job.inputs.write_to(memory),
        }
    }

    /// The message that submits it.
    pub(super) fn submission(
        &self,
        key: JobKey,
        deadline_ms: u64,
        (input, output): (Input, Destination),
    ) -> ClientMessage {
        let &Terms { priority, idempotent, .. } = self.terms();
        match self {
            Self::Grids(job) => {
                let call = Call {
                    program: job.program.text().to_owned(),
                    ties: job.program.ties(),
                    payload: Payload {
                        items: count(job.layout.items()),
                        cells: count(job.layout.cell_count()),
                        input,
                        output,
                    },
                };
                let chaos = job.chaos;
                let submission = Submission { key, call, deadline_ms, priority, idempotent, chaos };
                ClientMessage::Submit(Box::new(submission))
            }
            Self::Model(job) => {
                let call = ModelCall { model: job.model.clone(), input, output };
                let submission = InferSubmission { key, call, deadline_ms, priority, idempotent };
                ClientMessage::Infer(Box::new(submission))
            }
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).expect("a layout counts in 32 bits")
}
