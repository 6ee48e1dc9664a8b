//! One `.npy` array, of any type that a tensor may have, read to and written from plain bytes.
//!
//! ndarray-npy reads into types that Rust has, which FP16 and BF16 are not; here no element is looked at.

use std::ops::Range;

use gridpool_protocol::tensor::{DataType, Tensor};

use super::error::Flaw;
use crate::cli::input::npy::header_of;

/// The data of an array begins at a multiple of it, as NumPy has it.
const ALIGNMENT: usize = 64;
/// Version 1.0, which names the length of the header in 16 bits.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// The array as a tensor of that name, and its data in row-major order.
pub(super) fn read(name: &str, mut bytes: Vec<u8>) -> Result<(Tensor, Vec<u8>), Flaw> {
    let flawed = |what: String| Flaw::Array { name: name.to_owned(), what };
    let Range { start, end } =
        header_of(&bytes).map_err(|what| flawed(format!("is no .npy: {what}")))?;
    let text = str::from_utf8(&bytes[start..end]).ok();
    let header = text.and_then(|text| Literal(text).header());
    let Some(Header { descr, fortran_order, shape }) = header else {
        return Err(flawed("is of no plain type: save an array of numbers, without fields".into()));
    };
    let Some(datatype) = DataType::from_descr(descr) else {
        return Err(flawed(no_type(descr)));
    };
    let tensor = Tensor::new(name, datatype, shape)?;
    bytes.drain(..end);
    if bytes.len() != tensor.bytes() {
        let (got, want) = (bytes.len(), tensor.bytes());
        return Err(flawed(format!("has {got} bytes of data; its shape and type take {want}")));
    }
    if fortran_order {
        bytes = row_major(&bytes, &tensor);
    }
    if datatype == DataType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err(flawed("has bytes that are neither true nor false".into()));
    }
    Ok((tensor, bytes))
}

/// What stands before the data of a tensor in a `.npy` file.
pub(super) fn head(tensor: &Tensor) -> Vec<u8> {
    let shape: String = tensor.shape().iter().map(|side| format!("{side}, ")).collect();
    let shape = match tensor.shape() {
        [_] => shape.trim_end(),
        _ => shape.trim_end_matches(", "),
    };
    let descr = tensor.datatype().descr();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The length itself takes two bytes, the line break at the end one.
    let bytes = (MAGIC.len() + 2 + text.len() + 1).next_multiple_of(ALIGNMENT);
    let length = bytes - MAGIC.len() - 2;
    let mut head = MAGIC.to_vec();
    head.extend(u16::try_from(length).expect("TENSOR_RANK_MAX sides are short").to_le_bytes());
    head.extend(format!("{text:width$}\n", width = length - 1).bytes());
    head
}

/// Why an array of that type is no tensor, and what to do.
fn no_type(descr: &str) -> String {
    let advice = match descr.as_bytes() {
        [b'>', rest @ ..] => {
            let little = format!("<{}", String::from_utf8_lossy(rest));
            return format!("is big-endian (`{descr}`): save x.astype('{little}')");
        }
        [_, b'U' | b'S', ..] => "models that take text are not served",
        [_, b'O', ..] => "save an array of numbers, not of objects",
        _ => "save x.astype('<f4'), or whatever the model takes",
    };
    format!("is of the type `{descr}`, which no tensor has: {advice}")
}

/// The elements of column-major data in row-major order.
fn row_major(data: &[u8], tensor: &Tensor) -> Vec<u8> {
    let (shape, element) = (tensor.shape(), tensor.datatype().bytes());
    // How many elements lie between neighbours along each axis.
    let steps: Vec<usize> = shape
        .iter()
        .scan(1, |step, &side| {
            let this = *step;
            *step *= usize::try_from(side).expect("the data lies in memory");
            Some(this)
        })
        .collect();
    let mut at = vec![0_u64; shape.len()];
    let mut sorted = Vec::with_capacity(data.len());
    for _ in 0..tensor.elements() {
        let places = at.iter().zip(&steps);
        let place = places.map(|(&at, step)| usize::try_from(at).expect("as above") * step);
        let start = element * place.sum::<usize>();
        sorted.extend(&data[start..start + element]);
        // The next index, the last axis first.
        for (at, &side) in at.iter_mut().zip(shape).rev() {
            *at += 1;
            if *at < side {
                break;
            }
            *at = 0;
        }
    }
    sorted
}

/// What a header says.
struct Header<'a> {
    descr: &'a str,
    fortran_order: bool,
    shape: Vec<u64>,
}

/// The rest of a Python literal.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, its keys in any order.
    fn header(mut self) -> Option<Header<'a>> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.skip("{")?;
        while self.skip("}").is_none() {
            let key = self.text()?;
            self.skip(":")?;
            match key {
                "descr" => descr = Some(self.text()?),
                "fortran_order" => {
                    fortran_order = Some(self.skip("True").is_some());
                    if fortran_order == Some(false) {
                        self.skip("False")?;
                    }
                }
                "shape" => shape = Some(self.numbers()?),
                _ => return None,
            }
            self.comma_or("}")?;
        }
        let is_all = self.0.trim().is_empty();
        is_all.then_some(Header { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }

    /// Goes past `what`, and the blanks before it.
    fn skip(&mut self, what: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(what)?;
        Some(())
    }

    /// Goes past a comma; there need be none before `end`.
    fn comma_or(&mut self, end: &str) -> Option<()> {
        self.skip(",").or_else(|| self.0.trim_start().starts_with(end).then_some(()))
    }

    /// `'text'`, in quotes of either kind; without escapes.
    fn text(&mut self) -> Option<&'a str> {
        let quote = if self.skip("'").is_some() { '\'' } else { self.skip("\"").map(|()| '"')? };
        let (text, rest) = self.0.split_once(quote)?;
        self.0 = rest;
        Some(text)
    }

    /// `(2, 3)`, `(2,)` or `()`.
    fn numbers(&mut self) -> Option<Vec<u64>> {
        let mut numbers = Vec::new();
        self.skip("(")?;
        while self.skip(")").is_none() {
            let digits = self.0.trim_start();
            let end = digits.find(|c: char| !c.is_ascii_digit())?;
            numbers.push(digits[..end].parse().ok()?);
            self.0 = &digits[end..];
            self.comma_or(")")?;
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests;
