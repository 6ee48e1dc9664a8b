//! Grids from a `.npy` array of shape (grids, rows, columns) or (rows, columns), and what an `.npz` needs of arrays.
//!
//! Owns the errors of such an array. May not open files.

use std::borrow::Cow;

use gridpool_protocol::batch::{Grid, GridError};

use super::{Cause, Diagnostic, Location, Side};
use crate::cli::npy::Array;

const OBJECTS: &str = "O";
const ORDERS: [char; 4] = ['<', '>', '|', '='];

/// All grids of an array, in C or Fortran order.
pub(super) fn grids(bytes: &[u8]) -> Result<Vec<Grid>, Box<Diagnostic>> {
    let cells = Integers::read(bytes)?;
    let shapes = match cells.shape[..] {
        [h, w] => vec![[h, w]],
        [0, _, _] => return Err(Cause::NoGrid.into()),
        [count, h, w] => vec![[h, w]; count],
        _ => return Err(Cause::Ndim { shape: cells.shape_text() }.into()),
    };
    let laid = Laid::new(&cells, &shapes, 1)?;
    (0..shapes.len()).map(|at| laid.grid(at)).collect()
}

/// An array of integers of any width.
pub(super) struct Integers<'a> {
    pub(super) shape: Vec<usize>,
    /// In row-major order.
    data: Cow<'a, [u8]>,
    element: usize,
    is_signed: bool,
    is_big_endian: bool,
}

impl<'a> Integers<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Box<Diagnostic>> {
        let broken = |reason: &str| Cause::NotNpy { reason: reason.to_owned() };
        let array = Array::read(bytes).map_err(broken)?;
        let code = array.descr.trim_start_matches(ORDERS);
        let element: usize = match code {
            "u1" | "i1" => 1,
            "u2" | "i2" => 2,
            "u4" | "i4" => 4,
            "u8" | "i8" => 8,
            OBJECTS => return Err(Cause::Objects.into()),
            _ => return Err(Cause::Dtype { found: dtype_name(array.descr) }.into()),
        };
        let sides = array.shape.iter().map(|&side| usize::try_from(side));
        let shape = sides.collect::<Result<Vec<_>, _>>().ok();
        let bytes = shape.iter().flatten().try_fold(element, |all, side| all.checked_mul(*side));
        let (Some(shape), Some(bytes)) = (shape, bytes) else {
            return Err(broken("its shape is larger than any memory").into());
        };
        match array.data.len() {
            found if found < bytes => {
                return Err(Cause::Truncated { missing: bytes - found }.into());
            }
            found if found > bytes => return Err(broken("something follows the array").into()),
            _ => {}
        }
        let (is_signed, is_big_endian) = (code.starts_with('i'), array.descr.starts_with('>'));
        let data = array.row_major(element);
        Ok(Self { shape, data, element, is_signed, is_big_endian })
    }

    pub(super) fn values(&self) -> impl Iterator<Item = i128> {
        self.data.chunks_exact(self.element).map(|bytes| {
            if !self.is_big_endian {
                return integer(bytes, self.is_signed);
            }
            let mut turned = [0; 8];
            turned[..bytes.len()].copy_from_slice(bytes);
            turned[..bytes.len()].reverse();
            integer(&turned[..bytes.len()], self.is_signed)
        })
    }

    /// As NumPy writes it.
    pub(super) fn shape_text(&self) -> String {
        let sides: Vec<_> = self.shape.iter().map(ToString::to_string).collect();
        format!("({}{})", sides.join(", "), if sides.len() == 1 { "," } else { "" })
    }
}

/// An integer of one to eight bytes, the lowest first.
pub(super) fn integer(bytes: &[u8], is_signed: bool) -> i128 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unused = 64 - 8 * bytes.len();
    if is_signed {
        i128::from(i64::from_le_bytes(wide) << unused >> unused)
    } else {
        i128::from(u64::from_le_bytes(wide))
    }
}

/// Grids whose cells follow each other.
pub(super) struct Laid<'a> {
    shapes: &'a [[usize; 2]],
    starts: Vec<usize>,
    cells: Cow<'a, [u8]>,
    per_item: usize,
}

impl<'a> Laid<'a> {
    /// The grids of these shapes; `per_item` is 2 for pairs.
    pub(super) fn new(
        cells: &'a Integers<'_>,
        shapes: &'a [[usize; 2]],
        per_item: usize,
    ) -> Result<Self, Box<Diagnostic>> {
        let mut starts = Vec::with_capacity(shapes.len() + 1);
        let mut end = 0_usize;
        for [h, w] in shapes {
            starts.push(end);
            end = end.saturating_add(h.saturating_mul(*w));
        }
        starts.push(end);
        let got = cells.data.len() / cells.element;
        if end != got {
            let what = format!("tells of {end} cells, and `cells` has {got}");
            return Err(Cause::Sizes { what }.into());
        }
        let mut laid = Self { shapes, starts, cells: Cow::Borrowed(&[]), per_item };
        laid.cells = if cells.element == 1 && !cells.is_signed {
            Cow::Borrowed(&*cells.data)
        } else {
            let narrow = |(at, value): (usize, i128)| {
                u8::try_from(value).map_err(|_| laid.no_color(at, value))
            };
            Cow::Owned(cells.values().enumerate().map(narrow).collect::<Result<_, _>>()?)
        };
        Ok(laid)
    }

    pub(super) fn grid(&self, at: usize) -> Result<Grid, Box<Diagnostic>> {
        let ([h, w], start) = (self.shapes[at], self.starts[at]);
        let cells = self.cells[start..self.starts[at + 1]].to_vec();
        Grid::new(h, w, cells).map_err(|error| {
            if let GridError::Cell { row, col, value } = error {
                return self.no_color(start + row * w + col, value.into());
            }
            Box::new(Diagnostic { place: self.place(at), cause: error.into() })
        })
    }

    fn no_color(&self, cell: usize, value: i128) -> Box<Diagnostic> {
        let grid = self.starts.partition_point(|&start| start <= cell) - 1;
        let (at, w) = (cell - self.starts[grid], self.shapes[grid][1]);
        let place = Location { row: Some(at / w), column: Some(at % w), ..self.place(grid) };
        Box::new(Diagnostic { place, cause: Cause::Color { found: value.to_string() } })
    }

    fn place(&self, grid: usize) -> Location {
        if self.per_item == 1 {
            return Location { grid: Some(grid), ..Location::default() };
        }
        let side = if grid.is_multiple_of(2) { Side::Input } else { Side::Output };
        Location { pair: Some(grid / 2), side: Some(side), ..Location::default() }
    }
}

/// The usual name of a type: float64 for `<f8`.
fn dtype_name(descriptor: &str) -> String {
    let code = descriptor.trim_start_matches(ORDERS);
    let kind = match code.chars().next() {
        Some('b') => return "bool".to_owned(),
        Some('c') => "complex",
        Some('f') => "float",
        _ => return format!("`{descriptor}`"),
    };
    match code[1..].parse::<u32>() {
        Ok(bytes @ 1..=16) => format!("{kind}{}", 8 * bytes),
        _ => format!("`{descriptor}`"),
    }
}
