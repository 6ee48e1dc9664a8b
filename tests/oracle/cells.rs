//! Grids, objects and patches, all three as plain sets of coloured cells.

use litemap::LiteMap;

use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::Symmetry;

/// `(row, column)`.
pub type Place = (i32, i32);

/// A colour for each of some places, row-major. A grid fills a rectangle from (0, 0) on. An object lies
/// anywhere and may have holes. A patch is an object of colour 0.
pub type Cells = LiteMap<Place, u8>;

/// The first and last row and column of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first row.
    pub top: i32,
    /// The last row.
    pub bottom: i32,
    /// The first column.
    pub left: i32,
    /// The last column.
    pub right: i32,
}

impl Bounds {
    /// The box of `cells`, unless there are none.
    #[must_use]
    pub fn of(cells: &Cells) -> Option<Self> {
        let (&(top, left), _) = cells.first()?;
        let (&(bottom, _), _) = cells.last()?;
        let mut bounds = Self { top, bottom, left, right: left };
        for &(_, col) in cells.keys() {
            bounds.left = bounds.left.min(col);
            bounds.right = bounds.right.max(col);
        }
        Some(bounds)
    }

    /// Rows.
    #[must_use]
    pub fn h(self) -> i32 {
        self.bottom - self.top + 1
    }

    /// Columns.
    #[must_use]
    pub fn w(self) -> i32 {
        self.right - self.left + 1
    }

    /// Every place of the box.
    pub fn places(self) -> impl Iterator<Item = Place> {
        let cols = move |row| (self.left..=self.right).map(move |col| (row, col));
        (self.top..=self.bottom).flat_map(cols)
    }
}

/// Rows and columns; (0, 0) if there are no cells.
#[must_use]
pub fn shape(cells: &Cells) -> (i32, i32) {
    Bounds::of(cells).map_or((0, 0), |bounds| (bounds.h(), bounds.w()))
}

/// The cells of `grid`.
#[must_use]
pub fn of_grid(grid: &Grid) -> Cells {
    let rows = (0..).zip(grid.rows());
    rows.flat_map(|(row, line)| (0..).zip(line).map(move |(col, &v)| ((row, col), v))).collect()
}

/// The grid with these cells.
///
/// # Panics
/// If they do not fill a rectangle from (0, 0) on, or fill one that is too large for a grid.
#[must_use]
pub fn to_grid(cells: &Cells) -> Grid {
    if cells.is_empty() {
        return Grid::empty();
    }
    let (h, w) = shape(cells);
    let places = Bounds { top: 0, bottom: h - 1, left: 0, right: w - 1 }.places();
    assert!(
        places.eq(cells.keys().copied()),
        "the cells of a grid fill a rectangle from (0, 0) on"
    );
    let side = |n: i32| usize::try_from(n).expect("a side is not negative");
    Grid::new(side(h), side(w), cells.values().copied().collect()).expect("it is within the limits")
}

/// Every cell keeps its colour and goes where `target` sends it.
#[must_use]
pub fn moved(cells: &Cells, target: impl Fn(Place) -> Place) -> Cells {
    cells.iter().map(|(&place, &color)| (target(place), color)).collect()
}

/// Moves every cell down and to the right by the given distances.
#[must_use]
pub fn shifted(cells: &Cells, (down, right): Place) -> Cells {
    moved(cells, |(row, col)| (row + down, col + right))
}

/// Every cell stays and takes the colour that `recolor` gives for its own.
#[must_use]
pub fn recolored(cells: &Cells, recolor: impl Fn(u8) -> u8) -> Cells {
    cells.iter().map(|(&place, &color)| (place, recolor(color))).collect()
}

/// The cells whose places `keep` accepts.
#[must_use]
pub fn only(cells: &Cells, keep: impl Fn(Place) -> bool) -> Cells {
    cells.iter().filter(|&(&place, _)| keep(place)).map(|(&place, &color)| (place, color)).collect()
}

/// These places in colour 0.
#[must_use]
pub fn patch(places: impl IntoIterator<Item = Place>) -> Cells {
    places.into_iter().map(|place| (place, 0)).collect()
}

/// The cells under a symmetry of their box, whose upper left corner stays where it is.
#[must_use]
pub fn turned(cells: &Cells, symmetry: Symmetry) -> Cells {
    let Some(Bounds { top, bottom, left, right }) = Bounds::of(cells) else {
        return Cells::new();
    };
    moved(cells, |(row, col)| {
        // The distances from the sides of the box.
        let (from_top, from_bottom) = (row - top, bottom - row);
        let (from_left, from_right) = (col - left, right - col);
        let (down, along) = match symmetry {
            Symmetry::Identity => (from_top, from_left),
            // Rows stay rows.
            Symmetry::Hmirror => (from_bottom, from_left),
            Symmetry::Vmirror => (from_top, from_right),
            Symmetry::Rot180 => (from_bottom, from_right),
            // Rows become columns. Clockwise, the top row becomes the right column.
            Symmetry::Dmirror => (from_left, from_top),
            Symmetry::Rot90 => (from_left, from_bottom),
            Symmetry::Rot270 => (from_right, from_top),
            Symmetry::Cmirror => (from_right, from_bottom),
        };
        (top + down, left + along)
    })
}
