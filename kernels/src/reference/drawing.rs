//! Pictures for tests, drawn: a digit is a cell of that colour, a full stop is a hole.

use gridpool_protocol::output::ItemErrorCode;

use super::Shape;
use super::picture::{HOLE, Made, Origin, Picture, Pictures};

/// A picture with memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drawing {
    pub(super) shape: Shape,
    pub(super) origin: Origin,
    pub(super) cells: Vec<u8>,
}

impl Drawing {
    pub(super) fn picture(&self) -> Picture<'_> {
        Picture::at_origin(self.shape, self.origin, &self.cells)
    }
}

/// An object or a patch at `origin`.
pub(super) fn drawing(origin: Origin, rows: &[&str]) -> Drawing {
    let shape = [rows.len(), rows.first().map_or(0, |row| row.len())];
    let byte = |c: u8| if c == b'.' { HOLE } else { c - b'0' };
    Drawing {
        shape: shape.map(|side| u8::try_from(side).unwrap()),
        origin,
        cells: rows.concat().bytes().map(byte).collect(),
    }
}

/// A grid.
pub(super) fn grid(rows: &[&str]) -> Drawing {
    drawing([0, 0], rows)
}

/// The picture that `make` pushes.
pub(super) fn made(make: impl FnOnce(&mut Pictures) -> Made) -> Result<Drawing, ItemErrorCode> {
    let mut pictures = Pictures::default();
    // Another picture lies before it, as in the middle of a batch.
    pictures.push_by_place([2, 2], [0, 0], |_, _| 7).unwrap();
    make(&mut pictures)?;
    assert_eq!(pictures.len(), 2, "an op gives one picture");
    assert_eq!(pictures.get(0).cells, [7; 4], "an op leaves its neighbours alone");
    let picture = pictures.get(1);
    Ok(Drawing { shape: picture.shape, origin: picture.origin, cells: picture.cells.to_vec() })
}
