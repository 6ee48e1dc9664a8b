//! Writes one inference response: JSON, with the data of its tensors inside or as bytes behind it.

use std::borrow::Cow;
use std::io::{self, Write};

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use gridpool_protocol::receipt::{AttemptOutcome, Receipt};
use gridpool_protocol::tensor::model::ProviderNodes;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::body::HeldBytes;
use super::draft::Draft;
use super::failure::Failure;
use super::limits::REPLY_BYTES_MAX;
use super::request::{Delivery, HEADER_LENGTH, WantedOutputs};
use super::tensors::{Flat, OutputTensor};

/// Bytes that are reserved for the JSON of an answer beside its data, with the receipt of a job that ran once.
const HEAD_ROOM: usize = 4 << 10;
/// So many parameters say where and how a job ran.
const FACTS: usize = 20;

/// Parameters of an answer, in their order.
pub(super) type Facts = Vec<(&'static str, Value)>;

/// The result of a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) model: String,
    /// The version that ran.
    pub(super) version: Cow<'static, str>,
    pub(super) id: Option<String>,
    pub(super) parameters: Facts,
    pub(super) outputs: Vec<OutputTensor>,
}

/// An encoded response: JSON, then bytes.
#[derive(Debug)]
pub(super) struct Encoded {
    body: Vec<u8>,
    /// Where the JSON ends, if there are bytes.
    header: Option<usize>,
}

#[derive(Serialize)]
struct ResponseJson<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(serialize_with = "as_map")]
    parameters: &'a [(&'static str, Value)],
    outputs: Vec<OutputJson<'a>>,
}

#[derive(Serialize)]
struct OutputJson<'a> {
    name: &'a str,
    shape: &'a [u64],
    datatype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Flat<'a>>,
}

fn as_map<S: Serializer>(facts: &[(&'static str, Value)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(facts.iter().map(|(name, value)| (name, value)))
}

impl Reply {
    /// The wanted outputs in the wanted order, each with how it reaches the client. Those that go to shared memory are
    /// there then.
    pub(super) fn deliver<'a>(
        &'a self,
        wanted: &'a WantedOutputs,
    ) -> Result<Vec<(&'a OutputTensor, &'a Delivery)>, Failure> {
        let names = match wanted {
            WantedOutputs::All { binary } => {
                let how = if *binary { &Delivery::Bytes } else { &Delivery::Json };
                return Ok(self.outputs.iter().map(|output| (output, how)).collect());
            }
            WantedOutputs::Some(names) => names,
        };
        let find = |name: &str| self.outputs.iter().find(|o| o.tensor.name() == name);
        let mut chosen = Vec::with_capacity(names.len());
        for (name, delivery) in names {
            let output = find(name).ok_or_else(|| {
                Failure::internal(format!("`{}` gave no output `{name}`", self.model))
            })?;
            if let Delivery::Shared(part) = delivery {
                part.take(output)?;
            }
            chosen.push((output, delivery));
        }
        Ok(chosen)
    }

    /// Encodes the wanted outputs in the wanted form. Each is written once, straight from its memory.
    pub(super) fn encode(
        &self,
        wanted: &WantedOutputs,
        held: &mut HeldBytes,
    ) -> Result<Encoded, Failure> {
        let chosen = self.deliver(wanted)?;
        let outputs = chosen.iter().map(|&(output, delivery)| {
            let bytes = output.tensor.bytes();
            OutputJson {
                name: output.tensor.name(),
                shape: output.tensor.shape(),
                datatype: output.tensor.datatype().name(),
                parameters: match delivery {
                    Delivery::Json => None,
                    Delivery::Bytes => Some(json!({ "binary_data_size": bytes })),
                    Delivery::Shared(part) => Some(part.parameters(bytes).into()),
                },
                data: (*delivery == Delivery::Json).then_some(Flat(output)),
            }
        });
        let wire = ResponseJson {
            model_name: &self.model,
            model_version: &self.version,
            id: self.id.as_deref(),
            parameters: &self.parameters,
            outputs: outputs.collect(),
        };
        let binary = || {
            let binary = chosen.iter().filter(|(_, delivery)| **delivery == Delivery::Bytes);
            binary.map(|&(output, _)| output)
        };
        let bytes = binary().map(|output| output.tensor.bytes()).sum::<usize>();
        let mut draft = Draft::new(held);
        // At once, for most answers.
        draft.reserve(REPLY_BYTES_MAX.min(HEAD_ROOM + bytes))?;
        let written = serde_json::to_writer(&mut draft, &wire).map_err(io::Error::other);
        if written.is_err() {
            return draft.finish(written).map(|body| Encoded { body, header: None });
        }
        let header = binary().next().is_some().then_some(draft.len());
        draft.reserve(bytes)?;
        let written = binary().try_for_each(|o| o.chunks(|chunk| draft.write_all(chunk)));
        Ok(Encoded { body: draft.finish(written)?, header })
    }
}

impl Encoded {
    /// The response. It keeps the request's share of the budget until it is sent.
    pub(super) fn respond(self, held: HeldBytes) -> Response {
        let kind = match self.header {
            Some(_) => HeaderValue::from_static("application/octet-stream"),
            None => HeaderValue::from_static("application/json"),
        };
        let mut response = held.answer(self.body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(length) = self.header {
            headers.insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(length));
        }
        response
    }
}

/// Where and how a job ran, as response parameters: the main facts as plain values, and the whole receipt
/// as JSON in a string, since parameters have no structure.
pub(super) fn proof(receipt: &Receipt) -> Result<Facts, Failure> {
    let whole = serde_json::to_string(receipt).map_err(|error| {
        Failure::internal(format!("the receipt cannot be written as JSON: {error}"))
    })?;
    let mut proof = Vec::with_capacity(FACTS);
    let mut say = |name: &'static str, value: Value| proof.push((name, value));
    say("verdict", json!(receipt.verdict));
    say("job", json!(receipt.job));
    say("attempts", json!(receipt.attempts.len()));
    say("queue_us", json!(receipt.queue_us));
    say("total_us", json!(receipt.total_us));
    let mut answered = receipt.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Ok);
    if let Some(attempt) = answered.next_back() {
        say("worker", json!(attempt.worker));
        say("device_kind", json!(attempt.device.kind));
        say("device_name", json!(attempt.device.name));
        say("device_uuid", json!(attempt.device.uuid));
        say("service_us", json!(attempt.service_us));
        match &attempt.infer {
            None => {
                let kernels: Vec<_> = attempt.kernels.iter().map(|k| k.name.as_str()).collect();
                let device_us: f64 = attempt.kernels.iter().map(|kernel| kernel.device_us).sum();
                say("device_us", json!(device_us));
                say("kernels", json!(kernels.join(" ")));
                say("item_errors", json!(receipt.item_errors));
            }
            Some(report) => {
                say("device_us", json!(report.device_us));
                say("model_sha256", json!(report.sha256));
                say("onnxruntime", json!(report.onnxruntime));
                say("nodes", json!(ProviderNodes::list(&report.nodes)));
                say("runs", json!(report.runs));
                say("replays", json!(report.graph_replays));
                say("joined_rows", json!(report.joined_rows));
            }
        }
    }
    say("receipt", whole.into());
    Ok(proof)
}
