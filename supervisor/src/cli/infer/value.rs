//! The elements of a tensor as numbers that can be printed.

use std::fmt;
use std::ops::Range;

use gridpool_protocol::client::InferOutputs;
use gridpool_protocol::tensor::{self, DataType};
use serde::{Serialize, Serializer};

/// Bytes of a tensor that are copied at a time from where they lie: a multiple of every element's.
const CHUNK_BYTES: usize = 1 << 16;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Double(f64),
    Signed(i64),
    Single(f32),
    Unsigned(u64),
}

/// Hands the data of an output to `take`, piece by piece.
pub(super) fn chunks<E>(
    outputs: &InferOutputs,
    tensor: usize,
    take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    chunks_of(outputs, tensor, 0..outputs.tensors()[tensor].bytes(), take)
}

fn chunks_of<E>(
    outputs: &InferOutputs,
    tensor: usize,
    bytes: Range<usize>,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut chunk = vec![0; CHUNK_BYTES.min(bytes.len())];
    for start in bytes.clone().step_by(CHUNK_BYTES) {
        let chunk = &mut chunk[..CHUNK_BYTES.min(bytes.end - start)];
        outputs.copy_to(tensor, start, chunk);
        take(chunk)?;
    }
    Ok(())
}

/// Hands the first elements of an output to `take`, at most so many.
pub(super) fn each<E>(
    outputs: &InferOutputs,
    tensor: usize,
    at_most: usize,
    mut take: impl FnMut(Value) -> Result<(), E>,
) -> Result<(), E> {
    let datatype = outputs.tensors()[tensor].datatype();
    let count = outputs.tensors()[tensor].elements().min(at_most);
    chunks_of(outputs, tensor, 0..count * datatype.bytes(), |chunk| {
        chunk
            .chunks_exact(datatype.bytes())
            .try_for_each(|bytes| take(Value::read(datatype, bytes)))
    })
}

impl Value {
    /// The element that these bytes are, as many as its type has.
    fn read(datatype: DataType, bytes: &[u8]) -> Self {
        match datatype {
            DataType::Bool => Self::Bool(bytes != [0]),
            DataType::Uint8 => Self::Unsigned(u8::from_le_bytes(array(bytes)).into()),
            DataType::Uint16 => Self::Unsigned(u16::from_le_bytes(array(bytes)).into()),
            DataType::Uint32 => Self::Unsigned(u32::from_le_bytes(array(bytes)).into()),
            DataType::Uint64 => Self::Unsigned(u64::from_le_bytes(array(bytes))),
            DataType::Int8 => Self::Signed(i8::from_le_bytes(array(bytes)).into()),
            DataType::Int16 => Self::Signed(i16::from_le_bytes(array(bytes)).into()),
            DataType::Int32 => Self::Signed(i32::from_le_bytes(array(bytes)).into()),
            DataType::Int64 => Self::Signed(i64::from_le_bytes(array(bytes))),
            DataType::Fp16 => Self::Single(tensor::fp16(u16::from_le_bytes(array(bytes)))),
            DataType::Bf16 => Self::Single(tensor::bf16(u16::from_le_bytes(array(bytes)))),
            DataType::Fp32 => Self::Single(f32::from_le_bytes(array(bytes))),
            DataType::Fp64 => Self::Double(f64::from_le_bytes(array(bytes))),
        }
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as many bytes as the type has")
}

/// What stands for a number that JSON has no word for.
fn word(number: f64) -> &'static str {
    match () {
        () if number.is_nan() => "NaN",
        () if number > 0.0 => "Infinity",
        () => "-Infinity",
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Bool(value) => serializer.serialize_bool(value),
            Self::Double(value) if value.is_finite() => serializer.serialize_f64(value),
            Self::Double(value) => serializer.serialize_str(word(value)),
            Self::Signed(value) => serializer.serialize_i64(value),
            Self::Single(value) if value.is_finite() => serializer.serialize_f32(value),
            Self::Single(value) => serializer.serialize_str(word(value.into())),
            Self::Unsigned(value) => serializer.serialize_u64(value),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Single(value) => write!(f, "{value:?}"),
            Self::Unsigned(value) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read_as_the_number_it_is() {
        let cases: [(DataType, &[u8], &str, &str); 15] = [
            (DataType::Bool, &[1], "true", "true"),
            (DataType::Uint8, &[200], "200", "200"),
            (DataType::Uint16, &[0xff, 0xff], "65535", "65535"),
            (DataType::Uint32, &[0xff; 4], "4294967295", "4294967295"),
            (DataType::Uint64, &[0xff; 8], "18446744073709551615", "18446744073709551615"),
            (DataType::Int8, &[0xff], "-1", "-1"),
            (DataType::Int16, &[0, 0x80], "-32768", "-32768"),
            (DataType::Int32, &[0xfe, 0xff, 0xff, 0xff], "-2", "-2"),
            (DataType::Int64, &[0xff; 8], "-1", "-1"),
            (DataType::Fp16, &[0, 0xc1], "-2.5", "-2.5"),
            (DataType::Bf16, &[0x20, 0xc0], "-2.5", "-2.5"),
            (DataType::Fp32, &0.1_f32.to_le_bytes(), "0.1", "0.1"),
            (DataType::Fp64, &1e-9_f64.to_le_bytes(), "1e-9", "1e-9"),
            (DataType::Fp32, &f32::NEG_INFINITY.to_le_bytes(), "-inf", "\"-Infinity\""),
            (DataType::Fp64, &f64::NAN.to_le_bytes(), "NaN", "\"NaN\""),
        ];
        for (datatype, bytes, text, json) in cases {
            let value = Value::read(datatype, bytes);
            assert_eq!(value.to_string(), text, "{datatype}");
            assert_eq!(serde_json::to_string(&value).unwrap(), json, "{datatype}");
        }
    }
}
