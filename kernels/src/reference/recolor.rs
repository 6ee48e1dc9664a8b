//! Ops that give every cell a new colour by its old one, in place.
//!
//! Mirrors `kernels/cuda/recolor.cuh`.

/// Every cell of colour `old` becomes `new`.
pub fn replace(cells: &mut [u8], old: u8, new: u8) {
    for cell in cells {
        *cell = if *cell == old { new } else { *cell };
    }
}

/// Colours `a` and `b` change places.
pub fn switch(cells: &mut [u8], a: u8, b: u8) {
    for cell in cells {
        *cell = match *cell {
            color if color == a => b,
            color if color == b => a,
            color => color,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut cells = vec![0, 1, 2, 1, 9];
        change(&mut cells);
        cells
    }

    #[test]
    fn replace_moves_one_colour_and_switch_two() {
        assert_eq!(changed(|cells| replace(cells, 1, 2)), [0, 2, 2, 2, 9]);
        assert_eq!(changed(|cells| switch(cells, 1, 2)), [0, 2, 1, 2, 9]);
        assert_eq!(changed(|cells| switch(cells, 9, 0)), [9, 1, 2, 1, 0]);
    }

    #[test]
    fn a_colour_changed_for_itself_stays() {
        assert_eq!(changed(|cells| replace(cells, 1, 1)), [0, 1, 2, 1, 9]);
        assert_eq!(changed(|cells| switch(cells, 1, 1)), [0, 1, 2, 1, 9]);
    }
}
