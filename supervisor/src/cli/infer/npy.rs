//! One `.npy` array of any type as a tensor.

use std::borrow::Cow;

use gridpool_protocol::tensor::{DataType, Tensor};

use super::error::ArraysError;
use crate::cli::npy::Array;

/// The array as a tensor with this name, and its data in row-major order.
pub(super) fn read(name: &str, mut bytes: Vec<u8>) -> Result<(Tensor, Vec<u8>), ArraysError> {
    let bad = |what: String| ArraysError::Array { name: name.to_owned(), what };
    let array = Array::read(&bytes).map_err(|what| bad(format!("is not an .npy: {what}")))?;
    let Some(datatype) = DataType::from_descr(array.descr) else {
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

/// Why an array of this type is not a tensor, and what to do.
fn no_type(descr: &str) -> String {
    let advice = match descr.as_bytes() {
        [b'>', rest @ ..] => {
            let little = format!("<{}", String::from_utf8_lossy(rest));
            return format!("is big-endian (`{descr}`): save x.astype('{little}')");
        }
        [_, b'U' | b'S', ..] => "gridpool does not serve models that take text",
        [_, b'O', ..] => "save an array of numbers, not of objects",
        _ => "save x.astype('<f4'), or another type that the model takes",
    };
    format!("has the type `{descr}`, which no tensor has: {advice}")
}

#[cfg(test)]
mod tests;
