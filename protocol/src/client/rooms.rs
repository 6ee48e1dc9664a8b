//! The shared memory of one task: where its input lies and where its result goes.

use std::sync::Arc;

use super::task::Task;
use crate::lease::Lease;
use crate::message::{Destination, Inline, Input, Slice};
use crate::shared::SharedSlice;
use crate::tensor::HEAD_BYTES;

/// Where the input of a task lies and its result goes; `None` is inside the message.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    pub(super) input: Option<Arc<Lease>>,
    pub(super) output: Option<Arc<Lease>>,
}

impl Rooms {
    /// Those of a task, from whoever has shared memory: `lease` gives some of that size, of the
    /// connection `epoch`.
    pub(super) fn furnish<E>(
        task: &Task,
        epoch: u64,
        mut lease: impl FnMut(u64) -> Result<Arc<Lease>, E>,
    ) -> Result<Self, E> {
        let needs = task.needs();
        let input = match task.loaded() {
            Some(batch) if batch.lease().memory().epoch == epoch => Some(batch.lease()),
            Some(batch) => {
                let lease = lease(batch.layout().bytes() as u64)?;
                batch.move_to(Arc::clone(&lease));
                Some(lease)
            }
            None => needs.input.map(&mut lease).transpose()?,
        };
        let output = needs.output.map(lease).transpose()?;
        Ok(Self { input, output })
    }

    /// Whether all of it belongs to one connection.
    pub(super) fn are_of(&self, epoch: u64) -> bool {
        let mut leases = self.input.iter().chain(&self.output);
        leases.all(|lease| lease.memory().epoch == epoch)
    }

    /// Fills the input where that is still in private memory, and has nothing lie where outputs go.
    pub(super) fn pack(&self, task: &Task) {
        if let (Some(lease), None) = (&self.input, task.loaded()) {
            task.write_to(&lease.bytes());
        }
        // What an earlier request got there must not pass for the outputs of this one.
        if let (Some(lease), Task::Model(_)) = (&self.output, task) {
            lease.bytes().write(0, &[0; HEAD_BYTES]);
        }
    }

    /// A worker that is being killed may still write there. A loaded batch is its owner's to give up.
    pub(super) fn spoil(&self, task: &Task) {
        let input = if task.loaded().is_none() { self.input.as_ref() } else { None };
        input.into_iter().chain(&self.output).for_each(|lease| lease.spoil());
    }

    /// Both as a submission says them.
    pub(super) fn named(&self, task: &Task) -> (Input, Destination) {
        let slice =
            |lease: &Arc<Lease>, bytes: u64| Slice { arena: lease.memory().id, offset: 0, bytes };
        let input = match &self.input {
            Some(lease) => Input::Arena(slice(lease, task.input_bytes() as u64)),
            None => {
                let mut bytes = vec![0; task.input_bytes()];
                task.write_to(&SharedSlice::private(&mut bytes));
                Input::Inline(Inline(bytes))
            }
        };
        let output = self.output.as_ref().map_or(Destination::Inline, |lease| {
            Destination::Arena(slice(lease, task.output_bytes()))
        });
        (input, output)
    }
}
