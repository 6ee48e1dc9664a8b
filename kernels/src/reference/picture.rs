//! Pictures: what a grid, an object and a patch have in common.
//!
//! A picture is a box of `h * w` bytes, row-major, whose upper left corner lies at an origin. In a grid every
//! byte is a colour and the origin is (0, 0). In an object a byte is a colour, or [`HOLE`] for a place without
//! a cell. In a patch (arc-dsl: indices) a byte is 0 or [`HOLE`]. Boxes of objects and patches are tight: each
//! border line has a cell. An empty picture has shape (0, 0) and origin (0, 0), no matter which of its sides
//! was empty.
//!
//! Mirrors `kernels/cuda/picture.cuh`.

mod buffer;

use gridpool_protocol::output::ItemErrorCode;

use super::Shape;

pub use buffer::{Pictures, Tuple};
pub use gridpool_protocol::output::HOLE;

/// Row and column of a box's upper left corner. 64 shifts of 255 stay far below its limits.
pub type Origin = [i16; 2];

/// Whether an op made its value.
pub type Made = Result<(), ItemErrorCode>;

/// A grid, an object or a patch, where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    /// Rows and columns of the box.
    pub shape: Shape,
    /// Upper left corner of the box.
    pub origin: Origin,
    /// The box, row-major.
    pub cells: &'a [u8],
}

impl<'a> Picture<'a> {
    /// A grid.
    ///
    /// # Panics
    /// If it does not have as many cells as its shape says.
    #[must_use]
    pub fn grid(shape: Shape, cells: &'a [u8]) -> Self {
        Self::at_origin(shape, [0, 0], cells)
    }

    /// An object or a patch whose box lies at `origin`.
    ///
    /// # Panics
    /// If the box does not have as many places as its shape says.
    #[must_use]
    pub fn at_origin(shape: Shape, origin: Origin, cells: &'a [u8]) -> Self {
        assert_eq!(cells.len(), area(shape), "a picture has as many places as its shape says");
        Self { shape, origin, cells }
    }

    /// Rows of the box.
    #[must_use]
    pub fn h(self) -> usize {
        usize::from(self.shape[0])
    }

    /// Columns of the box.
    #[must_use]
    pub fn w(self) -> usize {
        usize::from(self.shape[1])
    }

    /// Whether it has no cell.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.cells.is_empty()
    }

    /// The byte at row `i`, column `j` of the box.
    ///
    /// # Panics
    /// If the place lies outside.
    #[must_use]
    pub fn at(self, i: usize, j: usize) -> u8 {
        self.row(i)[j]
    }

    /// Row `i` of the box.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(self, i: usize) -> &'a [u8] {
        &self.cells[i * self.w()..(i + 1) * self.w()]
    }

    /// The rows of the box, top to bottom.
    pub fn rows(self) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.cells.chunks_exact(self.w().max(1))
    }

    /// The cells as (row, column, colour), row-major. Rows and columns count from (0, 0), not from the box's
    /// corner.
    pub fn placed(self) -> impl Iterator<Item = (i32, i32, u8)> {
        let [top, left] = self.origin.map(i32::from);
        (top..).zip(self.rows()).flat_map(move |(row, cells)| {
            let cells = (left..).zip(cells).filter(|&(_, &cell)| cell != HOLE);
            cells.map(move |(col, &color)| (row, col, color))
        })
    }

    /// How many cells it has; holes do not count.
    #[must_use]
    pub fn size(self) -> usize {
        self.cells.iter().filter(|&&cell| cell != HOLE).count()
    }
}

/// A grid whose cells may change. Its shape does not.
#[derive(Debug)]
pub struct GridMut<'a> {
    /// Rows and columns.
    pub shape: Shape,
    /// The cells, row-major.
    pub cells: &'a mut [u8],
}

impl GridMut<'_> {
    /// The cell at a place, or `None` if that lies off the grid.
    pub fn get_mut(&mut self, row: i32, col: i32) -> Option<&mut u8> {
        let [h, w] = self.shape.map(usize::from);
        let (row, col) = (usize::try_from(row).ok()?, usize::try_from(col).ok()?);
        (row < h && col < w).then(|| &mut self.cells[row * w + col])
    }
}

/// Cells of a box.
#[must_use]
pub fn area([h, w]: Shape) -> usize {
    usize::from(h) * usize::from(w)
}

#[cfg(test)]
mod tests {
    use super::super::drawing::drawing;

    #[test]
    fn cells_are_listed_row_major_where_they_lie() {
        let picture = drawing([-1, 7], &[".4", "5."]);
        let cells: Vec<_> = picture.picture().placed().collect();
        assert_eq!(cells, [(-1, 8, 4), (0, 7, 5)]);
        assert_eq!(picture.picture().size(), 2);
    }
}
