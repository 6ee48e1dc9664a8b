//! A request for inference as a message, and its answer as another.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

use axum::body::Bytes;
use gridpool_inference::{
    Choice, InferInputTensor, InferOutputTensor, InferParameter, ModelInferRequest,
    ModelInferResponse, RAW_OUTPUT_CONTENTS, TensorContents,
};
use gridpool_ipc::clock;
use gridpool_protocol::limits::DEADLINE_MAX;
use gridpool_protocol::tensor::{DataType, Scalar, Tensor, put_text};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use serde_json::Value;

use super::body::prefix;
use super::late;
use super::messages::PREFIX_BYTES;
use super::packing::pack;
use crate::gateway::body::HeldBytes;
use crate::gateway::draft::Draft;
use crate::gateway::exchange::Exchange;
use crate::gateway::failure::Failure;
use crate::gateway::regions::{Memory, REGION};
use crate::gateway::reply::Reply;
use crate::gateway::request::{
    Delivery, InputTensor, Parameters, Request, Said, WantedOutputs, input_tensor, misfit,
    shared_data, with_data,
};
use crate::gateway::tensors::OutputTensor;

/// Asks for a mark on the last answer to a request, and is that mark.
const WANTS_FINAL: &str = "triton_enable_empty_final_response";
const IS_FINAL: &str = "triton_final_response";
/// The field of a stream's answer that has the answer.
const OF_STREAM: u32 = 2;

/// A request for inference.
#[derive(Debug)]
pub(super) struct InferCall {
    pub(super) request: ModelInferRequest,
    /// When the client gives up.
    pub(super) until: Option<Instant>,
    pub(super) is_of_stream: bool,
    /// Whether its answer is packed.
    pub(super) is_packed: bool,
}

/// How its answer is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    is_of_stream: bool,
    says_final: bool,
    is_packed: bool,
}

impl Exchange for InferCall {
    type Form = Form;
    type Answer = Bytes;

    fn read(&self, memory: &mut Memory) -> Result<Request<'_>, Failure> {
        let ModelInferRequest { id, parameters, inputs, outputs, raw_input_contents, .. } =
            &self.request;
        let outputs = outputs.iter().map(|o| (o.name.clone(), values(&o.parameters)));
        let mut parameters = values(parameters);
        parameters.remove(WANTS_FINAL);
        let id = Some(id.clone()).filter(|id| !id.is_empty());
        let said = Said { id, parameters, outputs: outputs.collect() };
        let mut request = said.request(inputs.len(), memory, |memory| {
            self::inputs(inputs, raw_input_contents, memory)
        })?;
        // Every output is sent as bytes.
        match &mut request.wanted {
            WantedOutputs::All { binary } => *binary = true,
            WantedOutputs::Some(names) => names.iter_mut().for_each(|(_, delivery)| {
                if *delivery == Delivery::Json {
                    *delivery = Delivery::Bytes;
                }
            }),
        }
        if let Some(until) = self.until {
            let left = clock::until(until).min(DEADLINE_MAX);
            if left.is_zero() {
                return Err(late("the time that the client allows was over before the job began"));
            }
            request.deadline = Some(request.deadline.map_or(left, |own| own.min(left)));
        }
        Ok(request)
    }

    fn into_form(self) -> Form {
        let Self { is_of_stream, is_packed, .. } = self;
        let says_final = is_of_stream && wants_final(&self.request);
        Form { is_of_stream, says_final, is_packed }
    }

    fn write(
        form: Form,
        reply: &Reply,
        wanted: &WantedOutputs,
        mut held: HeldBytes,
    ) -> Result<Bytes, Failure> {
        let chosen = reply.deliver(wanted)?;
        let mut parameters = choices(reply.parameters.iter().map(|(name, value)| (*name, value)));
        if form.says_final {
            parameters.extend(mark_of_final());
        }
        let head = ModelInferResponse {
            model_name: reply.model.clone(),
            model_version: reply.version.clone().into_owned(),
            id: reply.id.clone().unwrap_or_default(),
            parameters,
            outputs: chosen.iter().map(|(output, how)| described(&output.tensor, how)).collect(),
            raw_output_contents: Vec::new(),
        };
        // One that lies in shared memory has an empty entry, as with Triton: clients count them.
        let sent = |&(output, how): &(_, &_)| (*how == Delivery::Bytes).then_some(output);
        let outputs: Vec<_> = chosen.iter().map(sent).collect();
        let bytes = encode(&head, &outputs, form.is_of_stream, &mut held)?;
        let bytes = if form.is_packed { pack(bytes, &mut held)? } else { bytes };
        Ok(held.bytes(bytes))
    }
}

/// Whether the client of a stream wants the mark of a last answer.
pub(super) fn wants_final(request: &ModelInferRequest) -> bool {
    let wants = request.parameters.get(WANTS_FINAL).and_then(|p| p.choice.as_ref());
    wants == Some(&Choice::Bool(true))
}

/// That mark.
pub(super) fn mark_of_final() -> [(String, InferParameter); 1] {
    [(IS_FINAL.to_owned(), Choice::Bool(true).into())]
}

fn described(tensor: &Tensor, how: &Delivery) -> InferOutputTensor {
    let parameters = match how {
        Delivery::Shared(part) => {
            let named = part.parameters(tensor.bytes());
            choices(named.iter().map(|(name, value)| (&**name, value)))
        }
        Delivery::Bytes | Delivery::Json => BTreeMap::new(),
    };
    InferOutputTensor {
        name: tensor.name().to_owned(),
        datatype: tensor.datatype().name().to_owned(),
        shape: tensor.signed_shape(),
        parameters,
        ..InferOutputTensor::default()
    }
}

/// Encodes an answer with what stands before it. The data of each output is written once, straight from its memory.
fn encode(
    head: &ModelInferResponse,
    outputs: &[Option<&OutputTensor>],
    is_of_stream: bool,
    held: &mut HeldBytes,
) -> Result<Vec<u8>, Failure> {
    let of_field =
        |number: u32, bytes: usize| key_len(number) + encoded_len_varint(bytes as u64) + bytes;
    let bytes = |output: &Option<&OutputTensor>| output.map_or(0, |own| own.tensor.bytes());
    let sizes = outputs.iter().map(|output| of_field(RAW_OUTPUT_CONTENTS, bytes(output)));
    let message = head.encoded_len() + sizes.sum::<usize>();
    let whole = if is_of_stream { of_field(OF_STREAM, message) } else { message };
    let mut draft = Draft::new(held);
    draft.reserve(PREFIX_BYTES + whole)?;
    let mut start = prefix(whole).to_vec();
    if is_of_stream {
        begin_field(OF_STREAM, message, &mut start);
    }
    start.extend(head.encode_to_vec());
    let written = draft.write_all(&start).and_then(|()| {
        outputs.iter().try_for_each(|output| {
            let mut start = Vec::new();
            begin_field(RAW_OUTPUT_CONTENTS, bytes(output), &mut start);
            draft.write_all(&start)?;
            output.map_or(Ok(()), |own| own.chunks(|chunk| draft.write_all(chunk)))
        })
    });
    draft.finish(written)
}

fn begin_field(number: u32, bytes: usize, to: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, to);
    encode_varint(bytes as u64, to);
}

// ---- parameters ----

fn values(parameters: &BTreeMap<String, InferParameter>) -> Parameters {
    let value = |parameter: &InferParameter| match &parameter.choice {
        None => Value::Null,
        Some(Choice::Bool(is)) => (*is).into(),
        Some(Choice::Int64(number)) => (*number).into(),
        Some(Choice::Uint64(number)) => (*number).into(),
        Some(Choice::Double(number)) => (*number).into(),
        Some(Choice::String(text)) => text.clone().into(),
    };
    parameters.iter().map(|(name, parameter)| (name.clone(), value(parameter))).collect()
}

fn choices<'a>(
    parameters: impl Iterator<Item = (&'a str, &'a Value)>,
) -> BTreeMap<String, InferParameter> {
    let choice = |value: &Value| match value {
        Value::Bool(is) => Choice::Bool(*is),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => Choice::Int64(number),
            (None, Some(number), _) => Choice::Uint64(number),
            (None, None, number) => Choice::Double(number.unwrap_or_default()),
        },
        Value::String(text) => Choice::String(text.clone()),
        Value::Null | Value::Array(_) | Value::Object(_) => Choice::String(value.to_string()),
    };
    parameters.map(|(name, value)| (name.to_owned(), choice(value).into())).collect()
}

// ---- inputs ----

/// The inputs, each with its data from `raw` or from its own contents.
fn inputs<'a>(
    wires: &'a [InferInputTensor],
    raw: &'a [Bytes],
    memory: &mut Memory,
) -> Result<Vec<InputTensor<'a>>, Failure> {
    let is_sent = |wire: &&InferInputTensor| !wire.parameters.contains_key(REGION);
    let sent = wires.iter().filter(is_sent).count();
    if !raw.is_empty() && raw.len() != sent {
        return Err(Failure::bad(format!(
            "raw_input_contents has {} entries for {sent} inputs: send one for each that does not lie in shared \
             memory, in their order",
            raw.len(),
        )));
    }
    let mut raw = raw.iter();
    let mut inputs: Vec<InputTensor<'a>> = Vec::with_capacity(wires.len());
    for wire in wires {
        let misfit = |why: String| misfit(&wire.name, &why);
        let shape = wire.shape.iter().map(|&side| u64::try_from(side));
        let shape = shape.collect::<Result<Vec<_>, _>>();
        let shape = shape.map_err(|_| misfit("a dimension is negative".to_owned()))?;
        let described = (&*wire.name, &*wire.datatype, shape);
        let tensor = input_tensor(described, &inputs)?;
        let shared = shared_data(&tensor, &values(&wire.parameters), memory)?;
        let own = if shared.is_some() { None } else { raw.next() };
        let data = match (own, &wire.contents, shared) {
            (_, None, Some(data)) => Cow::Owned(data),
            (_, Some(_), Some(_)) => {
                return Err(misfit("it has contents beside shared_memory_region".to_owned()));
            }
            (Some(_), Some(_), None) => {
                return Err(misfit("it has both contents and raw_input_contents".to_owned()));
            }
            (Some(data), None, None)
                if tensor.datatype() != DataType::Bytes && data.len() != tensor.bytes() =>
            {
                return Err(misfit(format!(
                    "its entry of raw_input_contents has {} bytes; its shape and datatype say {}",
                    data.len(),
                    tensor.bytes()
                )));
            }
            (Some(data), None, None) => Cow::Borrowed(&**data),
            (None, Some(contents), None) => Cow::Owned(typed(&tensor, contents).map_err(misfit)?),
            (None, None, None) if tensor.bytes() == 0 => Cow::Borrowed(&[][..]),
            (None, None, None) => {
                return Err(misfit("it has neither contents nor raw_input_contents".to_owned()));
            }
        };
        let tensor = with_data(tensor, &data).map_err(misfit)?;
        inputs.push(InputTensor { tensor, data });
    }
    Ok(inputs)
}

/// The data of a tensor from the field that its type has.
fn typed(tensor: &Tensor, contents: &TensorContents) -> Result<Vec<u8>, String> {
    let TensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = contents;
    let given = [
        ("bool_contents", bool_contents.len()),
        ("int_contents", int_contents.len()),
        ("int64_contents", int64_contents.len()),
        ("uint_contents", uint_contents.len()),
        ("uint64_contents", uint64_contents.len()),
        ("fp32_contents", fp32_contents.len()),
        ("fp64_contents", fp64_contents.len()),
        ("bytes_contents", bytes_contents.len()),
    ];
    let datatype = tensor.datatype();
    let signed = |numbers: &[i32]| write(tensor, numbers, |&n| Scalar::Signed(n.into()));
    let unsigned = |numbers: &[u32]| write(tensor, numbers, |&n| Scalar::Unsigned(n.into()));
    let (field, data) = match datatype {
        DataType::Bool => ("bool_contents", write(tensor, bool_contents, |&is| Scalar::Bool(is))),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => {
            ("int_contents", signed(int_contents))
        }
        DataType::Int64 => {
            ("int64_contents", write(tensor, int64_contents, |&n| Scalar::Signed(n)))
        }
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => {
            ("uint_contents", unsigned(uint_contents))
        }
        DataType::Uint64 => {
            ("uint64_contents", write(tensor, uint64_contents, |&n| Scalar::Unsigned(n)))
        }
        DataType::Fp32 => {
            ("fp32_contents", Ok(fp32_contents.iter().flat_map(|n| n.to_le_bytes()).collect()))
        }
        DataType::Fp64 => {
            ("fp64_contents", Ok(fp64_contents.iter().flat_map(|n| n.to_le_bytes()).collect()))
        }
        DataType::Bytes => ("bytes_contents", texts(bytes_contents)),
        DataType::Fp16 | DataType::Bf16 => {
            return Err(format!("{datatype} is sent in raw_input_contents only"));
        }
    };
    if let Some((other, _)) = given.iter().find(|&&(name, count)| count > 0 && name != field) {
        return Err(format!("it has {other}; {datatype} is sent in {field}"));
    }
    let data = data?;
    let got = match datatype == DataType::Bytes {
        true => bytes_contents.len(),
        false => data.len() / datatype.bytes(),
    };
    if got == tensor.elements() {
        return Ok(data);
    }
    Err(format!("{field} has {got} elements, but its shape says {}", tensor.elements()))
}

/// The data of a BYTES tensor.
fn texts(elements: &[Bytes]) -> Result<Vec<u8>, String> {
    let mut data = Vec::new();
    for (at, element) in elements.iter().enumerate() {
        put_text(element, at, &mut data).map_err(|error| error.to_string())?;
    }
    Ok(data)
}

fn write<T>(
    tensor: &Tensor,
    numbers: &[T],
    scalar: impl Fn(&T) -> Scalar,
) -> Result<Vec<u8>, String> {
    let datatype = tensor.datatype();
    let mut data = Vec::with_capacity(numbers.len() * datatype.bytes());
    for (at, number) in numbers.iter().enumerate() {
        let number = scalar(number);
        if !datatype.write(number, &mut data) {
            return Err(format!("element {at} is {number}, which is not a {datatype}"));
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests;
