//! The job of a request, and its answer. Each kind of work is a variant of [`PoolJob`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gridpool_client::{Answer, ClientError, Job, Outputs, Refusal, Tensor, TensorOutputs};
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::tensor::bytes_needed;
use serde_json::Value;

use super::failure::Failure;
use super::grids;
use super::limits::REPLY_BYTES_MAX;
use super::pool::{Origin, PoolConnections};
use super::tensors::OutputTensor;

/// A job for the pool.
#[derive(Debug)]
pub(super) enum PoolJob {
    /// A program over grids.
    Program(Job<Outputs>),
    /// A model of the pool.
    Model(Job<TensorOutputs>),
}

/// The output tensors of an answer, and the errors of items without a result.
pub(super) type Results = (Vec<OutputTensor>, Vec<Value>);

/// The outputs of an answer, not yet read.
pub(super) struct UnreadResults {
    /// About how many bytes they are.
    pub(super) bytes: usize,
    pub(super) read: Box<dyn FnOnce() -> Result<Results, Failure> + Send>,
}

/// An answer to wait for: the receipt of a job that ended OK, and its outputs.
pub(super) type PendingAnswer =
    Pin<Box<dyn Future<Output = Result<(Receipt, UnreadResults), Failure>> + Send>>;

impl PoolJob {
    /// Sends the job to the pool.
    pub(super) fn send(
        self,
        pool: &Arc<PoolConnections>,
        origin: Origin,
    ) -> Result<PendingAnswer, Failure> {
        Ok(match self {
            Self::Program(job) => of_program(pool.send(job, origin)?),
            Self::Model(job) => of_model(pool.send(job, origin)?),
        })
    }

    /// The same if that takes no wait; `None` if it may.
    pub(super) fn try_send(
        &self,
        pool: &Arc<PoolConnections>,
        origin: &Origin,
    ) -> Result<Option<PendingAnswer>, Failure> {
        Ok(match self {
            Self::Program(job) => pool.try_send(job, origin)?.map(of_program),
            Self::Model(job) => pool.try_send(job, origin)?.map(of_model),
        })
    }
}

/// The results of a program over grids.
fn of_program(
    answer: impl Future<Output = Result<Answer<Outputs>, ClientError>> + Send + 'static,
) -> PendingAnswer {
    Box::pin(async move {
        let (receipt, outputs) = outputs(answer.await?, Failure::verdict)?;
        let bytes = grids::bytes(&outputs);
        Ok((receipt, UnreadResults { bytes, read: Box::new(move || grids::results(&outputs)) }))
    })
}

/// The outputs of a model.
fn of_model(
    answer: impl Future<Output = Result<Answer<TensorOutputs>, ClientError>> + Send + 'static,
) -> PendingAnswer {
    Box::pin(async move {
        let answer = match answer.await {
            Err(ClientError::Refused(Refusal::Invalid(why))) => return Err(Failure::of_model(why)),
            answer => answer?,
        };
        let (receipt, outputs) = outputs(answer, no_outputs)?;
        let bytes = outputs.tensors().iter().map(Tensor::bytes).sum();
        let read = move || Ok((OutputTensor::shared(&outputs), Vec::new()));
        Ok((receipt, UnreadResults { bytes, read: Box::new(read) }))
    })
}

/// The receipt and the outputs, or the failure that `why` makes of another verdict than OK.
fn outputs<O>(
    answer: Answer<O>,
    why: impl FnOnce(&Receipt) -> Failure,
) -> Result<(Receipt, O), Failure> {
    match answer.into_parts() {
        (receipt, Some(outputs)) => Ok((receipt, outputs)),
        (receipt, None) => Err(why(&receipt)),
    }
}

/// The failure of a model's request. If its outputs were too large, it says which parameter to send.
fn no_outputs(receipt: &Receipt) -> Failure {
    let failure = Failure::verdict(receipt);
    match bytes_needed(&receipt.reason) {
        None => failure,
        Some(bytes) if bytes <= REPLY_BYTES_MAX as u64 => {
            failure.with(&format!("; send the parameter output_bytes: {bytes}"))
        }
        Some(_) => failure.with(&format!("; a response has at most {REPLY_BYTES_MAX} bytes")),
    }
}
