//! The models of the pool: ONNX files that its workers have loaded, as they say themselves.

use std::sync::Arc;

use gridpool_protocol::client::{InferJob, OUTPUT_BYTES_DEFAULT};
use gridpool_protocol::tensor::model::{ModelInfo, ProviderNodes};
use gridpool_protocol::tensor::{DataType, Tensor};
use serde_json::{Value, json};

use super::config_of;
use crate::gateway::failure::Failure;
use crate::gateway::limits::REPLY_BYTES_MAX;
use crate::gateway::request::{Input, Request};
use crate::gateway::statistics::Tally;
use crate::gateway::trial::Proof;

/// Triton's name of ONNX models, and of what runs them.
pub(super) const PLATFORM: &str = "onnxruntime_onnx";
const BACKEND: &str = "onnxruntime";

/// One model, on whichever devices it is.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct OnnxModel {
    /// As the first worker says that has it READY; else as it was last.
    pub(in crate::gateway) info: ModelInfo,
    /// The workers that have it READY.
    pub(in crate::gateway) workers: Vec<String>,
    pub(in crate::gateway) state: State,
    /// What was seen of it, whatever becomes of it.
    pub(in crate::gateway) record: Arc<Record>,
}

/// Whether a model can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum State {
    /// A worker has it READY.
    Ready,
    /// No worker that had it serves now; another will, and requests wait for it. Why not.
    Away(String),
    /// It could not be loaded, or has a name that is taken. Why not.
    Unavailable(String),
    /// It was there, and the workers serve without it.
    Unloaded,
}

/// What was seen of a model.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Record {
    pub(in crate::gateway) tally: Tally,
    pub(in crate::gateway) proof: Proof,
    /// Held by the trial that is under way.
    pub(in crate::gateway) turn: Arc<tokio::sync::Mutex<()>>,
}

impl OnnxModel {
    /// Why it is not READY, if it is not.
    pub(in crate::gateway) fn why_not_ready(&self) -> Option<String> {
        let name = &self.info.name;
        match &self.state {
            State::Ready => None,
            State::Away(why) | State::Unavailable(why) => Some(why.clone()),
            State::Unloaded => Some(format!(
                "`{name}` was unloaded; `gridpool model load {name}=PATH` loads it again"
            )),
        }
    }

    /// Whether a request may go to the pool.
    pub(in crate::gateway) fn can_be_asked(&self) -> Result<(), Failure> {
        let name = &self.info.name;
        match &self.state {
            State::Ready | State::Away(_) => Ok(()),
            State::Unavailable(why) => {
                Err(Failure::unavailable(format!("the model `{name}` cannot be asked: {why}")))
            }
            State::Unloaded => Err(Failure::unknown(self.why_not_ready().unwrap_or_default())),
        }
    }

    /// Whether its requests may share runs, row by row.
    pub(super) fn has_rows(&self) -> bool {
        self.info.max_batch > 1
    }

    /// The job of a request whose inputs are those that the model takes. Their data is moved there.
    pub(super) fn job(&self, request: &mut Request<'_>) -> Result<InferJob, Failure> {
        if request.program.is_some() {
            let name = &self.info.name;
            return Err(Failure::bad(format!(
                "the model `{name}` takes no program; the model `program` does"
            )));
        }
        if self.has_rows() {
            check_rows(&request.inputs)?;
        }
        request.inputs.iter().try_for_each(check_flags)?;
        let room = self.room(request)?;
        let inputs = std::mem::take(&mut request.inputs).into_iter();
        let inputs = inputs.map(|input| (input.tensor, input.data.into_owned())).collect();
        let job = InferJob::new(self.info.name.clone(), inputs);
        let job = job.map_err(|error| Failure::bad(error.to_string()))?;
        let job = job.with_output_bytes(room).with_priority(request.priority).refuse_if_busy();
        Ok(match request.deadline {
            Some(deadline) => job.with_deadline(deadline),
            None => job,
        })
    }

    /// Room for the outputs, which must not be more than a reply may have.
    fn room(&self, request: &Request<'_>) -> Result<u64, Failure> {
        let tensors: Vec<Tensor> = request.inputs.iter().map(|i| i.tensor.clone()).collect();
        let most = REPLY_BYTES_MAX as u64;
        match (request.output_bytes, self.info.output_bytes(&tensors)) {
            (Some(bytes), _) if bytes == 0 || bytes > most => {
                Err(Failure::bad(format!("`output_bytes` is {bytes}; it is 1 to {most}")))
            }
            (_, Some(bytes)) if bytes > most => Err(Failure::bad(format!(
                "the outputs would take {bytes} bytes; at most {most} are sent: send fewer rows at once"
            ))),
            (Some(bytes), _) | (None, Some(bytes)) => Ok(bytes),
            (None, None) => Ok(OUTPUT_BYTES_DEFAULT),
        }
    }

    /// As `/v2/models/NAME/config` says it, in Triton's terms.
    pub(super) fn config(&self) -> Value {
        let ModelInfo { name, sha256, onnxruntime, max_batch, contexts, .. } = &self.info;
        let has_rows = self.has_rows();
        let configs =
            |specs: &[_]| -> Value { specs.iter().map(|spec| config_of(spec, has_rows)).collect() };
        let nodes = nodes(&self.info.nodes);
        let mut config = json!({
            "name": name,
            "platform": PLATFORM,
            "backend": BACKEND,
            "version_policy": { "latest": { "num_versions": 1 } },
            "max_batch_size": if has_rows { *max_batch } else { 0 },
            "input": configs(&self.info.inputs),
            "output": configs(&self.info.outputs),
            "instance_group": [{ "name": name, "count": contexts }],
            "parameters": {
                "sha256": { "string_value": sha256 },
                "onnxruntime": { "string_value": onnxruntime },
                "nodes": { "string_value": nodes },
            },
        });
        if has_rows {
            config["dynamic_batching"] = json!({});
        }
        config
    }
}

/// `CUDAExecutionProvider 53, CPUExecutionProvider 2`.
pub(in crate::gateway) fn nodes(nodes: &[ProviderNodes]) -> String {
    let one = |of: &ProviderNodes| format!("{} {}", of.provider, of.nodes);
    nodes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whether all inputs have as many rows as the first.
fn check_rows(inputs: &[Input<'_>]) -> Result<(), Failure> {
    let rows = |input: &Input<'_>| input.tensor.shape().first().copied();
    let Some(first) = inputs.first() else { return Ok(()) };
    let Some(other) = inputs.iter().find(|input| rows(input) != rows(first)) else {
        return Ok(());
    };
    let count = |input| rows(input).unwrap_or_default();
    Err(Failure::bad(format!(
        "dimension 0 of `{}` is {}, of `{}` it is {}: rows of all inputs belong together",
        other.tensor.name(),
        count(other),
        first.tensor.name(),
        count(first)
    )))
}

/// Whether the bytes of a BOOL are that.
fn check_flags(input: &Input<'_>) -> Result<(), Failure> {
    if input.tensor.datatype() != DataType::Bool {
        return Ok(());
    }
    let Some(at) = input.data.iter().position(|&byte| byte > 1) else { return Ok(()) };
    let (name, byte) = (input.tensor.name(), input.data[at]);
    Err(Failure::bad(format!("input `{name}`: element {at} is {byte}; a BOOL is 0 or 1")))
}

#[cfg(test)]
pub(in crate::gateway) mod tests;
