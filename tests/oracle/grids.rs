//! Grids cut, scaled, split and joined.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Half;

use super::cells::{Bounds, Cells, Place, only, shape, shifted};

/// The most cells of a picture.
const CELLS_MAX: i32 = 4_096;
/// The longest side of a picture.
const SIDE_MAX: i32 = 255;

/// Checks the size of a picture.
///
/// # Errors
/// [`ItemErrorCode::Overflow`] if it is too large.
pub fn check_size(h: i32, w: i32) -> Result<(), ItemErrorCode> {
    let fits = h <= SIDE_MAX && w <= SIDE_MAX && h * w <= CELLS_MAX;
    fits.then_some(()).ok_or(ItemErrorCode::Overflow)
}

/// The cells in `size` (rows, columns) from `start` on; fewer, or none, if the grid ends before.
#[must_use]
pub fn crop(grid: &Cells, start: Place, size: (i32, i32)) -> Cells {
    let (top, left) = start;
    let rows = top..top + size.0;
    let cols = left..left + size.1;
    let inside = only(grid, |(row, col)| rows.contains(&row) && cols.contains(&col));
    shifted(&inside, (-top, -left))
}

/// Half of the grid, without the middle line of an odd number.
#[must_use]
pub fn half(grid: &Cells, half: Half) -> Cells {
    let (h, w) = shape(grid);
    match half {
        Half::Top => crop(grid, (0, 0), (h / 2, w)),
        Half::Bottom => crop(grid, (h - h / 2, 0), (h / 2, w)),
        Half::Left => crop(grid, (0, 0), (h, w / 2)),
        Half::Right => crop(grid, (0, w - w / 2), (h, w / 2)),
    }
}

/// The grid without its border.
#[must_use]
pub fn trim(grid: &Cells) -> Cells {
    let (h, w) = shape(grid);
    crop(grid, (1, 1), (h - 2, w - 2))
}

/// The grid without the rows and columns of one colour.
#[must_use]
pub fn compress(grid: &Cells) -> Cells {
    let (h, w) = shape(grid);
    let varies = |places: Vec<Place>| places.iter().any(|place| grid[place] != grid[&places[0]]);
    let row_varies = |&row: &i32| varies((0..w).map(|col| (row, col)).collect());
    let col_varies = |&col: &i32| varies((0..h).map(|row| (row, col)).collect());
    let rows: Vec<i32> = (0..h).filter(row_varies).collect();
    let cols: Vec<i32> = (0..w).filter(col_varies).collect();
    from_lines(grid, &rows, &cols)
}

/// The grid of these rows and columns of `grid`.
fn from_lines(grid: &Cells, rows: &[i32], cols: &[i32]) -> Cells {
    let rows = || (0..).zip(rows);
    let cols = || (0..).zip(cols);
    let line =
        |(to_row, &row)| cols().map(move |(to_col, &col)| ((to_row, to_col), grid[&(row, col)]));
    rows().flat_map(line).collect()
}

/// Every `factor`th row and column, from the first.
#[must_use]
pub fn downscale(grid: &Cells, factor: u8) -> Cells {
    let (h, w) = shape(grid);
    let every = |end: i32| (0..end).filter(|n| n % i32::from(factor) == 0).collect::<Vec<_>>();
    from_lines(grid, &every(h), &every(w))
}

/// Every cell becomes `down` x `right` cells; the upper left corner of the box stays.
///
/// # Errors
/// [`ItemErrorCode::Overflow`] if the result is too large.
pub fn upscale(cells: &Cells, down: u8, right: u8) -> Result<Cells, ItemErrorCode> {
    let Some(bounds) = Bounds::of(cells) else {
        return Ok(Cells::new());
    };
    let (down, right) = (i32::from(down), i32::from(right));
    check_size(bounds.h() * down, bounds.w() * right)?;
    let mut scaled = Cells::new();
    for (&(row, col), &color) in cells {
        let top = bounds.top + (row - bounds.top) * down;
        let left = bounds.left + (col - bounds.left) * right;
        let block = Bounds { top, bottom: top + down - 1, left, right: left + right - 1 };
        scaled.extend(block.places().map(|place| (place, color)));
    }
    Ok(scaled)
}

/// A grid of one colour.
#[must_use]
pub fn canvas(color: u8, h: u8, w: u8) -> Cells {
    let (bottom, right) = (i32::from(h) - 1, i32::from(w) - 1);
    Bounds { top: 0, bottom, left: 0, right }.places().map(|place| (place, color)).collect()
}

/// `parts` windows from left to right, of equal width. If columns are left over, one is skipped between parts,
/// and the grid may end within the last.
#[must_use]
pub fn hsplit(grid: &Cells, parts: u8) -> Vec<Cells> {
    let (h, w) = shape(grid);
    starts(w, parts).map(|(start, width)| crop(grid, (0, start), (h, width))).collect()
}

/// `parts` windows from top to bottom.
#[must_use]
pub fn vsplit(grid: &Cells, parts: u8) -> Vec<Cells> {
    let (h, w) = shape(grid);
    starts(h, parts).map(|(start, height)| crop(grid, (start, 0), (height, w))).collect()
}

/// First line and number of lines of each part.
fn starts(lines: i32, parts: u8) -> impl Iterator<Item = (i32, i32)> {
    let parts = i32::from(parts);
    let each = lines / parts;
    let skipped = i32::from(lines % parts != 0);
    (0..parts).map(move |part| (part * (each + skipped), each))
}

/// All grids side by side, as high as the lowest.
#[must_use]
pub fn hconcat(grids: &[Cells]) -> Cells {
    let height = grids.iter().map(|grid| shape(grid).0).min().unwrap_or(0);
    let mut joined = Cells::new();
    let mut left = 0;
    for grid in grids {
        let width = shape(grid).1;
        joined.extend(shifted(&crop(grid, (0, 0), (height, width)), (0, left)));
        left += width;
    }
    joined
}

/// All grids on top of each other.
///
/// # Errors
/// [`ItemErrorCode::BadShape`] if their widths differ.
pub fn vconcat(grids: &[Cells]) -> Result<Cells, ItemErrorCode> {
    let mut joined = Cells::new();
    let mut top = 0;
    for grid in grids {
        let (height, width) = shape(grid);
        if width != shape(&grids[0]).1 {
            return Err(ItemErrorCode::BadShape);
        }
        joined.extend(shifted(grid, (top, 0)));
        top += height;
    }
    Ok(joined)
}

/// The cells of `a` that are equal in `b`, and `fallback` for the others.
///
/// # Errors
/// [`ItemErrorCode::BadShape`] if `b` lacks a place of `a`.
pub fn cellwise(a: &Cells, b: &Cells, fallback: u8) -> Result<Cells, ItemErrorCode> {
    let cell = |(&place, &color)| {
        let other = b.get(&place).ok_or(ItemErrorCode::BadShape)?;
        Ok((place, if *other == color { color } else { fallback }))
    };
    a.iter().map(cell).collect()
}
