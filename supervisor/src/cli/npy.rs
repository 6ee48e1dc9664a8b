//! The `.npy` format of NumPy: parses headers, and brings elements into row-major order.
//!
//! Takes arrays of every type, also FP16 and BF16, since it reads no element. May not open files.

use std::borrow::Cow;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Version 1.0, whose header length has 16 bits.
const VERSION: &[u8] = b"\x01\x00";
/// NumPy aligns the data of an array to this.
const ALIGNMENT: usize = 64;
/// The longest header to parse; NumPy writes 118 bytes.
const HEADER_BYTES_MAX: usize = 4_096;
const NOT_PLAIN: &str = "its header has no plain type: save an array of numbers, without fields";

/// An array as in the file.
#[derive(Debug)]
pub(super) struct Array<'a> {
    /// The type of an element, as NumPy writes it: `<f4`.
    pub(super) descr: &'a str,
    fortran_order: bool,
    pub(super) shape: Vec<u64>,
    /// The bytes after the header.
    pub(super) data: &'a [u8],
}

/// Whether the bytes begin as an array does.
pub(super) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

impl<'a> Array<'a> {
    /// Reads the header. The error is a sentence.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let after_magic = bytes.strip_prefix(MAGIC).ok_or("it does not begin with \\x93NUMPY")?;
        let (length, rest) = match after_magic {
            [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
            [2 | 3, _, a, b, c, d, rest @ ..] => {
                (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest)
            }
            [_, _, _, _, ..] => return Err("its format version is not 1, 2 or 3"),
            _ => return Err("it ends inside its header"),
        };
        if length > HEADER_BYTES_MAX {
            return Err("its header is too long");
        }
        let (header, data) = rest.split_at_checked(length).ok_or("it ends inside its header")?;
        let header = str::from_utf8(header).ok();
        header.and_then(|text| Literal(text).array(data)).ok_or(NOT_PLAIN)
    }

    /// The data in row-major order. The caller has checked its length by the shape.
    pub(super) fn row_major(&self, element: usize) -> Cow<'a, [u8]> {
        match self.fortran_order {
            true => row_major(self.data, &self.shape, element).into(),
            false => self.data.into(),
        }
    }
}

/// The header of an array of at most [`TENSOR_RANK_MAX`](gridpool_protocol::limits) dimensions.
pub(super) fn head(descr: &str, shape: &[u64]) -> Vec<u8> {
    let sides: String = shape.iter().map(|side| format!("{side}, ")).collect();
    let sides = match shape {
        [_] => sides.trim_end(),
        _ => sides.trim_end_matches(", "),
    };
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sides}), }}");
    let start = [MAGIC, VERSION].concat();
    // The length takes two bytes, the line break one.
    let bytes = (start.len() + 2 + text.len() + 1).next_multiple_of(ALIGNMENT);
    let length = bytes - start.len() - 2;
    let mut head = start;
    head.extend(u16::try_from(length).expect("so many sides are short").to_le_bytes());
    head.extend(format!("{text:width$}\n", width = length - 1).bytes());
    head
}

/// The elements of column-major data in row-major order; `element` is the bytes of one.
fn row_major(data: &[u8], shape: &[u64], element: usize) -> Vec<u8> {
    // The stride of each axis, in elements.
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
    for _ in 0..data.len() / element {
        let places = at.iter().zip(&steps);
        let place = places.map(|(&at, step)| usize::try_from(at).expect("as above") * step);
        let start = element * place.sum::<usize>();
        sorted.extend(&data[start..start + element]);
        // Counts up the index, from the last axis.
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

/// The rest of a Python literal.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, with its keys in any order.
    fn array(mut self, data: &'a [u8]) -> Option<Array<'a>> {
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
        let (descr, fortran_order, shape) = (descr?, fortran_order?, shape?);
        is_all.then_some(Array { descr, fortran_order, shape, data })
    }

    /// Skips blanks and `what`.
    fn skip(&mut self, what: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(what)?;
        Some(())
    }

    /// Skips a comma, which may be missing before `end`.
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
