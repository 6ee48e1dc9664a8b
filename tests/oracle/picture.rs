//! A grid as a set of cells, and the ops that move or recolour every cell by itself.

use std::collections::BTreeSet;

use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::Symmetry;

/// `(row, column, colour)`; the order of a set of cells is row-major.
pub type Cell = (usize, usize, u8);

/// The cells of a grid, exactly one at each place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    cells: BTreeSet<Cell>,
}

impl Picture {
    /// The cells of `grid`.
    #[must_use]
    pub fn of(grid: &Grid) -> Self {
        let rows = grid.rows().enumerate();
        let cells = rows.flat_map(|(r, row)| row.iter().enumerate().map(move |(c, &v)| (r, c, v)));
        Self { cells: cells.collect() }
    }

    /// The grid with these cells.
    ///
    /// # Panics
    /// If the cells do not fill a rectangle; no op of this module makes such a picture.
    #[must_use]
    pub fn to_grid(&self) -> Grid {
        let cells = self.colors().collect();
        Grid::new(self.h(), self.w(), cells).expect("the cells fill a rectangle")
    }

    /// The cells, row-major.
    #[must_use]
    pub fn cells(&self) -> &BTreeSet<Cell> {
        &self.cells
    }

    /// The colour of every cell, row-major.
    pub fn colors(&self) -> impl Iterator<Item = u8> {
        self.cells.iter().map(|&(_, _, color)| color)
    }

    /// Every cell stays where it is and takes the colour that `recolor` gives for its own.
    #[must_use]
    pub fn recolored(&self, recolor: impl Fn(u8) -> u8) -> Self {
        Self { cells: self.cells.iter().map(|&(r, c, v)| (r, c, recolor(v))).collect() }
    }

    /// Every cell keeps its colour and goes where `symmetry` sends it.
    #[must_use]
    pub fn moved(&self, symmetry: Symmetry) -> Self {
        let (bottom, right) = (self.h() - 1, self.w() - 1);
        let up = |r: usize| bottom - r;
        let left = |c: usize| right - c;
        let target = |r: usize, c: usize| match symmetry {
            Symmetry::Identity => (r, c),
            // Rows stay rows.
            Symmetry::Hmirror => (up(r), c),
            Symmetry::Vmirror => (r, left(c)),
            Symmetry::Rot180 => (up(r), left(c)),
            // Rows become columns. Clockwise, the top row becomes the right column.
            Symmetry::Dmirror => (c, r),
            Symmetry::Rot90 => (c, up(r)),
            Symmetry::Rot270 => (left(c), r),
            Symmetry::Cmirror => (left(c), up(r)),
        };
        let cells = self.cells.iter().map(|&(r, c, v)| (target(r, c).0, target(r, c).1, v));
        Self { cells: cells.collect() }
    }

    fn h(&self) -> usize {
        1 + self.cells.iter().map(|&(row, _, _)| row).max().expect("a grid has a cell")
    }

    fn w(&self) -> usize {
        1 + self.cells.iter().map(|&(_, col, _)| col).max().expect("a grid has a cell")
    }
}
