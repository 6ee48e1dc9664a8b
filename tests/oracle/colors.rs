//! Palettes, and the commonest and the rarest colour, under both tie modes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use gridpool_protocol::program::Ties;

use super::cells::Cells;
use super::python_set::PythonSet;

/// The distinct colours, in the order of `ties`.
#[must_use]
pub fn palette(cells: &Cells, ties: Ties) -> Vec<u8> {
    let colors = cells.values().copied();
    match ties {
        Ties::Cpython => colors.collect::<PythonSet>().iter().collect(),
        Ties::Lowest => colors.collect::<BTreeSet<u8>>().into_iter().collect(),
    }
}

/// `max(palette, key=count)`: the first of the most frequent colours; `None` without cells.
#[must_use]
pub fn most_common(cells: &Cells, ties: Ties) -> Option<u8> {
    palette(cells, ties).into_iter().min_by_key(|&color| Reverse(count(cells, color)))
}

/// `min(palette, key=count)`: the first of the least frequent colours; `None` without cells.
#[must_use]
pub fn least_common(cells: &Cells, ties: Ties) -> Option<u8> {
    palette(cells, ties).into_iter().min_by_key(|&color| count(cells, color))
}

/// How many cells have this colour.
#[must_use]
pub fn count(cells: &Cells, color: u8) -> usize {
    cells.values().filter(|&&c| c == color).count()
}
