//! The shared memory of one job: where its batch lies and where its result goes.

use std::sync::Arc;

use super::Job;
use crate::batch::Source;
use crate::lease::Lease;
use crate::limits::INLINE_BYTES_MAX;
use crate::message::{Destination, Inline, Input, Slice};
use crate::shared::SharedSlice;

/// Where the batch of a job lies and its result goes; `None` is inside the message.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    pub(super) input: Option<Arc<Lease>>,
    pub(super) output: Option<Arc<Lease>>,
}

/// Bytes of shared memory that a job needs; `None` where the message has room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
}

impl Needs {
    pub(super) fn of(job: &Job) -> Self {
        let is_packed = matches!(job.source, Source::Packed(_));
        let (input, output) = (job.layout.bytes(), job.output_layout.bytes());
        Self {
            input: (is_packed || input > INLINE_BYTES_MAX).then_some(input as u64),
            output: (output > INLINE_BYTES_MAX).then_some(output as u64),
        }
    }
}

impl Rooms {
    /// Whether all of it belongs to one connection.
    pub(super) fn are_of(&self, epoch: u64) -> bool {
        let mut leases = self.input.iter().chain(&self.output);
        leases.all(|lease| lease.memory().epoch == epoch)
    }

    /// Fills the input where the job's batch is still in private memory.
    pub(super) fn pack(&self, job: &Job) {
        if let (Some(lease), Source::Private(_)) = (&self.input, &job.source) {
            job.source.write_to(job.layout, &lease.bytes());
        }
    }

    /// A worker that is being killed may still write there. A loaded batch is its owner's to give up.
    pub(super) fn spoil(&self, job: &Job) {
        let input = match job.source {
            Source::Packed(_) => None,
            Source::Private(_) => self.input.as_ref(),
        };
        input.into_iter().chain(&self.output).for_each(|lease| lease.spoil());
    }

    /// Both as a submission says them.
    pub(super) fn named(&self, job: &Job) -> (Input, Destination) {
        let slice = |lease: &Arc<Lease>, bytes: usize| Slice {
            arena: lease.memory().id,
            offset: 0,
            bytes: bytes as u64,
        };
        let input = match &self.input {
            Some(lease) => Input::Arena(slice(lease, job.layout.bytes())),
            None => {
                let mut bytes = vec![0; job.layout.bytes()];
                job.source.write_to(job.layout, &SharedSlice::private(&mut bytes));
                Input::Inline(Inline(bytes))
            }
        };
        let output = self.output.as_ref().map_or(Destination::Inline, |lease| {
            Destination::Arena(slice(lease, job.output_layout.bytes()))
        });
        (input, output)
    }
}
