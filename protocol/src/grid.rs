//! One grid and its limits.

use crate::limits::{COLOR_MAX, GRID_CELLS_MAX, SIDE_MAX};

/// One grid: `h` rows of `w` cells, each a colour from 0 to 9.
///
/// The empty grid has no rows and no columns. An op may return it, but only `canvas` accepts it, and a batch may
/// not have it. A solver may also return a grid that has rows but no columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grid {
    h: u8,
    w: u8,
    cells: Vec<u8>,
}

/// Why cells do not make a grid. Rows and columns count from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridError {
    /// It has no row or no column.
    #[error("the grid is empty: it needs at least one row and one column")]
    Empty,
    /// A row is longer or shorter than the first.
    #[error("row {row} has {got} cells, row 0 has {want}")]
    Ragged {
        /// The first row that differs.
        row: usize,
        /// Its length.
        got: usize,
        /// The length of row 0.
        want: usize,
    },
    /// A side is longer than [`SIDE_MAX`].
    #[error("the grid is {h} x {w}; a side has at most {SIDE_MAX} cells")]
    Side {
        /// Rows.
        h: usize,
        /// Columns.
        w: usize,
    },
    /// It has more cells than [`GRID_CELLS_MAX`].
    #[error("the grid is {h} x {w} = {} cells; at most {GRID_CELLS_MAX} are allowed", h * w)]
    TooLarge {
        /// Rows.
        h: usize,
        /// Columns.
        w: usize,
    },
    /// A cell is not a colour.
    #[error("row {row}, column {col}: {value} is not a colour from 0 to {COLOR_MAX}")]
    Cell {
        /// Row of the first such cell.
        row: usize,
        /// Its column.
        col: usize,
        /// Its value.
        value: u8,
    },
    /// The number of cells is not rows times columns.
    #[error("{cells} cells do not make a grid of {h} x {w}")]
    Length {
        /// Rows.
        h: usize,
        /// Columns.
        w: usize,
        /// Cells given.
        cells: usize,
    },
}

impl Grid {
    /// A grid of `h` rows and `w` columns from row-major cells.
    ///
    /// # Errors
    /// [`GridError`] if the shape is out of bounds or does not fit the cells, or if a cell is not a colour.
    pub fn new(h: usize, w: usize, cells: Vec<u8>) -> Result<Self, GridError> {
        if h == 0 || w == 0 {
            return Err(GridError::Empty);
        }
        let (Ok(rows), Ok(columns)) = (u8::try_from(h), u8::try_from(w)) else {
            return Err(GridError::Side { h, w });
        };
        if h * w > GRID_CELLS_MAX {
            return Err(GridError::TooLarge { h, w });
        }
        if cells.len() != h * w {
            return Err(GridError::Length { h, w, cells: cells.len() });
        }
        if let Some(at) = cells.iter().position(|&cell| cell > COLOR_MAX) {
            return Err(GridError::Cell { row: at / w, col: at % w, value: cells[at] });
        }
        Ok(Self { h: rows, w: columns, cells })
    }

    /// The grid without cells.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Whether it has no cells.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// A grid from its rows.
    ///
    /// # Errors
    /// As [`Grid::new`], and [`GridError::Ragged`] if the rows differ in length.
    pub fn from_rows<R: AsRef<[u8]>>(rows: &[R]) -> Result<Self, GridError> {
        let want = rows.first().map_or(0, |row| row.as_ref().len());
        for (row, cells) in rows.iter().enumerate() {
            let got = cells.as_ref().len();
            if got != want {
                return Err(GridError::Ragged { row, got, want });
            }
        }
        let cells = rows.iter().flat_map(|row| row.as_ref()).copied().collect();
        Self::new(rows.len(), want, cells)
    }

    /// Rows.
    #[must_use]
    pub fn h(&self) -> usize {
        usize::from(self.h)
    }

    /// Columns.
    #[must_use]
    pub fn w(&self) -> usize {
        usize::from(self.w)
    }

    /// `(h, w)` as a batch writes it.
    pub(crate) fn shape(&self) -> [u8; 2] {
        [self.h, self.w]
    }

    /// Makes a grid from parts that are known to be valid.
    pub(crate) fn of_shape([h, w]: [u8; 2], cells: Vec<u8>) -> Self {
        Self { h, w, cells }
    }

    /// The cells, row-major.
    #[must_use]
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// The rows, top to bottom.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.h()).map(|row| &self.cells[row * self.w()..(row + 1) * self.w()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_out_of_bounds_are_refused_with_the_place() {
        let text = |error: GridError| error.to_string();
        assert_eq!(
            text(Grid::from_rows(&[vec![1, 2], vec![3]]).unwrap_err()),
            "row 1 has 1 cells, row 0 has 2"
        );
        assert_eq!(
            text(Grid::from_rows(&[[0, 0], [0, 10]]).unwrap_err()),
            "row 1, column 1: 10 is not a colour from 0 to 9"
        );
        assert_eq!(Grid::from_rows::<[u8; 0]>(&[]).unwrap_err(), GridError::Empty);
        assert_eq!(Grid::from_rows(&[[], []] as &[[u8; 0]]).unwrap_err(), GridError::Empty);
        assert!(matches!(Grid::new(1, 256, vec![0; 256]), Err(GridError::Side { .. })));
        assert!(matches!(Grid::new(255, 17, vec![0; 4_335]), Err(GridError::TooLarge { .. })));
        assert!(Grid::new(64, 64, vec![9; 4_096]).is_ok());
        assert_eq!(Grid::empty().rows().len(), 0);
        assert_eq!(Grid::of_shape([2, 0], vec![]).rows().collect::<Vec<_>>(), [[0; 0]; 2]);
    }
}
