//! Ops that draw an object or a patch on its ground, in place.
//!
//! Cells off the ground are ignored. Ops with `under` change only cells where the ground had its commonest
//! colour before anything was drawn.
//!
//! Mirrors `kernels/cuda/paint.cuh`.

use gridpool_protocol::program::Ties;

use super::patch;
use super::picture::{GridMut, HOLE, Picture};
use super::ties;

/// One colour at every cell of the piece.
pub fn fill(ground: &mut GridMut<'_>, piece: Picture<'_>, color: u8) {
    draw(ground, piece, |cell, _| *cell = color);
}

/// One colour at every cell of the piece where the ground has its commonest colour.
pub fn underfill(ground: &mut GridMut<'_>, piece: Picture<'_>, color: u8, ties: Ties) {
    let background = ties::background(ground.cells, ties);
    draw(ground, piece, |cell, _| {
        if *cell == background {
            *cell = color;
        }
    });
}

/// The ground's commonest colour at every cell of the piece.
pub fn cover(ground: &mut GridMut<'_>, piece: Picture<'_>, ties: Ties) {
    let background = ties::background(ground.cells, ties);
    fill(ground, piece, background);
}

/// The object's colours.
pub fn paint(ground: &mut GridMut<'_>, object: Picture<'_>) {
    draw(ground, object, |cell, color| *cell = color);
}

/// The object's colours where the ground has its commonest colour.
pub fn underpaint(ground: &mut GridMut<'_>, object: Picture<'_>, ties: Ties) {
    let background = ties::background(ground.cells, ties);
    draw(ground, object, |cell, color| {
        if *cell == background {
            *cell = color;
        }
    });
}

/// The object moved by `(rows, cols)`: its old cells are covered, then it is painted at its new place.
pub fn move_by(ground: &mut GridMut<'_>, object: Picture<'_>, [rows, cols]: [i16; 2], ties: Ties) {
    cover(ground, object, ties);
    paint(ground, Picture { origin: patch::shift(object.origin, rows, cols), ..object });
}

/// Calls `change` for each cell of the ground that the piece covers, with the piece's colour there.
fn draw(ground: &mut GridMut<'_>, piece: Picture<'_>, change: impl Fn(&mut u8, u8)) {
    let [top, left] = piece.origin.map(i32::from);
    for (row, colors) in (top..).zip(piece.rows()) {
        for (col, &color) in (left..).zip(colors) {
            if color != HOLE
                && let Some(cell) = ground.get_mut(row, col)
            {
                change(cell, color);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::drawing::{Drawing, drawing, grid};
    use super::*;

    const GROUND: &[&str] = &["0010", "0200", "3000"];

    fn drawn(op: impl FnOnce(&mut GridMut<'_>)) -> Drawing {
        let mut ground = grid(GROUND);
        op(&mut GridMut { shape: ground.shape, cells: &mut ground.cells });
        ground
    }

    fn piece() -> Drawing {
        drawing([0, 1], &["4.", "5.", ".6"])
    }

    #[test]
    fn fill_and_paint_go_over_everything() {
        let filled = drawn(|ground| fill(ground, piece().picture(), 9));
        assert_eq!(filled, grid(&["0910", "0900", "3090"]));
        let painted = drawn(|ground| paint(ground, piece().picture()));
        assert_eq!(painted, grid(&["0410", "0500", "3060"]));
    }

    #[test]
    fn under_ops_change_only_the_background() {
        let filled = drawn(|ground| underfill(ground, piece().picture(), 9, Ties::Cpython));
        assert_eq!(filled, grid(&["0910", "0200", "3090"]));
        let painted = drawn(|ground| underpaint(ground, piece().picture(), Ties::Cpython));
        assert_eq!(painted, grid(&["0410", "0200", "3060"]));
    }

    #[test]
    fn cells_off_the_ground_are_ignored() {
        let around = drawing([-1, 2], &["888", "8.8", "888"]);
        let filled = drawn(|ground| fill(ground, around.picture(), 8));
        assert_eq!(filled, grid(&["0080", "0288", "3000"]));
        let far = drawing([300, -300], &["8"]);
        assert_eq!(drawn(|ground| fill(ground, far.picture(), 8)), grid(GROUND));
    }

    #[test]
    fn the_background_is_the_commonest_colour_in_the_order_of_the_ties() {
        let of = |ties| {
            let mut ground = grid(&["80"]);
            let mut target = GridMut { shape: ground.shape, cells: &mut ground.cells };
            cover(&mut target, drawing([0, 0], &["00"]).picture(), ties);
            ground
        };
        assert_eq!(of(Ties::Cpython), grid(&["88"]));
        assert_eq!(of(Ties::Lowest), grid(&["00"]));
        let covered = drawn(|ground| cover(ground, piece().picture(), Ties::Cpython));
        assert_eq!(covered, grid(&["0010", "0000", "3000"]));
    }

    #[test]
    fn a_moved_object_wins_over_its_own_trace() {
        let object = drawing([1, 1], &["2"]);
        let moved = |by| drawn(|ground| move_by(ground, object.picture(), by, Ties::Cpython));
        assert_eq!(moved([-1, 1]), grid(&["0020", "0000", "3000"]));
        assert_eq!(moved([0, 0]), grid(GROUND));
        assert_eq!(moved([5, 0]), grid(&["0010", "0000", "3000"]));
        let long = drawing([0, 2], &["16"]);
        let moved = drawn(|ground| move_by(ground, long.picture(), [0, -1], Ties::Cpython));
        assert_eq!(moved, grid(&["0160", "0200", "3000"]));
    }

    #[test]
    fn an_empty_piece_changes_nothing() {
        let nothing = drawing([0, 0], &[]);
        let ties = Ties::Cpython;
        assert_eq!(drawn(|ground| fill(ground, nothing.picture(), 9)), grid(GROUND));
        assert_eq!(drawn(|ground| cover(ground, nothing.picture(), ties)), grid(GROUND));
        assert_eq!(drawn(|g| move_by(g, nothing.picture(), [1, 1], ties)), grid(GROUND));
    }
}
