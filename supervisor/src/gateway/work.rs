//! What a request becomes and what comes of it: a job of grids, or a request of a model.

use gridpool_protocol::client::{ClientError, InferAnswer, InferJob, Job, JobAnswer};
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::tensor::bytes_needed;
use serde_json::Value;

use super::failure::Failure;
use super::grids;
use super::limits::REPLY_BYTES_MAX;
use super::pool::{HangUp, Pool};
use super::tensors::Output;

/// What goes to the pool.
#[derive(Debug)]
pub(super) enum Work {
    Grids(Job),
    Onnx(InferJob),
}

/// What comes back.
#[derive(Debug)]
pub(super) enum Answer {
    Grids(JobAnswer),
    Onnx(InferAnswer),
}

/// The tensors of an answer, and why some items have none.
pub(super) type Results = (Vec<Output>, Vec<Value>);

impl Work {
    /// Waits for the verdict.
    pub(super) fn run(self, pool: &Pool, hang_up: &HangUp) -> Result<Answer, Failure> {
        match self {
            Self::Grids(job) => Ok(Answer::Grids(pool.run(job, hang_up)?)),
            Self::Onnx(job) => match pool.infer(job, hang_up) {
                // All but the name was made here: it is none of the pool's any more.
                Err(ClientError::Refused(Refusal::Invalid(why))) => Err(Failure::unknown(why)),
                answer => Ok(Answer::Onnx(answer?)),
            },
        }
    }
}

impl Answer {
    pub(super) fn receipt(&self) -> &Receipt {
        match self {
            Self::Grids(answer) => &answer.receipt,
            Self::Onnx(answer) => &answer.receipt,
        }
    }

    /// What the job gave, if its verdict is OK.
    pub(super) fn results(&self) -> Result<Results, Failure> {
        match self {
            Self::Grids(JobAnswer { receipt, outputs }) => {
                grids::results(outputs.as_ref().ok_or_else(|| Failure::verdict(receipt))?)
            }
            Self::Onnx(InferAnswer { receipt, outputs }) => {
                let outputs = outputs.as_ref().ok_or_else(|| no_outputs(receipt))?;
                Ok((Output::shared(outputs), Vec::new()))
            }
        }
    }
}

/// Why a model gave nothing. Where its outputs had no room, what to ask with.
fn no_outputs(receipt: &Receipt) -> Failure {
    let failure = Failure::verdict(receipt);
    match bytes_needed(&receipt.reason) {
        None => failure,
        Some(bytes) if bytes <= REPLY_BYTES_MAX as u64 => {
            failure.with(&format!("; send the parameter output_bytes: {bytes}"))
        }
        Some(_) => failure.with(&format!("; at most {REPLY_BYTES_MAX} bytes are sent")),
    }
}
