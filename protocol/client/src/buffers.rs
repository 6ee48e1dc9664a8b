//! The shared memory of one job, for its input and its result.

use std::sync::Arc;

use gridpool_protocol::message::{Destination, Inline, Input, Slice};
use gridpool_protocol::shared::{SharedMemory, SharedSlice};

use super::runnable::AnyJob;
use crate::lease::Lease;

/// The memory of a job's input and result. `None` means inside the message.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) input: Option<Arc<Lease>>,
    pub(super) output: Option<Arc<Lease>>,
}

impl Buffers {
    /// Leases the memory for a job. `lease` returns memory of a size, on the connection `epoch`.
    pub(super) fn new<E>(
        job: &AnyJob,
        epoch: u64,
        mut lease: impl FnMut(u64) -> Result<Arc<Lease>, E>,
    ) -> Result<Self, E> {
        let input = match job.runnable.loaded() {
            Some(batch) if batch.lease().memory().epoch == epoch => Some(batch.lease()),
            Some(batch) => {
                let lease = lease(batch.layout().bytes() as u64)?;
                batch.move_to(Arc::clone(&lease));
                Some(lease)
            }
            None if job.shares_input() => Some(lease(job.runnable.input_bytes() as u64)?),
            None => None,
        };
        let output = job.shares_output().then(|| lease(job.output_bytes)).transpose()?;
        Ok(Self { input, output })
    }

    /// Whether all of it belongs to the connection `epoch`.
    pub(super) fn are_of(&self, epoch: u64) -> bool {
        let mut leases = self.input.iter().chain(&self.output);
        leases.all(|lease| lease.memory().epoch == epoch)
    }

    /// Copies an input that is still in private memory. Erases an earlier job's result, so that it cannot be
    /// taken for this job's.
    pub(super) fn pack(&self, job: &AnyJob) {
        if let (Some(lease), None) = (&self.input, job.runnable.loaded()) {
            job.runnable.write_to(&lease.bytes());
        }
        if let Some(lease) = &self.output {
            job.runnable.clear(&lease.bytes());
        }
    }

    /// Marks the memory as not reusable, since a worker that the pool is killing may still write to it. A
    /// loaded batch stays usable: workers only read it.
    pub(super) fn spoil(&self, job: &AnyJob) {
        let input = if job.runnable.loaded().is_none() { self.input.as_ref() } else { None };
        input.into_iter().chain(&self.output).for_each(|lease| lease.spoil());
    }

    /// Input and output, as the message names them.
    pub(super) fn named(&self, job: &AnyJob) -> (Input, Destination) {
        let slice =
            |lease: &Arc<Lease>, bytes: u64| Slice { arena: lease.memory().id, offset: 0, bytes };
        let input = match &self.input {
            Some(lease) => Input::Arena(slice(lease, job.runnable.input_bytes() as u64)),
            None => {
                let mut bytes = vec![0; job.runnable.input_bytes()];
                job.runnable.write_to(&SharedSlice::private(&mut bytes));
                Input::Inline(Inline(bytes))
            }
        };
        let output = self.output.as_ref().map_or(Destination::Inline, |lease| {
            Destination::Arena(slice(lease, job.output_bytes))
        });
        (input, output)
    }
}
