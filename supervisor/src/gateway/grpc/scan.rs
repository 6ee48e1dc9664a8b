//! What a request for inference takes in memory once it is decoded, found out before.
//!
//! Two bytes can make a tensor of hundreds, so a small message could take all memory. This counts what decoding makes,
//! without making it: lists have limits, and the rest counts against the memory for bodies.

use axum::body::Bytes;
use gridpool_inference::ModelInferRequest;
use gridpool_protocol::limits::TENSORS_MAX;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::gateway::body::HeldBytes;
use crate::gateway::failure::Failure;

/// Most parameters of a request, its inputs and outputs together.
pub(super) const PARAMETERS_MAX: usize = 1_024;
/// Most dimensions of all inputs together, as bytes on the wire.
const DIMENSIONS_BYTES_MAX: usize = 64 << 10;
/// Bytes that a byte of an input's `contents` makes: a small number takes one, and becomes one of 64 bits.
const PER_CONTENTS_BYTE: usize = 8;
/// Bytes that an element of BYTES makes beside its own, in a list that grows by doubling: an empty one has two on the
/// wire.
const PER_TEXT: usize = 2 * size_of::<Bytes>();

/// The fields of a request and of its parts that are lists.
mod field {
    pub(super) const PARAMETERS: u32 = 4;
    pub(super) const INPUTS: u32 = 5;
    pub(super) const OUTPUTS: u32 = 6;
    pub(super) const RAW: u32 = 7;
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
    contents: usize,
    texts: usize,
}

/// Decodes a request whose `held` is what its bytes hold.
pub(super) fn decode(bytes: Bytes, held: &mut HeldBytes) -> Result<ModelInferRequest, Failure> {
    let counts = count(&bytes).map_err(not_valid)?;
    counts.check()?;
    held.hold_more(counts.contents * PER_CONTENTS_BYTE + counts.texts * PER_TEXT)?;
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
        few("bytes of dimensions", self.dimensions, DIMENSIONS_BYTES_MAX)
    }
}

fn count(request: &[u8]) -> Result<Counts, prost::DecodeError> {
    let mut counts = Counts::default();
    each_field(request, |number, bytes| {
        match number {
            field::PARAMETERS => counts.parameters += 1,
            field::INPUTS => {
                counts.inputs += 1;
                input(bytes, &mut counts)?;
            }
            field::OUTPUTS => {
                counts.outputs += 1;
                each_field(bytes, |number, _| {
                    counts.parameters += usize::from(number == field::OUTPUT_PARAMETERS);
                    Ok(())
                })?;
            }
            field::RAW => counts.raw += 1,
            _ => {}
        }
        Ok(())
    })?;
    Ok(counts)
}

fn input(bytes: &[u8], counts: &mut Counts) -> Result<(), prost::DecodeError> {
    each_field(bytes, |number, bytes| {
        match number {
            field::INPUT_SHAPE => counts.dimensions += bytes.len(),
            field::INPUT_PARAMETERS => counts.parameters += 1,
            field::INPUT_CONTENTS => {
                counts.contents += bytes.len();
                each_field(bytes, |number, _| {
                    counts.texts += usize::from(number == field::CONTENTS_BYTES);
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    })
}

/// Gives each field's number and bytes.
fn each_field<'a>(
    mut message: &'a [u8],
    mut take: impl FnMut(u32, &'a [u8]) -> Result<(), prost::DecodeError>,
) -> Result<(), prost::DecodeError> {
    while !message.is_empty() {
        let (number, kind) = decode_key(&mut message)?;
        let whole = message;
        skip_field(kind, number, &mut message, DecodeContext::default())?;
        let mut bytes = &whole[..whole.len() - message.len()];
        if kind == WireType::LengthDelimited {
            // It is there, or it had not been skipped.
            decode_varint(&mut bytes)?;
        }
        take(number, bytes)?;
    }
    Ok(())
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
            (6, 5 + 6),
            "packed, with keys and lengths"
        );
        assert_eq!(counts.check(), Ok(()));
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
