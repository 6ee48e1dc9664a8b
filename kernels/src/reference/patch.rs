//! Ops that make objects and patches of grids, and of each other.
//!
//! Both are called pieces here. Ops that keep the box work in place; the others push.
//!
//! Mirrors `kernels/cuda/patch.cuh`.

use super::picture::{HOLE, Made, Origin, Picture, Pictures};

/// The patch of a grid's cells of one colour; it may be empty.
///
/// # Errors
/// None.
pub fn ofcolor(grid: Picture<'_>, color: u8, to: &mut Pictures) -> Made {
    let size = [grid.h(), grid.w()];
    to.push_by_place(size, [0, 0], |i, j| if grid.at(i, j) == color { 0 } else { HOLE })?;
    to.tighten_last();
    Ok(())
}

/// The patch of all places of a grid.
///
/// # Errors
/// None.
pub fn asindices(grid: Picture<'_>, to: &mut Pictures) -> Made {
    to.push_by_place([grid.h(), grid.w()], [0, 0], |_, _| 0)
}

/// The object of all cells of a grid.
///
/// # Errors
/// None.
pub fn asobject(grid: Picture<'_>, to: &mut Pictures) -> Made {
    to.push_rows([grid.h(), grid.w()], [grid.cells])
}

/// Turns a piece into the patch of its places.
pub fn toindices(piece: &mut [u8]) {
    recolor(piece, 0);
}

/// The object of the ground's cells at the places of a piece. Places off the ground are left out.
///
/// # Errors
/// None.
pub fn toobject(ground: Picture<'_>, piece: Picture<'_>, to: &mut Pictures) -> Made {
    let [top, left] = piece.origin.map(isize::from);
    let on_ground = |i: usize, j: usize| {
        let row = top.checked_add_unsigned(i).and_then(|row| usize::try_from(row).ok())?;
        let col = left.checked_add_unsigned(j).and_then(|col| usize::try_from(col).ok())?;
        (row < ground.h() && col < ground.w()).then(|| ground.at(row, col))
    };
    to.push_by_place([piece.h(), piece.w()], piece.origin, |i, j| match piece.at(i, j) {
        HOLE => HOLE,
        _ => on_ground(i, j).unwrap_or(HOLE),
    })?;
    if !piece.is_empty() {
        to.tighten_last();
    }
    Ok(())
}

/// Turns a piece into the object of its places in one colour.
pub fn recolor(piece: &mut [u8], color: u8) {
    for cell in piece {
        *cell = if *cell == HOLE { HOLE } else { color };
    }
}

/// The new origin of a piece after a move.
#[must_use]
pub fn shift([row, col]: Origin, rows: i16, cols: i16) -> Origin {
    [row + rows, col + cols]
}

/// The origin of a piece that was moved to the upper left corner.
#[must_use]
pub fn normalize() -> Origin {
    [0, 0]
}

#[cfg(test)]
mod tests {
    use super::super::drawing::{drawing, grid, made};
    use super::*;

    #[test]
    fn ofcolor_is_tight_and_may_be_empty() {
        let ground = grid(&["0000", "0300", "0003"]);
        let of = |color| made(|to| ofcolor(ground.picture(), color, to)).unwrap();
        assert_eq!(of(3), drawing([1, 1], &["0..", "..0"]));
        assert_eq!(of(5), drawing([0, 0], &[]));
    }

    #[test]
    fn a_whole_grid_as_a_piece() {
        let ground = grid(&["12", "34"]);
        assert_eq!(made(|to| asobject(ground.picture(), to)), Ok(ground.clone()));
        assert_eq!(made(|to| asindices(ground.picture(), to)), Ok(grid(&["00", "00"])));
    }

    #[test]
    fn toobject_takes_the_colours_of_the_ground() {
        let ground = grid(&["12", "34"]);
        let of = |origin, rows: &[&str]| {
            made(|to| toobject(ground.picture(), drawing(origin, rows).picture(), to)).unwrap()
        };
        assert_eq!(of([0, 0], &["0.", ".0"]), drawing([0, 0], &["1.", ".4"]));
        // Two of three places lie off the ground.
        assert_eq!(of([-1, 0], &["0.", ".0"]), drawing([0, 1], &["2"]));
        assert_eq!(of([1, 1], &["99", "9."]), drawing([1, 1], &["4"]));
        assert_eq!(of([2, 2], &["0"]), drawing([0, 0], &[]));
        assert_eq!(of([0, 0], &[]), drawing([0, 0], &[]));
    }

    #[test]
    fn recolor_leaves_holes_holes() {
        let mut piece = drawing([0, 0], &["1.", ".2"]);
        recolor(&mut piece.cells, 8);
        assert_eq!(piece, drawing([0, 0], &["8.", ".8"]));
        toindices(&mut piece.cells);
        assert_eq!(piece, drawing([0, 0], &["0.", ".0"]));
    }

    #[test]
    fn shift_moves_the_origin_alone() {
        assert_eq!(shift([1, 2], -5, 255), [-4, 257]);
        assert_eq!(normalize(), [0, 0]);
    }
}
