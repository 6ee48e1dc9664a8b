//! Ops that make a picture larger, and the one that makes a grid of nothing.
//!
//! Mirrors `kernels/cuda/scale.cuh`.

use super::picture::{Made, Picture, Pictures};

/// Every place of a grid or an object, hole or cell, `factor` times in both directions. The origin
/// stays.
///
/// # Errors
/// `Overflow`.
pub fn upscale(picture: Picture<'_>, factor: u8, to: &mut Pictures) -> Made {
    repeat(picture, [factor, factor], to)
}

/// Every column `factor` times.
///
/// # Errors
/// `Overflow`.
pub fn hupscale(grid: Picture<'_>, factor: u8, to: &mut Pictures) -> Made {
    repeat(grid, [1, factor], to)
}

/// Every row `factor` times.
///
/// # Errors
/// `Overflow`.
pub fn vupscale(grid: Picture<'_>, factor: u8, to: &mut Pictures) -> Made {
    repeat(grid, [factor, 1], to)
}

fn repeat(picture: Picture<'_>, times: [u8; 2], to: &mut Pictures) -> Made {
    let [down, right] = times.map(usize::from);
    let size = [picture.h() * down, picture.w() * right];
    to.push_by_place(size, picture.origin, |i, j| picture.at(i / down, j / right))
}

/// A grid of one colour.
///
/// # Errors
/// `Overflow`; never for a program that compiles.
pub fn canvas(color: u8, size: [u8; 2], to: &mut Pictures) -> Made {
    to.push_by_place(size.map(usize::from), [0, 0], |_, _| color)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::output::ItemErrorCode;

    use super::super::drawing::{drawing, grid, made};
    use super::*;

    #[test]
    fn cells_repeat_in_the_directions_asked_for() {
        let two = grid(&["12"]);
        let both = made(|to| upscale(two.picture(), 2, to)).unwrap();
        assert_eq!(both, grid(&["1122", "1122"]));
        assert_eq!(made(|to| hupscale(two.picture(), 3, to)), Ok(grid(&["111222"])));
        assert_eq!(made(|to| vupscale(two.picture(), 2, to)), Ok(grid(&["12", "12"])));
        assert_eq!(made(|to| upscale(two.picture(), 1, to)), Ok(two));
    }

    #[test]
    fn holes_grow_too_and_the_origin_stays() {
        let object = drawing([-2, 5], &["3.", ".4"]);
        let got = made(|to| upscale(object.picture(), 2, to)).unwrap();
        assert_eq!(got, drawing([-2, 5], &["33..", "33..", "..44", "..44"]));
        assert_eq!(made(|to| upscale(grid(&[]).picture(), 30, to)), Ok(grid(&[])));
    }

    #[test]
    fn a_grid_that_grows_too_large_overflows() {
        let wide = grid(&["123456789"]);
        assert_eq!(made(|to| hupscale(wide.picture(), 29, to)), Err(ItemErrorCode::Overflow));
        assert!(made(|to| hupscale(wide.picture(), 28, to)).is_ok());
        assert_eq!(made(|to| upscale(wide.picture(), 22, to)), Err(ItemErrorCode::Overflow));
        assert!(made(|to| upscale(wide.picture(), 21, to)).is_ok());
    }

    #[test]
    fn a_canvas_is_height_by_width() {
        assert_eq!(made(|to| canvas(4, [2, 3], to)), Ok(grid(&["444", "444"])));
    }
}
