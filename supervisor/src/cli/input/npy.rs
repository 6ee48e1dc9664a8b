//! Grids from a `.npy` array of shape (grids, rows, columns) or (rows, columns), element type uint8.
//!
//! Owns the words for what is wrong with an array; the format itself is ndarray-npy's. May not open
//! files.

use std::ops::Range;

use gridpool_protocol::batch::{Grid, GridError};
use ndarray::{ArrayView2, ArrayViewD, Axis, Ix2, Ix3};
use ndarray_npy::{ViewNpyError, ViewNpyExt};

use super::{Cause, Flaw, Place};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is parsed; NumPy writes 118 bytes.
const HEADER_BYTES_MAX: usize = 4_096;
/// Deepest nesting in a header that is parsed; NumPy writes 2. The parser takes time exponential in it.
const HEADER_DEPTH_MAX: usize = 4;

/// Whether the bytes say that they are a `.npy` array.
pub(in crate::cli) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// All grids of an array, in C or Fortran order.
pub(super) fn grids(bytes: &[u8]) -> Result<Vec<Grid>, Box<Flaw>> {
    check_header(bytes)?;
    let array = ArrayViewD::<u8>::view_npy(bytes).map_err(cause)?;
    if let Ok(one) = array.view().into_dimensionality::<Ix2>() {
        return Ok(vec![grid(0, one)?]);
    }
    let shape = format!("{:?}", array.shape()).replace('[', "(").replace(']', ")");
    let many = array.into_dimensionality::<Ix3>().map_err(|_| Cause::Ndim { shape })?;
    if many.len_of(Axis(0)) == 0 {
        return Err(Cause::NoGrid.into());
    }
    many.axis_iter(Axis(0)).enumerate().map(|(index, rows)| grid(index, rows)).collect()
}

fn grid(index: usize, rows: ArrayView2<'_, u8>) -> Result<Grid, Box<Flaw>> {
    let (h, w) = rows.dim();
    Grid::new(h, w, rows.iter().copied().collect()).map_err(|error| {
        let place = Place { grid: Some(index), ..Place::default() };
        if let GridError::Cell { row, col, value } = error {
            let place = Place { row: Some(row), column: Some(col), ..place };
            return Box::new(Flaw { place, cause: Cause::Color { found: value.to_string() } });
        }
        Box::new(Flaw { place, cause: error.into() })
    })
}

/// Where the header of an array lies, after the magic and its length.
pub(in crate::cli) fn header_of(bytes: &[u8]) -> Result<Range<usize>, &'static str> {
    let after_magic = bytes.strip_prefix(MAGIC).ok_or("it does not begin with \\x93NUMPY")?;
    let (length, start) = match *after_magic {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([a, b])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]) as usize, 6),
        [_, _, _, _, ..] => return Err("its format version is not 1, 2 or 3"),
        _ => return Err("it ends inside its header"),
    };
    if length > HEADER_BYTES_MAX {
        return Err("its header is too long");
    }
    let start = MAGIC.len() + start;
    if bytes.len() - start < length {
        return Err("it ends inside its header");
    }
    Ok(start..start + length)
}

/// Refuses headers that no array has, before a recursive parser sees them.
fn check_header(bytes: &[u8]) -> Result<(), Box<Flaw>> {
    let refuse = |reason: &str| Cause::NotNpy { reason: reason.to_owned() };
    let header = &bytes[header_of(bytes).map_err(refuse)?];
    let mut depth = 0_usize;
    for byte in header {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > HEADER_DEPTH_MAX {
            return Err(refuse("its header is nested too deeply").into());
        }
    }
    Ok(())
}

fn cause(error: ViewNpyError) -> Cause {
    if let ViewNpyError::MissingBytes(missing) = error {
        return Cause::Truncated { missing };
    }
    if let ViewNpyError::WrongDescriptor(descriptor) = &error {
        let text = descriptor.as_string().map_or_else(|| descriptor.to_string(), Clone::clone);
        return Cause::Dtype { found: dtype_name(&text) };
    }
    Cause::NotNpy { reason: error.to_string() }
}

/// `<f8` as NumPy users say it: float64.
fn dtype_name(descriptor: &str) -> String {
    let code = descriptor.trim_start_matches(['<', '>', '|', '=']);
    let kind = match code.chars().next() {
        Some('b') => return "bool".to_owned(),
        Some('c') => "complex",
        Some('f') => "float",
        Some('i') => "int",
        Some('u') => "uint",
        _ => return format!("`{descriptor}`"),
    };
    match code[1..].parse::<u32>() {
        Ok(bytes @ 1..=16) => format!("{kind}{}", 8 * bytes),
        _ => format!("`{descriptor}`"),
    }
}
