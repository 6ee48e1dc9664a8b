//! What a request for inference takes in memory once it is decoded, found out before.
//!
//! Two bytes can make a tensor of hundreds, so a small message could take all memory. This counts what decoding makes,
//! without making it: lists have limits, and the rest counts against the memory for bodies.

use axum::body::Bytes;
use axum::http::StatusCode;
use gridpool_inference::ModelInferRequest;
use gridpool_protocol::limits::{MODEL_NAME_BYTES_MAX, TENSOR_NAME_BYTES_MAX, TENSORS_MAX};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::gateway::body::HeldBytes;
use crate::gateway::failure::Failure;
use crate::gateway::limits::{BODY_BYTES_MAX, ID_BYTES_MAX, PARAMETERS_MAX};

/// Most dimensions of all inputs together, as bytes on the wire.
const DIMENSIONS_BYTES_MAX: usize = 64 << 10;
/// How often what an input's `contents` become is held: in a list that may be twice as long, in the tensor, and in
/// the job.
const COPIES: usize = 4;
/// Bytes that a byte of each field of `contents` makes. The smallest number takes one, and becomes one of 4 or 8.
const CONTENTS_BYTE_MAKES: [usize; 9] = [0, 1, 4, 8, 4, 8, 1, 1, 1];
/// Most fields of a request, of those that it has itself.
const FIELDS_MAX: usize = 2 * (3 * TENSORS_MAX + PARAMETERS_MAX);
/// Bytes that an element of BYTES makes beside its own, in a list that grows by doubling: an empty one has two on the
/// wire.
const PER_TEXT: usize = 2 * size_of::<Bytes>();

/// The fields of a request and of its parts that are lists.
mod field {
    pub(super) const MODEL_NAME: u32 = 1;
    pub(super) const MODEL_VERSION: u32 = 2;
    pub(super) const ID: u32 = 3;
    pub(super) const PARAMETERS: u32 = 4;
    pub(super) const INPUTS: u32 = 5;
    pub(super) const OUTPUTS: u32 = 6;
    pub(super) const RAW: u32 = 7;
    /// Of an input, an output and a parameter.
    pub(super) const NAME: u32 = 1;
    pub(super) const INPUT_TYPE: u32 = 2;
    pub(super) const INPUT_SHAPE: u32 = 3;
    pub(super) const INPUT_PARAMETERS: u32 = 4;
    pub(super) const INPUT_CONTENTS: u32 = 5;
    pub(super) const OUTPUT_PARAMETERS: u32 = 2;
    pub(super) const CONTENTS_BYTES: u32 = 8;
}

#[derive(Debug, Default)]
struct Counts {
    inputs: usize,
    outputs: usize,
    raw: usize,
    parameters: usize,
    dimensions: usize,
    /// What the contents become, in bytes.
    contents: usize,
    texts: usize,
    /// The longest name of a tensor or a parameter.
    name: usize,
}

/// What a request says of itself, each part short enough for an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) model: String,
    pub(super) version: String,
    pub(super) id: String,
}

/// Reads the head of a request without decoding it.
pub(super) fn head(request: &[u8]) -> Result<Head, Failure> {
    let (mut head, mut fields) = ([&[][..]; 3], 0);
    let read = each_field(request, |number, bytes| {
        fields += 1;
        match number {
            field::MODEL_NAME => head[0] = bytes,
            field::MODEL_VERSION => head[1] = bytes,
            field::ID => head[2] = bytes,
            _ => {}
        }
        Ok(fields <= FIELDS_MAX)
    });
    if !read.map_err(not_valid)? {
        return Err(Failure::bad(format!("a request has at most {FIELDS_MAX} fields")));
    }
    let text = |bytes: &[u8], what: &str, most: usize| match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= most => Ok(text.to_owned()),
        Ok(_) => Err(Failure::bad(format!("the {what} has more than {most} bytes"))),
        Err(_) => Err(Failure::bad(format!("the {what} is not UTF-8"))),
    };
    Ok(Head {
        model: text(head[0], "model_name", MODEL_NAME_BYTES_MAX)?,
        version: text(head[1], "model_version", MODEL_NAME_BYTES_MAX)?,
        id: text(head[2], "id", ID_BYTES_MAX)?,
    })
}

/// Decodes a request whose `held` is what its bytes hold.
pub(super) fn decode(bytes: Bytes, held: &mut HeldBytes) -> Result<ModelInferRequest, Failure> {
    let counts = count(&bytes).map_err(not_valid)?;
    counts.check()?;
    held.hold_more(counts.contents * COPIES + counts.texts * PER_TEXT)?;
    ModelInferRequest::decode(bytes).map_err(not_valid)
}

fn not_valid(error: prost::DecodeError) -> Failure {
    Failure::bad(format!("the request is not a ModelInferRequest: {error}"))
}

impl Counts {
    fn check(&self) -> Result<(), Failure> {
        let few = |what: &str, count: usize, most: usize| match count > most {
            true => Err(Failure::bad(format!("a request has at most {most} {what}"))),
            false => Ok(()),
        };
        few("inputs", self.inputs, TENSORS_MAX)?;
        few("outputs", self.outputs, TENSORS_MAX)?;
        few("raw_input_contents", self.raw, TENSORS_MAX)?;
        few("parameters", self.parameters, PARAMETERS_MAX)?;
        few("bytes of dimensions", self.dimensions, DIMENSIONS_BYTES_MAX)?;
        few("bytes of a name", self.name, TENSOR_NAME_BYTES_MAX)?;
        if self.contents > BODY_BYTES_MAX {
            let why = format!(
                "the contents of the inputs become more than {BODY_BYTES_MAX} bytes: send raw_input_contents, or fewer \
                 items at once"
            );
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Ok(())
    }
}

fn count(request: &[u8]) -> Result<Counts, prost::DecodeError> {
    let mut counts = Counts::default();
    each_field(request, |number, bytes| {
        match number {
            field::PARAMETERS => parameter(bytes, &mut counts)?,
            field::INPUTS => {
                counts.inputs += 1;
                input(bytes, &mut counts)?;
            }
            field::OUTPUTS => {
                counts.outputs += 1;
                each_field(bytes, |number, bytes| {
                    match number {
                        field::NAME => counts.name = counts.name.max(bytes.len()),
                        field::OUTPUT_PARAMETERS => parameter(bytes, &mut counts)?,
                        _ => {}
                    }
                    Ok(true)
                })?;
            }
            field::RAW => counts.raw += 1,
            _ => {}
        }
        Ok(true)
    })?;
    Ok(counts)
}

fn input(bytes: &[u8], counts: &mut Counts) -> Result<(), prost::DecodeError> {
    each_field(bytes, |number, bytes| {
        match number {
            field::NAME | field::INPUT_TYPE => counts.name = counts.name.max(bytes.len()),
            field::INPUT_SHAPE => counts.dimensions += bytes.len(),
            field::INPUT_PARAMETERS => parameter(bytes, counts)?,
            field::INPUT_CONTENTS => {
                each_field(bytes, |number, bytes| {
                    counts.contents += bytes.len() * CONTENTS_BYTE_MAKES[number.min(8) as usize];
                    counts.texts += usize::from(number == field::CONTENTS_BYTES);
                    Ok(true)
                })?;
            }
            _ => {}
        }
        Ok(true)
    })
    .map(drop)
}

fn parameter(bytes: &[u8], counts: &mut Counts) -> Result<(), prost::DecodeError> {
    counts.parameters += 1;
    each_field(bytes, |number, bytes| {
        if number == field::NAME {
            counts.name = counts.name.max(bytes.len());
        }
        Ok(true)
    })
    .map(drop)
}

/// Gives each field's number and bytes while `take` says so. Returns whether there are no more.
fn each_field<'a>(
    mut message: &'a [u8],
    mut take: impl FnMut(u32, &'a [u8]) -> Result<bool, prost::DecodeError>,
) -> Result<bool, prost::DecodeError> {
    while !message.is_empty() {
        let (number, kind) = decode_key(&mut message)?;
        let whole = message;
        skip_field(kind, number, &mut message, DecodeContext::default())?;
        let mut bytes = &whole[..whole.len() - message.len()];
        if kind == WireType::LengthDelimited {
            // It is there, or it had not been skipped.
            decode_varint(&mut bytes)?;
        }
        if !take(number, bytes)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use gridpool_inference::{InferInputTensor, InferParameter, TensorContents};

    use super::*;

    fn input(contents: TensorContents) -> InferInputTensor {
        let parameters = [("a".to_owned(), InferParameter::default())].into();
        InferInputTensor {
            name: "x".to_owned(),
            shape: vec![1, 300],
            parameters,
            contents: Some(contents),
            ..InferInputTensor::default()
        }
    }

    #[test]
    fn what_decoding_makes_is_counted_before() {
        let inputs = vec![
            input(TensorContents { int64_contents: vec![1, 2, 3], ..TensorContents::default() }),
            input(TensorContents { fp32_contents: vec![0.5], ..TensorContents::default() }),
        ];
        let raw_input_contents = vec![Bytes::from_static(b"abc")];
        let request =
            ModelInferRequest { inputs, raw_input_contents, ..ModelInferRequest::default() };
        let counts = count(&request.encode_to_vec()).unwrap();
        assert_eq!((counts.inputs, counts.raw, counts.parameters), (2, 1, 2));
        assert_eq!(
            (counts.dimensions, counts.contents),
            (6, 3 * 8 + 4),
            "dimensions are packed, and numbers are so many bytes as they become"
        );
        assert_eq!(counts.check(), Ok(()));
    }

    #[test]
    fn what_an_answer_repeats_of_a_request_is_short_and_read_without_decoding() {
        let with = |model_name: &str, id: &str| ModelInferRequest {
            model_name: model_name.to_owned(),
            model_version: "1".to_owned(),
            id: id.to_owned(),
            raw_input_contents: vec![vec![0xff; 1_000].into()],
            ..ModelInferRequest::default()
        };
        let of = |request: &ModelInferRequest| head(&request.encode_to_vec());
        let [model, version, id] = ["m", "1", "7"].map(str::to_owned);
        assert_eq!(of(&with("m", "7")), Ok(Head { model, version, id }));
        for (long, why) in [
            (with(&"n".repeat(MODEL_NAME_BYTES_MAX + 1), ""), "model_name has more than 128 bytes"),
            (with("m", &"7".repeat(ID_BYTES_MAX + 1)), "id has more than 1024 bytes"),
        ] {
            assert!(of(&long).unwrap_err().message().contains(why));
        }
        // An empty field that nobody knows takes three bytes.
        let many = [0xba, 0x06, 0].repeat(FIELDS_MAX + 1);
        assert!(head(&many).unwrap_err().message().contains("fields"));
        let mut named = input(TensorContents::default());
        named.name = "x".repeat(TENSOR_NAME_BYTES_MAX + 1);
        let request = ModelInferRequest { inputs: vec![named], ..ModelInferRequest::default() };
        let why = count(&request.encode_to_vec()).unwrap().check().unwrap_err();
        assert!(why.message().contains("bytes of a name"), "{why:?}");
    }

    #[test]
    fn a_small_message_that_would_make_much_is_refused() {
        // An empty input takes two bytes.
        let many = [0x2a, 0].repeat(TENSORS_MAX + 1);
        let why = count(&many).unwrap().check().unwrap_err();
        assert!(why.message().contains("inputs"), "{why:?}");
        let texts =
            TensorContents { bytes_contents: vec![Bytes::new()], ..TensorContents::default() };
        let request =
            ModelInferRequest { inputs: vec![input(texts)], ..ModelInferRequest::default() };
        let counts = count(&request.encode_to_vec()).unwrap();
        assert_eq!((counts.check(), counts.texts), (Ok(()), 1));
        assert!(count(&[0x2a, 200]).is_err(), "it ends within a field");
    }
}
