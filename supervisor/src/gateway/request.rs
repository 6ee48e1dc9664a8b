//! Parses one inference request. Over HTTP that is JSON, with the data of its tensors inside or as bytes behind it:
//! `Inference-Header-Content-Length` says where the bytes start. Everything that does not need the model is checked
//! here, whichever protocol brought it.

mod json;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::HeaderMap;
use gridpool_protocol::limits::{DEADLINE_MAX, TENSORS_MAX};
use gridpool_protocol::message::Priority;
use gridpool_protocol::program::Ties;
use gridpool_protocol::tensor::{DataType, Tensor, TensorError};
use serde_json::Value;

use super::failure::Failure;
use super::limits::ID_BYTES_MAX;
use super::regions::{Memory, Part};
use super::tensors;
use json::{Few, InputJson, Object, ParameterReader, RequestJson};

/// The header that says where the bytes start, in requests and responses.
pub(super) const HEADER_LENGTH: &str = "inference-header-content-length";

/// A parsed request. Its inputs and outputs are not yet checked against a model.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) id: Option<String>,
    pub(super) deadline: Option<Duration>,
    pub(super) priority: Priority,
    /// The program for the model `program`.
    pub(super) program: Option<String>,
    pub(super) ties: Ties,
    /// Bytes to reserve for the outputs, of a model whose outputs have no fixed size.
    pub(super) output_bytes: Option<u64>,
    pub(super) inputs: Vec<InputTensor<'a>>,
    pub(super) wanted: WantedOutputs,
}

/// One tensor of a request.
#[derive(Debug)]
pub(super) struct InputTensor<'a> {
    pub(super) tensor: Tensor,
    /// Little-endian, row-major.
    pub(super) data: Cow<'a, [u8]>,
}

/// The outputs that the client wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WantedOutputs {
    /// Every output.
    All {
        /// Whether as bytes instead of JSON.
        binary: bool,
    },
    /// These, in this order.
    Some(Vec<(String, Delivery)>),
}

/// How an output reaches its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Json,
    Bytes,
    /// It is written there.
    Shared(Part),
}

impl WantedOutputs {
    /// Whether one is written into a client's file. The client may hold such a write up.
    pub(super) fn are_in_regions(&self) -> bool {
        match self {
            Self::All { .. } => false,
            Self::Some(wanted) => wanted.iter().any(|(_, how)| matches!(how, Delivery::Shared(_))),
        }
    }
}

impl Delivery {
    pub(super) fn new(binary: bool) -> Self {
        if binary { Self::Bytes } else { Self::Json }
    }
}

impl Request<'_> {
    /// The input of that name.
    pub(super) fn input(&self, name: &str) -> Result<&InputTensor<'_>, Failure> {
        let input = self.inputs.iter().find(|input| input.tensor.name() == name);
        input.ok_or_else(|| Failure::bad(format!("the request has no input `{name}`")))
    }
}

pub(super) type Parameters = BTreeMap<String, Value>;

/// What a request says, apart from its inputs.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) id: Option<String>,
    pub(super) parameters: Parameters,
    /// The outputs that it asks for, each with its parameters.
    pub(super) outputs: Vec<(String, Parameters)>,
}

/// Parses a request.
pub(super) fn parse<'a>(
    headers: &HeaderMap,
    body: &'a [u8],
    memory: &mut Memory,
) -> Result<Request<'a>, Failure> {
    let (json, bytes) = split(headers, body)?;
    let Object(wire): Object<RequestJson<'a>> = serde_json::from_slice(json).map_err(|error| {
        Failure::bad(format!("the request is not valid JSON of the inference protocol: {error}"))
    })?;
    let mut reader = ParameterReader::default();
    let parameters = reader.read(wire.parameters)?;
    let outputs = wire.outputs.map_or_else(Vec::new, |Few(outputs)| outputs).into_iter();
    let outputs = outputs
        .map(|Object(wanted)| Ok((wanted.name, reader.read(wanted.parameters)?)))
        .collect::<Result<_, Failure>>()?;
    let said = Said { id: wire.id, parameters, outputs };
    let Few(wires) = wire.inputs;
    said.request(wires.len(), memory, |memory| inputs(wires, bytes, (memory, reader)))
}

impl Said {
    /// The request with these inputs, of which there are `count`.
    pub(super) fn request<'a>(
        self,
        count: usize,
        memory: &mut Memory,
        inputs: impl FnOnce(&mut Memory) -> Result<Vec<InputTensor<'a>>, Failure>,
    ) -> Result<Request<'a>, Failure> {
        let Self { id, parameters, outputs } = self;
        if id.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
            return Err(Failure::bad(format!("`id` has more than {ID_BYTES_MAX} bytes")));
        }
        if count > TENSORS_MAX {
            return Err(Failure::bad(format!("a request has at most {TENSORS_MAX} inputs")));
        }
        if parameters.keys().any(|key| key.starts_with("sequence_")) {
            let why = "models here are stateless: leave out the sequence_ parameters";
            return Err(Failure::bad(why));
        }
        let all_binary = flag(&parameters, "binary_data_output")?.unwrap_or(false);
        Ok(Request {
            deadline: deadline(&parameters)?,
            priority: priority(&parameters)?,
            program: text(&parameters, "program")?.map(str::to_owned),
            ties: match text(&parameters, "ties")? {
                Some(ties) => {
                    ties.parse().map_err(|error| Failure::bad(format!("`ties`: {error}")))?
                }
                None => Ties::Cpython,
            },
            output_bytes: number(&parameters, "output_bytes")?,
            id,
            // First where the outputs go: that takes no memory.
            wanted: wanted(outputs, all_binary, memory)?,
            inputs: inputs(memory)?,
        })
    }
}

/// The description of an input, if it can be one beside those `before` it.
pub(super) fn input_tensor(
    (name, datatype, shape): (&str, &str, Vec<u64>),
    before: &[InputTensor<'_>],
) -> Result<Tensor, Failure> {
    let misfit = |why: String| misfit(name, &why);
    if before.iter().any(|input| input.tensor.name() == name) {
        return Err(misfit("it occurs twice".to_owned()));
    }
    let datatype: DataType = datatype.parse().map_err(|error| misfit(format!("{error}")))?;
    Tensor::new(name, datatype, shape).map_err(|error| misfit(error.to_string()))
}

/// The data of an input that lies in shared memory, if its parameters say so.
pub(super) fn shared_data(
    tensor: &Tensor,
    parameters: &Parameters,
    memory: &mut Memory,
) -> Result<Option<Vec<u8>>, Failure> {
    let of_input = |failure: Failure| failure.of(&format!("input `{}`", tensor.name()));
    let Some(part) = memory.part(parameters).map_err(of_input)? else { return Ok(None) };
    let (bytes, wants) = (part.bytes(), tensor.bytes());
    if tensor.datatype() != DataType::Bytes && bytes != wants {
        let why = format!("shared_memory_byte_size is {bytes}; its shape and datatype say {wants}");
        return Err(misfit(tensor.name(), &why));
    }
    memory.read(&part).map(Some).map_err(of_input)
}

/// The tensor for this data; the error is what is wrong with the data.
pub(super) fn with_data(tensor: Tensor, data: &[u8]) -> Result<Tensor, String> {
    tensor.with_data(data).map_err(|error| {
        if let TensorError::Texts { why, .. } = error { why.to_string() } else { error.to_string() }
    })
}

/// What is wrong with an input.
pub(super) fn misfit(name: &str, why: &str) -> Failure {
    Failure::bad(format!("input `{name}`: {why}"))
}

/// Splits a body into the JSON and the bytes after it.
fn split<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Failure> {
    let Some(length) = headers.get(HEADER_LENGTH) else { return Ok((body, &[])) };
    let digits = length.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    let parts =
        digits.and_then(|digits| digits.parse().ok()).and_then(|at| body.split_at_checked(at));
    parts.ok_or_else(|| {
        Failure::bad(format!(
            "Inference-Header-Content-Length is {length:?}; it must be the number of bytes of JSON at \
             the start of the body, which has {} bytes in all",
            body.len()
        ))
    })
}

/// The input tensors, each with its data from the JSON or from the bytes.
fn inputs<'a>(
    wires: Vec<Object<InputJson<'a>>>,
    bytes: &'a [u8],
    (memory, mut reader): (&mut Memory, ParameterReader),
) -> Result<Vec<InputTensor<'a>>, Failure> {
    let mut inputs: Vec<InputTensor<'a>> = Vec::with_capacity(wires.len());
    let mut rest = bytes;
    for Object(wire) in wires {
        let misfit = |why: String| misfit(&wire.name, &why);
        let Few(shape) = wire.shape;
        let tensor = input_tensor((&*wire.name, &*wire.datatype, shape), &inputs)?;
        let parameters = reader.read(wire.parameters)?;
        let shared = shared_data(&tensor, &parameters, memory)?;
        let size =
            number(&parameters, "binary_data_size").map_err(|f| misfit(f.message().into()))?;
        let data = match (size, wire.data, shared) {
            (None, None, Some(data)) => Cow::Owned(data),
            (_, _, Some(_)) => {
                return Err(misfit("it has data beside shared_memory_region".to_owned()));
            }
            (Some(size), None, None) => {
                let taken = usize::try_from(size).ok().and_then(|size| rest.split_at_checked(size));
                let (data, after) = taken.ok_or_else(|| {
                    misfit(format!(
                        "binary_data_size is {size}, but only {} bytes are left after the JSON (does \
                         Inference-Header-Content-Length say where it ends?)",
                        rest.len()
                    ))
                })?;
                rest = after;
                if tensor.datatype() != DataType::Bytes && data.len() != tensor.bytes() {
                    return Err(misfit(format!(
                        "binary_data_size is {size}; its shape and datatype say {}",
                        tensor.bytes()
                    )));
                }
                Cow::Borrowed(data)
            }
            (None, Some(json), None) => {
                let data = tensors::parse(json.get(), &tensor);
                Cow::Owned(data.map_err(|error| misfit(format!("data: {error}")))?)
            }
            (Some(_), Some(_), None) => {
                return Err(misfit("it has both data and binary_data_size".to_owned()));
            }
            (None, None, None) => {
                return Err(misfit("it has neither data nor binary_data_size".to_owned()));
            }
        };
        let tensor = with_data(tensor, &data).map_err(misfit)?;
        inputs.push(InputTensor { tensor, data });
    }
    if rest.is_empty() {
        Ok(inputs)
    } else {
        Err(Failure::bad(format!("{} bytes are left over after the last tensor", rest.len())))
    }
}

fn wanted(
    outputs: Vec<(String, Parameters)>,
    all_binary: bool,
    memory: &mut Memory,
) -> Result<WantedOutputs, Failure> {
    // Other servers of the protocol treat an empty list as no list, too.
    if outputs.is_empty() {
        return Ok(WantedOutputs::All { binary: all_binary });
    }
    if outputs.len() > TENSORS_MAX {
        return Err(Failure::bad(format!("a request has at most {TENSORS_MAX} outputs")));
    }
    let mut wanted: Vec<(String, Delivery)> = Vec::with_capacity(outputs.len());
    for (name, parameters) in outputs {
        if parameters.get("classification").is_some_and(|classes| *classes != 0) {
            return Err(Failure::bad(format!(
                "output `{name}`: classification is not served: leave it out"
            )));
        }
        if wanted.iter().any(|(other, _)| *other == name) {
            return Err(Failure::bad(format!("output `{name}` is asked for twice")));
        }
        let binary = flag(&parameters, "binary_data")?.unwrap_or(all_binary);
        let of_output = |failure: Failure| failure.of(&format!("output `{name}`"));
        let part = memory.part(&parameters).map_err(of_output)?;
        wanted.push((name, part.map_or_else(|| Delivery::new(binary), Delivery::Shared)));
    }
    Ok(WantedOutputs::Some(wanted))
}

/// The deadline, from microseconds. 0 means the pool's default, as for Triton's clients.
fn deadline(parameters: &Parameters) -> Result<Option<Duration>, Failure> {
    let deadline = number(parameters, "timeout")?.map(Duration::from_micros);
    if deadline.is_some_and(|deadline| deadline > DEADLINE_MAX) {
        let most = DEADLINE_MAX.as_micros();
        return Err(Failure::bad(format!("`timeout` is in microseconds, at most {most}")));
    }
    Ok(deadline.filter(|deadline| !deadline.is_zero()))
}

/// Triton's priorities: 0 is the default, 1 the highest, a larger number a lower one. A pool has one level above the
/// default and one below it.
fn priority(parameters: &Parameters) -> Result<Priority, Failure> {
    Ok(match number(parameters, "priority")? {
        None | Some(0) => Priority::Normal,
        Some(1) => Priority::High,
        Some(_) => Priority::Low,
    })
}

pub(super) fn number(parameters: &Parameters, key: &str) -> Result<Option<u64>, Failure> {
    get(parameters, key, "a whole number", Value::as_u64)
}

fn flag(parameters: &Parameters, key: &str) -> Result<Option<bool>, Failure> {
    get(parameters, key, "true or false", Value::as_bool)
}

pub(super) fn text<'a>(parameters: &'a Parameters, key: &str) -> Result<Option<&'a str>, Failure> {
    get(parameters, key, "a text", Value::as_str)
}

fn get<'a, T>(
    parameters: &'a Parameters,
    key: &str,
    what: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let Some(value) = parameters.get(key) else { return Ok(None) };
    read(value).map(Some).ok_or_else(|| {
        let given = match value {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => value.to_string(),
        };
        Failure::bad(format!("`{key}` is {given}; it must be {what}"))
    })
}

#[cfg(test)]
mod tests;
