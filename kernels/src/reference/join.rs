//! Ops that make one grid of several.
//!
//! Mirrors `kernels/cuda/join.cuh`.

use gridpool_protocol::output::ItemErrorCode;

use super::picture::{Made, Picture, Pictures, Tuple};

/// One grid of a tuple, unchanged.
///
/// # Errors
/// None.
pub fn nth(grid: Picture<'_>, to: &mut Pictures) -> Made {
    to.push_rows([grid.h(), grid.w()], [grid.cells])
}

/// The grids side by side. Rows that are missing in any of them are left out, as `zip` does.
///
/// # Errors
/// `Overflow`.
pub fn hconcat(grids: Tuple<'_>, to: &mut Pictures) -> Made {
    let h = grids.clone().map(Picture::h).min().unwrap_or(0);
    let w = grids.clone().map(Picture::w).sum();
    to.push_rows([h, w], (0..h).flat_map(|i| grids.clone().map(move |grid| grid.row(i))))
}

/// The grids on top of each other.
///
/// # Errors
/// [`ItemErrorCode::BadShape`] if their widths differ; `Overflow`.
pub fn vconcat(grids: Tuple<'_>, to: &mut Pictures) -> Made {
    let w = grids.clone().next().map_or(0, Picture::w);
    if grids.clone().any(|grid| grid.w() != w) {
        return Err(ItemErrorCode::BadShape);
    }
    let h = grids.clone().map(Picture::h).sum();
    to.push_rows([h, w], grids.map(|grid| grid.cells))
}

/// The first of two grids, with `fallback` where the second has another colour.
///
/// # Errors
/// [`ItemErrorCode::BadShape`] if the second has fewer rows or columns than the first.
///
/// # Panics
/// If the tuple is not a pair.
pub fn cellwise(mut grids: Tuple<'_>, fallback: u8, to: &mut Pictures) -> Made {
    let (Some(a), Some(b), None) = (grids.next(), grids.next(), grids.next()) else {
        unreachable!("a program has it on pairs alone")
    };
    if b.h() < a.h() || b.w() < a.w() {
        return Err(ItemErrorCode::BadShape);
    }
    to.push_by_place([a.h(), a.w()], [0, 0], |i, j| {
        if a.at(i, j) == b.at(i, j) { a.at(i, j) } else { fallback }
    })
}

#[cfg(test)]
mod tests {
    use super::super::drawing::{Drawing, grid, made};
    use super::*;

    /// The result of `make` for a tuple of these grids.
    fn joined(
        grids: &[Drawing],
        make: impl Fn(Tuple<'_>, &mut Pictures) -> Made,
    ) -> Result<Drawing, ItemErrorCode> {
        let mut tuple = Pictures::default();
        grids.iter().for_each(|grid| nth(grid.picture(), &mut tuple).unwrap());
        made(|to| make(tuple.tuple(0, grids.len()), to))
    }

    #[test]
    fn hconcat_stops_at_the_least_height() {
        let of = |grids: &[Drawing]| joined(grids, hconcat);
        let grids = [grid(&["12", "34"]), grid(&["5", "6", "7"]), grid(&["8", "9"])];
        assert_eq!(of(&grids), Ok(grid(&["1258", "3469"])));
        assert_eq!(of(&[grid(&["12", "34"]), grid(&["5"])]), Ok(grid(&["125"])));
        let wide = grid(&["0".repeat(128).as_str()]);
        assert_eq!(of(&[wide.clone(), wide]), Err(ItemErrorCode::Overflow));
    }

    #[test]
    fn vconcat_wants_one_width() {
        let of = |grids: &[Drawing]| joined(grids, vconcat);
        assert_eq!(of(&[grid(&["12", "34"]), grid(&["56"])]), Ok(grid(&["12", "34", "56"])));
        assert_eq!(of(&[grid(&["12"]), grid(&["5"])]), Err(ItemErrorCode::BadShape));
        let high = grid(&["0"; 128]);
        assert_eq!(of(&[high.clone(), high]), Err(ItemErrorCode::Overflow));
    }

    #[test]
    fn cellwise_keeps_equal_cells() {
        let of = |a: &[&str], b: &[&str]| {
            joined(&[grid(a), grid(b)], |grids, to| cellwise(grids, 7, to))
        };
        assert_eq!(of(&["12", "34"], &["13", "34"]), Ok(grid(&["17", "34"])));
        assert_eq!(of(&["12"], &["120", "333"]), Ok(grid(&["12"])));
        assert_eq!(of(&["12"], &["1"]), Err(ItemErrorCode::BadShape));
        assert_eq!(of(&["1", "2"], &["12"]), Err(ItemErrorCode::BadShape));
    }

    #[test]
    fn nth_takes_a_grid_as_it_is() {
        for rows in [&["12", "34"][..], &[]] {
            assert_eq!(made(|to| nth(grid(rows).picture(), to)), Ok(grid(rows)));
        }
    }
}
