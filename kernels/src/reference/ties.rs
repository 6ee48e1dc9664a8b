//! The order of a picture's colours, and which of equally common ones wins. Holes of an object are not
//! colours.
//!
//! The DSL takes the first best in the order in which CPython iterates a set of small integers
//! (docs/src/design/ops.md, "Ties"). That order
//! follows from CPython's hash table. Up to four entries lie in eight slots: colour `c` in slot `c mod 8`; if
//! slot `i` is taken, the next try is `(5i + 1) mod 8`. The fifth entry moves all of them to 32 slots, one for
//! each colour, so they ascend.
//!
//! Mirrors the second half of `kernels/cuda/histogram.cuh`.

use gridpool_protocol::program::Ties;

use super::histogram::{COLORS, Histogram, distinct, histogram};
use super::picture::HOLE;

/// Entries that a CPython set holds before it leaves its first eight slots.
const SMALL_SET_MAX: u32 = 4;
const SMALL_SET_SLOTS: usize = 8;

/// Distinct colours in an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Palette {
    len: u8,
    colors: [u8; COLORS],
}

impl Palette {
    /// The colours, in order.
    #[must_use]
    pub fn colors(&self) -> &[u8] {
        &self.colors[..usize::from(self.len)]
    }

    fn push(&mut self, color: u8) {
        self.colors[usize::from(self.len)] = color;
        self.len += 1;
    }
}

impl FromIterator<u8> for Palette {
    /// # Panics
    /// If there are more than ten.
    fn from_iter<I: IntoIterator<Item = u8>>(colors: I) -> Self {
        let mut palette = Self::default();
        colors.into_iter().for_each(|color| palette.push(color));
        palette
    }
}

/// The distinct colours of a picture, in the order of `ties`.
#[must_use]
pub fn palette(cells: &[u8], ties: Ties) -> Palette {
    ordered(cells, &histogram(cells), ties)
}

/// The commonest colour; among equals the first in the order of `ties`. `None` if there is no cell.
#[must_use]
pub fn mostcolor(cells: &[u8], ties: Ties) -> Option<u8> {
    first_best(cells, ties, |count, best| count > best)
}

/// The commonest colour of a grid that is not empty: the DSL's background.
///
/// # Panics
/// If the grid is empty.
#[must_use]
pub fn background(cells: &[u8], ties: Ties) -> u8 {
    mostcolor(cells, ties).expect("a grid with a background has a cell")
}

/// The rarest colour that occurs; among equals the first in the order of `ties`. `None` if there is
/// no cell.
#[must_use]
pub fn leastcolor(cells: &[u8], ties: Ties) -> Option<u8> {
    first_best(cells, ties, |count, best| count < best)
}

fn first_best(cells: &[u8], ties: Ties, better: impl Fn(u32, u32) -> bool) -> Option<u8> {
    let counts = histogram(cells);
    let order = ordered(cells, &counts, ties);
    let count = |color: u8| counts[usize::from(color)];
    let colors = order.colors().iter().copied();
    colors.reduce(|best, color| if better(count(color), count(best)) { color } else { best })
}

fn ordered(cells: &[u8], counts: &Histogram, ties: Ties) -> Palette {
    let colors = distinct(counts);
    match ties {
        Ties::Cpython if colors <= SMALL_SET_MAX => small_set(first_appearances(cells, colors)),
        Ties::Cpython | Ties::Lowest => {
            (0..).zip(counts).filter(|&(_, &count)| count != 0).map(|(color, _)| color).collect()
        }
    }
}

/// The `colors` distinct colours of `cells`, by their first cell.
fn first_appearances(cells: &[u8], colors: u32) -> Palette {
    let mut seen = Palette::default();
    for &cell in cells {
        if seen.colors().contains(&cell) || cell == HOLE {
            continue;
        }
        seen.push(cell);
        if u32::from(seen.len) == colors {
            break;
        }
    }
    seen
}

/// The order in which CPython iterates a set that `arrivals` entered in this order.
fn small_set(arrivals: Palette) -> Palette {
    let mut slots = [None; SMALL_SET_SLOTS];
    for &color in arrivals.colors() {
        let mut slot = usize::from(color) % SMALL_SET_SLOTS;
        while slots[slot].is_some() {
            slot = (5 * slot + 1) % SMALL_SET_SLOTS;
        }
        slots[slot] = Some(color);
    }
    slots.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_colours_of_one_slot_keep_their_order_of_arrival() {
        assert_eq!(palette(&[8, 0, 0, 8], Ties::Cpython).colors(), [8, 0]);
        assert_eq!(palette(&[0, 8, 8, 0], Ties::Cpython).colors(), [0, 8]);
        assert_eq!(palette(&[1, 9], Ties::Cpython).colors(), [1, 9]);
        assert_eq!(palette(&[9, 1], Ties::Cpython).colors(), [9, 1]);
        assert_eq!(palette(&[9, 8, 1, 0], Ties::Cpython).colors(), [8, 9, 1, 0]);
        assert_eq!(palette(&[8, 0, 0, 8], Ties::Lowest).colors(), [0, 8]);
    }

    /// The digest is of `bytes(set(p))` for each `p` of `itertools.permutations(range(10), k)`, for k from 1 to 4,
    /// by CPython 3.11.
    #[test]
    fn all_5860_small_sets_iterate_as_in_cpython() {
        use gridpool_protocol::program::hex;
        use sha2::{Digest, Sha256};

        fn extend(arrivals: &[u8], length: usize, digest: &mut Sha256) {
            if arrivals.len() == length {
                digest.update(palette(arrivals, Ties::Cpython).colors());
                return;
            }
            for color in (0..10).filter(|color| !arrivals.contains(color)) {
                extend(&[arrivals, &[color]].concat(), length, digest);
            }
        }
        let mut digest = Sha256::new();
        for length in 1..=4 {
            extend(&[], length, &mut digest);
        }
        assert_eq!(
            hex(&digest.finalize()),
            "bbd15836338bf313115f50866e24d336768c7fe78bcd910743cb6ad7dc6bd02b"
        );
    }

    #[test]
    fn five_colours_ascend() {
        assert_eq!(palette(&[9, 8, 1, 0, 3], Ties::Cpython).colors(), [0, 1, 3, 8, 9]);
        let all: Vec<u8> = (0..10).rev().collect();
        assert_eq!(palette(&all, Ties::Cpython).colors(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn ties_go_to_the_first_in_order() {
        assert_eq!(mostcolor(&[8, 0], Ties::Cpython), Some(8));
        assert_eq!(leastcolor(&[8, 0], Ties::Cpython), Some(8));
        assert_eq!(mostcolor(&[0, 8], Ties::Cpython), Some(0));
        assert_eq!(mostcolor(&[8, 0], Ties::Lowest), Some(0));
        assert_eq!(mostcolor(&[5, 3, 3, 5, 1], Ties::Cpython), Some(3));
        assert_eq!(leastcolor(&[5, 3, 3, 5, 1], Ties::Cpython), Some(1));
        assert_eq!(mostcolor(&[7], Ties::Cpython), Some(7));
    }

    #[test]
    fn holes_are_no_colour() {
        let cells = [HOLE, 9, HOLE, 1, HOLE];
        assert_eq!(palette(&cells, Ties::Cpython).colors(), [9, 1]);
        assert_eq!(mostcolor(&cells, Ties::Cpython), Some(9));
        assert_eq!(leastcolor(&cells, Ties::Lowest), Some(1));
        assert_eq!((mostcolor(&[], Ties::Cpython), leastcolor(&[], Ties::Lowest)), (None, None));
        assert!(palette(&[], Ties::Cpython).colors().is_empty());
    }
}
