//! Grids from a `.npy` array of shape (grids, rows, columns) or (rows, columns), element type uint8.
//!
//! Owns the errors of such an array. May not open files.

use gridpool_protocol::batch::{Grid, GridError};

use super::{Cause, Diagnostic, Location};
use crate::cli::npy::Array;

/// uint8, after the sign for its byte order, which a single byte does not have.
const UINT8: &str = "u1";
const OBJECTS: &str = "O";
const ORDERS: [char; 4] = ['<', '>', '|', '='];

/// All grids of an array, in C or Fortran order.
pub(super) fn grids(bytes: &[u8]) -> Result<Vec<Grid>, Box<Diagnostic>> {
    let broken = |reason: &str| Cause::NotNpy { reason: reason.to_owned() };
    let array = Array::read(bytes).map_err(broken)?;
    match array.descr.trim_start_matches(ORDERS) {
        UINT8 => {}
        OBJECTS => return Err(Cause::Objects.into()),
        _ => return Err(Cause::Dtype { found: dtype_name(array.descr) }.into()),
    }
    let sides = array.shape.iter().map(|&side| usize::try_from(side));
    let sides = sides.collect::<Result<Vec<_>, _>>().ok();
    let cells = sides.iter().flatten().try_fold(1_usize, |cells, side| cells.checked_mul(*side));
    let (Some(sides), Some(cells)) = (sides, cells) else {
        return Err(broken("its shape is larger than any memory").into());
    };
    match array.data.len() {
        found if found < cells => return Err(Cause::Truncated { missing: cells - found }.into()),
        found if found > cells => return Err(broken("something follows the array").into()),
        _ => {}
    }
    let (count, h, w) = match sides[..] {
        [h, w] => (1, h, w),
        [0, _, _] => return Err(Cause::NoGrid.into()),
        [count, h, w] => (count, h, w),
        _ => {
            let shape = format!("{:?}", array.shape).replace('[', "(").replace(']', ")");
            return Err(Cause::Ndim { shape }.into());
        }
    };
    let cells = array.row_major(1);
    (0..count).map(|at| grid(at, h, w, &cells[at * h * w..(at + 1) * h * w])).collect()
}

fn grid(index: usize, h: usize, w: usize, cells: &[u8]) -> Result<Grid, Box<Diagnostic>> {
    Grid::new(h, w, cells.to_vec()).map_err(|error| {
        let place = Location { grid: Some(index), ..Location::default() };
        if let GridError::Cell { row, col, value } = error {
            let place = Location { row: Some(row), column: Some(col), ..place };
            return Box::new(Diagnostic {
                place,
                cause: Cause::Color { found: value.to_string() },
            });
        }
        Box::new(Diagnostic { place, cause: error.into() })
    })
}

/// The usual name of a type: float64 for `<f8`.
fn dtype_name(descriptor: &str) -> String {
    let code = descriptor.trim_start_matches(ORDERS);
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
