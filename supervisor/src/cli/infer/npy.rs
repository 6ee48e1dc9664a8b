//! One `.npy` array of any type as a tensor.

use std::borrow::Cow;

use gridpool_protocol::tensor::{DataType, Tensor, put_text};

use super::error::ArraysError;
use crate::cli::npy::Array;

/// The array as a tensor with this name, and its data in row-major order.
pub(super) fn read(name: &str, mut bytes: Vec<u8>) -> Result<(Tensor, Vec<u8>), ArraysError> {
    let bad = |what: String| ArraysError::Array { name: name.to_owned(), what };
    let array = Array::read(&bytes).map_err(|what| bad(format!("is not an .npy: {what}")))?;
    if let Some(kind) = TextKind::of(array.descr) {
        let tensor = Tensor::new(name, DataType::Bytes, array.shape.clone())?;
        let data = kind.read(&array, tensor.elements()).map_err(bad)?;
        return Ok((tensor.with_data(&data)?, data));
    }
    let numeric = |datatype: &DataType| *datatype != DataType::Bytes;
    let Some(datatype) = DataType::from_descr(array.descr).filter(numeric) else {
        return Err(bad(no_type(array.descr)));
    };
    let tensor = Tensor::new(name, datatype, array.shape.clone())?;
    if array.data.len() != tensor.bytes() {
        let (got, want) = (array.data.len(), tensor.bytes());
        return Err(bad(format!("has {got} bytes of data; its shape and type need {want}")));
    }
    if datatype == DataType::Bool && array.data.iter().any(|&byte| byte > 1) {
        return Err(bad("has bytes that are neither true nor false".into()));
    }
    // The only copy: an array may be a gigabyte.
    let start = bytes.len() - array.data.len();
    match array.row_major(datatype.bytes()) {
        Cow::Owned(sorted) => Ok((tensor, sorted)),
        Cow::Borrowed(_) => {
            bytes.drain(..start);
            Ok((tensor, bytes))
        }
    }
}

/// An array of text: every element is filled up with zeros to the same length.
#[derive(Clone, Copy, Debug)]
enum TextKind {
    /// Elements of so many bytes.
    Bytes(usize),
    /// Elements of so many characters, 4 bytes each.
    Characters(usize),
}

impl TextKind {
    fn of(descr: &str) -> Option<Self> {
        let length = |digits: &str| digits.parse().ok();
        if let Some(digits) = descr.strip_prefix("|S") {
            return length(digits).map(Self::Bytes);
        }
        descr.strip_prefix("<U").and_then(length).map(Self::Characters)
    }

    /// The data of a BYTES tensor with that many elements. The error is what is wrong with the array.
    fn read(self, array: &Array<'_>, elements: usize) -> Result<Vec<u8>, String> {
        let size = match self {
            Self::Bytes(bytes) => bytes,
            Self::Characters(characters) => characters.saturating_mul(4),
        };
        let (got, want) = (array.data.len(), size.saturating_mul(elements));
        if got != want {
            return Err(format!("has {got} bytes of data; its shape and type need {want}"));
        }
        let mut data = Vec::new();
        let sorted = array.row_major(size.max(1));
        for element in 0..elements {
            let padded = &sorted[element * size..(element + 1) * size];
            let put = match self {
                Self::Bytes(_) => put_text(without_zeros(padded), element, &mut data),
                Self::Characters(_) => {
                    let text = characters(padded).ok_or_else(|| {
                        format!("has an element {element} that is not Unicode text")
                    })?;
                    put_text(text.trim_end_matches('\0').as_bytes(), element, &mut data)
                }
            };
            put.map_err(|error| format!("cannot be sent: {error}"))?;
        }
        Ok(data)
    }
}

fn without_zeros(padded: &[u8]) -> &[u8] {
    let length = padded.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &padded[..length]
}

/// The text of characters of 4 bytes.
fn characters(bytes: &[u8]) -> Option<String> {
    bytes.as_chunks().0.iter().map(|&one| char::from_u32(u32::from_le_bytes(one))).collect()
}

/// Why an array of this type is not a tensor, and what to do.
fn no_type(descr: &str) -> String {
    let advice = match descr.as_bytes() {
        [b'>', rest @ ..] => {
            let little = format!("<{}", String::from_utf8_lossy(rest));
            return format!("is big-endian (`{descr}`): save x.astype('{little}')");
        }
        [_, b'O', ..] => {
            "only Python reads arrays of its objects; save x.astype('U') for text, x.astype('S') for bytes"
        }
        _ => "save x.astype('<f4'), or another type that the model takes",
    };
    format!("has the type `{descr}`, which no tensor has: {advice}")
}

#[cfg(test)]
mod tests;
