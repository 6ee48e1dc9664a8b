//! The models of the pool: ONNX files that its workers have loaded.

use std::sync::Arc;

use gridpool_client::{Job, ModelInput, OUTPUT_BYTES_DEFAULT, TensorOutputs};
use gridpool_protocol::limits::DEADLINE_DEFAULT;
use gridpool_protocol::tensor::model::{ModelInfo, ProviderNodes};
use gridpool_protocol::tensor::version::{VERSION_MARK, split};
use gridpool_protocol::tensor::{DataType, Tensor};
use serde_json::{Value, json};

use super::Asked;
use super::config::config_of;
use crate::devices::device_of;
use crate::gateway::failure::Failure;
use crate::gateway::limits::REPLY_BYTES_MAX;
use crate::gateway::probe::RecentRun;
use crate::gateway::request::{InputTensor, Request};
use crate::gateway::tally::Tally;

/// Triton's name for ONNX models, and for the backend that runs them.
pub(super) const PLATFORM: &str = "onnxruntime_onnx";
const BACKEND: &str = "onnxruntime";

/// One model of the pool.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct OnnxModel {
    /// As the first worker that has it READY reports it. If none has, as it was last reported.
    pub(in crate::gateway) info: ModelInfo,
    /// Whether it is the version that serves its name.
    pub(in crate::gateway) serves: bool,
    /// The group whose workers have it.
    pub(in crate::gateway) group: String,
    /// The workers that have it READY.
    pub(in crate::gateway) workers: Vec<String>,
    pub(in crate::gateway) availability: Availability,
    /// What the gateway has counted and seen. It survives a reload.
    pub(in crate::gateway) record: Arc<Record>,
}

/// Whether a model accepts requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Availability {
    /// A worker has it READY.
    Ready,
    /// The workers that had it do not serve now, for this reason. Requests wait for the next worker.
    NoWorker(String),
    /// It could not be loaded, or its name is taken, for this reason.
    Unavailable(String),
    /// It was unloaded: the workers serve without it.
    Unloaded,
}

/// What the gateway has counted and seen of a model.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Record {
    pub(in crate::gateway) tally: Tally,
    pub(in crate::gateway) probe: RecentRun,
    /// Held by the running probe.
    pub(in crate::gateway) turn: Arc<tokio::sync::Mutex<()>>,
}

impl OnnxModel {
    /// Its name, without the version.
    pub(in crate::gateway) fn name(&self) -> &str {
        split(&self.info.name).0
    }

    pub(in crate::gateway) fn version(&self) -> u32 {
        split(&self.info.name).1
    }

    /// Whether a worker has it, or will have it again.
    pub(in crate::gateway) fn is_expected(&self) -> bool {
        match &self.availability {
            Availability::Ready | Availability::NoWorker(_) => true,
            Availability::Unavailable(_) | Availability::Unloaded => false,
        }
    }

    /// Why it is not READY, if it is not.
    pub(in crate::gateway) fn why_not_ready(&self) -> Option<String> {
        let name = &self.info.name;
        match &self.availability {
            Availability::Ready => None,
            Availability::NoWorker(why) | Availability::Unavailable(why) => Some(why.clone()),
            Availability::Unloaded => Some(format!(
                "`{name}` was unloaded; `gridpool model load {name}=PATH` loads it again"
            )),
        }
    }

    /// Whether it is ready; `None` if that is unknown.
    pub(in crate::gateway) fn probed(&self) -> Option<Result<(), String>> {
        self.record.probe.check(&self.info.sha256, &self.workers)
    }

    /// Checks that a request may go to the pool.
    pub(in crate::gateway) fn can_be_asked(&self) -> Result<(), Failure> {
        let name = &self.info.name;
        match &self.availability {
            // The pool says whether there is a version that this gateway has not seen yet.
            Availability::Ready | Availability::NoWorker(_) | Availability::Unloaded => Ok(()),
            Availability::Unavailable(why) => {
                Err(Failure::unavailable(format!("the model `{name}` is unavailable: {why}")))
            }
        }
    }

    /// Whether its requests may share runs, row by row.
    pub(super) fn has_rows(&self) -> bool {
        self.info.max_batch > 1
    }

    /// Makes the job of a request whose inputs have been checked, and moves their data into it.
    pub(super) fn job(
        &self,
        asked: Asked,
        request: &mut Request<'_>,
    ) -> Result<Job<TensorOutputs>, Failure> {
        if request.program.is_some() {
            let name = self.name();
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
        let inputs = inputs.map(|input| (input.tensor, input.data.into_owned()));
        let job = ModelInput::from_tensors(inputs)
            .and_then(|inputs| Job::model(self.called(asked), inputs));
        let job = job.map_err(|error| Failure::bad(error.to_string()))?;
        let job = job
            .with_output_bytes(room)
            .with_priority(request.priority)
            .refuse_if_busy()
            .end_with_pool();
        Ok(job.with_deadline(request.deadline.unwrap_or(DEADLINE_DEFAULT)))
    }

    /// What the pool is asked for. Which version serves a name is the pool's to say, at the moment when it accepts.
    fn called(&self, asked: Asked) -> String {
        match asked {
            Asked::Name => self.name().to_owned(),
            Asked::Version => format!("{}{VERSION_MARK}{}", self.name(), self.version()),
        }
    }

    /// Bytes to reserve for the outputs. They must fit a response.
    fn room(&self, request: &Request<'_>) -> Result<u64, Failure> {
        let tensors: Vec<Tensor> = request.inputs.iter().map(|i| i.tensor.clone()).collect();
        let most = REPLY_BYTES_MAX as u64;
        match (request.output_bytes, self.info.output_bytes(&tensors)) {
            (Some(bytes), _) if bytes == 0 || bytes > most => {
                Err(Failure::bad(format!("`output_bytes` is {bytes}; it must be 1 to {most}")))
            }
            (_, Some(bytes)) if bytes > most => Err(Failure::bad(format!(
                "the outputs would take {bytes} bytes; a response has at most {most}: send fewer rows at once"
            ))),
            (Some(bytes), _) | (None, Some(bytes)) => Ok(bytes),
            (None, None) => Ok(OUTPUT_BYTES_DEFAULT),
        }
    }

    /// The document of `/v2/models/NAME/config`, in Triton's terms.
    pub(super) fn config(&self) -> Value {
        let ModelInfo { sha256, onnxruntime, max_batch, contexts, .. } = &self.info;
        let name = self.name();
        let has_rows = self.has_rows();
        let configs =
            |specs: &[_]| -> Value { specs.iter().map(|spec| config_of(spec, has_rows)).collect() };
        let nodes = ProviderNodes::list(&self.info.nodes);
        let devices: Vec<_> = self.workers.iter().map(|own| device_of(own)).collect();
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
                "devices": { "string_value": devices.join(", ") },
            },
        });
        if has_rows {
            config["dynamic_batching"] = json!({});
        }
        config
    }
}

/// Checks that all inputs have the same number of rows.
fn check_rows(inputs: &[InputTensor<'_>]) -> Result<(), Failure> {
    let rows = |input: &InputTensor<'_>| input.tensor.shape().first().copied();
    let Some(first) = inputs.first() else { return Ok(()) };
    let Some(other) = inputs.iter().find(|input| rows(input) != rows(first)) else {
        return Ok(());
    };
    let count = |input| rows(input).unwrap_or_default();
    Err(Failure::bad(format!(
        "dimension 0 of `{}` is {}, but of `{}` it is {}: all inputs must have the same number of rows",
        other.tensor.name(),
        count(other),
        first.tensor.name(),
        count(first)
    )))
}

/// Checks that every byte of a BOOL is 0 or 1.
fn check_flags(input: &InputTensor<'_>) -> Result<(), Failure> {
    if input.tensor.datatype() != DataType::Bool {
        return Ok(());
    }
    let Some(at) = input.data.iter().position(|&byte| byte > 1) else { return Ok(()) };
    let (name, byte) = (input.tensor.name(), input.data[at]);
    Err(Failure::bad(format!("input `{name}`: element {at} is {byte}; a BOOL is 0 or 1")))
}

#[cfg(test)]
pub(in crate::gateway) mod tests;
