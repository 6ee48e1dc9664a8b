//! The elements of a tensor as numbers that can be printed.

use std::ops::Range;

use gridpool_client::TensorOutputs;
use gridpool_protocol::tensor::{DataType, Scalar};
use serde::{Serialize, Serializer};

/// Bytes to copy at a time from shared memory: a multiple of every element's size.
const CHUNK_BYTES: usize = 1 << 16;

/// Passes the data of an output to `take`, piece by piece.
pub(super) fn chunks<E>(
    outputs: &TensorOutputs,
    tensor: usize,
    take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    chunks_of(outputs, tensor, 0..outputs.tensors()[tensor].bytes(), take)
}

fn chunks_of<E>(
    outputs: &TensorOutputs,
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

/// Passes the first elements of an output to `take`, up to a limit. A BYTES output has none: see [`Text`].
pub(super) fn each<E>(
    outputs: &TensorOutputs,
    tensor: usize,
    at_most: usize,
    mut take: impl FnMut(Scalar) -> Result<(), E>,
) -> Result<(), E> {
    let datatype = outputs.tensors()[tensor].datatype();
    if datatype == DataType::Bytes {
        return Ok(());
    }
    let count = outputs.tensors()[tensor].elements().min(at_most);
    chunks_of(outputs, tensor, 0..count * datatype.bytes(), |chunk| {
        let mut elements = chunk.chunks_exact(datatype.bytes());
        elements.try_for_each(|bytes| datatype.read(bytes).map_or(Ok(()), &mut take))
    })
}

/// One element as JSON. NaN and the infinities are strings.
pub(super) struct Json(pub(super) Scalar);

/// One element of a BYTES output as JSON: a string, or a list of its bytes if they are not UTF-8.
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

/// The string for a number that JSON cannot write.
fn word(number: f64) -> &'static str {
    match () {
        () if number.is_nan() => "NaN",
        () if number > 0.0 => "Infinity",
        () => "-Infinity",
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Scalar::Bool(value) => serializer.serialize_bool(value),
            Scalar::Double(value) if value.is_finite() => serializer.serialize_f64(value),
            Scalar::Double(value) => serializer.serialize_str(word(value)),
            Scalar::Signed(value) => serializer.serialize_i64(value),
            Scalar::Single(value) if value.is_finite() => serializer.serialize_f32(value),
            Scalar::Single(value) => serializer.serialize_str(word(value.into())),
            Scalar::Unsigned(value) => serializer.serialize_u64(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_json_and_nan_and_infinities_are_strings() {
        let cases: [(DataType, &[u8], &str); 8] = [
            (DataType::Bool, &[1], "true"),
            (DataType::Uint64, &[0xff; 8], "18446744073709551615"),
            (DataType::Int64, &[0xff; 8], "-1"),
            (DataType::Fp16, &[0, 0xc1], "-2.5"),
            (DataType::Fp32, &0.1_f32.to_le_bytes(), "0.1"),
            (DataType::Fp64, &1e-9_f64.to_le_bytes(), "1e-9"),
            (DataType::Fp32, &f32::NEG_INFINITY.to_le_bytes(), "\"-Infinity\""),
            (DataType::Fp64, &f64::NAN.to_le_bytes(), "\"NaN\""),
        ];
        for (datatype, bytes, json) in cases {
            let value = Json(datatype.read(bytes).unwrap());
            assert_eq!(serde_json::to_string(&value).unwrap(), json, "{datatype}");
        }
    }
}
