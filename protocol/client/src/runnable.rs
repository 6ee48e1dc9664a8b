//! What differs between the kinds of work. A new kind implements [`Runnable`] and [`Produces`] and adds a
//! constructor to [`Job`](crate::Job). Nothing else in the client depends on the kind.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::INLINE_BYTES_MAX;
use gridpool_protocol::message::{
    self, Destination, Input, Packing, Payload, Priority, Submission, Work,
};
use gridpool_protocol::output::Bytes;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::TensorLayout;
use gridpool_protocol::trace::{TraceContext, TraceState};

use super::ClientError;
use super::connection::Connection;
use super::packed::PackedBatch;
use super::program::OverGrids;

/// A work and its input, whatever the type of the result.
pub(super) trait Runnable: Debug + Send + Sync {
    /// The work.
    fn work(&self) -> Work;

    /// How the input is packed.
    fn packing(&self) -> Packing;

    /// The size of the packed input, bytes.
    fn input_bytes(&self) -> usize;

    /// The largest size of the packed result, bytes; `None` if it is known only after the run.
    fn output_bytes(&self, connection: &Connection) -> Result<Option<u64>, ClientError>;

    /// The input, if it was loaded into shared memory before the job was submitted.
    fn loaded(&self) -> Option<&Arc<PackedBatch>> {
        None
    }

    /// The program and its grids, if it runs one over grids in private memory.
    fn private_grids(&self) -> Option<&OverGrids> {
        None
    }

    /// Copies the packed input to the start of `memory`, which is large enough.
    fn write_to(&self, memory: &SharedSlice<'_>);

    /// Erases an older result in `output`, so that it cannot be taken for the new one. Without need if a
    /// worker writes every byte of a result.
    fn clear(&self, _output: &SharedSlice<'_>) {}

    /// Notes that the verdict was not OK.
    fn has_failed(&self, _connection: &Connection) {}
}

/// A [`Runnable`] whose result is an `O`.
pub(super) trait Produces<O>: Runnable {
    /// Reads the packed result.
    fn outputs(&self, bytes: Bytes) -> Result<O, ClientError>;

    /// Reads the results of these items, if the pool cuts such a job into shards.
    fn partial(&self, _bytes: Bytes, _done: Vec<ItemRange>) -> Result<Option<O>, ClientError> {
        Ok(None)
    }
}

/// How a job is run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobOptions {
    pub(super) key: Option<JobKey>,
    pub(super) deadline: Duration,
    pub(super) priority: Priority,
    pub(super) idempotent: bool,
    pub(super) wait_if_busy: bool,
    /// Sending it waits for shared memory too, if it waits for a busy pool.
    pub(super) wait_for_memory: bool,
    /// If the pool stops before the job is finished, the next pool gets it.
    pub(super) outlives_pool: bool,
    pub(super) chaos: Option<Chaos>,
    /// The size to reserve for the result, bytes, if the caller has set it.
    pub(super) output_bytes: Option<u64>,
    /// Who it is for, if not the user of this process.
    pub(super) principal: Option<Principal>,
    /// The trace that it is a part of.
    pub(super) trace: Option<TraceContext>,
    /// What systems on the way of that trace have noted.
    pub(super) trace_state: Option<TraceState>,
    /// A caller waits until the pool has accepted it.
    pub(super) tell_acceptance: bool,
}

/// All that is needed to submit a job, and to submit it again.
#[derive(Clone, Debug)]
pub(super) struct AnyJob {
    pub(super) runnable: Arc<dyn Runnable>,
    pub(super) options: JobOptions,
    /// The size to reserve for the packed result, bytes.
    pub(super) output_bytes: u64,
}

impl AnyJob {
    /// The message that submits the job with its input and output in these places.
    pub(super) fn submission(
        &self,
        key: JobKey,
        deadline_ms: u64,
        jobs: u32,
        (input, output): (Input, Destination),
    ) -> Submission {
        let JobOptions { priority, idempotent, chaos, trace, tell_acceptance, .. } = self.options;
        let payload = Payload { packing: self.runnable.packing(), input, output };
        let terms = message::Terms { deadline_ms, priority, idempotent, chaos };
        let (work, principal) = (self.runnable.work(), self.options.principal.clone());
        let trace_state = self.options.trace_state.clone();
        Submission {
            key,
            work,
            payload,
            terms,
            jobs,
            principal,
            trace,
            trace_state,
            tell_acceptance,
        }
    }

    /// A copy of the result at the start of its memory. A model's outputs may be shorter than what is reserved, and
    /// behind them lies what other jobs have left: nothing is copied if they do not say how long they are.
    pub(super) fn copied(&self, memory: &SharedSlice<'_>) -> Vec<u8> {
        let reserved = usize::try_from(self.output_bytes).expect("it is mapped");
        let written = match self.runnable.packing() {
            Packing::Tensors => TensorLayout::read(memory).map_or(0, |layout| layout.bytes()),
            Packing::Grids { .. } | Packing::Search(_) => reserved,
        };
        let mut copy = vec![0; written.min(reserved)];
        memory.read(0, &mut copy);
        copy
    }

    /// Whether the input is in shared memory: it is too large for a message, or loaded already.
    pub(super) fn shares_input(&self) -> bool {
        self.runnable.loaded().is_some() || self.runnable.input_bytes() > INLINE_BYTES_MAX
    }

    /// Whether the result goes to shared memory: it may be too large for a message.
    pub(super) fn shares_output(&self) -> bool {
        self.output_bytes > INLINE_BYTES_MAX as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, ModelInput};

    #[test]
    fn of_a_models_result_what_it_has_written_is_copied_and_no_more() {
        let x = ModelInput::new("x", [1, 4], vec![1.0_f32; 4]).unwrap();
        let Job { runnable, options, .. } = Job::model("m", [x]).unwrap();
        let job = AnyJob { runnable, options, output_bytes: 4_096 };
        // Outputs are packed as inputs are.
        let mut memory = vec![7; 8_192];
        job.runnable.write_to(&SharedSlice::private(&mut memory));
        let copy = job.copied(&SharedSlice::private(&mut memory));
        assert_eq!(copy.len(), job.runnable.input_bytes());
        assert_eq!(copy, memory[..copy.len()]);
        let mut others = vec![7; 8_192];
        assert!(job.copied(&SharedSlice::private(&mut others)).is_empty());
    }
}
