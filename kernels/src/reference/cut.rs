//! Ops that give a part of a grid.
//!
//! Windows are Python slices: cells beyond the grid's end are left out, so a window may be smaller than
//! asked for, and empty.
//!
//! Mirrors `kernels/cuda/cut.cuh`.

use std::ops::Range;

use gridpool_protocol::limits::SIDE_MAX;
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Half;

use super::picture::{Made, Picture, Pictures};

/// The window of `height` rows and `width` columns whose upper left corner is `(row, col)`.
///
/// # Errors
/// None: a window is no larger than its grid.
pub fn crop(grid: Picture<'_>, corner: [usize; 2], size: [usize; 2], to: &mut Pictures) -> Made {
    let rows = slice(corner[0], size[0], grid.h());
    let cols = slice(corner[1], size[1], grid.w());
    let size = [rows.len(), cols.len()];
    to.push_rows(size, rows.map(|i| &grid.row(i)[cols.clone()]))
}

/// The indices from `start` to `start + length` that are below `end`.
fn slice(start: usize, length: usize, end: usize) -> Range<usize> {
    start.min(end)..(start + length).min(end)
}

/// Half of the rows or columns; of an odd number the middle one is in neither half.
///
/// # Errors
/// None.
pub fn half(grid: Picture<'_>, half: Half, to: &mut Pictures) -> Made {
    let (h, w) = (grid.h(), grid.w());
    match half {
        Half::Top => crop(grid, [0, 0], [h / 2, w], to),
        Half::Bottom => crop(grid, [h.div_ceil(2), 0], [h / 2, w], to),
        Half::Left => crop(grid, [0, 0], [h, w / 2], to),
        Half::Right => crop(grid, [0, w.div_ceil(2)], [h, w / 2], to),
    }
}

/// The grid without its border; empty if it has no other cells.
///
/// # Errors
/// None.
pub fn trim(grid: Picture<'_>, to: &mut Pictures) -> Made {
    crop(grid, [1, 1], [grid.h().saturating_sub(2), grid.w().saturating_sub(2)], to)
}

/// The grid without the rows and columns that have only one colour in the original.
///
/// # Errors
/// None.
pub fn compress(grid: Picture<'_>, to: &mut Pictures) -> Made {
    let row_stays = |&i: &usize| grid.row(i).iter().any(|&cell| cell != grid.at(i, 0));
    let col_stays = |&j: &usize| grid.rows().any(|row| row[j] != grid.at(0, j));
    let (mut kept_cols, mut w) = ([0; SIDE_MAX], 0);
    for j in (0..grid.w()).filter(col_stays) {
        kept_cols[w] = j;
        w += 1;
    }
    let rows = (0..grid.h()).filter(row_stays);
    let cells = |i| kept_cols[..w].iter().map(move |&j| &grid.row(i)[j..=j]);
    to.push_rows([rows.clone().count(), w], rows.flat_map(cells))
}

/// Every `factor`th row and column, from the first.
///
/// # Errors
/// None.
pub fn downscale(grid: Picture<'_>, factor: u8, to: &mut Pictures) -> Made {
    let step = usize::from(factor);
    let size = [grid.h().div_ceil(step), grid.w().div_ceil(step)];
    to.push_by_place(size, [0, 0], |i, j| grid.at(i * step, j * step))
}

/// The ground's window over the box of an object or a patch.
///
/// # Errors
/// [`ItemErrorCode::EmptyArg`] if `piece` is empty, [`ItemErrorCode::BadCrop`] if its corner has a
/// negative coordinate.
pub fn subgrid(ground: Picture<'_>, piece: Picture<'_>, to: &mut Pictures) -> Made {
    if piece.is_empty() {
        return Err(ItemErrorCode::EmptyArg);
    }
    let [Ok(row), Ok(col)] = piece.origin.map(usize::try_from) else {
        return Err(ItemErrorCode::BadCrop);
    };
    crop(ground, [row, col], [piece.h(), piece.w()], to)
}

/// Part `k` of `parts` from left to right. If the columns do not divide evenly, one is left out between two
/// parts, and the last may be cut or empty.
///
/// # Errors
/// None.
pub fn hsplit(grid: Picture<'_>, parts: u8, k: usize, to: &mut Pictures) -> Made {
    let (start, w) = part(grid.w(), parts, k);
    crop(grid, [0, start], [grid.h(), w], to)
}

/// Part `k` of `parts` from top to bottom; see [`hsplit`].
///
/// # Errors
/// None.
pub fn vsplit(grid: Picture<'_>, parts: u8, k: usize, to: &mut Pictures) -> Made {
    let (start, h) = part(grid.h(), parts, k);
    crop(grid, [start, 0], [h, grid.w()], to)
}

/// Where part `k` of `parts` starts on a side, and how long it is.
fn part(side: usize, parts: u8, k: usize) -> (usize, usize) {
    let parts = usize::from(parts);
    let length = side / parts;
    let skipped = usize::from(!side.is_multiple_of(parts));
    (k * (length + skipped), length)
}

#[cfg(test)]
mod tests {
    use super::super::drawing::{drawing, grid, made};
    use super::*;

    const ROWS: &[&str] = &["123", "456", "789"];

    #[test]
    fn crop_is_clipped_at_the_end() {
        let nine = grid(ROWS);
        let window = |corner, size| made(|to| crop(nine.picture(), corner, size, to)).unwrap();
        assert_eq!(window([0, 1], [2, 2]), grid(&["23", "56"]));
        assert_eq!(window([1, 1], [9, 1]), grid(&["5", "8"]));
        assert_eq!(window([3, 0], [1, 1]), grid(&[]));
        assert_eq!(window([0, 255], [255, 255]), grid(&[]));
        assert_eq!(window([1, 1], [2, 0]), grid(&[]));
    }

    #[test]
    fn halves_drop_an_odd_middle_line() {
        let nine = grid(ROWS);
        let of = |which| made(|to| half(nine.picture(), which, to)).unwrap();
        assert_eq!(of(Half::Top), grid(&["123"]));
        assert_eq!(of(Half::Bottom), grid(&["789"]));
        assert_eq!(of(Half::Left), grid(&["1", "4", "7"]));
        assert_eq!(of(Half::Right), grid(&["3", "6", "9"]));
        let even = grid(&["12", "34"]);
        assert_eq!(made(|to| half(even.picture(), Half::Bottom, to)), Ok(grid(&["34"])));
        assert_eq!(made(|to| half(even.picture(), Half::Right, to)), Ok(grid(&["2", "4"])));
        let row = grid(&["12"]);
        assert_eq!(made(|to| half(row.picture(), Half::Top, to)), Ok(grid(&[])));
    }

    #[test]
    fn trim_takes_the_border_off() {
        assert_eq!(made(|to| trim(grid(ROWS).picture(), to)), Ok(grid(&["5"])));
        for small in [&["1"][..], &["12", "34"], &["1234"], &["1", "2", "3"]] {
            assert_eq!(made(|to| trim(grid(small).picture(), to)), Ok(grid(&[])), "{small:?}");
        }
    }

    #[test]
    fn compress_checks_lines_of_the_original() {
        let of = |rows: &[&str]| made(|to| compress(grid(rows).picture(), to)).unwrap();
        assert_eq!(of(&["101", "000", "202"]), grid(&["11", "22"]));
        // Without row 0, column 1 would have one colour; it stays.
        assert_eq!(of(&["555", "121", "523"]), grid(&["121", "523"]));
        assert_eq!(of(&["444"]), grid(&[]));
        assert_eq!(of(&["1", "2"]), grid(&[]));
        assert_eq!(of(&["12", "21"]), grid(&["12", "21"]));
    }

    #[test]
    fn downscale_starts_with_the_first() {
        let of = |factor| made(|to| downscale(grid(ROWS).picture(), factor, to)).unwrap();
        assert_eq!(of(1), grid(ROWS));
        assert_eq!(of(2), grid(&["13", "79"]));
        assert_eq!(of(3), grid(&["1"]));
        assert_eq!(of(255), grid(&["1"]));
    }

    #[test]
    fn subgrid_shows_the_ground_and_not_the_piece() {
        let nine = grid(ROWS);
        let of = |origin, rows: &[&str]| {
            made(|to| subgrid(nine.picture(), drawing(origin, rows).picture(), to))
        };
        assert_eq!(of([0, 1], &["0.", ".0"]), Ok(grid(&["23", "56"])));
        assert_eq!(of([2, 2], &["000", "000"]), Ok(grid(&["9"])));
        assert_eq!(of([3, 0], &["0"]), Ok(grid(&[])));
        assert_eq!(of([-1, 0], &["0"]), Err(ItemErrorCode::BadCrop));
        assert_eq!(of([0, -1], &["000"]), Err(ItemErrorCode::BadCrop));
        assert_eq!(of([0, 0], &[]), Err(ItemErrorCode::EmptyArg));
    }

    #[test]
    fn splits_leave_one_line_out_where_they_do_not_divide_evenly() {
        let seven = grid(&["1234567"]);
        let part = |k| made(|to| hsplit(seven.picture(), 3, k, to)).unwrap();
        assert_eq!([part(0), part(1), part(2)], [grid(&["12"]), grid(&["45"]), grid(&["7"])]);
        let column = grid(&["1", "2", "3", "4"]);
        let part = |k| made(|to| vsplit(column.picture(), 2, k, to)).unwrap();
        assert_eq!([part(0), part(1)], [grid(&["1", "2"]), grid(&["3", "4"])]);
        let part = |k| made(|to| vsplit(column.picture(), 5, k, to)).unwrap();
        assert_eq!([part(0), part(4)], [grid(&[]), grid(&[])]);
    }
}
